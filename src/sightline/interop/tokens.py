"""The tokeniser of a Hugging Face folder (tokenizer.json), as labels of an axis and as a tokeniser of a task."""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from sightline.errors import UserError
from sightline.files import read_text, write_text
from sightline.records import Tokens
from sightline.text.sentences import writes_without_spaces
from sightline.vocabulary import Specials

LARGEST_FILE = 1 << 28  # bytes: the largest known vocabularies take a tenth of that
SPACE = "▁"  # the blank before a word, in a label
CUT = 60  # characters of a message of another library


def read_json(path: Path, largest: int = LARGEST_FILE) -> dict[str, Any]:
    """A JSON object from an untrusted file."""
    try:
        data = json.loads(read_text(path, largest))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not JSON: the folder is damaged") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data


class Pieces:
    """Text to token ids and back, with the special tokens that the file adds."""

    def __init__(self, path: Path) -> None:
        data = read_json(path)
        self._library = _build(data, str(path))
        # The file may pad or truncate as in training; here the whole text is read, and nothing else.
        self._library.no_truncation()
        self._library.no_padding()
        self.special = {id_ for id_, token in self._library.get_added_tokens_decoder().items() if token.special}
        model = data.get("model") or {}
        self._prefix = str(model.get("continuing_subword_prefix") or "") if model.get("type") == "WordPiece" else ""
        self._suffix = str(model.get("end_of_word_suffix") or "")
        self._whole_words = model.get("type") == "WordLevel"
        self._bytes = _of_bytes(data)
        self.mask = _id_of(self._library, SPELLED["mask"])

    def encode(self, text: str, special: bool = True) -> list[int]:
        try:
            return list(self._library.encode(text, add_special_tokens=special).ids)
        except TypeError:
            raise _not_text([text]) from None

    def decode(self, ids: Sequence[int]) -> str:
        return self._library.decode(list(ids), skip_special_tokens=True).strip()

    def axis(self, ids: Sequence[int], more_special: frozenset[int] = frozenset()) -> Tokens:
        """Tokens as labels. Pieces of one word have the same number."""
        special = {place for place, id_ in enumerate(ids) if id_ in self.special or id_ in more_special}
        raw = list(map(self._raw, ids))
        texts = [text if place in special else self._label(text) for place, text in enumerate(raw)]
        numbers: list[int] = []
        for place in range(len(raw)):
            continues = place > 0 and not {place, place - 1} & special and self._continues(raw, texts, place)
            numbers.append(numbers[-1] + (not continues) if numbers else 0)
        return Tokens(tuple(texts), tuple(numbers), tuple(sorted(special)))

    def label(self, id_: int) -> str:
        return self._raw(id_) if id_ in self.special else self._label(self._raw(id_))

    def _raw(self, id_: int) -> str:
        return self._library.id_to_token(id_) or f"<{id_}>"

    def _label(self, raw: str) -> str:
        raw = raw.removesuffix(self._suffix)
        return from_bytes(raw) if self._bytes else raw

    def _continues(self, raw: Sequence[str], texts: Sequence[str], place: int) -> bool:
        """Whether a piece belongs to the same word as the piece before it."""
        if self._whole_words:
            return False
        if self._prefix:
            return raw[place].startswith(self._prefix)
        if self._suffix:
            return not raw[place - 1].endswith(self._suffix)
        before, here = texts[place - 1].lstrip(SPACE), texts[place]
        if here.startswith(SPACE) or not here or not before:
            return not here.startswith(SPACE)
        return _is_sign(before[-1]) == _is_sign(here[0]) and not (
            writes_without_spaces(before[-1]) or writes_without_spaces(here[0])
        )


def _is_sign(character: str) -> bool:
    # "<0xE2>" is a byte of a character without a piece of its own: part of a word.
    return not character.isalnum() and character not in "<>"


def _alphabet() -> dict[str, int]:
    """Byte-level vocabularies write each byte as a printable character: itself, or one from 256 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTE_OF = _alphabet()
_BROKEN = re.compile("[\ud800-\udfff]")  # bytes that are no character, after `surrogateescape`


def from_bytes(raw: str) -> str:
    """A byte-level piece as text. Bytes that are part of a character are written <0xE2>."""
    if any(character not in _BYTE_OF for character in raw):
        return raw
    text = bytes(_BYTE_OF[character] for character in raw).decode("utf-8", "surrogateescape")
    text = _BROKEN.sub(lambda match: f"<0x{ord(match[0]) - 0xDC00:02X}>", text)
    return SPACE + text[1:] if text.startswith(" ") else text


# --- An untrusted tokenizer.json that tasks use like our own tokeniser: WordPiece (BERT), byte-level BPE (RoBERTa).
#
# Only steps of known types are run. Steps with a pattern from the file are refused: some patterns take hours on a short
# text. A special token spelled out in a text, "[SEP]", is plain characters, as it is in our own vocabularies.

LARGEST_TOKENISER = 64 << 20  # bytes; RoBERTa's has 3 million
MOST_WORDS = 1_000_000
LONGEST_WORD = 1_000  # characters of a word for WordPiece: the time grows with their square
KNOWN = {
    "normalizer": {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Strip", "Nmt"},
    "pre_tokenizer": {"BertPreTokenizer", "ByteLevel", "Whitespace", "Punctuation", "Digits"},
    "post_processor": {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"},
    "decoder": {"WordPiece", "ByteLevel", "BPEDecoder", "Fuse"},
}
LISTS = dict(zip(KNOWN, ("normalizers", "pretokenizers", "processors", "decoders"), strict=True))
# The fields of Specials: the spellings of BERT and of RoBERTa.
SPELLED = {
    "padding": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": ("[CLS]", "<s>"),
    "end": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_VISIBLE = str.maketrans({" ": "▁", "\t": "⇥", "\n": "↵", "\r": "␍"})


class PretrainedTokeniser:
    """The same methods as `sightline.text.tokeniser.Tokeniser`, and ``specials``, the ids of its vocabulary."""

    dropout = 0.0
    of_words = False

    def __init__(self, data: dict[str, Any], where: str) -> None:
        check(data, where)
        self._data = {**data, "truncation": None, "padding": None}
        self._whole = _build(self._data, where)
        words = [token for token in data.get("added_tokens") or [] if not token["special"]]
        # The library would recognise special tokens in any text.
        self._library = _build({**self._data, "added_tokens": words, "post_processor": None}, where)
        for token in words:
            if self._library.token_to_id(token["content"]) != token["id"]:
                raise UserError(f"{where}: the added token {token['content'][:CUT]!r} is not in the vocabulary")
        self.specials = _specials(self._whole, where)
        self._silent = {self.specials.padding, self.specials.start, self.specials.end}
        self.of_bytes = _of_bytes(data)  # a word after a space is then another piece than at the beginning

    @property
    def words(self) -> int:
        """The vocabulary size: the largest id and one."""
        return max(self._whole.get_vocab().values()) + 1

    def encode(self, texts: list[str], dropout: bool = False) -> list[list[int]]:
        """No start or end is added. ``dropout`` has no effect: the vocabulary was learnt without."""
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            raise _not_text(texts) from None

    def decode(self, tokens: list[list[int]]) -> list[str]:
        """Padding, start and end are left out."""
        kept = [[token for token in row if token not in self._silent] for row in tokens]
        return [text.strip() for text in self._whole.decode_batch(kept, skip_special_tokens=False)]

    def pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """Each piece as a picture would label it, and the characters of the text it covers."""
        try:
            encoding = self._library.encode(text, add_special_tokens=False)
        except TypeError:
            raise _not_text([text]) from None
        return list(zip(self.spell(encoding.ids), encoding.offsets, strict=True))

    def spell(self, tokens: Iterable[int]) -> list[str]:
        """Each token as a picture would label it, special tokens too."""
        return [self._label(self._whole.id_to_token(token)) for token in tokens]

    def unknown_share(self, texts: Iterable[str]) -> float:
        """The share of the tokens of these texts that are unknown."""
        unknown = total = 0
        remaining = iter(texts)
        while some := list(itertools.islice(remaining, 1000)):
            for tokens in self.encode(some):
                unknown += tokens.count(self.specials.unknown)
                total += len(tokens)
        return unknown / total if total else 0.0

    def same_as(self, other: Any) -> bool:
        """Whether both tokenise every text alike."""
        return isinstance(other, PretrainedTokeniser) and self._whole.to_str() == other._whole.to_str()

    def save(self, path: Path) -> Path:
        """Write the file again, in the format of the library."""
        return write_text(path, self._whole.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> "PretrainedTokeniser":
        """Read an untrusted tokenizer.json, or a file of `save`."""
        return cls(read_json(path, LARGEST_TOKENISER), str(path))

    def _label(self, piece: str | None) -> str:
        if piece is None:
            return "?"
        return (from_bytes(piece) if self.of_bytes else piece).translate(_VISIBLE)


def check(data: dict[str, Any], where: str) -> None:
    """Refuse a file with a step that is not known to be harmless, or with unreasonable numbers."""
    for step, known in KNOWN.items():
        _check_step(data.get(step), step, known, where)
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type") not in ("WordPiece", "BPE"):
        kind = f"{model.get('type')!r}"[:CUT] if isinstance(model, dict) else "missing"
        raise UserError(f"{where}: the model is {kind}; WordPiece (BERT) and byte-level BPE (RoBERTa) can be read")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not 0 < len(vocabulary) <= MOST_WORDS:
        raise UserError(f"{where}: the vocabulary is not an object of 1 to {MOST_WORDS:,} pieces")
    if not all(type(number) is int and 0 <= number < 4 * MOST_WORDS for number in vocabulary.values()):
        raise UserError(f"{where}: the vocabulary does not number its pieces")
    if model.get("dropout"):
        raise UserError(f"{where}: the model drops merges at random (dropout); save it without")
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or not 0 < longest <= LONGEST_WORD:
        raise UserError(f"{where}: max_input_chars_per_word is {longest!r:.60}; 1 to {LONGEST_WORD:,} is expected")
    merges = model.get("merges") or []
    if not isinstance(merges, list) or len(merges) > MOST_WORDS:
        raise UserError(f"{where}: the merges are not a list of at most {MOST_WORDS:,}")
    added = data.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > MOST_WORDS:
        raise UserError(f"{where}: the added tokens are not a list of at most {MOST_WORDS:,}")
    for token in added:
        fields = {"content": str, "id": int, "special": bool}
        if not isinstance(token, dict) or not all(type(token.get(name)) is kind for name, kind in fields.items()):
            raise UserError(f"{where}: an added token has no content, id or special")


def _check_step(step: Any, name: str, known: set[str], where: str, depth: int = 0) -> None:
    if step is None:
        return
    kind = step.get("type") if isinstance(step, dict) else None
    if kind == "Sequence" and depth < 4 and isinstance(step.get(LISTS[name]), list):
        for one in step[LISTS[name]]:
            _check_step(one, name, known, where, depth + 1)
    elif not isinstance(kind, str) or kind not in known:
        raise UserError(
            f"{where}: its {name} is {f'{kind!r}'[:CUT]}, which is not accepted from other files; known are "
            f"{', '.join(sorted(known))}"
        )


def _build(data: dict[str, Any], where: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(data))
    except BaseException as error:  # a panic of the library, which is written in Rust, is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UserError(f"{where} is not a tokeniser that can be read: {str(error)[:CUT]}") from None


def _specials(library: Tokenizer, where: str) -> Specials:
    ids = {name: _id_of(library, spellings) for name, spellings in SPELLED.items()}
    for name, spellings in SPELLED.items():
        if ids[name] is None and name != "mask":
            raise UserError(f"{where} has no token for {name}; {' or '.join(spellings)} is expected")
    return Specials(**ids)  # type: ignore[arg-type]


def _id_of(library: Tokenizer, spellings: Iterable[str]) -> int | None:
    ids = map(library.token_to_id, spellings)
    return next((one for one in ids if one is not None), None)


def _of_bytes(data: dict[str, Any]) -> bool:
    return '"ByteLevel"' in json.dumps([data.get("pre_tokenizer"), data.get("decoder")])


def _not_text(texts: list[str]) -> UserError:
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        return UserError(f"text expected, found {wrong!r:.60}")
    return UserError("a text holds half a character (a lone surrogate), which no tokeniser can read")
