"""The tokeniser of a Hugging Face folder (tokenizer.json), and its pieces as the labels of an axis."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from sightline.errors import UserError
from sightline.records import Tokens
from sightline.text.sentences import writes_without_spaces

LARGEST_FILE = 1 << 28  # bytes: the largest vocabularies there are take a tenth of that
SPACE = "▁"  # how a label writes the blank before a word
CUT = 60  # characters of somebody else's message


def read_json(path: Path, largest: int = LARGEST_FILE) -> dict[str, Any]:
    """An object from a file that may be anything."""
    try:
        size = path.stat().st_size
        if size > largest:
            raise UserError(f"{path} has {size:,} bytes; at most {largest:,} are read")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not JSON: the folder is damaged") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data


class Pieces:
    """Text to token ids and back, with the special tokens that the file says to add."""

    def __init__(self, path: Path) -> None:
        data = read_json(path)
        try:
            self._library = Tokenizer.from_str(json.dumps(data))
        except BaseException as error:  # the library is written in Rust: what it panics with is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise UserError(f"{path} is not a tokeniser that can be read: {str(error)[:CUT]}") from None
        # Padded or cut as it was for some training: here the whole text counts, and nothing else.
        self._library.no_truncation()
        self._library.no_padding()
        self.special = {id_ for id_, token in self._library.get_added_tokens_decoder().items() if token.special}
        model = data.get("model") or {}
        self._prefix = str(model.get("continuing_subword_prefix") or "") if model.get("type") == "WordPiece" else ""
        self._suffix = str(model.get("end_of_word_suffix") or "")
        self._whole_words = model.get("type") == "WordLevel"
        self._bytes = '"ByteLevel"' in json.dumps([data.get("decoder"), data.get("pre_tokenizer")])
        self.mask = next((self._library.token_to_id(name) for name in ("[MASK]", "<mask>") if self._knows(name)), None)

    def _knows(self, token: str) -> bool:
        return self._library.token_to_id(token) is not None

    def encode(self, text: str, special: bool = True) -> list[int]:
        try:
            return list(self._library.encode(text, add_special_tokens=special).ids)
        except TypeError:
            raise UserError("the text holds half a character (a lone surrogate), which no tokeniser can read") from None

    def decode(self, ids: Sequence[int]) -> str:
        return self._library.decode(list(ids), skip_special_tokens=True).strip()

    def axis(self, ids: Sequence[int], more_special: frozenset[int] = frozenset()) -> Tokens:
        """Tokens as labels. Pieces of one word have one number."""
        special = {place for place, id_ in enumerate(ids) if id_ in self.special or id_ in more_special}
        raw = [self._library.id_to_token(id_) or f"<{id_}>" for id_ in ids]
        texts = [text if place in special else self._label(text) for place, text in enumerate(raw)]
        numbers: list[int] = []
        for place in range(len(raw)):
            goes_on = place > 0 and not {place, place - 1} & special and self._goes_on(raw, texts, place)
            numbers.append(numbers[-1] + (not goes_on) if numbers else 0)
        return Tokens(tuple(texts), tuple(numbers), tuple(sorted(special)))

    def label(self, id_: int) -> str:
        raw = self._library.id_to_token(id_) or f"<{id_}>"
        return raw if id_ in self.special else self._label(raw)

    def _label(self, raw: str) -> str:
        if self._suffix:
            raw = raw.removesuffix(self._suffix)
        return from_bytes(raw) if self._bytes else raw

    def _goes_on(self, raw: Sequence[str], texts: Sequence[str], place: int) -> bool:
        """Whether a piece belongs to the word of the one before it."""
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
    # "<0xE2>" is a byte of a character that has no piece of its own: part of a word.
    return not character.isalnum() and character not in "<>"


def _alphabet() -> dict[str, int]:
    """Byte-level vocabularies write each byte as a character that can be seen: itself, or one from 256 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTE_OF = _alphabet()
_BROKEN = re.compile("[\ud800-\udfff]")  # what `surrogateescape` makes of bytes that are no character


def from_bytes(raw: str) -> str:
    """A byte-level piece as text. Bytes that are part of a character are written <0xE2>."""
    if any(character not in _BYTE_OF for character in raw):
        return raw
    text = bytes(_BYTE_OF[character] for character in raw).decode("utf-8", "surrogateescape")
    text = _BROKEN.sub(lambda found: f"<0x{ord(found[0]) - 0xDC00:02X}>", text)
    return SPACE + text[1:] if text.startswith(" ") else text
