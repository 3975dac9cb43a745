"""How to search for outputs: in one place for Python and for the command line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from sightline.decoding.search import Hypothesis, Rules, Sampler, Step, beam_search, greedy
from sightline.errors import UserError
from sightline.state import State, select
from sightline.vocabulary import END, PADDING, START


@dataclass(frozen=True)
class SearchConfig:
    """A beam as wide as ``beam`` (1 is greedy), or with ``sample`` outputs drawn at random; the ``best`` of them.

    ``length_penalty`` ranks by log-probability ÷ length^penalty. ``min_length`` and ``max_length`` count tokens; left
    out, the longest is three times the source and twenty. ``no_repeat``: no run of so many tokens twice.
    ``coverage`` weighs what is subtracted from scores for attending to the same words of the source again.
    ``temperature`` below 1 makes samples likelier, ``top`` draws from so many tokens only, ``mass`` from the likeliest
    that have this much probability together. Samples of one call depend on its ``seed`` and all its texts.
    """

    beam: int = 5
    length_penalty: float = 1.0
    best: int = 1
    min_length: int = 0
    max_length: int | None = None
    no_repeat: int = 0
    sample: bool = False
    temperature: float = 1.0
    top: int | None = None
    mass: float = 1.0
    seed: int = 0
    coverage: float = 0.0

    def __post_init__(self) -> None:
        for name in ("beam", "best"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.sample and self.best > self.beam:
            raise UserError(f"best is {self.best} and beam {self.beam}; a beam keeps no more than its width: widen it")
        if self.max_length is not None and self.max_length < 1:
            raise UserError(f"max_length is {self.max_length}; it must be at least 1")
        for name in ("length_penalty", "temperature"):
            if not math.isfinite(getattr(self, name)):
                raise UserError(f"{name} is {getattr(self, name)}; it must be a finite number")
        if not 0 <= self.coverage < math.inf:
            raise UserError(f"coverage is {self.coverage}; it must be at least 0")
        if self.coverage and (self.sample or self.beam == 1):
            raise UserError("coverage ranks the hypotheses of a beam; use a beam above 1, without sample")
        if not self.sample and (self.temperature, self.top, self.mass) != (1.0, None, 1.0):
            raise UserError("temperature, top and mass are for drawing at random; ask for that with sample")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed is {self.seed}; it must be at least 0 and below 2^63")
        try:  # the rest is checked where it is used
            self._rules(self.min_length if self.max_length is None else self.max_length)
            self._sampler(None)
        except ValueError as error:
            raise UserError(str(error)) from None

    @property
    def width(self) -> int:
        """How many hypotheses of one text are in work at once."""
        return self.best if self.sample else self.beam

    def generator(self, device: torch.device) -> torch.Generator:
        """What samples are drawn with; one for a call, so that its batches differ."""
        return torch.Generator(device).manual_seed(self.seed)

    def limits(self, lengths: Sequence[int], prefixes: Sequence[Sequence[int]]) -> list[int]:
        """The maximum length of each output: by default three times the source and twenty tokens more."""
        return [
            max(self.max_length or 3 * length + 20, self.min_length, len(prefix))
            for length, prefix in zip(lengths, prefixes, strict=True)
        ]

    def find(
        self,
        step: Step[State],
        state: State,
        lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        generator: torch.Generator,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for sources of these lengths, which ``state`` begins with. Prefixes are obeyed first."""
        limits = self.limits(lengths, prefixes)
        rules, device = self._rules(max(limits)), generator.device
        if self.sample or self.beam == 1:
            owners = [row for row in range(len(limits)) for _ in range(self.best)]
            drawn = greedy(
                step,
                state if self.best == 1 else select(state, torch.tensor(owners, device=device)),
                len(owners),
                rules,
                prefixes=[prefixes[row] for row in owners],
                limits=[limits[row] for row in owners],
                device=device,
                sampler=self._sampler(generator) if self.sample else None,
            )
            hypotheses = [drawn[start : start + self.best] for start in range(0, len(drawn), self.best)]
            hypotheses = [sorted(some, key=lambda one: one.score, reverse=True) for some in hypotheses]
        else:
            hypotheses = beam_search(
                step,
                state,
                len(limits),
                rules,
                beam=self.beam,
                best=self.best,
                length_penalty=self.length_penalty,
                prefixes=prefixes,
                limits=limits,
                device=device,
            )
        if not all(some and math.isfinite(some[0].log_prob) for some in hypotheses):
            raise UserError(
                f"no output has at least {self.min_length} tokens and none of {self.no_repeat} in a row twice; "
                f"choose a smaller min_length or a larger no_repeat"
            )
        return hypotheses

    def _rules(self, longest: int) -> Rules:
        return Rules(START, END, self.min_length, longest, self.no_repeat, forbidden=(PADDING,))

    def _sampler(self, generator: torch.Generator | None) -> Sampler:
        return Sampler(self.temperature, self.top, self.mass, generator)


def pad(rows: Sequence[Sequence[int]]) -> Int[Tensor, "b t"]:
    """Rows of tokens as one tensor, filled up with padding."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PADDING] * (longest - len(row))] for row in rows])
