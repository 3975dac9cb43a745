"""Blocks of pairs worked on in processes of their own, as many as there are cores; what comes back is in order.

The processes are started by command and spoken to through pipes: no program is imported a second time, as it would be
by `multiprocessing`, and nothing that is pickled is read. A process whose pipe ends goes too, so none outlives us. What
a process that was lost had to do is done here.
"""

import contextlib
import itertools
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
from typing import IO, Any

import numpy as np

import sightline

Arrays = tuple[np.ndarray, ...]
Request = dict[str, Any]
_HEAD = struct.Struct("<2sQ")  # the type of an array and its length
_COUNT = struct.Struct("<B")


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Processes that answer requests. ``setting`` is what they all are told first; ``do`` is how it is done here."""

    def __init__(self, setting: Request, do: Callable[[Request], Arrays], count: int) -> None:
        self._do, self._over = do, False
        self._all = [_Process(setting) for _ in range(count)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._all:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        for process in self._all:
            process.end()
        # Not waited for: they end with their processes, and whoever clears up may be the garbage collector.
        self._threads.shutdown(wait=False, cancel_futures=True)

    def answers(self, requests: Iterable[Request]) -> Iterator[Arrays]:
        """In the order of the requests. Only a few are under way at a time, so that memory stays flat."""
        waiting: deque[Future[Arrays]] = deque()
        coming = iter(requests)
        for request in itertools.islice(coming, 3 * len(self._all)):
            waiting.append(self._threads.submit(self._answer, request))
        while waiting:
            yield waiting.popleft().result()
            for request in itertools.islice(coming, 1):
                waiting.append(self._threads.submit(self._answer, request))

    def _answer(self, request: Request) -> Arrays:
        process = self._idle.get()
        try:
            found = process.ask(request)
        except (OSError, EOFError, ValueError):
            found = None
        finally:
            self._idle.put(process)
        if found is None and self._over:
            raise EOFError
        return self._do(request) if found is None else found


class _Process:
    def __init__(self, setting: Request) -> None:
        source = str(Path(sightline.__file__).parents[1])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        one = {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sightline.data.spool"],  # -P: no module of the folder we happen to stand in
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for whoever started us, and ends us by our pipe
    lines, out = sys.stdin.buffer, sys.stdout.buffer
    do = begin(json.loads(lines.readline()))
    with contextlib.suppress(BrokenPipeError):
        for line in lines:
            write_arrays(out, do(json.loads(line)))


def write_arrays(out: IO[bytes], arrays: Sequence[np.ndarray]) -> None:
    out.write(_COUNT.pack(len(arrays)))
    for array in arrays:
        out.write(_HEAD.pack(array.dtype.str[1:].encode(), len(array)))
        out.write(np.ascontiguousarray(array).tobytes())
    out.flush()


def read_arrays(pipe: IO[bytes]) -> Arrays:
    (count,) = _COUNT.unpack(_exactly(pipe, _COUNT.size))
    arrays = []
    for _ in range(count):
        name, length = _HEAD.unpack(_exactly(pipe, _HEAD.size))
        kind = np.dtype(f"<{name.decode()}")
        arrays.append(np.frombuffer(_exactly(pipe, length * kind.itemsize), kind))
    return tuple(arrays)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    found = pipe.read(size)
    if len(found) < size:
        raise EOFError
    return found
