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
import threading
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
        self._all = [Process("sightline.data.spool", setting) for _ in range(count)]
        self._idle: SimpleQueue[Process] = SimpleQueue()
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


class Process:
    """One process, which runs ``module``. It answers one request at a time, and can be killed."""

    def __init__(self, module: str, setting: Request) -> None:
        source = str(Path(sightline.__file__).parents[1])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        one = {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],  # -P: no module of the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **one},
        )
        with contextlib.suppress(OSError):
            self._send(setting)

    def ask(self, request: Request, content: bytes = b"", seconds: float | None = None) -> Arrays:
        """The answer. ``content`` follows the request. After so many seconds the process is killed: an EOFError."""
        assert self._process.stdout is not None
        if seconds is None:
            self._send(request, content)
            return read_arrays(self._process.stdout)
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            self._send(request, content)
            return read_arrays(self._process.stdout)
        finally:
            timer.cancel()

    def _send(self, request: Request, content: bytes = b"") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def limit_memory(size: int) -> None:
    """Let this process take so many bytes more than it has, where the system can (not on Windows)."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
        most = pages * resource.getpagesize() + size
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


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
        pipe.write(np.ascontiguousarray(array).data)
    pipe.flush()


def read_arrays(pipe: IO[bytes]) -> Arrays:
    (count,) = _COUNT.unpack(_exactly(pipe, _COUNT.size))
    arrays = []
    for _ in range(count):
        name, length = _HEAD.unpack(_exactly(pipe, _HEAD.size))
        kind = np.dtype(f"<{name.decode()}")
        arrays.append(np.frombuffer(_exactly(pipe, length * kind.itemsize), kind))
    return tuple(arrays)


def _exactly(pipe: IO[bytes], size: int) -> bytearray:
    content = bytearray(size)
    if pipe.readinto(content) < size:  # type: ignore[attr-defined]
        raise EOFError
    return content
