"""Attacks: hostile run folders, Hugging Face folders, engines, images, requests and connections.

    python benchmarks/attacks.py --write

Folders are loaded in processes of their own. Allowed: that one is read, or an error of ours, which the command line
prints as one sentence. A fault is any other exception, a crash, more than 5 seconds of the processor, or more than 1 GB
beyond what the good folders need. Images, raw requests and connections go to a server. Meanwhile, another client asks
for a prediction all the time; a fault is an answer after more than 2 seconds, a server that crashed or that took more
than 1 GB more than when idle, or one that has not ended 30 seconds after SIGTERM.
"""

import argparse
import base64
import contextlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from report import machine, write_section
from serving import server

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "helpers"))
RUNS = ROOT / "tests" / "fixtures" / "runs"
SECONDS, MEGABYTES, ANSWER, STOP = 5.0, 1_000, 2.0, 30.0
CONNECTIONS = 1_200
TEXT = "the unhappy cat sat on the mat"


class Part:
    """The counts of one kind of attack, and its faults."""

    def __init__(self, name: str) -> None:
        self.name, self.counts, self.faults = name, Counter[str](), list[str]()
        self.slowest = self.largest = 0.0

    def add(self, case: str, outcome: str, seconds: float, megabytes: float) -> None:
        if seconds > SECONDS:
            outcome = f"fault: {seconds:.1f} s"
        if megabytes > MEGABYTES:
            outcome = f"fault: {megabytes:,.0f} MB"
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, megabytes)
        self.counts[outcome.partition(":")[0]] += 1
        if outcome.startswith("fault"):
            self.faults.append(f"{case}: {outcome}")
            print(f"{self.name}: {case}: {outcome}", file=sys.stderr, flush=True)

    def row(self) -> str:
        counts = f"{self.counts.total():,} | {self.counts['read']:,} | {self.counts['refused']:,} | {len(self.faults)}"
        return f"| {self.name} | {counts} | {self.slowest:.1f} | {max(0.0, self.largest):,.0f} |"


def in_a_process(do: Callable[[], Any]) -> tuple[str, float, float]:
    """What came of it, the seconds of the processor, and the megabytes more than before."""
    reading, writing = os.pipe()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = os.fork()
    if not child:
        signal.alarm(60)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        from sightline.errors import SightlineError

        began = time.process_time()
        try:
            do()
            outcome = "read"
        except SightlineError as error:
            outcome = (
                "refused" if "\n" not in str(error) and len(str(error)) < 2_000 else f"fault: {str(error)[:200]!r}"
            )
        except BaseException as error:
            outcome = f"fault: {type(error).__name__}: {str(error)[:200]}"
        own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        seconds = time.process_time() - began + others.ru_utime + others.ru_stime
        grown = max(own.ru_maxrss - base, others.ru_maxrss) / 1024
        os.write(writing, json.dumps([outcome, seconds, grown]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return tuple(json.loads(told)) if told else (f"fault: it died by signal {status & 127}", 0.0, 0.0)


def on_copies(name: str, cases: dict[str, tuple[Path, Callable[[Path], Any]]], read: Callable[[Path], Any]) -> Part:
    """Each case changes a copy of a good folder."""
    part = Part(name)
    with tempfile.TemporaryDirectory(prefix="sightline-attacks-") as home:
        for case, (good, change) in cases.items():
            folder = Path(home) / "case"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(good, folder)
            change(folder)
            part.add(case, *in_a_process(lambda folder=folder: read(folder)))  # type: ignore[misc]
    return part


def run_folders() -> Part:
    from sightline.api import load
    from sightline.tasks.registry import task_of

    def read(folder: Path) -> None:
        task_of(folder)
        load(folder)

    cases = importlib.import_module("hostile_folders").hostile_runs()
    for good in {good for good, _ in cases.values()}:
        read(good)
    return on_copies("run folders", cases, read)


def huggingface_folders(home: Path) -> list[Part]:
    from sightline.interop.huggingface import load
    from sightline.interop.pretrained import load_pretrained

    importlib.import_module("foreign_models").save_folder(home / "huggingface", "vector")
    cases = {
        name: (home / "huggingface", change)
        for name, change in importlib.import_module("hostile_folders").hostile_huggingface().items()
    }
    readers: dict[str, Callable[[Path], Any]] = {
        "Hugging Face folders, `view hf:`": lambda folder: load(folder).explain(TEXT, measure=False),
        "Hugging Face folders, `--from`": load_pretrained,
    }
    for read in readers.values():
        read(home / "huggingface")
    return [on_copies(name, cases, read) for name, read in readers.items()]


def engines(home: Path, count: int = 60) -> list[Part]:
    """Damaged files of other engines, with checksums that fit."""
    from sightline.export.engine import Format, engine_for
    from sightline.export.run import export_run

    importlib.import_module("exported").run_of(home / "run")
    parts = []
    files: dict[Format, tuple[str, ...]] = {"ctranslate2": ("model.bin",), "onnx": ("encoder.onnx", "step.onnx")}
    for to, names in files.items():
        export_run(home / "run", to, home / to)
        engine_for(to, home / to, 1).greedy([[5, 6, 7]], 8)
        cases = {f"damage {number}": (home / to, _damage(names, number)) for number in range(count)}

        def read(folder: Path, to: Format = to) -> None:
            engine_for(to, folder, 1).greedy([[5, 6, 7]], 8)

        parts.append(on_copies(f"folders of {to}", cases, read))
    return parts


def _damage(names: tuple[str, ...], seed: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        draw = random.Random(seed)
        path = folder / draw.choice(names)
        content = bytearray(path.read_bytes())
        for _ in range(draw.choice((1, 3, 20))):
            content[draw.randrange(min(len(content), draw.choice((300, 3_000, len(content)))))] = draw.randrange(256)
        path.write_bytes(bytes(content))

    return change


class Probe:
    """A client that asks for a good prediction all the time, and watches the memory of the server."""

    def __init__(self, process: int, port: int) -> None:
        self.process, self.port = process, port
        self.latest = self.peak = 0.0
        self.failed: list[str] = []
        self.over = threading.Event()
        self.idle = memory_of(process)
        self.threads = [threading.Thread(target=one, daemon=True) for one in (self._ask, self._watch)]

    def _ask(self) -> None:
        body = json.dumps({"run": "translate", "texts": ["a"], "beam": 1}).encode()
        while not self.over.wait(0.1):
            began = time.monotonic()
            try:
                status = post(self.port, body, 60)
            except OSError as error:
                status, self.failed = 0, [*self.failed, f"fault: {error}"]
            if status not in (200, 0, 503):
                self.failed.append(f"fault: status {status}")
            self.latest = max(self.latest, time.monotonic() - began)

    def _watch(self) -> None:
        while not self.over.wait(0.05):
            self.peak = max(self.peak, memory_of(self.process) - self.idle)

    def __enter__(self) -> "Probe":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(70)

    def finish(self, part: Part) -> None:
        """The longest wait for a good answer; nothing lost, no memory."""
        part.largest = self.peak
        late = [f"a good request took {self.latest:.1f} s"] if self.latest > ANSWER else []
        part.faults += [*self.failed, *late, *([f"{self.peak:,.0f} MB"] if self.peak > MEGABYTES else [])]


def memory_of(process: int) -> float:
    """Megabytes of a process and its children."""
    total = 0
    for one in (process, *children_of(process)):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return total * resource.getpagesize() / 2**20


def children_of(process: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            children += map(int, (task / "children").read_text().split())
    return children


def post(port: int, body: bytes, seconds: float = 30.0, path: str = "/predict") -> int:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    return sent(port, head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body, seconds)


def sent(port: int, content: bytes, seconds: float = 30.0) -> int:
    """The status of the first answer; 0 if the connection was closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(content)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while len(answer) < 12 and (some := connection.recv(4096)):
                answer += some
    return int(answer[9:12]) if answer[:5] == b"HTTP/" else 0


def raw_requests() -> Iterator[tuple[str, bytes]]:
    """Requests as bytes."""
    good = json.dumps({"run": "translate", "texts": ["a"]}).encode()
    length = b"content-length: %d\r\n" % len(good)
    kind = b"content-type: application/json\r\n"

    def whole(
        host: bytes = b"localhost", more: bytes = b"", body: bytes = good, line: bytes = b"POST /predict HTTP/1.1"
    ) -> bytes:
        return line + b"\r\nhost: " + host + b"\r\nconnection: close\r\n" + kind + more + b"\r\n" + body

    hosts = ["[::1].evil.com", "127.0.0.1:9@evil.com", "evil.com", "", "[::1", "localhost.evil.com", "a b", "%31"]
    for host in [*hosts, "x" * 5_000, "127.0.0.1:99999999", "\xff", "localhost, evil.com", "127.1", "0.0.0.0", "[::]"]:
        yield f"host {host[:30]}", whole(host.encode("latin-1"), length)
    for line in (
        "",
        "GET",
        "GET /",
        "GET / HTTP/9.9",
        "POST /predict HTTP/1.0",
        "\0",
        "PRI * HTTP/2.0",
        "OPTIONS * HTTP/1.1",
    ):
        yield f"line {line!r}", whole(line=line.encode(), more=length)
    for path in (
        "/../../etc/passwd",
        "//",
        "/%00",
        "/%2e%2e/",
        "/predict/",
        "/docs?" + "a" * 20_000,
        "http://evil.com/",
        "*",
    ):
        yield f"path {path[:30]}", whole(line=f"GET {path} HTTP/1.1".encode(), body=b"")
    chunks = b"transfer-encoding: chunked\r\n"
    for name, more, body in (
        ("one-byte chunks", chunks, b"1\r\na\r\n" * 200_000),
        ("chunks and a length", chunks + length, b"0\r\n\r\n"),
        ("a length and chunks", length + chunks, good),
        ("two lengths", length + b"content-length: 5\r\n", good),
        ("a negative length", b"content-length: -1\r\n", good),
        ("a huge length", b"content-length: 99999999999999999999\r\n", good),
        ("a length in hex", b"content-length: 0x10\r\n", good),
        ("no length", b"", good),
        ("gzip", length + b"content-encoding: gzip\r\n", good),
        ("another coding", b"transfer-encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
        ("a chunk of 2^64", chunks, b"ffffffffffffffff\r\n"),
        ("expect", length + b"expect: 100-continue\r\n", good),
        ("upgrade", length + b"upgrade: websocket\r\nconnection: upgrade\r\n", good),
        ("a folded header", length + b"x: a\r\n b\r\n", good),
        ("a header without a name", length + b": a\r\n", good),
        ("a header of 100 kB", length + b"x: " + b"a" * 100_000 + b"\r\n", good),
        ("5,000 headers", length + b"x: a\r\n" * 5_000, good),
        ("a NUL", length + b"x: \0\r\n", good),
        ("only line feeds", b"", b"\n" * 60_000),
    ):
        yield name, whole(more=more, body=body)
    values: list[Any] = [None, True, -1, 0, 1e308, 10**30, "", "x" * 900_000, [], {}, [[]], ["\ud800"], [None], "nan"]
    for field in (
        "run",
        "texts",
        "beam",
        "max_length",
        "temperature",
        "prefix",
        "no_repeat",
        "best",
        "sample",
        "unknown",
    ):
        for value in values:
            body = json.dumps({"run": "translate", "texts": ["a"], field: value}).encode()
            yield f"{field} {str(value)[:20]}", whole(more=b"content-length: %d\r\n" % len(body), body=body)
    texts = {"run": "translate", "texts": ["ab " * 600] * 64, "beam": 16}
    for name, body in (
        ("deep", b"[" * 900_000),
        ("many fields", b"{" + b",".join(b'"%d":0' % n for n in range(90_000)) + b"}"),
        ("many lists", b"[" + b"[]," * 300_000 + b"[]]"),
        ("a number of a million digits", b'{"texts": ["a"], "beam": ' + b"9" * 1_000_000 + b"}"),
        ("UTF-16", json.dumps({"texts": ["a"]}).encode("utf-16")),
        ("not UTF-8", b'{"texts": ["\xff"]}'),
        ("quotes", b'"' * 1_000_000),
        ("backslashes", b'{"texts": ["' + b"\\" * 900_000),
        ("NaN", b'{"texts": ["a"], "temperature": NaN}'),
        ("the longest work", json.dumps(texts).encode()),
    ):
        yield name, whole(more=b"content-length: %d\r\n" % len(body), body=body)


def served(home: Path) -> list[Part]:
    """A server of three runs, attacked; and its end while it is attacked."""

    for name in ("translate", "classify-image", "grid"):
        shutil.copytree(RUNS / name / "run", home / "served" / name)
    images, requests, connections, end = (Part(name) for name in ("images", "requests", "connections", "SIGTERM"))
    runs = home / "served"
    with server(runs / "translate", 1, also=(runs / "classify-image", runs / "grid")) as (process, port):
        post(port, json.dumps({"run": "translate", "texts": ["a"]}).encode())

        def attack(part: Part, case: str, do: Callable[[], int]) -> None:
            began = time.monotonic()
            try:
                status = do()
                outcome = (
                    "read" if status == 200 else "refused" if status < 500 or status in (503, 504) else "fault: 500"
                )
            except OSError as error:
                outcome = f"fault: {error}"
            part.add(case, outcome, 0.0 if case == "the longest work" else time.monotonic() - began, 0.0)
            if process.poll() is not None:
                raise SystemExit(f"the server died: {case}")

        with Probe(process.pid, port) as probe:
            for name, content in importlib.import_module("hostile_images").bombs().items():
                for run in ("classify-image", "grid"):
                    body = json.dumps({"run": run, "images": [base64.b64encode(content).decode()]}).encode()
                    attack(images, f"{run}, {name}", lambda body=body: post(port, body))  # type: ignore[misc]
        probe.finish(images)
        with Probe(process.pid, port) as probe:
            for name, content in raw_requests():
                attack(requests, name, lambda content=content: sent(port, content))  # type: ignore[misc]
        probe.finish(requests)
        with Probe(process.pid, port) as probe:
            connected(port, connections)
        probe.finish(connections)
        bomb = base64.b64encode(
            importlib.import_module("hostile_images").bombs()["TIFF of a million tiles of a pixel"]
        ).decode()
        body = json.dumps({"run": "classify-image", "images": [bomb]}).encode()

        def decoded() -> None:
            with contextlib.suppress(OSError):
                post(port, body)

        for _ in range(8):
            threading.Thread(target=decoded, daemon=True).start()
        time.sleep(1)
        helpers = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        process.wait(60)
        end.add("while it decodes", "read" if process.returncode == 0 else "refused", 0.0, 0.0)
        end.slowest = time.monotonic() - began
        left = [one for one in helpers if Path(f"/proc/{one}").exists()]
        end.faults += [f"{end.slowest:.1f} s"] * (end.slowest > STOP) + [f"processes left: {left}"] * bool(left)
    return [images, requests, connections, end]


def connected(port: int, part: Part) -> None:
    """Many clients at once that send half of a request, or nothing; those beyond the limit are told so."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8_192), most))
    clients = []
    try:
        for number in range(CONNECTIONS):
            client = socket.create_connection(("127.0.0.1", port), timeout=20)
            client.sendall(b"POST /predict HTTP/1.1\r\nhost: local" if number % 2 else b"")
            clients.append(client)
        time.sleep(1)
        for number, client in enumerate(clients):
            client.setblocking(False)
            try:
                answer = client.recv(4096)
            except (BlockingIOError, ConnectionError):
                answer = b"waits"
            part.add(str(number), "refused" if b"503" in answer else "read", 0.0, 0.0)
    finally:
        for client in clients:
            client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("runs", "huggingface", "engines", "served"))
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="sightline-attacks-") as name:
        home = Path(name)
        kinds: dict[str, Callable[[], list[Part]]] = {
            "served": lambda: served(home),  # first: this process is small, and no engine has threads in it
            "runs": lambda: [run_folders()],
            "huggingface": lambda: huggingface_folders(home),
            "engines": lambda: engines(home),
        }
        parts = [part for kind, do in kinds.items() if chosen.only in (None, kind) for part in do()]
    faults = [f"{part.name}: {fault}" for part in parts for fault in part.faults]
    table = ["| | cases | read | refused | faults | slowest, s | MB more |", "|---|--:|--:|--:|--:|--:|--:|"]
    table += [part.row() for part in parts]
    counts = f"{sum(part.counts.total() for part in parts):,} cases, {len(faults)} faults."
    print("\n".join([counts, "", *table, *faults]))
    if chosen.write:
        again = "Reproduce: `python benchmarks/attacks.py --write`."
        text = "\n".join([counts, "", *table])
        write_section("attacks", "\n\n".join(["## Attacks", f"Measured on {machine()}.", text, again]))


if __name__ == "__main__":
    main()
