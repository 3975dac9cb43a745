"""The tokeniser of any Hugging Face folder (tokenizer.json), as labels of an axis.

The file is untrusted and may hold any step of the library, with patterns that take hours and replacements that fill
the memory. So it runs in a process of its own (`python -m sightline.interop.pieces`), which can be killed.
"""

import json
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.workers import Arrays, Process, Request, limit_memory, serve
from sightline.errors import UserError
from sightline.interop.tokens import (
    SPACE,
    SPELLED,
    build,
    check_sizes,
    from_bytes,
    id_of,
    not_text,
    of_bytes,
    read_json,
)
from sightline.records import Tokens
from sightline.text.sentences import writes_without_spaces

LARGEST_FILE = 64 << 20  # bytes: the largest known vocabularies take half of that
MEMORY = 900 << 20  # bytes
MOST_TOKENS = 1 << 20  # of a text
LOADING, WORKING = 30.0, 4.0  # seconds to read the file, and for one text


class Pieces:
    """Text to token ids and back, with the special tokens that the file adds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: Process | None = None
        self._names: dict[int, str] = {}
        about = self._ask({"do": "about"})
        self.special, self.mask = set(about["special"]), about["mask"]
        self._prefix, self._suffix = about["prefix"], about["suffix"]
        self._whole_words, self._bytes = about["whole_words"], about["bytes"]

    def encode(self, text: str, special: bool = True) -> list[int]:
        if not isinstance(text, str):
            raise not_text([text])
        return self._ask({"do": "encode", "text": text, "special": special})

    def decode(self, ids: Sequence[int]) -> str:
        return self._ask({"do": "decode", "ids": list(map(int, ids))}).strip()

    def _ask(self, request: Request) -> Any:
        """The answer of the process, which is started for the first request and after a kill."""
        if self._process is None:
            self._process = Process("sightline.interop.pieces", {"path": str(self._path)})
            weakref.finalize(self, self._process.end)
            if request["do"] != "about":
                self._ask({"do": "about"})
        try:
            (answer,) = self._process.ask(request, seconds=LOADING if request["do"] == "about" else WORKING)
        except (OSError, EOFError, ValueError):
            self._process.end()
            self._process = None
            raise UserError(f"{self._path} takes too much time or memory, or breaks the tokenizers library") from None
        data = json.loads(answer.tobytes())
        if "problem" in data:
            raise UserError(data["problem"])
        return data["answer"]

    def axis(self, ids: Sequence[int], more_special: frozenset[int] = frozenset()) -> Tokens:
        """Tokens as labels. Pieces of one word have the same number."""
        special = {place for place, id_ in enumerate(ids) if id_ in self.special or id_ in more_special}
        self._learn(ids)
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
        if id_ not in self._names:
            self._learn([id_])
        return self._names[id_]

    def _learn(self, ids: Sequence[int]) -> None:
        """The spellings of these ids, asked for once."""
        missing = sorted({int(one) for one in ids} - self._names.keys())
        for one, name in zip(missing, self._ask({"do": "names", "ids": missing}) if missing else (), strict=True):
            self._names[one] = name or f"<{one}>"

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


def _begin(setting: Request) -> Callable[[Request], Arrays]:
    """What the process does."""
    limit_memory(MEMORY)
    library: Any = None

    def answered(request: Request) -> Any:
        nonlocal library
        if request["do"] == "about":
            data = read_json(Path(setting["path"]), LARGEST_FILE)
            check_sizes(data, setting["path"])
            library = build(data, setting["path"])
            # The file may pad or truncate as in training; here the whole text is read, and nothing else.
            library.no_truncation()
            library.no_padding()
            return _about(data, library)
        if request["do"] == "encode":
            try:
                ids = library.encode(request["text"], add_special_tokens=request["special"]).ids
            except TypeError:
                raise not_text([request["text"]]) from None
            if len(ids) > MOST_TOKENS:
                raise UserError(
                    f"{setting['path']} makes {len(ids):,} tokens of a text; at most {MOST_TOKENS:,} are read"
                )
            return ids
        if request["do"] == "names":
            return [library.id_to_token(one) if 0 <= one < 1 << 32 else None for one in request["ids"]]
        return library.decode(request["ids"], skip_special_tokens=True)

    def do(request: Request) -> Arrays:
        try:
            answer = {"answer": answered(request)}
        except UserError as error:
            answer = {"problem": str(error)}
        except BaseException as error:  # a panic of the library, which is written in Rust, is no Exception
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            answer = {"problem": f"{setting['path']} cannot be used: {reason}"}
        return (np.frombuffer(json.dumps(answer).encode(), np.uint8),)

    return do


def _about(data: dict[str, Any], library: Any) -> dict[str, Any]:
    model = data["model"]
    return {
        "special": [id_ for id_, token in library.get_added_tokens_decoder().items() if token.special],
        "mask": id_of(library, SPELLED["mask"]),
        "prefix": str(model.get("continuing_subword_prefix") or "") if model.get("type") == "WordPiece" else "",
        "suffix": str(model.get("end_of_word_suffix") or ""),
        "whole_words": model.get("type") == "WordLevel",
        "bytes": of_bytes(data),
    }


if __name__ == "__main__":
    serve(_begin)
