"""From plain text to an encoder that has read it: words are hidden, and the model learns to say what they were.

The run is a beginning for others: `--from RUN` gives its weights and its vocabulary to `classify`, `tag`, `span` and to
the encoder of `translate`. That is why the encoder has the shape of the translating Transformer's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from torch import nn

from sightline.data.checking import Limits
from sightline.data.labelled import Example
from sightline.data.masking import Handle, MaskedBlocks, MaskingConfig
from sightline.data.plain import CheckedTexts, PlainFile, PlainReport, read_plain
from sightline.data.store import Corpus, write_corpus
from sightline.data.stratified import LEAST_TEXTS, StratifiedSplit, split_examples
from sightline.data.texts import TextReader
from sightline.data.tokenise import train_tokeniser
from sightline.errors import UserError
from sightline.models.encoder import EncoderConfig
from sightline.models.masked import MaskedWords
from sightline.models.text_to_text import Loss
from sightline.tasks.card import Wording
from sightline.tasks.classifier import TOKENISER, about_reader
from sightline.tasks.course import Course, ReadingConfig, course_trial, fitted_to_pairs, train_course
from sightline.tasks.filling import Reader, build_masked, encoded, load_pretrain, score, to_batch
from sightline.tasks.latent import begin_with, text_rows, word_vectors
from sightline.tasks.preparing import keep_pipe
from sightline.tasks.starting import ENCODER, PRETRAIN
from sightline.tasks.table import Trial
from sightline.training.folder import MODEL, RunFolder, save_tensors
from sightline.training.loop import Outcome, TrainingConfig
from sightline.vocabulary import MASK, Specials


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=1000, weight_decay=0.01, patience=10, averaged=3)


@dataclass(frozen=True)
class PretrainConfig(ReadingConfig):
    """``next_sentence`` asks as well whether one piece of text follows another.

    ``paragraphs``: lines of a .txt file belong together up to an empty one. ``validated`` counts blocks of text.
    ``latent``: words begin with vectors that tell in which texts they stand (`sightline.tasks.latent`), where there are
    enough texts and words; not with random ones.
    """

    training: TrainingConfig = field(default_factory=_training)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    next_sentence: bool = False
    paragraphs: bool = False
    latent: bool = True
    valid_share: float = 0.02
    validated: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, EncoderConfig):
            raise ValueError(f"pre-training is of an encoder, and model is {self.model.kind!r}; leave it out")
        if self.lora is not None:
            raise ValueError("lora is for what comes after pre-training; leave it out")
        if self.masking.pairs:
            raise ValueError("masking.pairs is true; ask for next_sentence=true instead, which makes pairs")
        if self.model.positions == "learned" and self.masking.length > self.model.longest:
            raise ValueError(
                f"masking.length is {self.masking.length}; the model has positions for {self.model.longest}"
            )

    @property
    def hiding(self) -> MaskingConfig:
        """How words are hidden, in pairs of texts or not."""
        return replace(self.masking, pairs=self.next_sentence)


@dataclass(frozen=True)
class PreparedPlain:
    """How texts are read, and the texts to train and to validate on, on the disk.

    ``vectors`` are those that words begin with, for a new model and where there are any.
    """

    reader: TextReader
    corpus: Corpus
    valid: Corpus
    vectors: Float32[np.ndarray, "words size"] | None = None
    report: PlainReport | None = None
    valid_report: PlainReport | None = None
    overlap: None = None

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        if self.vectors is not None:
            found.append("words begin with vectors that tell in which texts they stand (latent)")
        return found

    def summary(self) -> str:
        """One line of what is trained on."""
        tokens = int(self.corpus.lengths()[0].sum())
        return (
            f"{len(self.corpus):,} texts of {tokens:,} tokens to train on, {len(self.valid):,} to validate; "
            f"{self.reader.tokeniser.words:,} different tokens"
        )


@dataclass(frozen=True)
class Blocks:
    """A batch before it is made."""

    handle: Handle

    def __len__(self) -> int:
        return len(self.handle.blocks)


class PretrainLesson:
    """Batches, loss and score for the training loop."""

    def __init__(self, prepared: PreparedPlain, config: PretrainConfig) -> None:
        reader, masking = prepared.reader, config.hiding
        rows = max(1, min(config.batch_rows, config.batch_tokens // masking.length))
        shape = (reader.words, reader.specials, masking, rows)
        self.blocks = MaskedBlocks(prepared.corpus, *shape, config.seed)
        # Another seed, and always its first epoch: the same words are asked for at every validation.
        held_out = MaskedBlocks(prepared.valid, *shape, config.seed + 1)
        self.valid = [to_batch(held_out, one) for one in held_out.epoch(0)[: max(1, config.validated // rows)]]

    def epoch(self, number: int) -> list[Blocks]:
        return [Blocks(handle) for handle in self.blocks.epoch(number)]

    def batch(self, handle: Blocks) -> tuple[Any, ...]:
        return to_batch(self.blocks, handle.handle)

    def tokens(self, batch: tuple[Any, ...]) -> int:
        return len(batch[2])

    def loss(self, model: nn.Module, batch: tuple[Any, ...]) -> Loss:
        return model.loss(*batch)  # type: ignore[operator]

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The share of hidden words that are guessed, and the perplexity of what stood there."""
        assert isinstance(model, MaskedWords)
        return score(model, self.valid)


@dataclass(frozen=True)
class _Again:
    """Texts that can be read again."""

    begin: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.begin()


class PretrainCourse(Course[PretrainConfig, PreparedPlain, Reader]):
    task, counted = PRETRAIN, "hidden word"

    def prepare(self, files: PlainFile, valid: PlainFile | None, folder: Path) -> PreparedPlain:
        data, config = folder / "data", self.config
        if files.data == "-":
            kept = Path(keep_pipe("-", data))
            files = replace(files, data=str(kept if kept.suffix == ".jsonl" else kept.rename(data / "texts.txt")))
        files = replace(files, paragraphs=config.paragraphs)
        reports: list[PlainReport] = []

        def texts() -> Iterator[str]:
            reading = CheckedTexts(read_plain(files), self.limits)
            reports.append(reading.report)
            return reading

        training, valid_report = texts, None
        if valid is None:
            split = self._split(texts, reports)

            def training() -> Iterator[str]:
                return (example.text for example in split.train())

            held_out = [example.text for example in split.valid()]
        else:
            for _ in texts():
                pass
            other = CheckedTexts(read_plain(replace(valid, paragraphs=config.paragraphs)), self.limits)
            held_out, valid_report = list(other), other.report
        if self.earlier is None:
            tokeniser = train_tokeniser(_Again(training), config.tokeniser, mask=True)
            reader = TextReader(tokeniser, Specials(mask=MASK))
        else:
            reader = self.earlier.reader
            if reader.specials.mask is None:
                raise UserError(f"{self.earlier.path} has no token for hidden words (<mask>): pre-training needs one")
        if config.next_sentence and self.earlier is None:
            self.config = replace(config, model=fitted_to_pairs(config.model))
        corpus = write_corpus(data / "train", encoded(reader, training))
        valid_corpus = write_corpus(data / "valid", encoded(reader, lambda: iter(held_out)))
        vectors = self._vectors(corpus, reader.words) if self.earlier is None and config.latent else None
        return PreparedPlain(reader, corpus, valid_corpus, vectors, reports[0], valid_report)

    def _vectors(self, corpus: Corpus, words: int) -> Float32[np.ndarray, "words size"] | None:
        assert isinstance(self.config.model, EncoderConfig)
        return word_vectors(text_rows(corpus, self.config.seed), words, self.config.model.size, self.config.seed)

    def _split(self, texts: Callable[[], Iterator[str]], reports: list[PlainReport]) -> StratifiedSplit:
        try:
            return split_examples(
                lambda: (Example(text, None, "text") for text in texts()), self.config.valid_share, self.config.seed
            )
        except UserError:
            if reports and 0 < reports[-1].pairs < LEAST_TEXTS:
                report = reports[-1]
                bad = f" besides those that cannot be used ({'; '.join(report.places[:3])})" if report.bad else ""
                raise UserError(
                    f"found {report.pairs} texts{bad}; expected at least {LEAST_TEXTS}, to keep some apart: "
                    "write a text a line, or give text to validate on (--valid)"
                ) from None
            raise

    def reopen(self, folder: Path) -> PreparedPlain:
        before, _ = load_pretrain(folder)
        reader = before.reader
        self.config = replace(self.config, model=before.config.model)  # fitted to pairs, or not
        return PreparedPlain(reader, Corpus.open(folder / "data" / "train"), Corpus.open(folder / "data" / "valid"))

    def lesson(self, prepared: PreparedPlain) -> PretrainLesson:
        return PretrainLesson(prepared, self.config)

    def new_model(self, prepared: PreparedPlain) -> MaskedWords:
        model = build_masked(self.config, prepared.reader)
        if prepared.vectors is not None:
            begin_with(model.encoder.embedding, prepared.vectors)
        if self.earlier is not None:
            self.earlier.put_into(model, prefix=ENCODER)
        return model

    def finished(self, model: nn.Module, prepared: PreparedPlain, out: Path) -> Reader:
        assert isinstance(model, MaskedWords)
        return Reader(model, prepared.reader, self.config, str(out), out)

    def save(self, folder: RunFolder, found: Reader, weights: str) -> None:
        save_tensors(folder.path / MODEL, dict(found.model.state_dict()))
        found.reader.tokeniser.save(folder.path / TOKENISER)
        about = {"task": PRETRAIN, "weights": weights, **about_reader(found.reader)}
        folder.write_config({**about, "config": self.config.to_json()})

    def wording(self, folder: RunFolder, found: Reader, prepared: PreparedPlain) -> Wording:
        return Wording(
            "that learnt from plain text which words were hidden",
            "texts",
            "On text kept apart: the share of hidden words guessed (in per cent), and the perplexity of what stood "
            "there.",
            "texts it saw have at most {longest:,} characters.",
            (
                "It is a beginning, not a system: `sightline train classify --from` (or tag, span, translate) goes on.",
                "It has learnt what stands in its texts, with all that is wrong in them.",
            ),
        )


def train_pretrain(
    files: PlainFile | None,
    out: Path,
    config: PretrainConfig,
    *,
    limits: Limits | None = None,
    start: Path | None = None,
    **options: Any,
) -> tuple[Reader, Outcome]:
    """Pre-train a new run in ``out``, or go on with the one that is there when ``files`` is None."""
    return train_course(PretrainCourse(config, limits, start), files, out, start=start, **options)


def pretrain_trial(
    files: PlainFile,
    valid: PlainFile | None,
    config: PretrainConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What pre-training would begin with."""
    return course_trial(PretrainCourse(config, limits, start), files, valid, folder)
