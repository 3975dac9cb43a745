"""Checked rows kept in a file while they are prepared: they are read and checked once, however often they are needed.

A row is a list of plain data. The file is cut into blocks, a list of rows in JSON each, and what has to be computed of
every row is computed a block at a time; of pairs of texts in several processes where there are many.
"""

import base64
import itertools
import json
import shutil
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.disk import hash_of, scratch_array
from sightline.data.progress import counted
from sightline.data.splitting import normalise
from sightline.data.store import TokenBlock, flat
from sightline.data.workers import Arrays, Request, Workers, cores, serve
from sightline.errors import MachineError
from sightline.text.copying import numbered_sources, numbered_targets
from sightline.text.tokeniser import Tokeniser

BLOCK = 4096  # rows
PARALLEL = 50_000  # pairs; processes for fewer would take longer to start than they save

Row = Sequence[Any]


class Marks:
    """Yes or no for every pair, in a bit each."""

    def __init__(self, blocks: Iterable[np.ndarray]) -> None:
        self.count = 0
        self._packed: list[bytes] = []
        for block in blocks:
            self.count += int(block.sum())
            self._packed.append(np.packbits(block).tobytes())

    def block(self, number: int, size: int) -> np.ndarray:
        return np.unpackbits(np.frombuffer(self._packed[number], np.uint8), count=size)

    def packed(self, number: int) -> bytes:
        return self._packed[number]


class Spool(AbstractContextManager["Spool"]):
    """The rows, kept under ``folder`` until the block ends."""

    def __init__(self, folder: Path, rows: Iterable[Row], processes: int | None = None) -> None:
        self.folder = folder
        self.path = folder / "rows"
        self.count = 0
        self._places = [0]  # where blocks begin
        self._sizes: list[int] = []
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self._fill(rows)
        except OSError as error:
            self.remove()
            raise MachineError(f"the rows cannot be kept in {folder}: {error.strerror or error}") from None
        except BaseException:
            self.remove()
            raise
        many = self.count >= PARALLEL
        self.processes = (cores() if many else 1) if processes is None else processes

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _fill(self, rows: Iterable[Row]) -> None:
        coming = iter(counted(rows, "reading"))
        with self.path.open("wb") as file:
            while block := list(itertools.islice(coming, BLOCK)):
                self._places.append(self._places[-1] + file.write(json.dumps(block, ensure_ascii=False).encode()))
                self._sizes.append(len(block))
                self.count += len(block)

    def blocks(self) -> Iterator[list[Row]]:
        with self.path.open("rb") as file:
            for start, end in itertools.pairwise(self._places):
                yield json.loads(file.read(end - start))

    def rows(self, marks: Marks | None = None) -> Iterator[Row]:
        """All rows in their order, or those that are marked."""
        for number, block in enumerate(self.blocks()):
            if marks is None:
                yield from block
            else:
                yield from itertools.compress(block, marks.block(number, len(block)).tolist())

    def numbers(self, *of: Callable[[Row], Any], kind: Any = np.uint64) -> tuple[np.ndarray, ...]:
        """One number of each row by each function, in files and not in memory."""
        blocks = counted(self.blocks(), "comparing", self.count, len)
        return self._filled(([[function(row) for row in block] for function in of] for block in blocks), len(of), kind)

    def _filled(self, blocks: Iterable[Sequence[Any]], count: int, kind: Any = np.uint64) -> tuple[np.ndarray, ...]:
        """So many arrays in files, out of their parts for each block."""
        arrays = tuple(scratch_array(self.count, kind) for _ in range(count))
        start = 0
        for block in blocks:
            end = start + len(block[0])
            for array, values in zip(arrays, block, strict=True):
                array[start:end] = values
            start = end
        return arrays

    def mark(self, of: Callable[[int, int], np.ndarray]) -> Marks:
        """Marks by a function of the first pair of a block and the one behind its last."""
        ends = itertools.accumulate(self._sizes)
        return Marks(of(end - size, end) for size, end in zip(self._sizes, ends, strict=True))

    def both(self, one: Marks, other: Marks) -> Marks:
        """What is marked in both."""
        sizes = enumerate(self._sizes)
        return Marks(one.block(number, size) & other.block(number, size) for number, size in sizes)

    def hashes(self, key: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every pair: its hash as it is, and those of its source (with the key) and target, normalised."""
        with closing(self._answers({"job": "hash", "key": key.hex()}, None, "comparing")) as answers:
            pairs, sources, targets = self._filled(answers, 3)
        return pairs, sources, targets

    def encoded(
        self, source: Tokeniser, target: Tokeniser, marks: Marks | None = None, copying: bool = False
    ) -> Generator[TokenBlock, None, None]:
        """The tokens of all pairs in their order, or of those that are marked. To be closed: it may have processes.

        With ``copying``, unknown words of the source have numbers (`sightline.text.copying`).
        """
        setting: Request = {"job": "encode", "tokenisers": None, "copying": copying}
        if self.processes > 1:
            paths = [str(self.folder / "source.json"), str(self.folder / "target.json")]
            for tokeniser, path in zip((source, target), paths, strict=True):
                tokeniser.save(Path(path))
            setting["tokenisers"] = paths
        with closing(self._answers(setting, marks, "tokenising", (source, target))) as answers:
            yield from (TokenBlock(*arrays) for arrays in answers)

    def _answers(
        self, setting: Request, marks: Marks | None, stage: str, tokenisers: tuple[Tokeniser, Tokeniser] | None = None
    ) -> Generator[Arrays, None, None]:
        setting = {**setting, "path": str(self.path)}
        total = self.count if marks is None else marks.count
        with ExitStack() as stack:
            do = stack.enter_context(_Jobs(setting, tokenisers))
            requests = self._requests(marks)
            if self.processes > 1:
                workers = stack.enter_context(Workers(setting, do, self.processes))
                answers: Iterable[Arrays] = workers.answers(requests)
            else:
                answers = map(do, requests)
            yield from counted(answers, stage, total, lambda arrays: len(arrays[1]))

    def _requests(self, marks: Marks | None) -> Iterator[Request]:
        for number, (start, end) in enumerate(itertools.pairwise(self._places)):
            request: Request = {"start": start, "length": end - start}
            if marks is not None:
                request["marks"] = base64.b64encode(marks.packed(number)).decode()
            yield request


class _Jobs(AbstractContextManager["_Jobs"]):
    """What is done with a block, here or in a process."""

    def __init__(self, setting: Request, tokenisers: tuple[Tokeniser, Tokeniser] | None = None) -> None:
        self._file = open(setting["path"], "rb")  # noqa: SIM115 - open as long as the jobs are
        self._lock = threading.Lock()
        self._do: Callable[[list[Row]], Arrays]
        if setting["job"] == "hash":
            key = bytes.fromhex(setting["key"])
            self._do = lambda pairs: _hashed(pairs, key)
        else:
            if tokenisers is None:
                source, target = setting["tokenisers"]
                first = Tokeniser.load(Path(source))
                same = Path(source).read_bytes() == Path(target).read_bytes()
                tokenisers = first, first if same else Tokeniser.load(Path(target))
            do = _numbered if setting["copying"] else _tokenised
            self._do = lambda pairs: do(pairs, *tokenisers)

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __call__(self, request: Request) -> Arrays:
        with self._lock:
            self._file.seek(request["start"])
            content = self._file.read(request["length"])
        pairs = json.loads(content)
        if "marks" in request:
            packed = np.frombuffer(base64.b64decode(request["marks"]), np.uint8)
            pairs = list(itertools.compress(pairs, np.unpackbits(packed, count=len(pairs)).tolist()))
        return self._do(pairs)


def _hashed(pairs: list[Row], key: bytes) -> Arrays:
    count = len(pairs)
    return (
        np.fromiter((hash_of(f"{source}\0{target}") for source, target in pairs), np.uint64, count),
        np.fromiter((hash_of(normalise(source), key) for source, _ in pairs), np.uint64, count),
        np.fromiter((hash_of(normalise(target)) for _, target in pairs), np.uint64, count),
    )


def _tokenised(pairs: list[Row], source: Tokeniser, target: Tokeniser) -> Arrays:
    return (
        *flat(source.encode([a for a, _ in pairs]), np.int32),
        *flat(target.encode([b for _, b in pairs]), np.int32),
    )


def _numbered(pairs: list[Row], source: Tokeniser, target: Tokeniser) -> Arrays:
    sources, targets = [a for a, _ in pairs], [b for _, b in pairs]
    return (
        *flat(numbered_sources(source, sources), np.int32),
        *flat(numbered_targets(target, sources, targets), np.int32),
    )


if __name__ == "__main__":
    serve(_Jobs)
