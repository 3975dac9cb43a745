"""How fast a run trains and predicts on this machine, how much memory that takes, and where the time goes."""

import copy
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from sightline.machine import forget_peak, peak_memory
from sightline.speed import Profile, profile_of, seconds_of
from sightline.tasks.preparing import prepared_before
from sightline.tasks.translate import TranslateConfig, TranslateLesson
from sightline.tasks.translator import Translator, load_translator
from sightline.training.steps import gradients, make_optimiser

BATCHES = 4  # of training, which repeat
SENTENCES = 64


@dataclass(frozen=True)
class Measured:
    """One kind of work: ``rate`` a second (median, and the slowest and fastest of the repeats), and peak memory."""

    name: str
    unit: str
    rate: float
    slowest: float
    fastest: float
    memory: int | None
    profile: Profile | None = None  # measured when all the rest is: a profile takes memory of its own

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        if self.profile is not None:
            data["profile"]["over_limit"] = self.profile.over_limit
        return data


class Work(NamedTuple):
    """Something to measure: what to do, how much of which unit that is, and whether to ask where its time goes."""

    name: str
    unit: str
    call: Callable[[], object]
    amount: int
    profiled: bool


def works(run: Path, beams: Sequence[int] = (1, 5)) -> list[Work]:
    """What is measured: training steps on the run's own batches, and its validation sentences predicted."""
    translator, about = load_translator(run)
    config = TranslateConfig.from_json(about["config"])
    prepared = prepared_before(run, config.tokeniser.dropout)
    lesson = TranslateLesson(prepared, config)
    step, tokens = _training(translator.model, lesson, config)
    found = [Work("training", "tokens", step, tokens, True)]
    texts = [text for text, _ in prepared.valid[:SENTENCES]]
    few = texts[:8]
    for beam in beams:
        how = "greedy" if beam == 1 else f"beam {beam}"
        together = _together(translator, texts, beam)
        found.append(Work(f"{how}, {len(texts)} together", "sentences", together, len(texts), True))
        found.append(Work(f"{how}, one by one", "sentences", _one_by_one(translator, few, beam), len(few), False))
    return found


def measure(work: Work, seconds: float) -> Measured:
    """Several repeats within about so many seconds; the first does not count."""
    forget_peak()
    times = seconds_of(work.call, seconds)
    memory = peak_memory()
    rates = sorted(work.amount / one for one in times)
    return Measured(work.name, work.unit, statistics.median(rates), rates[0], rates[-1], memory)


def profiled(work: Work, measured: Measured) -> Measured:
    """The same with where the time goes, if that was asked for."""
    return replace(measured, profile=profile_of(work.call, calls=1)) if work.profiled else measured


def _training(model: nn.Module, lesson: TranslateLesson, config: TranslateConfig) -> tuple[Callable[[], None], int]:
    """Steps of a copy of the model: the run itself stays as it is. The amount is the mean of a step."""
    trained = copy.deepcopy(model).requires_grad_(True).train()
    optimiser = make_optimiser(trained, config.training)
    batches = [lesson.batch(handle) for handle in lesson.epoch(0)[:BATCHES]]
    coming = itertools.cycle(batches)

    def steps() -> None:
        # All of the batches, so that every repeat is the same work.
        for batch in itertools.islice(coming, len(batches)):
            gradients(trained, optimiser, lesson, [batch], config.training)
            optimiser.step()

    return steps, sum(lesson.tokens(batch) for batch in batches)


def _together(translator: Translator, texts: Sequence[str], beam: int) -> Callable[[], object]:
    return lambda: translator.predict(texts, beam=beam, batch_tokens=1 << 20)


def _one_by_one(translator: Translator, texts: Sequence[str], beam: int) -> Callable[[], object]:
    return lambda: [translator.predict([text], beam=beam) for text in texts]


def threads_tried(most: int) -> list[int]:
    """1, 2, 4 … and as many as there are."""
    return sorted({most, *(2**i for i in range(most.bit_length()) if 2**i <= most)})


def rate_by_threads(work: Work, seconds: float) -> dict[int, float]:
    """The same work with fewer threads: small models may be faster so."""
    before = torch.get_num_threads()
    found = {}
    try:
        for threads in threads_tried(before):
            torch.set_num_threads(threads)
            found[threads] = work.amount / statistics.median(seconds_of(work.call, seconds, least=2))
    finally:
        torch.set_num_threads(before)
    return found
