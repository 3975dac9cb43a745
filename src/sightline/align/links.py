"""Word alignment: from weights to links, from two directions to one, and scores against gold links.

Rows are words of the target, columns words of the source. A link is a pair (source word, target word), both counted
from 0, and is written ``source-target`` as the Pharaoh decoder did. What people get wrong: the error rate (Och and Ney
2003) is not 1 − F1: sure links decide recall, possible ones forgive precision.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from sightline.errors import UserError

Link = tuple[int, int]
Links = frozenset[Link]
Symmetrising = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
NEIGHBOURS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))  # (source, target)
_LINK = re.compile(r"(\d{1,7})([-p])(\d{1,7})")


def best_columns(weights: Float[np.ndarray, "*b t s"], threshold: float = 0.0) -> Bool[np.ndarray, "*b t s"]:
    """For each row the column with the most weight, if that is above ``threshold``: a row of zeros links to nothing."""
    if not weights.shape[-1]:
        return np.zeros(weights.shape, dtype=bool)
    most = weights.argmax(axis=-1, keepdims=True)
    links = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(links, most, np.take_along_axis(weights, most, axis=-1) > max(threshold, 0.0), axis=-1)
    return links


def links_of(cells: Bool[np.ndarray, "t s"]) -> Links:
    """The cells that are true, as links."""
    rows, columns = np.nonzero(cells)
    return frozenset(zip(columns.tolist(), rows.tolist(), strict=True))


def symmetrised(forward: Links, backward: Links, method: Symmetrising = "grow-diag-final-and") -> Links:
    """One set of links out of two: ``forward`` from the target's words, ``backward`` from the source's.

    The heuristics of Koehn et al. 2003. All start from the intersection. *grow-diag* adds neighbours, also diagonal
    ones, that one direction has and that link a word without a link so far; *final* adds the remaining such links
    anywhere (*and*: only where neither word has a link), forward first.
    """
    if method not in get_args(Symmetrising):
        raise UserError(f"there is no method {method!r} to combine links; there is {', '.join(get_args(Symmetrising))}")
    both, either = forward & backward, forward | backward
    if method in ("intersection", "union"):
        return both if method == "intersection" else either
    growing = _Growing(both)
    growing.grow(either)
    if method != "grow-diag":
        for direction in (forward, backward):
            growing.finish(direction, both_free=method == "grow-diag-final-and")
    return frozenset(growing.links)


class _Growing:
    """A growing set of links, and the words that have one."""

    def __init__(self, links: Links) -> None:
        self.links = set(links)
        self._sources, self._targets = {source for source, _ in links}, {target for _, target in links}

    def grow(self, either: Links) -> None:
        """Add neighbours of links, including those just added, until there is none left."""
        order = _in_order(either)
        before = -1
        while before != len(self.links) < len(either):
            before = len(self.links)
            for link in order:
                if link in self.links:
                    self._add_neighbours(link, either)

    def _add_neighbours(self, link: Link, either: Links) -> None:
        for step in NEIGHBOURS:
            near = (link[0] + step[0], link[1] + step[1])
            if near in either and any(self._free(near)):
                self._keep(near)

    def finish(self, direction: Links, both_free: bool) -> None:
        """Add the remaining links of one direction that link one word, or two, without a link."""
        for link in _in_order(direction - self.links):
            free = self._free(link)
            if all(free) if both_free else any(free):
                self._keep(link)

    def _free(self, link: Link) -> tuple[bool, bool]:
        return link[0] not in self._sources, link[1] not in self._targets

    def _keep(self, link: Link) -> None:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])


def _in_order(links: Iterable[Link]) -> list[Link]:
    """Target word by target word."""
    return sorted(links, key=lambda link: (link[1], link[0]))


@dataclass(frozen=True)
class GoldLinks:
    """Links of a pair that people made: ``sure`` ones, and ``possible`` ones, which include the sure."""

    sure: Links
    possible: Links

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", self.possible | self.sure)

    def shifted(self, by: int) -> "GoldLinks":
        """The same links where words are counted from another number."""
        sure, possible = (frozenset((s + by, t + by) for s, t in links) for links in (self.sure, self.possible))
        return GoldLinks(sure, possible)


@dataclass(frozen=True)
class AlignmentScore:
    """Counts over any number of pairs, added with ``+``."""

    found: int = 0
    sure: int = 0
    found_sure: int = 0
    found_possible: int = 0

    def __add__(self, other: "AlignmentScore") -> "AlignmentScore":
        return AlignmentScore(
            self.found + other.found,
            self.sure + other.sure,
            self.found_sure + other.found_sure,
            self.found_possible + other.found_possible,
        )

    @property
    def error_rate(self) -> float:
        """1 − (found and sure + found and possible) / (found + sure); 0 if there is no link."""
        total = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / total if total else 0.0

    @property
    def precision(self) -> float:
        """The fraction of found links that are possible."""
        return self.found_possible / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The fraction of sure links that were found."""
        return self.found_sure / self.sure if self.sure else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def to_json(self) -> dict[str, float | int]:
        names = ("error_rate", "precision", "recall", "f1")
        return {"links": self.found, "sure": self.sure} | {name: getattr(self, name) for name in names}


def score(links: Links, gold: GoldLinks) -> AlignmentScore:
    """The counts of one pair."""
    return AlignmentScore(len(links), len(gold.sure), len(links & gold.sure), len(links & gold.possible))


def agreement_of(forward: Links, backward: Links) -> AlignmentScore:
    """One direction scored against the other: F1 is their agreement, the same in both orders."""
    return score(forward, GoldLinks(backward, backward))


def all_error_rates(
    links: Bool[np.ndarray, "n c"], sure: Bool[np.ndarray, " c"], possible: Bool[np.ndarray, " c"]
) -> Float[np.ndarray, " n"]:
    """The error rate of each of n sets of links over the same cells."""
    right = links @ sure.astype(np.float64) + links @ (sure | possible).astype(np.float64)
    total = links.sum(axis=1) + sure.sum()
    return np.where(total > 0, 1 - right / np.maximum(total, 1), 0.0)


def all_agreements(one: Bool[np.ndarray, "n c"], other: Bool[np.ndarray, "m c"]) -> Float[np.ndarray, "n m"]:
    """F1 of each of n sets of links against each of m others over the same cells; 0 if both are empty."""
    both = one.astype(np.float32) @ other.T.astype(np.float32)
    total = one.sum(axis=1)[:, None] + other.sum(axis=1)[None]
    return 2 * both.astype(np.float64) / np.maximum(total, 1)


def pharaoh(links: Iterable[Link]) -> str:
    """``0-0 2-1``: source-target, in order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def parse_links(text: str) -> GoldLinks:
    """Links as `pharaoh` writes them; ``2p3`` instead of ``2-3`` is a link that is possible but not sure."""
    links: dict[str, set[Link]] = {"-": set(), "p": set()}
    for word in text.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise ValueError(f"found {word[:40]!r}; expected links such as 0-0 (sure) or 0p1 (possible)")
        links[match[2]].add((int(match[1]), int(match[3])))
    return GoldLinks(frozenset(links["-"]), frozenset(links["p"]))
