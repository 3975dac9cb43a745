"""From a file of pairs to a trained model: translate, normalise, transliterate. The same task, another metric."""

import gzip
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from sightline.config import Config
from sightline.data.batches import BatchPlan, collate
from sightline.data.checking import CheckedPairs, Limits, Report
from sightline.data.reading import PairFiles, read_rows
from sightline.data.splitting import split_pairs
from sightline.data.store import Corpus, write_corpus
from sightline.data.tokenise import Tokeniser, TokeniserConfig, train_tokenisers
from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.models.text_to_text import Loss, TextToText, TextToTextConfig
from sightline.models.transformer import TransformerConfig
from sightline.tasks.translator import SOURCE, TARGET, Translator, save_translator
from sightline.training import scores
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import Outcome, TrainingConfig, train
from sightline.vocabulary import PADDING

VALID = "valid.jsonl"
Metric = Literal["bleu", "chrf", "exact", "tokenised_bleu"]
Pairs = Callable[[], Iterator[tuple[str, str]]]
METRICS_BY_NAME: dict[str, Callable[[Sequence[str], Sequence[str]], scores.Score]] = {
    "bleu": scores.bleu,
    "chrf": scores.chrf,
    "exact": scores.exact_match,
    "tokenised_bleu": scores.tokenised_bleu,
}


@dataclass(frozen=True)
class TranslateConfig(Config):
    """Everything that decides a run, apart from the data."""

    model: TextToTextConfig = field(default_factory=TransformerConfig)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    batch_tokens: int = 4096
    smoothing: float = 0.1
    metric: Metric = "bleu"
    valid_share: float = 0.05
    validated: int = 500
    seed: int = 0
    family: ClassVar[str] = "task"

    def __post_init__(self) -> None:
        if self.batch_tokens < 1 or self.validated < 1:
            raise ValueError("batch_tokens and validated must be at least 1")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; it must be at least 0 and below 1")


@dataclass(frozen=True)
class Prepared:
    """Tokenisers, the training corpus on the disk, and the validation pairs."""

    source: Tokeniser
    target: Tokeniser
    corpus: Corpus
    valid: list[tuple[str, str]]
    report: Report | None


def checked(files: PairFiles, limits: Limits) -> tuple[Pairs, list[Report]]:
    """Good pairs of the files, as often as asked for, and the report of each reading."""
    reports: list[Report] = []

    def pairs() -> Iterator[tuple[str, str]]:
        reading = CheckedPairs(read_rows(files), limits)
        reports.append(reading.report)
        return reading

    return pairs, reports


def prepare(
    files: PairFiles, valid: PairFiles | None, config: TranslateConfig, folder: Path, limits: Limits
) -> Prepared:
    """Check, split, tokenise and store the data under ``folder``; what is there already is used again."""
    data = folder / "data"
    pairs, reports = checked(_kept(files, data), limits)
    if valid is not None:
        training: Pairs = pairs
        valid_pairs = list(checked(valid, limits)[0]())
    else:
        splitter = split_pairs(pairs, config.valid_share, config.seed)
        training = splitter.train
        valid_pairs = list(splitter.valid())
    if config.tokeniser.joint:
        source = target = train_tokenisers(_side(training, 0), _side(training, 1), config.tokeniser)[0]
    else:
        source, target = train_tokenisers(_side(training, 0), _side(training, 1), config.tokeniser)
    write_corpus(data / "train", _encoded(training, source, target))
    write_text(data / VALID, "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in valid_pairs))
    return Prepared(source, target, Corpus.open(data / "train"), valid_pairs, reports[0] if reports else None)


def _kept(files: PairFiles, folder: Path) -> PairFiles:
    """A pipe can be read once, and preparing reads several times: what comes from a pipe is kept in a file first."""
    if files.data != "-":
        return files
    pipe = sys.stdin.buffer
    # Two bytes tell gzip, one tells JSON from a table; a pipe cannot be asked to go back.
    head = pipe.read(2)
    rest: Any = _Rejoined(head, pipe)
    stream: Any = gzip.GzipFile(fileobj=rest, mode="rb") if head == b"\x1f\x8b" else rest
    first = stream.read(1)
    path = folder / ("pairs.jsonl" if first == b"{" else "pairs.tsv")
    with whole_file(path) as part, part.open("wb") as file:
        file.write(first)
        shutil.copyfileobj(stream, file)
    return PairFiles(data=str(path), columns=files.columns)


class _Rejoined:
    """A stream with the bytes that were read from it put back."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self.head, self.rest = head, rest

    def read(self, count: int = -1) -> bytes:
        if not self.head:
            return self.rest.read(count)
        found, self.head = (self.head, b"") if count < 0 else (self.head[:count], self.head[count:])
        return found + self.rest.read(-1) if count < 0 else found


def _side(pairs: Pairs, index: int) -> Callable[[], Iterator[str]]:
    return lambda: (pair[index] for pair in pairs())


def _encoded(
    pairs: Pairs, source: Tokeniser, target: Tokeniser, rows: int = 1000
) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids, some rows at a time: the tokeniser is fast on many, and memory stays flat."""
    waiting: list[tuple[str, str]] = []

    def flush() -> Iterator[tuple[list[int], list[int]]]:
        sides = source.encode([a for a, _ in waiting]), target.encode([b for _, b in waiting])
        yield from zip(*sides, strict=True)
        waiting.clear()

    for pair in pairs():
        waiting.append(pair)
        if len(waiting) == rows:
            yield from flush()
    yield from flush()


class TranslateLesson:
    """Batches, loss and score for the training loop."""

    def __init__(self, prepared: Prepared, config: TranslateConfig) -> None:
        self.prepared, self.config = prepared, config
        lengths = prepared.corpus.lengths()
        self.plan = BatchPlan(*lengths, tokens=config.batch_tokens, seed=config.seed, shuffle=True)
        rows = np.random.default_rng(config.seed).permutation(len(prepared.valid))[: config.validated]
        self.valid = [prepared.valid[row] for row in sorted(rows.tolist())]

    def epoch(self, number: int) -> list[np.ndarray]:
        return self.plan.epoch(number)

    def batch(self, handle: np.ndarray) -> tuple[Tensor, Tensor]:
        source, target = collate(self.prepared.corpus, handle)
        return torch.from_numpy(source), torch.from_numpy(target)

    def tokens(self, batch: tuple[Tensor, Tensor]) -> int:
        return int((batch[1][:, 1:] != PADDING).sum())

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        return model.loss(*batch, smoothing=self.config.smoothing)  # type: ignore[operator]

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric of greedy translations, and the perplexity of the references."""
        assert isinstance(model, TextToText)
        translator = Translator(model, self.prepared.source, self.prepared.target)
        sources, references = [a for a, _ in self.valid], [b for _, b in self.valid]
        found = [one.text for one in translator.predict(sources, beam=1)]
        value = METRICS_BY_NAME[self.config.metric](found, references).value
        return {self.config.metric: round(value, 3), "perplexity": round(translator.perplexity(self.valid), 3)}


def train_translate(
    files: PairFiles | None,
    out: Path,
    config: TranslateConfig,
    *,
    valid: PairFiles | None = None,
    limits: Limits | None = None,
    device: str = "cpu",
    on_report: Callable[[Prepared, TextToText], None] = lambda prepared, model: None,
    **listeners: Any,
) -> tuple[Translator, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None."""
    if files is None:
        folder = RunFolder.open(out)
        prepared = _prepared_before(folder, config)
        folder.unseal()
    else:
        was_there = out.exists()
        folder = RunFolder.create(out)
        try:
            prepared = prepare(files, valid, config, folder.path, limits or Limits())
        except BaseException:  # data that cannot be used leaves nothing behind, nor does an interrupt
            shutil.rmtree(out / "data" if was_there else out, ignore_errors=True)
            raise
    torch.manual_seed(config.seed)
    model = config.model.build(prepared.source.words, prepared.target.words)
    if files is not None:
        save_translator(folder, Translator(model, prepared.source, prepared.target), config, "untrained")
    on_report(prepared, model)
    fabric = Fabric(accelerator=device, devices=1)
    lesson = TranslateLesson(prepared, config)
    outcome = train(model, lesson, config.training, folder, fabric=fabric, **listeners)
    model.load_state_dict(outcome.weights)
    model.eval()
    translator = Translator(model, prepared.source, prepared.target)
    save_translator(folder, translator, config, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    folder.seal([CONFIG, MODEL, SOURCE, TARGET, METRICS])
    return translator, outcome


def _prepared_before(folder: RunFolder, config: TranslateConfig) -> Prepared:
    """What an earlier session prepared."""
    source, target = (Tokeniser.load(folder.path / name) for name in (SOURCE, TARGET))
    path = folder.path / "data" / VALID
    if not path.exists():
        raise UserError(f"{path} is missing: without its data the run cannot go on")
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    valid = [(a, b) for a, b in map(json.loads, lines)]
    return Prepared(source, target, Corpus.open(folder.path / "data" / "train"), valid, None)
