"""A pipe, kept in a file: readers may look at its beginning first."""

import gzip
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from sightline.data.source import Source
from sightline.files import whole_file


def keep_pipe(source: Source, folder: Path) -> Source:
    """What comes from a pipe is kept in a file while it is prepared: readers may look at its beginning first."""
    if source.data != "-":
        return source
    pipe = sys.stdin.buffer
    head = pipe.read(2)  # two bytes tell gzip, one tells JSON from a table; a pipe cannot be asked to go back
    rest: Any = _Rejoined(head, pipe)
    stream: Any = gzip.GzipFile(fileobj=rest, mode="rb") if head == b"\x1f\x8b" else rest
    first = stream.read(1)
    ending = source.options.get("pipe_ending", ".tsv")
    path = folder / ("rows.jsonl" if first == b"{" else f"rows{ending}")
    with whole_file(path) as part, part.open("wb") as file:
        file.write(first)
        shutil.copyfileobj(stream, file)
    return replace(source, data=str(path))


class _Rejoined:
    """A stream with the bytes that were read from it put back."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self.head, self.rest = head, rest

    def read(self, count: int = -1) -> bytes:
        if not self.head:
            return self.rest.read(count)
        given, self.head = (self.head, b"") if count < 0 else (self.head[:count], self.head[count:])
        return given + self.rest.read(-1) if count < 0 else given
