"""Which layer, head and shift align best: by a few gold pairs, by a second direction, or by what hiding words costs.

- Gold: the place with the lowest error rate, in each direction by itself.
- Two directions: the two maps that agree best with each other and with hiding. Each other alone is not enough: a map
  of one direction that is a word off finds one of the other direction that is off alike, and moved by a word both ways
  two maps agree as well as before.
- Neither: the place that agrees best with hiding.

Hiding links each target word to the source word whose absence makes it least likely (`leave_one_out`), and a link
counts as much as it costs. Words that are written alike whatever is hidden say nothing; counted like the others they
are noise, and which place is best changes with the sample. Hiding needs as many passes as there are source words, so it
is measured on few pairs; but it is about the words themselves and knows neither layers nor shifts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from sightline.align.aligning import (
    DEFAULT,
    Aligner,
    Alignment,
    Cuttings,
    Pair,
    Place,
    Side,
    attentions_to_source,
    sides_of,
    tokenisers,
    weights_of_words,
)
from sightline.align.links import (
    AlignmentScore,
    Gold,
    Symmetrising,
    all_agreements,
    all_error_rates,
    best_columns,
    score,
)
from sightline.data.splitting import Overlap
from sightline.data.store import Corpus
from sightline.errors import UserError
from sightline.explain.evidence.measures import SHIFTS, leave_one_out
from sightline.explain.evidence.subject import TextSubject
from sightline.text.tokeniser import Tokeniser
from sightline.text.words import Cutting, cutting_of
from sightline.vocabulary import END, UNKNOWN

if TYPE_CHECKING:
    from sightline.tasks.run import Run

# Which pairs a run was trained on, told from its training corpus.


def overlap_with_training(
    run: Path, source: Tokeniser, target: Tokeniser, pairs: Sequence[tuple[str, str]]
) -> Overlap | None:
    """How many of these pairs the run was trained on; None where it was moved without its data."""
    if not (run / "data" / "train").is_dir():
        return None
    corpus = Corpus.open(run / "data" / "train")
    sides = [
        [np.array(row, dtype=np.int64).tobytes() for row in tokeniser.encode([pair[side] for pair in pairs])]
        for side, tokeniser in enumerate((source, target))
    ]
    wanted: dict[bytes, Counter[bytes]] = {}
    unknown = np.int64(UNKNOWN).tobytes()
    for read, written in zip(*sides, strict=True):
        if _holds(read, unknown) or _holds(written, unknown):
            continue  # unknown words all look alike: whether these were seen cannot be said
        wanted.setdefault(read, Counter())[written] += 1
    sources, found = 0, 0
    met: dict[bytes, set[bytes]] = {}
    # Only rows as long as one of the sources can be one of them: most are passed over without being read.
    lengths = np.unique([len(read) // 8 for read in wanted])
    for row in _of_lengths(corpus.lengths()[0], lengths):
        read, written = (side.astype(np.int64).tobytes() for side in corpus[row])
        if read not in wanted:
            continue
        if read not in met:
            met[read] = set()
            sources += wanted[read].total()
        if written not in met[read]:
            met[read].add(written)
            found += wanted[read][written]
    return Overlap(len(pairs), found, sources)


def _of_lengths(lengths: np.ndarray, wanted: np.ndarray, some: int = 1 << 18) -> Iterator[int]:
    """The rows that are as long as one of those wanted, looked for in parts: a corpus may be large."""
    for start in range(0, len(lengths), some):
        yield from (start + np.flatnonzero(np.isin(lengths[start : start + some], wanted))).tolist()


def _holds(tokens: bytes, token: bytes) -> bool:
    return any(tokens[start : start + 8] == token for start in range(0, len(tokens), 8))


SAMPLE = 200  # pairs that two directions are compared on
HIDDEN = 60  # pairs that words are hidden in
MOST = 5.0  # nats that a hidden word counts: one that is a hundred times less likely is not to outvote the others
TUNED = 20  # gold pairs that choose; the others score
SHORT = 80  # tokens of either side of a pair that is used to choose
By = Literal["gold", "agreement", "hiding", "given"]


@dataclass(frozen=True)
class Chosen:
    """Where to read the weights of each direction, what decided, and how good it was on so many pairs.

    ``score`` is the lowest error rate where gold decided; else the agreement of both directions (F1), or with hiding.
    """

    place: Place
    reverse: Place | None
    by: By
    score: float | None
    pairs: int
    reverse_score: float | None = None

    def __str__(self) -> str:
        places = str(self.place) if self.reverse is None else f"{self.place} and {self.reverse}"
        if self.by == "given":
            return f"{places}, as given"
        if self.by == "gold":
            other = "" if self.reverse_score is None else f" and {self.reverse_score:.1%}"
            return f"{places}: the lowest error rate on {self.pairs:,} gold pairs, {self.score:.1%}{other}"
        if self.by == "agreement":
            return (
                f"{places}: both directions agree best there, with F1 {self.score:.3f} on {self.pairs:,} pairs, and "
                f"with hiding source words"
            )
        return f"{places}: the best agreement with hiding source words, {self.score:.3f} on {self.pairs:,} pairs"

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"by": self.by, "forward": self.place.to_json()}
        if self.reverse is not None:
            data["reverse"] = self.reverse.to_json()
        if self.score is not None:
            data |= {"error_rate" if self.by == "gold" else "agreement": self.score, "pairs": self.pairs}
        if self.reverse_score is not None:
            data["reverse_error_rate"] = self.reverse_score
        return data


class _Cells(NamedTuple):
    """The links of every place, over all cells (target word, source word) of all pairs, one pair after the other."""

    places: list[Place]
    links: Bool[np.ndarray, "n c"]
    sizes: list[tuple[int, int]]  # of each pair: target words, source words

    def turned(self) -> Bool[np.ndarray, "n c"]:
        """The cells of a run that reads the target, in the order of one that reads the source."""
        parts, start = [], 0
        for rows, columns in self.sizes:
            part = self.links[:, start : start + rows * columns].reshape(-1, rows, columns)
            parts.append(part.transpose(0, 2, 1).reshape(len(part), -1))
            start += rows * columns
        return np.concatenate(parts, axis=1)


def cuttings_of(pairs: Sequence[Pair]) -> Cuttings:
    """How the words of each side are told apart."""
    return cutting_of(source for source, _ in pairs), cutting_of(target for _, target in pairs)


def choose(
    run: "Run",
    pairs: Sequence[Pair],
    *,
    reverse: "Run | None" = None,
    gold: Sequence[Gold] | None = None,
    use: Place | None = None,
    reverse_use: Place | None = None,
    cuttings: Cuttings = ("spaces", "spaces"),
) -> Chosen:
    """The places to read. ``gold`` has the links of each of the ``pairs``; without it, a sample of the pairs decides.

    ``use`` and ``reverse_use`` are places that are not to be chosen.
    """
    if gold is not None and len(gold) != len(pairs):
        raise UserError(f"there is gold for {len(gold):,} pairs; expected {len(pairs):,}, one for each")
    runs = [_Direction(run, False, cuttings, use)]
    if reverse is not None:
        runs.append(_Direction(reverse, True, (cuttings[1], cuttings[0]), reverse_use))
    if all(run.given is not None for run in runs):
        places = [run.candidates()[0] for run in runs]
        return Chosen(places[0], places[1] if reverse is not None else None, "given", None, 0)
    kept = [number for number, pair in enumerate(pairs) if all(run.can_try(pair) for run in runs)]
    if gold is None and len(kept) > SAMPLE:
        kept = [kept[i] for i in np.linspace(0, len(kept) - 1, SAMPLE).astype(int)]
    if not kept:
        raise UserError(
            f"there is no pair to choose by: expected text on both sides, and at most {SHORT} tokens; give more pairs, "
            "or say which attention to use"
        )
    some = [pairs[number] for number in kept]
    found = [run.links(some) for run in runs]
    if gold is not None:
        known = [gold[number] for number in kept]
        best = [run.best_by_gold(cells, known) for run, cells in zip(runs, found, strict=True)]
        other: tuple[Place | None, float | None] = best[1] if reverse is not None else (None, None)
        return Chosen(best[0][0], other[0], "gold", best[0][1], len(some), other[1])
    hidden = [run.agreement_with_hiding(cells, some[:HIDDEN]) for run, cells in zip(runs, found, strict=True)]
    if reverse is None:
        row = int(hidden[0].argmax())
        return Chosen(found[0].places[row], None, "hiding", float(hidden[0][row]), min(len(some), HIDDEN))
    return _by_agreement(found, hidden, len(some))


@dataclass(frozen=True)
class _Direction:
    """A run with the pairs as it reads them; ``turned``: it reads the target and writes the source."""

    run: "Run"
    turned: bool
    cuttings: Cuttings
    given: Place | None

    def candidates(self) -> list[Place]:
        """Every place, the run's own shift first: of equals the first is chosen."""
        there = attentions_to_source(self.run)
        if self.given is not None:
            return [there.check(self.given)]
        own = getattr(self.run.output, "shift", 0)
        return there.places(sorted(SHIFTS, key=lambda shift: (shift != own, abs(shift))))

    def can_try(self, pair: Pair) -> bool:
        """Whether there are words on both sides, few enough to try everything on."""
        sides = zip(tokenisers(self.run), self._texts(pair), strict=True)
        return all(text.strip() and len(tokeniser.encode([text])[0]) <= SHORT for tokeniser, text in sides)

    def links(self, pairs: Sequence[Pair]) -> _Cells:
        """Of every place, for every pair."""
        places = self.candidates()
        found: list[np.ndarray] = [np.zeros(0)] * len(pairs)
        for row, weights in weights_of_words(self.run, *self._sides(pairs), places):
            found[row] = best_columns(weights)
        flat = np.concatenate([links.reshape(len(places), -1) for links in found], axis=1)
        return _Cells(places, flat, [(links.shape[1], links.shape[2]) for links in found])

    def best_by_gold(self, cells: _Cells, gold: Sequence[Gold]) -> tuple[Place, float]:
        """The place with the lowest error rate, and the rate."""
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
        return cells.places[best], float(rates[best])

    def agreement_with_hiding(self, cells: _Cells, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """For each place which share of the links of hiding it has, by what they cost, on these first of the pairs."""
        costs = [self._costs(source, target).ravel() for source, target in zip(*self._sides(pairs), strict=True)]
        flat = np.concatenate(costs)
        return cells.links[:, : len(flat)] @ flat / max(float(flat.sum()), 1e-9)

    def _costs(self, source: Side, target: Side) -> Float[np.ndarray, "t s"]:
        """What hiding the costliest source word of each target word costs; zero in all other cells."""
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


def _by_agreement(found: Sequence[_Cells], hidden: Sequence[np.ndarray], pairs: int) -> Chosen:
    """The places of both directions that agree best with each other, and each with hiding in its own direction."""
    agreements = all_agreements(found[0].links, found[1].turned())
    together = agreements + hidden[0][:, None] + hidden[1][None]
    row, column = np.unravel_index(int(together.argmax()), together.shape)
    score = float(agreements[row, column])
    return Chosen(found[0].places[row], found[1].places[column], "agreement", score, pairs)


@dataclass(frozen=True)
class Aligned:
    """Alignments in the order of the pairs (None: too long), and where they were read."""

    alignments: list[Alignment | None]
    chosen: Chosen
    cuttings: Cuttings

    @property
    def agreement(self) -> AlignmentScore:
        """How far both directions agree over all pairs."""
        return sum((one.agreement for one in self.alignments if one is not None), AlignmentScore())

    def score(self, gold: Sequence[Gold]) -> AlignmentScore:
        """Against gold of the first pairs."""
        found = zip(self.alignments[: len(gold)], gold, strict=True)
        return sum((score(frozenset(one.links), truth) for one, truth in found if one is not None), AlignmentScore())


def align(
    run: "Run",
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    reverse: "Run | None" = None,
    gold: Sequence[Gold] | None = None,
    symmetrise: Symmetrising = DEFAULT,
    threshold: float = 0.0,
    words: Cutting | Literal["auto"] = "auto",
    use: str | None = None,
    reverse_use: str | None = None,
) -> Aligned:
    """Word alignments of pairs by the attention of a run, or of two runs of opposite directions.

    Layer, head and shift are chosen: by ``gold`` links of the first pairs, by the agreement of both directions, or by
    what hiding words costs; unless ``use`` names them, such as ``decoder.2.cross:mean:0``.
    """
    if isinstance(sources, str) or isinstance(targets, str) or len(sources) != len(targets):
        raise UserError("sources and targets are two lists of texts, as many in both")
    pairs = list(zip(sources, targets, strict=True))
    cuttings: Cuttings = cuttings_of(pairs) if words == "auto" else (words, words)
    places = [None if text is None else Place.parse(text) for text in (use, reverse_use)]
    tried = pairs if gold is None else pairs[: len(gold)]
    chosen = choose(run, tried, reverse=reverse, gold=gold, use=places[0], reverse_use=places[1], cuttings=cuttings)
    aligner = Aligner(run, chosen.place, reverse, chosen.reverse, symmetrise, threshold, cuttings)
    return Aligned(aligner.align(pairs), chosen, cuttings)
