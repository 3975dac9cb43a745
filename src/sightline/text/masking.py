"""Blocks of plain text with some of their words hidden: what a masked language model learns from (Devlin et al. 2019).

Of 15 % of the words, 80 % are replaced by the mask, 10 % by any word and 10 % stay as they are, so that the model must
predict every word and not masks alone. What people get wrong: special tokens are never chosen, and the
choice is made again in each epoch (dynamic masking, Liu et al. 2019), not once when the data is prepared. Everything
is drawn from the seed, the epoch and the number of the batch: resumed training has the same masks.
"""

from collections.abc import Collection
from dataclasses import astuple, dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sightline.config import Config
from sightline.errors import UserError
from sightline.text.encoding import padded
from sightline.vocabulary import Specials


@dataclass(frozen=True)
class MaskingConfig(Config):
    """``share`` of the words are asked for; of these ``masked`` are hidden and ``replaced`` are any word instead.

    ``length`` is that of a block, with its start and end. ``pairs`` asks as well whether one text follows the other.
    """

    share: float = 0.15
    masked: float = 0.8
    replaced: float = 0.1
    length: int = 128
    pairs: bool = False
    family: ClassVar[str] = "masking"

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is {self.share}; it must be above 0 and below 1")
        if min(self.masked, self.replaced) < 0 or self.masked + self.replaced > 1:
            raise ValueError(f"masked is {self.masked} and replaced {self.replaced}; their sum must be at most 1")
        if self.length < 8:
            raise ValueError(f"length is {self.length}; it must be at least 8")


class MaskedBatch(NamedTuple):
    """Texts with words hidden. ``places`` are those asked for, in the flattened batch; ``gold`` is what stood there.

    ``parts`` and ``follows`` are there for pairs: which text a token belongs to, and whether the second of the two
    really came behind the first.
    """

    words: np.ndarray
    places: np.ndarray
    gold: np.ndarray
    parts: np.ndarray | None = None
    follows: np.ndarray | None = None


def special_ids(specials: Specials) -> list[int]:
    """Those that no mask may hide."""
    return sorted({one for one in astuple(specials) if one is not None})


def hide_words(
    words: np.ndarray,
    mask: int,
    ordinary: np.ndarray,
    special: Collection[int],
    random: np.random.Generator,
    config: MaskingConfig,
) -> MaskedBatch:
    """Choose words of a batch and hide them. ``ordinary`` are the ids that a random word is drawn from.

    At least one is chosen where there is one to choose: a batch always has something to learn.
    """
    flat = words.reshape(-1).copy()
    candidates = np.flatnonzero(~np.isin(flat, list(special)))
    places = candidates[random.random(len(candidates)) < config.share]
    if not len(places) and len(candidates):
        places = random.choice(candidates, 1)
    gold = flat[places]
    lot = random.random(len(places))
    flat[places[lot < config.masked]] = mask
    others = places[(lot >= config.masked) & (lot < config.masked + config.replaced)]
    flat[others] = random.choice(ordinary, len(others))
    return MaskedBatch(flat.reshape(words.shape), places, gold)


class Handle(NamedTuple):
    """A batch before it is made: its epoch, its number there, and its blocks."""

    epoch: int
    number: int
    blocks: np.ndarray


@runtime_checkable
class TokenRows(Protocol):
    """Token lists that are read by their number: a corpus, or some held in memory."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> tuple[np.ndarray, np.ndarray]: ...
    def lengths(self) -> tuple[np.ndarray, np.ndarray]: ...


class MaskedBlocks:
    """Batches of masked blocks from a corpus of plain text (the first of its two sides), for every epoch.

    The texts are one stream, each with END behind it, cut into blocks of ``START … END``. Where the cuts are is drawn
    again in each epoch, so that no word is always at the border. With ``pairs`` a block is two pieces of text
    instead, ``START a END b END``: in half of the cases b came behind a, in the others it is from elsewhere.
    """

    def __init__(
        self, corpus: TokenRows, words: int, specials: Specials, config: MaskingConfig, rows: int, seed: int = 0
    ) -> None:
        if specials.mask is None:
            raise UserError("this vocabulary has no token for the mask; pre-training needs one")
        if rows < 1:
            raise ValueError(f"rows is {rows}; it must be at least 1")
        self.corpus, self.specials, self.config, self.rows, self.seed = corpus, specials, config, rows, seed
        self.mask = specials.mask
        self.special = special_ids(specials)
        self.ordinary = np.setdiff1d(np.arange(words), self.special)
        if not len(self.ordinary):
            raise ValueError(f"a vocabulary of {words} words has none to hide")
        lengths = corpus.lengths()[0].astype(np.int64)
        if config.pairs:
            self._segments = _segments(lengths, (config.length - 3) // 2)
            self._count = len(self._segments)
            if self._count < 2:
                raise UserError("pairs of texts need at least two texts of two words each; leave pairs out")
        else:
            self._ends = np.cumsum(lengths + 1)  # in the stream, END counted
            self._count = max(1, int(self._ends[-1]) // (config.length - 2)) if len(lengths) else 0
            if not lengths.sum():
                raise UserError("there is no text to learn from")

    def __len__(self) -> int:
        """Batches in an epoch; the same for all of them."""
        return -(-self._count // self.rows)

    def epoch(self, number: int) -> list[Handle]:
        """The batches of an epoch as handles: always the same for the same number."""
        order = self._random(number).permutation(self._count)
        return [Handle(number, i, order[i * self.rows : (i + 1) * self.rows]) for i in range(len(self))]

    def batch(self, handle: Handle) -> MaskedBatch:
        """A batch: always the same for the same handle."""
        random = self._random(handle.epoch, 1 + handle.number)
        if not self.config.pairs:
            shift = int(self._random(handle.epoch, 0).integers(self.config.length - 2))
            words = padded([self._block(int(block), shift) for block in handle.blocks], self.specials.padding)
            return hide_words(words, self.mask, self.ordinary, self.special, random, self.config)
        follows = random.random(len(handle.blocks)) < 0.5
        chosen = zip(handle.blocks.tolist(), follows.tolist(), strict=True)
        made = [self._pair(block, real, random) for block, real in chosen]
        words = padded([np.concatenate(pair) for pair in made], self.specials.padding)
        parts = np.zeros_like(words)
        for row, (first, second) in enumerate(made):
            parts[row, len(first) : len(first) + len(second)] = 1
        batch = hide_words(words, self.mask, self.ordinary, self.special, random, self.config)
        return batch._replace(parts=parts, follows=follows)

    def texts_of(self, handle: Handle, places: np.ndarray, width: int) -> np.ndarray:
        """The number of the text that each place of a batch, which is so wide, is from; of pairs, that of the first."""
        blocks, inside = handle.blocks[places // width], places % width
        if self.config.pairs:
            return self._segments[blocks, 0]
        room, total = self.config.length - 2, int(self._ends[-1])
        shift = int(self._random(handle.epoch, 0).integers(room))
        return np.searchsorted(self._ends, (blocks * room + shift + inside - 1) % total, side="right")

    def _random(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *numbers])

    def _block(self, number: int, shift: int) -> np.ndarray:
        """A piece of the stream, which begins again behind its end."""
        room, total = self.config.length - 2, int(self._ends[-1])
        start, missing = (number * room + shift) % total, min(room, total)
        parts: list[np.ndarray] = []
        row = int(np.searchsorted(self._ends, start, side="right"))
        inside = start - (int(self._ends[row - 1]) if row else 0)
        while missing > 0:
            text = np.append(self.corpus[row][0].astype(np.int64), self.specials.end)[inside : inside + missing]
            parts.append(text)
            missing, inside, row = missing - len(text), 0, (row + 1) % len(self._ends)
        block = np.concatenate(parts)
        block = block[:-1] if block[-1] == self.specials.end else block  # one follows anyway
        return np.concatenate([[self.specials.start], block, [self.specials.end]])

    def _pair(self, number: int, follows: bool, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        row, start, middle, end = self._segments[number].tolist()
        text = self.corpus[row][0].astype(np.int64)
        first, second = text[start:middle], text[middle:end]
        if not follows:
            other = int(random.integers(self._count - 1))
            other += other >= number  # any but this one
            row, _, start, end = self._segments[other].tolist()
            second = self.corpus[row][0][start:end].astype(np.int64)
        ending = [self.specials.end]
        return np.concatenate([[self.specials.start], first, ending]), np.concatenate([second, ending])


def _segments(lengths: np.ndarray, half: int) -> np.ndarray:
    """Text, start, middle and end of every pair: two pieces of at most ``half`` tokens, one behind the other.

    A text that is too short for two whole ones is cut in the middle; the last pair of a long one ends with the text.
    """
    segments: list[tuple[int, int, int, int]] = []
    for row, length in enumerate(lengths.tolist()):
        if length < 2:
            continue
        start = 0
        while length - start >= 2 * half:
            segments.append((row, start, start + half, start + 2 * half))
            start += 2 * half
        if length - start >= 2 and (start == 0 or length - start >= half):
            segments.append((row, start, start + (length - start) // 2, length))
    return np.array(segments, np.int64).reshape(-1, 4)
