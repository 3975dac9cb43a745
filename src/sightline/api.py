"""The same as on the command line, in Python: `sightline.train(...)` and `sightline.load(...)`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.errors import UserError
from sightline.machine import choose_device
from sightline.tasks.presets import Preset, config_to_go_on, preset
from sightline.tasks.translate import TranslateConfig, train_translate
from sightline.tasks.translator import Translator, load_translator
from sightline.training.allocator import keep_memory

if TYPE_CHECKING:
    from sightline.interop.huggingface import HuggingFaceModel


def train(
    data: str | Path,
    out: str | Path,
    *,
    valid: str | Path | None = None,
    model: str | None = None,
    size: Preset = "tiny",
    start: str | Path | None = None,
    config: TranslateConfig | None = None,
    limits: Limits | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    device: str = "auto",
    **listeners: Any,
) -> Translator:
    """Train a model from text to text on a file of pairs, and give it back trained. ``out`` becomes its run folder.

    The configuration is that of ``model`` in its ``size``, or that of the run to ``start`` from, unless it is given
    whole.
    """
    keep_memory()
    if config is None:
        config = preset(model or "transformer", size) if start is None else config_to_go_on(Path(start))
    if model not in (None, config.model.kind):
        raise UserError(f"model is {model!r}, but the configuration or the run to start from has a {config.model.kind}")
    given = {"epochs": epochs, "steps": steps, "minutes": minutes}
    changed = {name: value for name, value in given.items() if value is not None}
    config = replace(config, training=replace(config.training, **changed))  # type: ignore[arg-type]
    files = PairFiles(data=str(data))
    valid_files = None if valid is None else PairFiles(data=str(valid))
    earlier = None if start is None else Path(start)
    translator, _ = train_translate(
        files,
        Path(out),
        config,
        valid=valid_files,
        limits=limits,
        start=earlier,
        device=choose_device(device),
        **listeners,
    )
    return translator


def load(run: str | Path) -> Translator:
    """A trained model from its run folder. The folder may come from a stranger: nothing in it can run code."""
    if str(run).startswith("hf:"):
        raise UserError(f"{run} is a model of Hugging Face's; sightline.load_huggingface looks into those")
    keep_memory()
    translator, _ = load_translator(Path(run))
    return translator


def load_huggingface(folder: str | Path) -> "HuggingFaceModel":
    """A model of Hugging Face's from a folder on the disk, to look into: `explain` shows where it looks."""
    from sightline.interop.huggingface import load as load_folder

    keep_memory()
    return load_folder(folder)
