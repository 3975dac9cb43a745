"""Rows of JSON files that are one value: a list of objects, an object that holds such a list, or captions as COCO has
them. One row is in memory at a time, whatever the file is like."""

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from sightline.data.tables import LINE_LIMIT, Line, decode, json_object, lines_of, name_of, open_unpacked, opening
from sightline.errors import UserError

CHUNK = 1 << 16
_BLANKS = re.compile(r"[ \t\r\n]*")
JsonRow = tuple[int, dict[str, Any], str | None]  # its number, its fields, what is wrong with it


def json_rows(path: str) -> Iterator[JsonRow]:
    """The rows of a file that ends in .json, which may hold JSON lines all the same."""
    first = list(itertools.islice((line for line in lines_of(path) if line.content.strip()), 2))
    if len(first) == 2 and all(_is_object(line) for line in first):
        yield from map(json_line, lines_of(path))
        return
    keys = dict.fromkeys(key for key, _ in _elements(path))
    if {"images", "annotations"} <= {*keys}:
        yield from _coco(path)
        return
    if len(keys) > 1:
        named = ", ".join(map(repr, keys))
        raise UserError(f"{name_of(path)}: found an object with the lists {named}; expected one list of rows")
    for number, (_, value) in enumerate(_elements(path), start=1):
        problem = None if isinstance(value, dict) else "bad JSON: found no object in the list, expected one"
        yield number, value if problem is None else {}, problem


def json_line(line: Line) -> JsonRow:
    """A line of JSON."""
    text, problem = decode(line)
    return (line.number, *json_object(text, "an object")) if problem is None else (line.number, {}, problem)


def _is_object(line: Line) -> bool:
    return line.content.lstrip(b"\xef\xbb\xbf \t").startswith(b"{") and json_line(line)[2] is None


def _coco(path: str) -> Iterator[JsonRow]:
    """Captions with the name of their image. Images may stand behind their captions, so the file is read twice."""
    files = {}
    for key, value in _elements(path):
        if key == "images" and isinstance(value, dict) and isinstance(value.get("id"), int | str):
            files[value["id"]] = value.get("file_name")
    annotations = (value for key, value in _elements(path) if key == "annotations")
    for number, value in enumerate(annotations, start=1):
        image = value.get("image_id") if isinstance(value, dict) else None
        if not isinstance(image, int | str) or image not in files:
            yield number, {}, "bad caption: found no image of it, expected the image_id of one of the images"
        elif "caption" not in value:
            yield number, {}, "missing field: found no 'caption', expected a file of captions"
        else:
            yield number, {"image": files[image], "caption": value["caption"]}, None


def _elements(path: str) -> Iterator[tuple[str | None, Any]]:
    """The elements of the list that a file is (with None), or of the lists of the object that it is (with their key).
    Other fields of the object are passed over."""
    name = name_of(path)
    with opening(path, lambda: 0), ExitStack() as stack:
        text = _Text(name, open_unpacked(path, stack))
        if text.next() == "[":
            yield from ((None, one) for one in text.elements())
        elif text.next() == "{":
            text.take("{")
            while text.next() != "}":
                key = text.value()
                text.take(":")
                if text.next() == "[":
                    yield from ((str(key), one) for one in text.elements())
                else:
                    text.value()
                if text.next() != ",":
                    break
                text.take(",")
            text.take("}")
        elif text.next():
            raise text.wrong("expected a list of objects")
        if text.next():
            raise text.wrong("expected its end; if it has an object a line, call it .jsonl")


class _Text:
    """The text of a stream, of which the end of one value and the next are in memory."""

    def __init__(self, name: str, stream: Any) -> None:
        self.name, self.stream = name, stream
        self.rest, self.at, self.read = "", 0, 0
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.json = json.JSONDecoder()
        self.ended = False

    def more(self) -> bool:
        if self.ended:
            return False
        content = self.stream.read(CHUNK)
        self.ended = not content
        self.read += self.at
        try:
            self.rest, self.at = self.rest[self.at :] + self.decoder.decode(content, self.ended), 0
        except UnicodeDecodeError:
            raise self.wrong("expected UTF-8") from None
        return True

    def next(self) -> str:
        """The next character that is no blank, which stays where it is; empty at the end."""
        while True:
            self.at = _BLANKS.match(self.rest, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.rest):
                return self.rest[self.at]
            if not self.more():
                return ""

    def take(self, sign: str) -> None:
        if self.next() != sign:
            raise self.wrong(f"expected {sign!r}")
        self.at += 1

    def elements(self) -> Iterator[Any]:
        self.take("[")
        while self.next() != "]":
            yield self.value()
            if self.next() != ",":
                break
            self.take(",")
        self.take("]")

    def value(self) -> Any:
        """The next value, which has at most `LINE_LIMIT` characters."""
        self.next()
        while True:
            try:
                value, end = self.json.raw_decode(self.rest, self.at)
                if end < len(self.rest) or not self.more():  # a number may go on
                    self.at = end
                    return value
            except (ValueError, RecursionError) as error:
                if len(self.rest) - self.at > LINE_LIMIT or not self.more():
                    raise self.wrong(str(error).partition(":")[0]) from None
            if len(self.rest) - self.at > LINE_LIMIT + CHUNK:
                raise self.wrong(f"expected values of at most {LINE_LIMIT:,} characters")

    def wrong(self, what: str) -> UserError:
        return UserError(f"{self.name}: bad JSON at character {self.read + self.at:,}: {what}")
