"""Predicting with other engines: what was exported, or a run converted on the spot."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sightline.decoding.search import Hypothesis, Step
from sightline.errors import UserError
from sightline.export.engine import SOURCE, TARGET, CTranslate2Engine, OnnxEngine, engine_for
from sightline.export.writing import ABOUT, write_export
from sightline.inputs.text import SourceText
from sightline.outputs.sequence import SequenceOptions
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.run import Run
from sightline.tasks.translate import TRANSLATE
from sightline.text.tokeniser import Tokeniser
from sightline.training.folder import verify_files

EngineName = Literal["ctranslate2", "onnx"]


class EngineOutput(TranslationOutput):
    """Outputs that another engine's model writes.

    With onnxruntime only the network is another one: search is ours, and so are its results. CTranslate2 searches by
    itself. Greedy outputs are the same; those of beams are as long as nothing is forced: it counts neither the tokens
    of a prefix nor an end that the longest length forces, so there it may choose another one.
    """

    def search(self, run: Run, sizes: Sequence[int], batch: Tensor, options: SequenceOptions) -> list[list[Hypothesis]]:
        if self.tokeniser.of_words and not options.keep_unknown:
            raise UserError(
                "this vocabulary is of whole words, and other engines do not say where the model looked, to copy "
                "unknown ones from the source; leave them as they are with --keep-unknown, or leave out --engine"
            )
        assert isinstance(run.model, EngineModel)
        if isinstance(run.model.engine, OnnxEngine):
            return super().search(run, sizes, batch, options)
        return self._translated(run.model.engine, sizes, batch, options)

    def _translated(
        self, engine: CTranslate2Engine, sizes: Sequence[int], batch: Tensor, options: SequenceOptions
    ) -> list[list[Hypothesis]]:
        if options.sample:
            raise UserError("--sample draws with our own generator; leave out --engine, or use --engine onnx")
        if options.going is not None:
            options.going()
        forced = self.forced(options, len(sizes))
        # As in SearchConfig.find. A batch has one limit over there; what goes beyond its own is cut off.
        limits = options.limits(sizes, forced)
        found = engine.translate(
            [row[:size] for row, size in zip(batch.tolist(), sizes, strict=True)],
            max(limits),
            rows=len(sizes),
            prefixes=forced if any(forced) else None,
            least=options.min_length,
            beam_size=options.beam,
            num_hypotheses=options.best,
            length_penalty=options.length_penalty,
            no_repeat_ngram_size=options.no_repeat,
        )
        return [
            [one._replace(tokens=one.tokens[:limit]) for one in some] for some, limit in zip(found, limits, strict=True)
        ]


class EngineModel(nn.Module):
    """What search needs of a model, from an engine."""

    def __init__(self, engine: CTranslate2Engine | OnnxEngine) -> None:
        super().__init__()
        self.engine = engine
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)  # tells on which device it is

    def searching(self, batch: Tensor) -> tuple[Step, Any]:
        assert isinstance(self.engine, OnnxEngine)
        return self.engine.step, self.engine.begin(batch)


def load_engine(path: Path, name: EngineName, threads: int | None = None) -> Run:
    """From an exported folder, or from a run, which is then converted for as long as it is used."""
    threads = threads or torch.get_num_threads()
    if (path / ABOUT).is_file():
        _check_engine(path, name)
        return _run(path, name, threads)
    with tempfile.TemporaryDirectory() as folder:
        write_export(Run.load(path), name, Path(folder))
        return _run(Path(folder), name, threads)


def _run(folder: Path, name: EngineName, threads: int) -> Run:
    engine = engine_for(name, folder, threads)
    assert isinstance(engine, CTranslate2Engine | OnnxEngine)
    source, target = (Tokeniser.load(folder / side) for side in (SOURCE, TARGET))
    variant = TRANSLATE.variants[0]
    return Run(
        TRANSLATE, variant, EngineModel(engine), SourceText(None, source), EngineOutput(None, target), TaskConfig()
    )


READ_BY_ENGINES = (".bin", ".onnx", ".data", ".json")


def _check_engine(path: Path, name: EngineName) -> None:
    """It is of this engine, and every file is what was written: CTranslate2's own reader dies of damaged weights."""
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        found, files = about["export"], about["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path / ABOUT} is damaged: export the run anew") from None
    if found != name:
        raise UserError(f"{path} was exported to {found}, and --engine is {name}; export the run to {name}")
    verify_files(path, files, ABOUT)
    read = {file.name for file in path.iterdir() if file.suffix in READ_BY_ENGINES} - {ABOUT}
    if unlisted := sorted(read - set(files)):
        raise UserError(f"{path / ABOUT} is damaged: it has no checksum of {unlisted[0]}; export the run anew")
