"""The same as on the command line, in Python: `sightline.train(...)` and `sightline.load(...)`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.data.answers import AnswersFile
from sightline.data.checking import Limits
from sightline.data.grids import GridFile
from sightline.data.image_tables import is_image_data
from sightline.data.labelled import LabelKind, LabelledFile
from sightline.data.plain import PlainFile
from sightline.data.reading import PairFiles
from sightline.data.tagged import TaggedFile
from sightline.errors import UserError
from sightline.machine import choose_device
from sightline.tasks.table import task_named, task_of
from sightline.training.allocator import keep_memory

if TYPE_CHECKING:
    from sightline.interop.huggingface import HuggingFaceModel
    from sightline.tasks.classify import ClassifyConfig
    from sightline.tasks.course import ReadingConfig
    from sightline.tasks.presets import Preset
    from sightline.tasks.translate import TranslateConfig

LABELLING = ("classify", "classify_images")


def train(
    data: str | Path,
    out: str | Path,
    *,
    task: str = "translate",
    valid: str | Path | None = None,
    model: str | None = None,
    size: "Preset" = "tiny",
    start: str | Path | None = None,
    config: "TranslateConfig | ClassifyConfig | ReadingConfig | None" = None,
    columns: tuple[str, ...] | None = None,
    labels: LabelKind | None = None,
    separator: str | None = None,
    limits: Limits | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    device: str = "auto",
    **listeners: Any,
) -> Any:
    """Train a model on a file, and give it back trained: a `Translator`, a `Classifier` and so on.

    ``out`` is its run folder. The configuration is that of ``model`` in its ``size``, or that of the run to ``start``
    from, unless it is given whole. ``columns`` are those of the file; ``labels`` (one, several, number) and
    ``separator`` are for ``task="classify"``.
    """
    from sightline.tasks.launching import train_together

    keep_memory()
    if task == "classify" and is_image_data(str(data), columns):
        task = "classify_images"
    chosen = task_named(task)
    if config is not None and not isinstance(config, chosen.config):
        raise UserError(f"config is a {type(config).__name__}; {task} takes a {chosen.config.__name__}")
    whole: Any = config
    if whole is None:
        whole = chosen.preset(model, size) if start is None else chosen.go_on(Path(start))
    if model not in (None, whole.model.kind):
        raise UserError(f"model is {model!r}, but the configuration or the run to start from has a {whole.model.kind}")
    given = {"epochs": epochs, "steps": steps, "minutes": minutes}
    changed = {name: value for name, value in given.items() if value is not None}
    whole = replace(whole, training=replace(whole.training, **changed))
    if task in LABELLING:
        kind: LabelKind = labels or ("several" if separator else whole.labels)
        whole = whole if kind == whole.labels else replace(whole, labels=kind)
        make = _labelled(task, columns, kind, separator)
    elif labels is not None or separator is not None:
        raise UserError("labels and separator are for task='classify'")
    else:
        make = _unlabelled(task, columns)
    files, valid_files = (None if name is None else make(str(name)) for name in (data, valid))
    images = listeners.pop("on_images", None)
    fresh = {"valid": valid_files, "limits": limits, "start": None if start is None else Path(start)}
    found = train_together(
        chosen,
        files,
        Path(out),
        whole,
        device=choose_device(device),
        fresh=fresh if images is None else {**fresh, "on_images": images},
        **listeners,
    )
    return chosen.load(Path(out))[0] if found is None else found[0]


def _labelled(
    task: str, columns: tuple[str, ...] | None, kind: LabelKind, separator: str | None
) -> Callable[[str], Any]:
    """What makes files of texts, or of images, with labels."""
    if task == "classify":
        return lambda name: LabelledFile(name, columns, kind, separator)
    from sightline.tasks.image_data import ImageLabelFile

    return lambda name: ImageLabelFile(name, columns, kind, separator)


def _unlabelled(task: str, columns: tuple[str, ...] | None) -> Callable[[str], Any]:
    """What makes the files of the other tasks."""
    if task == "caption":
        from sightline.tasks.caption_data import CaptionFile

        return lambda name: CaptionFile(name, columns)  # type: ignore[arg-type]
    kinds: dict[str, Any] = {"pretrain": PlainFile, "tag": TaggedFile, "span": AnswersFile, "grid": GridFile}
    if task in kinds:
        return lambda name: kinds[task](name, columns)
    given: dict[str, Any] = {} if columns is None else {"columns": columns}
    return lambda name: PairFiles(name, **given)


def load(run: str | Path) -> Any:
    """A trained model from its run folder: a `Translator`, a `Classifier` and so on, as the run's task is.

    The folder may come from a stranger: nothing in it can run code.
    """
    if str(run).startswith("hf:"):
        raise UserError(f"{run} is a model of Hugging Face's; sightline.load_huggingface looks into those")
    keep_memory()
    found, _ = task_named(task_of(Path(run))).load(Path(run))
    return found


def load_huggingface(folder: str | Path) -> "HuggingFaceModel":
    """A model of Hugging Face's from a folder on the disk, to look into: `explain` shows where it looks."""
    from sightline.interop.huggingface import load as load_folder

    keep_memory()
    return load_folder(folder)
