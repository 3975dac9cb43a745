"""Predicting with other engines: an export, or a run that is converted first."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from sightline.decoding.search import Hypothesis, Step
from sightline.errors import UserError
from sightline.export.engine import SOURCE, TARGET, CTranslate2Engine, OnnxEngine, engine_for
from sightline.export.writing import ABOUT, write_export
from sightline.files import read_json
from sightline.inputs.base import SomeInput
from sightline.inputs.text import SourceText
from sightline.outputs.base import SomeOutput
from sightline.outputs.searched import SequenceOptions
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.run import Run
from sightline.tasks.translate import TRANSLATE
from sightline.text.tokeniser import Tokeniser
from sightline.training.folder import verify_files

EngineName = Literal["ctranslate2", "onnx"]


class EngineOutput(TranslationOutput):
    """Outputs of another engine.

    onnxruntime computes the network only: search and its results are ours. CTranslate2 has its own search. Greedy
    outputs are the same; so are those of beams unless something is forced: it scores neither the tokens of a prefix nor
    an end that the maximum length forces, so it may choose another output there.
    """

    def search(
        self, run: Run, sizes: Sequence[int], batch: Tensor, options: SequenceOptions, forced: Sequence[Sequence[int]]
    ) -> list[list[Hypothesis]]:
        if options.coverage:
            raise UserError("--coverage needs attention, which other engines do not give; leave out --engine")
        if self.tokeniser.of_words and not options.keep_unknown:
            raise UserError(
                "this vocabulary is of whole words, and other engines give no attention to copy unknown words from the "
                "source by; keep unknown words with --keep-unknown, or leave out --engine"
            )
        assert isinstance(run.model, EngineModel)
        if isinstance(run.model.engine, OnnxEngine):
            return super().search(run, sizes, batch, options, forced)
        return self._translated(run.model.engine, sizes, batch, options, forced)

    def _translated(
        self,
        engine: CTranslate2Engine,
        sizes: Sequence[int],
        batch: Tensor,
        options: SequenceOptions,
        forced: Sequence[Sequence[int]],
    ) -> list[list[Hypothesis]]:
        if options.sample:
            raise UserError("--sample needs our own search; leave out --engine, or use --engine onnx")
        if options.going is not None:
            options.going()
        # As in SearchConfig.find. A batch has one limit in CTranslate2; longer outputs are truncated.
        limits = options.limits(sizes, forced)
        outputs = engine.translate(
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
            [one._replace(tokens=one.tokens[:limit]) for one in some]
            for some, limit in zip(outputs, limits, strict=True)
        ]


class EngineModel(nn.Module):
    """An engine as a model that search can use."""

    def __init__(self, engine: CTranslate2Engine | OnnxEngine) -> None:
        super().__init__()
        self.engine = engine
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)  # gives the device

    def searching(self, batch: Tensor) -> tuple[Step, Any]:
        assert isinstance(self.engine, OnnxEngine)
        return self.engine.step, self.engine.begin(batch)


def load_engine(path: Path, name: EngineName, threads: int | None = None) -> Run:
    """From an exported folder, or from a run, which is converted in a temporary folder."""
    threads = threads or torch.get_num_threads()
    if (path / ABOUT).is_file():
        _check_engine(path, name)
        return _run(path, name, threads)
    with tempfile.TemporaryDirectory() as folder:
        write_export(Run.load(path), name, Path(folder))
        return _run(Path(folder), name, threads)


def engine_of(path: Path) -> EngineName | None:
    """The engine that an exported folder was made for; None for a run."""
    if not (path / ABOUT).is_file():
        return None
    engine, _ = _about(path)
    if engine not in get_args(EngineName):
        raise UserError(f"{path} was exported to {str(engine)[:60]}, which predict does not use; name the run")
    return engine


def _about(path: Path) -> tuple[Any, Any]:
    """The engine of an exported folder, and the checksums of its files."""
    try:
        about = read_json(path / ABOUT)
        return about["export"], about["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path / ABOUT} is damaged: export the run again") from None


def _run(folder: Path, name: EngineName, threads: int) -> Run:
    engine = engine_for(name, folder, threads)
    assert isinstance(engine, CTranslate2Engine | OnnxEngine)
    source, target = (Tokeniser.load(folder / side) for side in (SOURCE, TARGET))
    variant = TRANSLATE.variants[0]
    config = TaskConfig()
    input, output = cast("SomeInput", SourceText(config, source)), cast("SomeOutput", EngineOutput(config, target))
    return Run(TRANSLATE, variant, EngineModel(engine), input, output, config)


READ_BY_ENGINES = (".bin", ".onnx", ".data", ".json")


def _check_engine(path: Path, name: EngineName) -> None:
    """Check the engine and the checksums of all files: CTranslate2 crashes on damaged weights."""
    engine, files = _about(path)
    if engine != name:
        raise UserError(f"{path} was exported to {str(engine)[:60]}, and --engine is {name}; export the run to {name}")
    verify_files(path, files, ABOUT)
    read = {file.name for file in path.iterdir() if file.suffix in READ_BY_ENGINES} - {ABOUT}
    if unlisted := sorted(read - set(files)):
        raise UserError(f"{path / ABOUT} is damaged: it has no checksum of {unlisted[0]}; export the run again")
