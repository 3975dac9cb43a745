"""Blocks of pairs worked on in processes of their own, as many as there are cores; what comes back is in order.

The processes are started by command and spoken to through pipes: no program is imported a second time, as it would be
by `multiprocessing`, and nothing that is pickled is read. A process ends when its pipe ends, so none outlives us. What
a lost process had to do is done here.
"""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, TypeVar

import numpy as np

import sightline

Arrays = tuple[np.ndarray, ...]
Request = dict[str, Any]
_HEAD = struct.Struct("<2sQ")  # the type of an array and its length
_COUNT = struct.Struct("<B")
Item = TypeVar("Item")
Done = TypeVar("Done")


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_order(
    threads: ThreadPoolExecutor, do: Callable[[Item], Done], items: Iterable[Item], most: int
) -> Iterator[Done]:
    """What is done with each item, in order. At most so many are under way at a time, so that memory stays flat."""
    waiting: deque[Future[Done]] = deque()
    for item in items:
        waiting.append(threads.submit(do, item))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class Workers(contextlib.AbstractContextManager["Workers"]):
    """Processes that answer requests. Each is sent ``setting`` first; ``do`` answers a request in this process."""

    def __init__(self, setting: Request, do: Callable[[Request], Arrays], count: int) -> None:
        self._do, self._over = do, False
        self._all = [_Process(setting) for _ in range(count)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._all:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(count)

    def __exit__(self, *error: object) -> None:
        self._over = True
        for process in self._all:
            process.end()
        # Not waited for: they end with their processes, and the garbage collector may be what calls this.
        self._threads.shutdown(wait=False, cancel_futures=True)

    def answers(self, requests: Iterable[Request]) -> Iterator[Arrays]:
        """In the order of the requests."""
        return in_order(self._threads, self._answer, requests, 3 * len(self._all))

    def _answer(self, request: Request) -> Arrays:
        process = self._idle.get()
        try:
            return process.ask(request)
        except (OSError, EOFError, ValueError):
            if self._over:
                raise EOFError from None
        finally:
            self._idle.put(process)
        return self._do(request)


class _Process:
    def __init__(self, setting: Request) -> None:
        source = str(Path(sightline.__file__).parents[1])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        one = {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sightline.data.spool"],  # -P: no module of the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **one},
        )
        with contextlib.suppress(OSError):
            self._send(setting)

    def ask(self, request: Request) -> Arrays:
        self._send(request)
        assert self._process.stdout is not None
        return read_arrays(self._process.stdout)

    def _send(self, request: Request) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def serve(begin: Callable[[Request], Callable[[Request], Arrays]]) -> None:
    """What a process does: the first line sets it up, each other one is a request, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us by our pipe
    lines, answers = sys.stdin.buffer, sys.stdout.buffer
    do = begin(json.loads(lines.readline()))
    with contextlib.suppress(BrokenPipeError):
        for line in lines:
            write_arrays(answers, do(json.loads(line)))


def write_arrays(pipe: IO[bytes], arrays: Sequence[np.ndarray]) -> None:
    pipe.write(_COUNT.pack(len(arrays)))
    for array in arrays:
        pipe.write(_HEAD.pack(array.dtype.str[1:].encode(), len(array)))
        pipe.write(np.ascontiguousarray(array).tobytes())
    pipe.flush()


def read_arrays(pipe: IO[bytes]) -> Arrays:
    (count,) = _COUNT.unpack(_exactly(pipe, _COUNT.size))
    arrays = []
    for _ in range(count):
        name, length = _HEAD.unpack(_exactly(pipe, _HEAD.size))
        kind = np.dtype(f"<{name.decode()}")
        arrays.append(np.frombuffer(_exactly(pipe, length * kind.itemsize), kind))
    return tuple(arrays)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return content
