"""Which layer, head and shift align best: by a few gold pairs, by a second direction, or by the effect of hiding words.

- Gold: the map with the lowest error rate, in each direction separately.
- Two directions: the two maps that agree best with each other and with hiding. Agreement alone is not enough: if both
  maps are off by one word in the same way, they agree as well as correct ones.
- Neither: the map that agrees best with hiding.

Hiding links each target word to the source word whose absence makes it least likely (`leave_one_out`), and weights the
link by this cost. A target word whose probability hardly changes carries no information; counted like the others, it
is noise, and the best map changes with the sample. Hiding needs as many passes as there are source words, so it is
measured on few pairs; but it depends on the words alone, not on layers or shifts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from sightline.align.aligning import (
    DEFAULT,
    Aligner,
    Alignment,
    Cuttings,
    MapSelector,
    Pair,
    Side,
    attentions_to_source,
    sides_of,
    tokenisers,
    weights_of_words,
)
from sightline.align.links import (
    AlignmentScore,
    GoldLinks,
    Symmetrising,
    all_agreements,
    all_error_rates,
    best_columns,
    score,
)
from sightline.errors import UserError
from sightline.explain.evidence.measures import SHIFTS, leave_one_out
from sightline.explain.evidence.subject import TextSubject
from sightline.text.words import Cutting, cutting_of
from sightline.vocabulary import END

if TYPE_CHECKING:
    from sightline.tasks.run import Run

SAMPLE = 200  # pairs on which two directions are compared
HIDDEN = 60  # pairs in which words are hidden
MOST = 5.0  # nats that a hidden word counts at most, so that a single word does not dominate
TUNED = 20  # gold pairs that choose; the others score
SHORT = 80  # most tokens of either side of a pair that is used to choose
By = Literal["gold", "agreement", "hiding", "given"]


@dataclass(frozen=True)
class Chosen:
    """The map of each direction, the criterion that chose it, and its score on this many pairs.

    ``score`` is the error rate if gold chose; else the agreement of both directions (F1), or with hiding.
    """

    selector: MapSelector
    reverse: MapSelector | None
    by: By
    score: float | None
    pairs: int
    reverse_score: float | None = None

    def __str__(self) -> str:
        maps = str(self.selector) if self.reverse is None else f"{self.selector} and {self.reverse}"
        if self.by == "given":
            return f"{maps}, as given"
        if self.by == "gold":
            other = "" if self.reverse_score is None else f" and {self.reverse_score:.1%}"
            return f"{maps}: the lowest error rate on {self.pairs:,} gold pairs, {self.score:.1%}{other}"
        if self.by == "agreement":
            return (
                f"{maps}: both directions agree best there, with F1 {self.score:.3f} on {self.pairs:,} pairs, and "
                f"with hiding source words"
            )
        return f"{maps}: the best agreement with hiding source words, {self.score:.3f} on {self.pairs:,} pairs"

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"by": self.by, "forward": self.selector.to_json()}
        if self.reverse is not None:
            data["reverse"] = self.reverse.to_json()
        if self.score is not None:
            data |= {"error_rate" if self.by == "gold" else "agreement": self.score, "pairs": self.pairs}
        if self.reverse_score is not None:
            data["reverse_error_rate"] = self.reverse_score
        return data


class _Cells(NamedTuple):
    """The links of every map, over all cells (target word, source word) of all pairs, pair after pair."""

    selectors: list[MapSelector]
    links: Bool[np.ndarray, "n c"]
    sizes: list[tuple[int, int]]  # of each pair: target words, source words

    def turned(self) -> Bool[np.ndarray, "n c"]:
        """The cells of a run from target to source, in the order of one from source to target."""
        parts, start = [], 0
        for rows, columns in self.sizes:
            part = self.links[:, start : start + rows * columns].reshape(-1, rows, columns)
            parts.append(part.transpose(0, 2, 1).reshape(len(part), -1))
            start += rows * columns
        return np.concatenate(parts, axis=1)


def cuttings_of(pairs: Sequence[Pair]) -> Cuttings:
    """How the words of each side are separated."""
    return cutting_of(source for source, _ in pairs), cutting_of(target for _, target in pairs)


def choose(
    run: "Run",
    pairs: Sequence[Pair],
    *,
    reverse: "Run | None" = None,
    gold: Sequence[GoldLinks] | None = None,
    use: MapSelector | None = None,
    reverse_use: MapSelector | None = None,
    cuttings: Cuttings = ("spaces", "spaces"),
) -> Chosen:
    """Choose the map of each direction. ``gold`` has the links of each pair; without it, a sample of the pairs decides.

    ``use`` and ``reverse_use`` are maps that are given, not chosen.
    """
    if gold is not None and len(gold) != len(pairs):
        raise UserError(f"there is gold for {len(gold):,} pairs; expected {len(pairs):,}, one for each")
    runs = [_Direction(run, False, cuttings, use)]
    if reverse is not None:
        runs.append(_Direction(reverse, True, (cuttings[1], cuttings[0]), reverse_use))
    if all(run.given is not None for run in runs):
        selectors = [run.candidates()[0] for run in runs]
        return Chosen(selectors[0], selectors[1] if reverse is not None else None, "given", None, 0)
    kept = [number for number, pair in enumerate(pairs) if all(run.can_try(pair) for run in runs)]
    if gold is None and len(kept) > SAMPLE:
        kept = [kept[i] for i in np.linspace(0, len(kept) - 1, SAMPLE).astype(int)]
    if not kept:
        raise UserError(
            f"there is no pair to choose by: expected text on both sides, and at most {SHORT} tokens; give more pairs, "
            "or name the attention to use"
        )
    some = [pairs[number] for number in kept]
    cells = [run.links(some) for run in runs]
    if gold is not None:
        known = [gold[number] for number in kept]
        best = [run.best_by_gold(own, known) for run, own in zip(runs, cells, strict=True)]
        other: tuple[MapSelector | None, float | None] = best[1] if reverse is not None else (None, None)
        return Chosen(best[0][0], other[0], "gold", best[0][1], len(some), other[1])
    hidden = [run.agreement_with_hiding(own, some[:HIDDEN]) for run, own in zip(runs, cells, strict=True)]
    if reverse is None:
        row = int(hidden[0].argmax())
        return Chosen(cells[0].selectors[row], None, "hiding", float(hidden[0][row]), min(len(some), HIDDEN))
    # The maps of both directions that agree best with each other, and each with hiding in its own direction.
    agreements = all_agreements(cells[0].links, cells[1].turned())
    together = agreements + hidden[0][:, None] + hidden[1][None]
    row, column = (int(index) for index in np.unravel_index(int(together.argmax()), together.shape))
    agreement = float(agreements[row, column])
    return Chosen(cells[0].selectors[row], cells[1].selectors[column], "agreement", agreement, len(some))


@dataclass(frozen=True)
class _Direction:
    """A run and its view of the pairs; ``turned``: it reads the target and writes the source."""

    run: "Run"
    turned: bool
    cuttings: Cuttings
    given: MapSelector | None

    def candidates(self) -> list[MapSelector]:
        """Every map, the run's own shift first: among equal maps the first is chosen."""
        there = attentions_to_source(self.run)
        if self.given is not None:
            return [there.check(self.given)]
        own = getattr(self.run.output, "shift", 0)
        return there.selectors(sorted(SHIFTS, key=lambda shift: (shift != own, abs(shift))))

    def can_try(self, pair: Pair) -> bool:
        """Whether there are words on both sides, and few enough to try every map."""
        sides = zip(tokenisers(self.run), self._texts(pair), strict=True)
        return all(text.strip() and len(tokeniser.encode([text])[0]) <= SHORT for tokeniser, text in sides)

    def links(self, pairs: Sequence[Pair]) -> _Cells:
        """The links of every map for every pair."""
        selectors = self.candidates()
        of_pairs: list[np.ndarray] = [np.zeros(0)] * len(pairs)
        for row, weights in weights_of_words(self.run, *self._sides(pairs), selectors):
            of_pairs[row] = best_columns(weights)
        flat = np.concatenate([links.reshape(len(selectors), -1) for links in of_pairs], axis=1)
        return _Cells(selectors, flat, [(links.shape[1], links.shape[2]) for links in of_pairs])

    def best_by_gold(self, cells: _Cells, gold: Sequence[GoldLinks]) -> tuple[MapSelector, float]:
        """The map with the lowest error rate, and the rate."""
        sides: list[list[np.ndarray]] = [[], []]
        for size, one in zip(cells.sizes, gold, strict=True):
            for links, parts in zip((one.sure, one.possible), sides, strict=True):
                matrix = np.zeros(size, dtype=bool)
                for source, target in links:
                    matrix[(source, target) if self.turned else (target, source)] = True
                parts.append(matrix.ravel())
        sure, possible = (np.concatenate(parts) for parts in sides)
        rates = all_error_rates(cells.links, sure, possible)
        best = int(rates.argmin())
        return cells.selectors[best], float(rates[best])

    def agreement_with_hiding(self, cells: _Cells, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """For each map the fraction of the links of hiding that it has, weighted by cost, on these first pairs."""
        costs = [self._costs(source, target).ravel() for source, target in zip(*self._sides(pairs), strict=True)]
        flat = np.concatenate(costs)
        return cells.links[:, : len(flat)] @ flat / max(float(flat.sum()), 1e-9)

    def _costs(self, source: Side, target: Side) -> Float[np.ndarray, "t s"]:
        """The largest cost of hiding a source word for each target word; zero in all other cells."""
        model: Any = self.run.model
        subject = TextSubject(model, [*source.ids, END], [*target.ids, END])
        costs = np.maximum(np.nan_to_num(leave_one_out(subject, range(len(target.ids)))), 0.0)
        of_source = np.zeros((len(target.ids), len(source.words)))
        for piece, word, share in source.covered:
            of_source[:, word] += costs[:, piece] * share
        words, counts = np.zeros((len(target.words), len(source.words))), np.zeros((len(target.words), 1))
        for piece, word, _ in target.covered:
            words[word] += of_source[piece]
            counts[word] += 1
        words /= np.maximum(counts, 1)
        return best_columns(words) * np.minimum(words, MOST)

    def _sides(self, pairs: Sequence[Pair]) -> tuple[list[Side], list[Side]]:
        read, written = zip(*map(self._texts, pairs), strict=True)
        source, target = tokenisers(self.run)
        return sides_of(source, read, self.cuttings[0]), sides_of(target, written, self.cuttings[1])

    def _texts(self, pair: Pair) -> Pair:
        return (pair[1], pair[0]) if self.turned else pair


@dataclass(frozen=True)
class Alignments:
    """Alignments in the order of the pairs (None: too long), and the maps they come from."""

    alignments: list[Alignment | None]
    chosen: Chosen
    cuttings: Cuttings

    @property
    def agreement(self) -> AlignmentScore:
        """The agreement of both directions over all pairs."""
        return sum((one.agreement for one in self.alignments if one is not None), AlignmentScore())

    def score(self, gold: Sequence[GoldLinks]) -> AlignmentScore:
        """The score against gold links of the first pairs."""
        pairs = zip(self.alignments[: len(gold)], gold, strict=True)
        return sum((score(frozenset(one.links), truth) for one, truth in pairs if one is not None), AlignmentScore())


def align(
    run: "Run",
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    reverse: "Run | None" = None,
    gold: Sequence[GoldLinks] | None = None,
    symmetrise: Symmetrising = DEFAULT,
    threshold: float = 0.0,
    words: Cutting | Literal["auto"] = "auto",
    use: str | None = None,
    reverse_use: str | None = None,
) -> Alignments:
    """Word alignments of pairs by the attention of a run, or of two runs of opposite directions.

    Layer, head and shift are chosen by ``gold`` links of the first pairs, by the agreement of both directions, or by
    the effect of hiding words, unless ``use`` names them, such as ``decoder.2.cross:mean:0``.
    """
    if isinstance(sources, str) or isinstance(targets, str) or len(sources) != len(targets):
        raise UserError("sources and targets must be two lists of texts of the same length")
    pairs = list(zip(sources, targets, strict=True))
    cuttings: Cuttings = cuttings_of(pairs) if words == "auto" else (words, words)
    selectors = [None if text is None else MapSelector.parse(text) for text in (use, reverse_use)]
    tried = pairs if gold is None else pairs[: len(gold)]
    chosen = choose(
        run, tried, reverse=reverse, gold=gold, use=selectors[0], reverse_use=selectors[1], cuttings=cuttings
    )
    aligner = Aligner(run, chosen.selector, reverse, chosen.reverse, symmetrise, threshold, cuttings)
    return Alignments(aligner.align(pairs), chosen, cuttings)
