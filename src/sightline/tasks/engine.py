"""Predicting with other engines: what was exported, or a run converted on the spot."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from sightline.data.tokenise import Tokeniser
from sightline.errors import UserError
from sightline.interop.engine import SOURCE, TARGET, CTranslate2Engine, OnnxEngine, engine_for, padded
from sightline.search import Hypothesis
from sightline.tasks.exporting import ABOUT, write_export
from sightline.tasks.predictor import BATCH_TOKENS, Member, Prediction, Predictor, asking, source_batches
from sightline.tasks.searching import SearchConfig
from sightline.tasks.translator import load_translator
from sightline.training.folder import verify_files
from sightline.vocabulary import END

EngineName = Literal["ctranslate2", "onnx"]


class EnginePredictor(Predictor):
    """A `Predictor` whose model is run by CTranslate2 or onnxruntime.

    With onnxruntime only the network is another one: search is ours, and so are its results. CTranslate2 searches by
    itself. Greedy outputs are the same; those of beams are as long as nothing is forced: it counts neither the tokens
    of a prefix nor an end that the longest length forces, so there it may choose another one.
    """

    def __init__(self, engine: CTranslate2Engine | OnnxEngine, source: Tokeniser, target: Tokeniser) -> None:
        self.engine, self.source, self.target = engine, source, target

    @property
    def members(self) -> tuple[Member, ...]:
        return ()

    def search(
        self,
        texts: Sequence[str],
        config: SearchConfig,
        *,
        prefixes: Sequence[str] | None = None,
        batch_tokens: int = BATCH_TOKENS,
        keep_unknown: bool = False,
        going: Callable[[], None] | None = None,
    ) -> list[list[Prediction]]:
        if isinstance(texts, str):
            raise UserError("texts is one text; expected a list of texts")
        if prefixes is not None and len(prefixes) != len(texts):
            raise UserError(f"prefixes has {len(prefixes)} entries; expected {len(texts)}, one for each text")
        if self.target.of_words and not keep_unknown:
            raise UserError(
                "this vocabulary is of whole words, and other engines do not say where the model looked, to copy "
                "unknown ones from the source; leave them as they are with --keep-unknown, or leave out --engine"
            )
        sources = self.source.encode(list(texts))
        forced = self.target.encode(list(prefixes or [""] * len(texts)))
        found = [[Prediction("", 0.0, 0.0)] for _ in texts]
        for chosen in source_batches([len(source) for source in sources], config.width, batch_tokens):
            batch, begun = [sources[row] for row in chosen], [forced[row] for row in chosen]
            if isinstance(self.engine, OnnxEngine):
                outputs = _search_onnx(self.engine, batch, begun, config, going)
            else:
                outputs = _search_ctranslate2(self.engine, batch, begun, config, going)
            for row, some in zip(chosen, outputs, strict=True):
                written = self.target.decode([one.tokens for one in some])
                found[row] = [
                    Prediction(text, one.log_prob, one.score, tuple(one.tokens))
                    for text, one in zip(written, some, strict=True)
                ]
        return found


@torch.inference_mode()
def _search_onnx(
    engine: OnnxEngine,
    sources: list[list[int]],
    prefixes: list[list[int]],
    config: SearchConfig,
    going: Callable[[], None] | None,
) -> list[list[Hypothesis]]:
    step: Any = engine.step if going is None else asking(engine.step, going)
    state = engine.begin(padded([[*source, END] for source in sources]))
    lengths = [len(source) for source in sources]
    return config.find(step, state, lengths, prefixes, config.generator(torch.device("cpu")))


def _search_ctranslate2(
    engine: CTranslate2Engine,
    sources: list[list[int]],
    prefixes: list[list[int]],
    config: SearchConfig,
    going: Callable[[], None] | None,
) -> list[list[Hypothesis]]:
    if config.sample:
        raise UserError("--sample draws with our own generator; leave out --engine, or use --engine onnx")
    if going is not None:
        going()
    # As in SearchConfig.find. A batch has one limit over there; what goes beyond its own is cut off.
    limits = [
        max(config.max_length or 3 * len(source) + 20, config.min_length, len(prefix))
        for source, prefix in zip(sources, prefixes, strict=True)
    ]
    found = engine.translate(
        sources,
        max(limits),
        rows=len(sources),
        prefixes=prefixes if any(prefixes) else None,
        least=config.min_length,
        beam_size=config.beam,
        num_hypotheses=config.best,
        length_penalty=config.length_penalty,
        no_repeat_ngram_size=config.no_repeat,
    )
    return [
        [one._replace(tokens=one.tokens[:limit]) for one in some] for some, limit in zip(found, limits, strict=True)
    ]


def load_engine(path: Path, name: EngineName, threads: int | None = None) -> EnginePredictor:
    """From an exported folder, or from a run, which is then converted for as long as it is used."""
    threads = threads or torch.get_num_threads()
    if (path / ABOUT).is_file():
        _check_engine(path, name)
        return _predictor(path, name, threads)
    translator, _ = load_translator(path)
    with tempfile.TemporaryDirectory() as folder:
        write_export(translator, name, Path(folder))
        return _predictor(Path(folder), name, threads)


def _predictor(folder: Path, name: EngineName, threads: int) -> EnginePredictor:
    engine = engine_for(name, folder, threads)
    assert isinstance(engine, CTranslate2Engine | OnnxEngine)
    return EnginePredictor(engine, Tokeniser.load(folder / SOURCE), Tokeniser.load(folder / TARGET))


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
