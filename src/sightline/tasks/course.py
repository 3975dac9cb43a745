"""What the tasks that read texts share: their configuration, and the way from files to a run folder.

A task says in a `Course` how its data is prepared, what is learnt from it and what is left for people; `train_course`
does the rest, for a new run and for one that goes on.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from sightline.config import Config
from sightline.data.checking import Limits
from sightline.data.labelled import Example
from sightline.data.labels_checking import TEXT_LIMITS
from sightline.data.splitting import Overlap
from sightline.data.stratified import overlap_flags, text_key
from sightline.data.tokenise import TokeniserConfig
from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.layers.lora import LoraConfig, merge_lora
from sightline.models.encoder import EncoderConfig
from sightline.models.heads import Labeller
from sightline.models.text_to_labels import TextModelConfig
from sightline.tasks.card import ABOUT, CARD, CURVES, Wording, card, describe, table_section
from sightline.tasks.classifier import TOKENISER, adapt
from sightline.tasks.classify_data import KEYS
from sightline.tasks.starting import Start, read_start
from sightline.tasks.table import Trial
from sightline.training import scores
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import Lesson, Outcome, TrainingConfig, train
from sightline.view.curves import draw_curves



def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=5, averaged=3)


@dataclass(frozen=True)
class ReadingConfig(Config):
    """What decides a run of a task that reads texts, apart from the data.

    ``longest`` is how many tokens are read at once. ``lora``: of a model that began with an earlier one, only small
    products learn (`sightline.layers.lora`).
    """

    model: TextModelConfig = field(default_factory=EncoderConfig)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    training: TrainingConfig = field(default_factory=_training)
    dropout: float | None = None
    lora: LoraConfig | None = None
    longest: int = 512
    batch_tokens: int = 4096
    batch_rows: int = 32
    valid_share: float = 0.1
    validated: int = 2000
    seed: int = 0
    family: ClassVar[str] = "task"

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "batch_rows", "validated"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.longest < 8:
            raise ValueError(f"longest is {self.longest}; it must be at least 8")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed}; it must be at least 0 and below 2^63")
        if not (self.dropout is None or 0 <= self.dropout < 1):
            raise ValueError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        if getattr(self.model, "positions", None) == "learned" and self.longest > self.model.longest:  # type: ignore[attr-defined]
            raise ValueError(f"longest is {self.longest}; the model has positions for {self.model.longest}")  # type: ignore[attr-defined]


C = TypeVar("C", bound=ReadingConfig)
P = TypeVar("P")  # what was prepared
F = TypeVar("F")  # what was trained: predicts, and is saved and loaded


class Course(ABC, Generic[C, P, F]):
    """What a task says of its training. ``config`` may be fitted to the data when that has been read."""

    task: ClassVar[str]
    counted: ClassVar[str]  # what the loss is the mean over
    sealed: ClassVar[tuple[str, ...]] = ()  # files of the run besides those that every run has

    def __init__(self, config: C, limits: Limits | None = None, start: Path | None = None) -> None:
        self.config, self.limits = config, limits or TEXT_LIMITS
        self.earlier: Start | None = None if start is None else read_start(start, self.task)
        if self.earlier is not None:
            self.earlier.check_vocabulary(config.tokeniser)
        elif config.lora is not None:
            # Going on with a run of this kind begins with its checkpoints.
            self.needs_start = True

    needs_start = False

    @abstractmethod
    def prepare(self, files: Any, valid: Any, folder: Path) -> P:
        """Check, split, tokenise and store the data under ``folder``."""

    @abstractmethod
    def reopen(self, folder: Path) -> P:
        """What an earlier session prepared."""

    @abstractmethod
    def lesson(self, prepared: P) -> Lesson:
        """Batches, loss and score for the training loop."""

    @abstractmethod
    def new_model(self, prepared: P) -> nn.Module:
        """The model with its head, and with what the earlier run knew."""

    @abstractmethod
    def finished(self, model: nn.Module, prepared: P, out: Path) -> F:
        """The model as it is used."""

    @abstractmethod
    def save(self, folder: RunFolder, found: F, weights: str) -> None:
        """Everything that loading needs."""

    @abstractmethod
    def wording(self, folder: RunFolder, found: F, prepared: P) -> Wording:
        """What the card says."""

    def build(self, prepared: P) -> nn.Module:
        """By the seed, so that a run can be made again."""
        torch.manual_seed(self.config.seed)
        try:
            model = self.new_model(prepared)
            if self.config.lora is not None and isinstance(model, Labeller):
                adapt(model, self.config.lora)
        except (ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"there is no model with this configuration: {reason}") from None
        return model


def train_course(
    course: Course[Any, Any, F],
    files: Any,
    out: Path,
    *,
    valid: Any = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Callable[[Any, nn.Module], None] = lambda prepared, model: None,
    **listeners: Any,
) -> tuple[F, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None."""
    if files is None:
        folder = RunFolder.open(out)
        prepared = course.reopen(folder.path)
    else:
        prepared, folder = _prepare_new(course, files, valid, out)
    lesson = course.lesson(prepared)
    model = course.build(prepared)
    found = course.finished(model, prepared, out)
    on_report(prepared, model)
    if files is not None:
        folder.write_json(ABOUT, describe(prepared, files, valid, start, command))
        course.save(folder, found, "untrained")
    training = course.config.training.limited(len(lesson.epoch(0)))
    outcome = train(model, lesson, training, folder, device=device, **listeners)
    model.load_state_dict(outcome.weights)
    merge_lora(model)
    model.eval()
    course.save(folder, found, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    draw_curves(folder.metrics(), folder.path / CURVES, f"nats a {course.counted}")
    wording = course.wording(folder, found, prepared)
    write_text(folder.path / CARD, card(folder, course.config, model, outcome, wording))
    folder.seal([CONFIG, MODEL, TOKENISER, METRICS, *course.sealed])
    return found, outcome


def _prepare_new(course: Course[Any, P, Any], files: Any, valid: Any, out: Path) -> tuple[P, RunFolder]:
    _check_lora(course)
    with RunFolder.creating(out) as folder:
        prepared = course.prepare(files, valid, folder.path)
        course.build(prepared)  # what cannot be built is said now, while nothing stands yet
        return prepared, folder


def _check_lora(course: Course[Any, Any, Any]) -> None:
    if course.needs_start:
        raise UserError("lora adapts what was learnt before, and there is nothing here; say with --from what to adapt")


def course_trial(course: Course[Any, Any, Any], files: Any, valid: Any, folder: Path) -> Trial:
    """What training would begin with."""
    _check_lora(course)
    prepared = course.prepare(files, valid, folder)
    lesson, model = course.lesson(prepared), course.build(prepared)

    def validating() -> float:
        began = time.perf_counter()
        model.eval()
        with torch.no_grad():
            lesson.validate(model)
        model.train()
        return time.perf_counter() - began

    return Trial(prepared, lesson, model, validating, sum(map(len, lesson.epoch(0))))


def fitted_to_pairs(model: TextModelConfig) -> TextModelConfig:
    """A model that tells the two texts of a pair apart, where it can and does not yet."""
    for name, value in {"pairs": True, "parts": 2}.items():
        if getattr(model, name, value) in (False, 0):
            return replace(model, **{name: value})
    return model


def write_keys(data: Path, examples: Iterable[Example]) -> None:
    """What an evaluation tells texts of the training data by; those kept apart from it chose the weights, so they too
    are among them."""
    keys = np.unique(np.array([text_key(example) for example in examples], dtype=np.uint64))
    with whole_file(data / KEYS) as part:
        np.save(part, keys, allow_pickle=False)


def overlap_of(valid: Sequence[Example], training: Iterable[Example]) -> Overlap:
    """How much of validation data that was given stands in the training data."""
    found = sum(overlap_flags(valid, training))
    return Overlap(len(valid), found, found)


def overlap_lines(overlap: Overlap | None, rows: str) -> list[str]:
    """What there is to say of it."""
    if overlap is None or not overlap.pairs:
        return []
    return [
        f"of {overlap.evaluation:,} validation {rows}, {overlap.pairs:,} stand in the training data: scores on them "
        "flatter"
    ]
