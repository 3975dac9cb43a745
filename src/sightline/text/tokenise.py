"""Text to numbers and back, exactly; `sightline.text.pipeline` says by which rules."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from tokenizers import Tokenizer, models, normalizers, trainers

from sightline.config import Config
from sightline.errors import UserError
from sightline.files import write_text
from sightline.text.pipeline import BYTES, Method, first_pieces, model_of, pipeline_of, read_json, rebuild
from sightline.vocabulary import END, MASK, MASK_SPELLING, PADDING, SPELLINGS, START, UNKNOWN

LONGEST_PIECE = 16  # characters; without a limit, whole sentences that repeat become pieces
FEW = 128  # texts that the library takes one by one: its threads and those of PyTorch are in each other's way
SMALLEST = 384  # the specials and the bytes take 260
_VISIBLE = str.maketrans({" ": "▁", "\t": "⇥", "\n": "↵", "\r": "␍"})


@dataclass(frozen=True)
class TokeniserConfig(Config):
    """How to cut text into tokens.

    ``words`` is the largest size of the vocabulary. ``joint``: one vocabulary for both sides. ``dropout`` is the
    probability that a merge is left out (BPE dropout, Provilkov et al. 2020), only when training asks for it.
    ``minimum``: merges and words seen less often are not learnt (unigram has its own way of choosing).
    """

    method: Method = "bpe"
    words: int = 8000
    joint: bool = True
    lower: bool = False
    dropout: float = 0.0
    minimum: int = 2

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"method is one of {', '.join(get_args(Method))}, found {self.method!r}")
        smallest = SMALLEST if self.method in ("bpe", "unigram") else len(SPELLINGS) + 1
        if self.words < smallest:
            raise ValueError(f"words of method {self.method!r} is at least {smallest}, found {self.words}")
        if self.minimum < 1:
            raise ValueError(f"minimum is at least 1, found {self.minimum}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is at least 0 and below 1, found {self.dropout}")
        if self.dropout and self.method != "bpe":
            raise ValueError(f"dropout leaves out merges, which method {self.method!r} does not have; use 'bpe'")


class Tokeniser:
    """Text to lists of token ids and back. No start or end is added: that is the batch's business."""

    def __init__(self, library: Tokenizer, dropout: float = 0.0) -> None:
        self.dropout = dropout
        self._library = library
        self._with_dropout: Tokenizer | None = None

    @property
    def words(self) -> int:
        """The size of the vocabulary."""
        return self._library.get_vocab_size()

    def encode(self, texts: list[str], dropout: bool = False) -> list[list[int]]:
        """``dropout`` leaves out merges at random. The library draws them from a generator that cannot be seeded."""
        library = self._dropping() if dropout and self.dropout else self._library
        if not isinstance(texts, list | tuple):
            raise UserError(f"a list of texts expected, found {type(texts).__name__}")
        try:
            if len(texts) <= FEW:
                return [library.encode_batch_fast([text], add_special_tokens=False)[0].ids for text in texts]
            return [encoding.ids for encoding in library.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            raise _not_text(texts) from None

    def decode(self, tokens: list[list[int]]) -> list[str]:
        """Padding, start and end are left out; an unknown token reads ``<unk>``."""
        silent = {PADDING, START, END}
        spoken = [[token for token in row if token not in silent] for row in tokens]
        if len(spoken) <= FEW:
            return [self._library.decode(row, skip_special_tokens=False) for row in spoken]
        return self._library.decode_batch(spoken, skip_special_tokens=False)

    def pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """Each piece as a picture would label it, spaces made visible, and the characters of the text it covers.

        The bytes of one character all cover that character. A space put before the first word covers nothing.
        """
        try:
            encoding = self._library.encode(text, add_special_tokens=False)
        except TypeError:
            raise _not_text([text]) from None
        spans = list(encoding.offsets)
        # Unigram gives the bytes of several characters in a row one span for all: give each its own character.
        for (start, end), run in itertools.groupby(range(len(spans)), key=encoding.offsets.__getitem__):
            places = list(run)
            owners = [place for place in range(start, end) for _ in text[place].encode()]
            if len(places) > 1 and len(owners) == len(places):
                for place, owner in zip(places, owners, strict=True):
                    spans[place] = (owner, owner + 1)
        return list(zip([token.translate(_VISIBLE) for token in encoding.tokens], spans, strict=True))

    def spell(self, tokens: Iterable[int]) -> list[str]:
        """Each token as a picture would label it, as `pieces` does; also those that stand in no text."""
        spelled = (self._library.id_to_token(token) for token in tokens)
        return ["?" if piece is None else piece.translate(_VISIBLE) for piece in spelled]

    def unknown_share(self, texts: Iterable[str]) -> float:
        """The share of the tokens of these texts that are unknown; always 0 with `bpe` and `unigram`."""
        unknown = total = 0
        reading = iter(texts)
        while some := list(itertools.islice(reading, 1000)):
            for tokens in self.encode(some):
                unknown += tokens.count(UNKNOWN)
                total += len(tokens)
        return unknown / total if total else 0.0

    @property
    def of_words(self) -> bool:
        """Whether the vocabulary is of whole words, so that there are words it cannot write."""
        return isinstance(self._library.model, models.WordLevel)

    @property
    def has_mask(self) -> bool:
        """Whether there is a token for hidden words, as vocabularies for pre-training have it."""
        return self._library.token_to_id(MASK_SPELLING) == MASK

    def writable(self, texts: list[str]) -> list[bool]:
        """Which of these need neither the unknown token nor, where there are such, the bytes of a character."""
        strange = {UNKNOWN, *(self._library.token_to_id(byte) for byte in BYTES)}
        return [strange.isdisjoint(tokens) for tokens in self.encode(texts)]

    def same_as(self, other: "Tokeniser") -> bool:
        """Whether both cut every text alike."""
        return self._library.to_str() == other._library.to_str()

    def save(self, path: Path) -> Path:
        """Write the JSON of the tokenizers library, which its ``Tokenizer.from_file`` reads as well."""
        return write_text(path, self._library.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path, dropout: float = 0.0) -> "Tokeniser":
        """Read what `save` wrote. Only the vocabulary is taken from the file; the rest must be as we would write it."""
        try:
            return cls(rebuild(read_json(path)), dropout)
        except ValueError as error:
            raise UserError(f"{path} is not a tokeniser of sightline: {error}") from None

    def _dropping(self) -> Tokenizer:
        if self._with_dropout is None:
            self._with_dropout = Tokenizer.from_str(self._library.to_str())
            self._with_dropout.model.dropout = self.dropout
        return self._with_dropout


def train_tokeniser(texts: Iterable[str], config: TokeniserConfig, mask: bool = False) -> Tokeniser:
    """Learn a vocabulary. The texts are read twice: an iterator that can be read only once is kept in memory.

    ``mask``: with a token for hidden words, for pre-training.
    """
    if iter(texts) is texts:
        texts = list(texts)
    characters = _count_characters(texts, config.lower)
    specials = first_pieces(config.method, mask)
    if config.method == "characters":
        model = model_of(config.method, [*specials, *_most_frequent(characters, config.words - len(specials))])
    elif config.method == "words":
        model = _train_words(texts, config, specials)
    else:
        model = _train_subwords(texts, config, characters, specials)
    return Tokeniser(pipeline_of(model, config.method, config.lower), config.dropout)


def train_tokenisers(
    sources: Callable[[], Iterable[str]], targets: Callable[[], Iterable[str]], config: TokeniserConfig
) -> tuple[Tokeniser, Tokeniser]:
    """One tokeniser for each side, or the same one twice if the vocabulary is joint. Each call begins a new reading."""
    if config.joint:
        both = train_tokeniser(_Readings((sources, targets)), config)
        return both, both
    return train_tokeniser(_Readings((sources,)), config), train_tokeniser(_Readings((targets,)), config)


@dataclass(frozen=True)
class _Readings:
    """Texts that can be read again, one source after the other."""

    begin: tuple[Callable[[], Iterable[str]], ...]

    def __iter__(self) -> Iterator[str]:
        for begin in self.begin:
            yield from begin()


def _count_characters(texts: Iterable[str], lower: bool) -> Counter[str]:
    lowercase = normalizers.Lowercase()
    counts: Counter[str] = Counter()
    reading = iter(texts)
    while some := list(itertools.islice(reading, 1000)):
        try:
            joined = "".join([lowercase.normalize_str(text) for text in some] if lower else some)
        except (TypeError, UnicodeError):
            raise _not_text(some) from None
        # As numbers: several times faster than one character after the other.
        codes, times = np.unique(np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4"), return_counts=True)
        if ((codes >= 0xD800) & (codes <= 0xDFFF)).any():
            raise _not_text(some)
        counts.update(dict(zip(map(chr, codes.tolist()), times.tolist(), strict=True)))
    if not counts:
        raise UserError("there is no text to learn a vocabulary from")
    return counts


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    """In an order that depends on nothing but the counts."""
    return sorted(counts, key=lambda character: (-counts[character], character))[:limit]


def _train_words(texts: Iterable[str], config: TokeniserConfig, specials: list[str]) -> models.Model:
    library = pipeline_of(models.WordLevel(unk_token=SPELLINGS[UNKNOWN]), config.method, config.lower)
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.words,
        min_frequency=config.minimum,
        special_tokens=specials,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    learnt = library.get_vocab()
    return model_of(config.method, sorted(learnt, key=learnt.__getitem__))


def _train_subwords(
    texts: Iterable[str], config: TokeniserConfig, characters: Counter[str], specials: list[str]
) -> models.Model:
    # Half of the room is for characters at most: the rarest ones of Chinese would leave nothing for words. The library
    # would choose among equally rare ones at random, and would join what stands on both sides of one left out.
    room = (config.words - len(specials)) // 2 - 2
    kept = {" ", "<", *_most_frequent(characters, room)}
    if dropped := characters.keys() - kept:
        texts = _Cut(texts, str.maketrans(dict.fromkeys(dropped, "<")), config.lower)
    trainer: trainers.Trainer
    if config.method == "bpe":
        trainer = trainers.BpeTrainer(
            vocab_size=config.words,
            min_frequency=config.minimum,
            special_tokens=specials,
            initial_alphabet=sorted(kept),
            limit_alphabet=len(kept),
            max_token_length=LONGEST_PIECE,
            show_progress=False,
        )
        library = pipeline_of(models.BPE(), config.method, config.lower)
        library.train_from_iterator(texts, trainer)
        learnt = json.loads(library.to_str())["model"]
        merges = [(left, right) for left, right in learnt["merges"]]
        return model_of(config.method, sorted(learnt["vocab"], key=learnt["vocab"].__getitem__), merges=merges)
    trainer = trainers.UnigramTrainer(
        vocab_size=config.words,
        special_tokens=specials,
        initial_alphabet=sorted(kept),
        unk_token=SPELLINGS[UNKNOWN],
        max_piece_length=LONGEST_PIECE,
        show_progress=False,
    )
    library = pipeline_of(models.Unigram(), config.method, config.lower)
    library.train_from_iterator(texts, trainer)
    learnt = json.loads(library.to_str())["model"]["vocab"]
    scores = _repeatable(dict(learnt[len(specials) :]))
    pieces = sorted(scores, key=lambda piece: (-scores[piece], piece))
    return model_of(config.method, [*specials, *pieces], scores=[0.0] * len(specials) + [scores[it] for it in pieces])


def _repeatable(learnt: dict[str, float]) -> dict[str, float]:
    """The scores of unigram pieces, the same whenever the texts are the same.

    The library adds up in an order that changes from run to run, and tells the characters apart that no segmentation
    uses by a ten-thousandth each, in an order that changes too. A thousandth is far above the one noise, and the other
    is put back to the lowest score, which is what those characters began with.
    """
    lowest = min(learnt.values())
    unused = lowest + 1e-4 * sum(len(piece) == 1 for piece in learnt)
    return {
        piece: round(lowest if len(piece) == 1 and score <= unused else score, 3) for piece, score in learnt.items()
    }


@dataclass(frozen=True)
class _Cut:
    """The texts with the characters that get no piece of their own made into "<", which is always cut off."""

    texts: Iterable[str]
    table: dict[int, str]
    lower: bool

    def __iter__(self) -> Iterator[str]:
        lowercase = normalizers.Lowercase()
        for text in self.texts:
            yield (lowercase.normalize_str(text) if self.lower else text).translate(self.table)


def _not_text(texts: list[str]) -> UserError:
    for text in texts:
        if not isinstance(text, str):
            return UserError(f"text expected, found {text!r}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return UserError(f"text with half a character (a lone surrogate) at {error.start}: {ascii(text)[:60]}")
    return UserError("the tokeniser cannot read these texts")
