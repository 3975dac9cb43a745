"""The tokeniser of a Hugging Face folder (tokenizer.json) as a tokeniser of a task, and the checks of such a file."""

import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from sightline.errors import UserError
from sightline.files import read_json as read_any_json
from sightline.files import write_text
from sightline.vocabulary import Specials

SPACE = "▁"  # the blank before a word, in a label
CUT = 60  # characters of a message of another library


def read_json(path: Path, largest: int) -> dict[str, Any]:
    """A JSON object from an untrusted file."""
    try:
        data = read_any_json(path, largest)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not JSON: the folder is damaged") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data


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

LARGEST_TOKENISER = 16 << 20  # bytes; RoBERTa's has 3 million
MOST_WORDS = 1_000_000
MOST_ADDED = 50_000  # tokens beside the vocabulary: each takes time
LONGEST_TEMPLATE = 64  # tokens that are put around a text
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

    def __init__(self, data: dict[str, object], where: str) -> None:
        check(data, where)
        self._data = {**data, "truncation": None, "padding": None}
        self._whole = build(self._data, where)
        words = [
            token for token in cast("list[dict[str, Any]]", data.get("added_tokens") or []) if not token["special"]
        ]
        # The library would recognise special tokens in any text.
        self._library = build({**self._data, "added_tokens": words, "post_processor": None}, where)
        for token in words:
            if self._library.token_to_id(token["content"]) != token["id"]:
                raise UserError(f"{where}: the added token {token['content'][:CUT]!r} is not in the vocabulary")
        self.specials = _specials(self._whole, where)
        self._silent = {self.specials.padding, self.specials.start, self.specials.end}
        self.of_bytes = of_bytes(data)  # a word after a space is then another piece than at the beginning

    @property
    def words(self) -> int:
        """The vocabulary size: the largest id and one."""
        return max(self._whole.get_vocab().values()) + 1

    def encode(self, texts: list[str], dropout: bool = False) -> list[list[int]]:
        """No start or end is added. ``dropout`` has no effect: the vocabulary was learnt without."""
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            raise not_text(texts) from None

    def decode(self, tokens: list[list[int]]) -> list[str]:
        """Padding, start and end are left out."""
        kept = [[token for token in row if token not in self._silent] for row in tokens]
        return [text.strip() for text in self._whole.decode_batch(kept, skip_special_tokens=False)]

    def pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """Each piece as a picture would label it, and the characters of the text it covers."""
        try:
            encoding = self._library.encode(text, add_special_tokens=False)
        except TypeError:
            raise not_text([text]) from None
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

    def same_as(self, other: object) -> bool:
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
    check_sizes(data, where)
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict):
        raise UserError(f"{where}: the vocabulary is not an object of 1 to {MOST_WORDS:,} pieces")
    if not all(type(number) is int and 0 <= number < 4 * MOST_WORDS for number in vocabulary.values()):
        raise UserError(f"{where}: the vocabulary does not number its pieces")
    if model.get("dropout"):
        raise UserError(f"{where}: the model drops merges at random (dropout); save it without")
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or not 0 < longest <= LONGEST_WORD:
        raise UserError(f"{where}: max_input_chars_per_word is {longest!r:.60}; 1 to {LONGEST_WORD:,} is expected")
    for token in data.get("added_tokens") or []:
        fields = {"content": str, "id": int, "special": bool}
        if not isinstance(token, dict) or not all(type(token.get(name)) is kind for name, kind in fields.items()):
            raise UserError(f"{where}: an added token has no content, id or special")


def check_sizes(data: dict[str, Any], where: str) -> None:
    """Refuse unreasonable numbers of pieces, merges, added tokens, and tokens around a text."""
    model = data.get("model")
    if not isinstance(model, dict):
        raise UserError(f"{where} has no model: it is not a tokeniser")
    vocabulary, merges, added = model.get("vocab"), model.get("merges") or [], data.get("added_tokens") or []
    if not isinstance(vocabulary, dict | list) or not 0 < len(vocabulary) <= MOST_WORDS:
        raise UserError(f"{where}: the vocabulary is not an object of 1 to {MOST_WORDS:,} pieces")
    if not isinstance(merges, list) or len(merges) > MOST_WORDS:
        raise UserError(f"{where}: the merges are not a list of at most {MOST_WORDS:,}")
    if not isinstance(added, list) or len(added) > MOST_ADDED:
        raise UserError(f"{where}: the added tokens are not a list of at most {MOST_ADDED:,}")
    if _longest_template(data.get("post_processor")) > LONGEST_TEMPLATE:
        raise UserError(f"{where}: its post_processor adds more than {LONGEST_TEMPLATE} tokens to a text")


def _longest_template(step: Any, depth: int = 0) -> int:
    """The tokens that a step may add to a text, at most; many if the text itself is repeated."""
    if not isinstance(step, dict) or depth > 4:
        return 0 if step is None else LONGEST_TEMPLATE + 1
    inner = step.get("processors")
    added = sum(_longest_template(one, depth + 1) for one in inner) if isinstance(inner, list) else 0
    for name in ("single", "pair"):
        places = step.get(name) or []
        texts = [one for one in places if isinstance(one, dict) and "Sequence" in one]
        added = max(added, len(places)) + LONGEST_TEMPLATE * max(0, len(texts) - 2)
    tokens = step.get("special_tokens")
    for token in tokens.values() if isinstance(tokens, dict) else ():
        added += len(token.get("ids") or ()) if isinstance(token, dict) else 1
    return added


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


def build(data: dict[str, Any], where: str) -> Tokenizer:
    """The library's own object, or one sentence."""
    try:
        return Tokenizer.from_str(json.dumps(data))
    except BaseException as error:  # a panic of the library, which is written in Rust, is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UserError(f"{where} is not a tokeniser that can be read: {str(error)[:CUT]}") from None


def _specials(library: Tokenizer, where: str) -> Specials:
    ids = {name: id_of(library, spellings) for name, spellings in SPELLED.items()}
    for name, spellings in SPELLED.items():
        if ids[name] is None and name != "mask":
            raise UserError(f"{where} has no token for {name}; {' or '.join(spellings)} is expected")
    return Specials(**ids)  # type: ignore[arg-type]


def id_of(library: Tokenizer, spellings: Iterable[str]) -> int | None:
    ids = map(library.token_to_id, spellings)
    return next((one for one in ids if one is not None), None)


def of_bytes(data: dict[str, Any]) -> bool:
    return '"ByteLevel"' in json.dumps([data.get("pre_tokenizer"), data.get("decoder")])


def not_text(texts: list[str]) -> UserError:
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        return UserError(f"text expected, found {wrong!r:.60}")
    return UserError("a text holds half a character (a lone surrogate), which no tokeniser can read")
