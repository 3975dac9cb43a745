"""How the tokenizers library is set up so that text comes back exactly, and how a foreign file of it is read.

The pieces of `bpe` and `unigram` are made of characters, with bytes only for characters that training did not see often
enough (byte fallback). The alternative, an alphabet of bytes (GPT-2), is as exact, but it spells a Chinese character as
three pieces until a merge joins them, and lets merges end in the middle of a character: no picture can label such a
piece, and Chinese pays the most. What people get wrong with byte fallback is the space: the usual "▁" (SentencePiece)
turns a "▁" of the text into a space. Here a space stays a space inside the pieces, so that nothing needs to be escaped.

Two more rules:

- A space is put before the first word, so that a word is the same piece at the beginning and inside a sentence, and
  taken away by decoding. Not so before scripts that write without spaces (Chinese, Japanese, Thai ...), where it would
  do the opposite.
- Letters, digits and signs never share a piece, and "<" stands alone. No piece of the text can then be spelled like one
  of the special tokens (or like a byte, "<0x41>"), and "</s>" in a text is plain characters like any others.

No text is normalised, unless ``lower`` asks for it.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from sightline.config import Config
from sightline.errors import UserError
from sightline.files import read_json, write_text
from sightline.vocabulary import END, MASK, MASK_SPELLING, PADDING, SPELLINGS, START, UNKNOWN

Method = Literal["bpe", "unigram", "characters", "words"]

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
LARGEST_FILE = 32 << 20  # bytes

# Scripts that write words without spaces between them, and the punctuation of Chinese and Japanese.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SPACED_START = rf"\A(?=[^{_UNSPACED}{chr(0x3000)}-{chr(0x303F)}{chr(0xFF00)}-{chr(0xFFEF)}])"
_BLANKS = r"\s+(?!\S)|\s"  # of several spaces, the last one belongs to the word behind it
# What pieces may not cross. Marks go with the letters they stand on (or Hindi falls apart); each digit is alone.
_CHUNKS = (
    rf" ?<| ?[{_UNSPACED}]+| ?[[\p{{L}}\p{{M}}]&&[^{_UNSPACED}]]+| ?\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}<][^\s\p{{L}}\p{{N}}<]*|{_BLANKS}"
)
# Without spaces there is no telling where words end: there, each character is a word.
_WORDS = (
    rf" ?[{_UNSPACED}]| ?[[\p{{L}}\p{{M}}\p{{N}}]&&[^{_UNSPACED}]]+| ?[^\s\p{{L}}\p{{M}}\p{{N}}{_UNSPACED}]|{_BLANKS}"
)


def model_of(
    method: Method, pieces: list[str], merges: list[tuple[str, str]] | None = None, scores: list[float] | None = None
) -> models.Model:
    """The library's model; the pieces in the order of their ids."""
    if method == "unigram":
        assert scores is not None
        return models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=UNKNOWN, byte_fallback=True)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    if method == "words":
        return models.WordLevel(vocabulary, unk_token=SPELLINGS[UNKNOWN])
    # Characters are merges of which there are none.
    return models.BPE(vocabulary, merges or [], unk_token=SPELLINGS[UNKNOWN], byte_fallback=method == "bpe")


def pipeline_of(model: models.Model, method: Method, lower: bool) -> Tokenizer:
    """The model with the rules of this module around it. There are no "added tokens": those are found in any text."""
    library = Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower else []
    joining: list[decoders.Decoder] = [decoders.Fuse()]
    if method != "characters":
        steps.append(normalizers.Replace(Regex(_SPACED_START), " "))
        joining.append(decoders.Strip(" ", 1, 0))
        pattern = _WORDS if method == "words" else _CHUNKS
        library.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    if method == "words":  # the space before an unknown word went with the word
        joining.insert(0, decoders.Replace(SPELLINGS[UNKNOWN], f" {SPELLINGS[UNKNOWN]}"))
    if method in ("bpe", "unigram"):
        joining.insert(0, decoders.ByteFallback())
    if steps:
        library.normalizer = normalizers.Sequence(steps)
    library.decoder = decoders.Sequence(joining)
    return library


def _read_json(path: Path) -> Any:
    """The content of a JSON file of a size that a tokeniser can have."""
    try:
        return read_json(path, LARGEST_FILE)
    except OSError as error:
        raise UserError(f"the tokeniser {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None


def _rebuild(data: Any) -> Tokenizer:
    """A tokeniser from a file that is not trusted: our own pipeline with the file's vocabulary, which is checked."""
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise ValueError("no model in it")
    model = dict(data["model"])
    pieces, merges = model.pop("vocab", None), model.pop("merges", None)
    shape = {**data, "model": model}
    for method in get_args(Method):
        for lower in (False, True):
            if shape == _shape(method, lower):
                return pipeline_of(_checked_model(method, pieces, merges), method, lower)
    raise ValueError("its steps are not those of any of our methods")


def first_pieces(method: Method, mask: bool = False) -> list[str]:
    """What a vocabulary begins with; ``mask``: one for pre-training, which has a token for hidden words."""
    specials = [*SPELLINGS, MASK_SPELLING] if mask else list(SPELLINGS)
    return [*specials, *BYTES] if method in ("bpe", "unigram") else specials


def _shape(method: Method, lower: bool) -> dict[str, Any]:
    """What a file of this method says besides its vocabulary."""
    first = first_pieces(method)
    shape = json.loads(pipeline_of(model_of(method, first, scores=[0.0] * len(first)), method, lower).to_str())
    shape["model"].pop("vocab")
    shape["model"].pop("merges", None)
    return shape


def _checked_model(method: Method, vocabulary: Any, merges: Any) -> models.Model:
    scores = None
    if method == "unigram":
        if not isinstance(vocabulary, list) or not all(isinstance(it, list) and len(it) == 2 for it in vocabulary):
            raise ValueError("the vocabulary is not a list of pieces and scores")
        pieces, scores = [it[0] for it in vocabulary], [it[1] for it in vocabulary]
        if not all(isinstance(score, float | int) and abs(score) < 1e9 for score in scores):  # NaN is not below either
            raise ValueError("a score is not a number")
    else:
        if not isinstance(vocabulary, dict) or not all(type(index) is int for index in vocabulary.values()):
            raise ValueError("the vocabulary does not number its pieces")
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
            raise ValueError("the numbers of the pieces have gaps")
    first = first_pieces(method, mask=pieces[MASK : MASK + 1] == [MASK_SPELLING])
    if pieces[: len(first)] != first:
        raise ValueError(f"the vocabulary does not begin with {' '.join(SPELLINGS)} and what follows them")
    if not all(isinstance(piece, str) and piece for piece in pieces) or len(set(pieces)) != len(pieces):
        raise ValueError("a piece is empty, there twice, or no text")
    "".join(pieces).encode()  # half a character is a ValueError here, and worse inside the library
    return model_of(method, pieces, _checked_merges(method, set(pieces), merges), scores)


def _checked_merges(method: Method, pieces: set[str], merges: Any) -> list[tuple[str, str]]:
    if method in ("unigram", "words") or (method == "characters" and merges == []):
        return []
    if method == "characters" or not isinstance(merges, list):
        raise ValueError("the merges are not those of its method")
    for merge in merges:
        if not (isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)):
            raise ValueError("a merge is not a pair of pieces")
        if not {*merge, "".join(merge)} <= pieces:
            raise ValueError("a merge is of pieces that are not in the vocabulary")
    return [(left, right) for left, right in merges]


# Text to token ids and back, exactly, by these rules.

LONGEST_PIECE = 16  # characters; without a limit, whole sentences that repeat become pieces
FEW = 128  # texts that the library takes one by one: its threads and those of PyTorch are in each other's way
SMALLEST = 384  # the specials and the bytes take 260
_VISIBLE = str.maketrans({" ": "▁", "\t": "⇥", "\n": "↵", "\r": "␍"})


@dataclass(frozen=True)
class TokeniserConfig(Config):
    """How to cut text into tokens.

    ``vocab_size`` is the largest size of the vocabulary. ``joint``: one vocabulary for both sides. ``dropout`` is the
    probability that a merge is left out (BPE dropout, Provilkov et al. 2020), only when training asks for it.
    ``min_frequency``: merges and words seen less often are not learnt (unigram has its own way of choosing).
    """

    method: Method = "bpe"
    vocab_size: int = 8000
    joint: bool = True
    lower: bool = False
    dropout: float = 0.0
    min_frequency: int = 2
    renamed: ClassVar[Mapping[str, str]] = {"words": "vocab_size", "minimum": "min_frequency"}

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"method is one of {', '.join(get_args(Method))}, found {self.method!r}")
        smallest = SMALLEST if self.method in ("bpe", "unigram") else len(SPELLINGS) + 1
        if self.vocab_size < smallest:
            raise ValueError(f"vocab_size of method {self.method!r} is at least {smallest}, found {self.vocab_size}")
        if self.min_frequency < 1:
            raise ValueError(f"min_frequency is at least 1, found {self.min_frequency}")
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

    @property
    def of_words(self) -> bool:
        """Whether the vocabulary is of whole words, so that there are words it cannot write."""
        return isinstance(self._library.model, models.WordLevel)

    @property
    def lowers(self) -> bool:
        """Whether capitals are read as small letters."""
        normaliser = self._library.normalizer
        return normaliser is not None and normaliser.normalize_str("A").strip() == "a"

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
            return cls(_rebuild(_read_json(path)), dropout)
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
        model = model_of(config.method, [*specials, *_most_frequent(characters, config.vocab_size - len(specials))])
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
        both = train_tokeniser(_Again(lambda: itertools.chain(sources(), targets())), config)
        return both, both
    return train_tokeniser(_Again(sources), config), train_tokeniser(_Again(targets), config)


@dataclass(frozen=True)
class _Again:
    """Texts that can be read again."""

    begin: Callable[[], Iterable[str]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.begin())


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
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocab_size, min_frequency=config.min_frequency, special_tokens=specials, show_progress=False
    )
    vocab = _learnt(models.WordLevel(unk_token=SPELLINGS[UNKNOWN]), trainer, texts, config)["vocab"]
    return model_of(config.method, sorted(vocab, key=vocab.__getitem__))


def _train_subwords(
    texts: Iterable[str], config: TokeniserConfig, characters: Counter[str], specials: list[str]
) -> models.Model:
    # Half of the room is for characters at most: the rarest ones of Chinese would leave nothing for words. The library
    # would choose among equally rare ones at random, and would join what stands on both sides of one left out.
    room = (config.vocab_size - len(specials)) // 2 - 2
    kept = {" ", "<", *_most_frequent(characters, room)}
    if dropped := characters.keys() - kept:  # they become "<", which is always cut off
        table = str.maketrans(dict.fromkeys(dropped, "<"))
        lowered = normalizers.Lowercase().normalize_str if config.lower else str
        texts = (lowered(text).translate(table) for text in texts)
    shared: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "special_tokens": specials,
        "initial_alphabet": sorted(kept),
        "show_progress": False,
    }
    if config.method == "bpe":
        trainer = trainers.BpeTrainer(
            **shared, min_frequency=config.min_frequency, limit_alphabet=len(kept), max_token_length=LONGEST_PIECE
        )
        learnt = _learnt(models.BPE(), trainer, texts, config)
        merges = [(left, right) for left, right in learnt["merges"]]
        return model_of(config.method, sorted(learnt["vocab"], key=learnt["vocab"].__getitem__), merges=merges)
    unigram = trainers.UnigramTrainer(**shared, unk_token=SPELLINGS[UNKNOWN], max_piece_length=LONGEST_PIECE)
    scored = _learnt(models.Unigram(), unigram, texts, config)["vocab"]
    scores = _repeatable(dict(scored[len(specials) :]))
    pieces = sorted(scores, key=lambda piece: (-scores[piece], piece))
    return model_of(config.method, [*specials, *pieces], scores=[0.0] * len(specials) + [scores[it] for it in pieces])


def _learnt(model: models.Model, trainer: Any, texts: Iterable[str], config: TokeniserConfig) -> dict[str, Any]:
    """What the library learns of the texts, as its file has it."""
    library = pipeline_of(model, config.method, config.lower)
    library.train_from_iterator(texts, trainer)
    return json.loads(library.to_str())["model"]


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


def _not_text(texts: list[str]) -> UserError:
    for text in texts:
        if not isinstance(text, str):
            return UserError(f"text expected, found {text!r}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return UserError(f"text with half a character (a lone surrogate) at {error.start}: {ascii(text)[:60]}")
    return UserError("the tokeniser cannot read these texts")
