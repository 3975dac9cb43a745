"""The server under load from another process: what batching gains, how long answers take, and whether all are right.

    python benchmarks/serving.py --run RUN --sentences FILE --write

One client asks for one sentence after the other; then many clients at once, each with a connection of its own, which
ask again as soon as they have an answer. Every answer is compared with what `predict` gives. Then the server is told to
stop in the middle of the load, and every request that was sent must be answered. Loopback only; the sentences are the
first column of FILE, or made up of the run's own words. With --examples, schemathesis reads the server's own schema and
sends it what that allows and what it does not.
"""

import argparse
import asyncio
import json
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from report import machine, write_section

ALONE = 20  # seconds at most for one request at a time
SETTLED = 0.2  # of the load: memory is compared from here on


@dataclass
class Load:
    """What clients saw."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    wrong: int = 0  # a text that got two different answers, or a status other than 200
    lost: int = 0  # requests that were sent whole and never answered
    memory: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def server(
    run: Path, threads: int | None, *limits: str, also: Sequence[Path] = ()
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves the run, and others, on a free port."""
    command = [sys.executable, "-m", "sightline", "serve", *map(str, (run, *also)), "--port", "0", *limits]
    command += [] if threads is None else ["--threads", str(threads)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r":(\d+)$", line.strip())
        if found is None:
            process.kill()
            raise SystemExit(f"the server did not start: {line}{process.communicate()[1]}")
        yield process, int(found[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> tuple[int, str, bool]:
    """One request and its answer: (status, predicted text, whether it was the last of this connection)."""
    body = json.dumps({"texts": [text]}).encode()
    head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    await writer.drain()
    start = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = re.search(r"content-length: (\d+)", start)
    assert length is not None
    content = json.loads(await reader.readexactly(int(length[1])))
    status = int(start.split()[1])
    found = content["predictions"][0][0]["text"] if status == 200 else content["error"]
    return status, found, "connection: close" in start


async def client(port: int, sentences: Sequence[str], seed: int, until: float, load: Load) -> None:
    """Ask, wait for the answer, ask again, until the time is over or the server says that it closes."""
    draw = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while time.perf_counter() < until and not reader.at_eof():
            text, begun = draw.choice(sentences), time.perf_counter()
            try:
                status, found, last = await ask(reader, writer, text)
            except (OSError, asyncio.IncompleteReadError):
                load.lost += 1
                return
            load.latencies.append(time.perf_counter() - begun)
            load.wrong += status != 200 or load.answers.setdefault(text, found) != found
            if last:
                return
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def watch(process: subprocess.Popen[str], load: Load) -> None:
    """Megabytes of the server, now and then."""
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        if found:
            load.memory.append(int(found[1]) / 1024)
        await asyncio.sleep(0.25)


async def under_load(
    process: subprocess.Popen[str],
    port: int,
    sentences: Sequence[str],
    clients: int,
    seconds: float,
    stop: bool = False,
) -> Load:
    load, begun = Load(), time.perf_counter()
    watching = asyncio.create_task(watch(process, load))
    until = begun + (10 * seconds if stop else seconds)
    asking = [asyncio.create_task(client(port, sentences, seed, until, load)) for seed in range(clients)]
    if stop:
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGTERM)
    await asyncio.gather(*asking)
    load.seconds = time.perf_counter() - begun
    watching.cancel()
    return load


def different(run: Path, answers: dict[str, str]) -> int:
    """How many answers are not those of `predict`: all in batches, and some of them one by one."""
    import sightline
    from sightline.outputs.searched import Prediction

    translator, texts = sightline.load(run), sorted(answers)

    def predicted(some: list[str]) -> list[str]:
        return [one.text for one in cast("list[Prediction]", translator.predict(some))]

    wrong = sum(answers[text] != one for text, one in zip(texts, predicted(texts), strict=True))
    some = random.Random(0).sample(texts, min(50, len(texts)))
    return wrong + sum(answers[text] != predicted([text])[0] for text in some)


def read_sentences(path: Path | None, run: Path) -> list[str]:
    if path is not None:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
        return [line.split("\t")[0] for line in lines if line.strip()]
    import sightline

    tokeniser, draw = sightline.load(run).input.tokeniser, random.Random(0)  # type: ignore[attr-defined]
    words = range(8, tokeniser.words)
    return tokeniser.decode([draw.choices(words, k=draw.randint(5, 20)) for _ in range(500)])


def fuzz(run: Path, threads: int | None, examples: int) -> str:
    """schemathesis against the server's own schema, with small limits: it likes to go up to them."""
    small = (
        "--max-characters",
        "40",
        "--max-texts",
        "3",
        "--max-beam",
        "3",
        "--max-tokens",
        "40",
        "--max-measured",
        "16",
    )
    with server(run, threads, *small) as (process, port):
        outcome = schemathesis(port, examples)
        return outcome if process.poll() is None else f"{outcome}; the server ended with {process.poll()}"


def schemathesis(port: int, examples: int) -> str:
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent)) or "schemathesis"
    command = [tool, "run", f"http://127.0.0.1:{port}/openapi.json", "--max-examples", str(examples), "--no-color"]
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    with tempfile.TemporaryDirectory() as folder:  # it leaves files where it stands
        done = subprocess.run([*command, "--checks", checks], capture_output=True, text=True, cwd=folder)
    print(done.stdout[-2000:], flush=True)
    cases = re.search(r"(\d[\d,]*) generated", done.stdout)
    outcome = "no failure" if done.returncode == 0 else "FAILURES"
    return f"schemathesis, {cases[1] if cases else '?'} cases: {outcome}"


def report(alone: Load, many: Load, stopped: Load, options: argparse.Namespace, facts: dict[str, str]) -> str:
    rows = ["| | one request at a time | " + f"{options.clients} clients |", "|---|--:|--:|"]
    rows.append(f"| sentences/s | {alone.rate:.1f} | **{many.rate:.1f}** ({many.rate / alone.rate:.1f}x) |")
    for name, share in (("median", 0.5), ("99 %", 0.99)):
        rows.append(
            f"| {name} of the time to an answer | {alone.percentile(share):.0f} ms | {many.percentile(share):.0f} ms |"
        )
    rows.append(f"| answers | {len(alone.latencies):,} | {len(many.latencies):,} |")
    settled = many.memory[int(SETTLED * len(many.memory)) :]
    half = len(settled) // 2
    memory = (
        f"{statistics.median(settled[:half] or [0]):.0f} MB, then {statistics.median(settled[half:] or [0]):.0f} MB"
    )
    rows.append(f"| memory of the server, first and second half |  | {memory} |")
    facts = {
        **facts,
        "SIGTERM under load": f"{stopped.lost} requests unanswered of {len(stopped.latencies) + stopped.lost:,}",
    }
    return "\n".join([*rows, "", *(f"- {name}: {fact}" for name, fact in facts.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--sentences", type=Path, help="a .tsv file with a header, of which the first column is used")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--threads", type=int, help="of the server")
    parser.add_argument("--examples", type=int, default=0, help="schemathesis' examples for each address")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    options = parser.parse_args()
    sentences = read_sentences(options.sentences, options.run)
    facts: dict[str, str] = {}
    with server(options.run, options.threads) as (process, port):
        asyncio.run(under_load(process, port, sentences, 4, 1))  # the first requests are slower
        alone = asyncio.run(under_load(process, port, sentences, 1, min(options.seconds, ALONE)))
        many = asyncio.run(under_load(process, port, sentences, options.clients, options.seconds))
        print(f"{alone.rate:.1f} sentences/s one by one, {many.rate:.1f} from {options.clients} clients", flush=True)
        facts["Crashes"] = "none" if process.poll() is None else f"exit code {process.poll()}"
        stopped = asyncio.run(under_load(process, port, sentences, options.clients, min(3, options.seconds), stop=True))
        begun = time.perf_counter()
        code = process.wait(60)
        facts["After SIGTERM"] = f"exit code {code}, {time.perf_counter() - begun:.1f} s after the last answer"
    if options.examples:
        facts["Fuzzed"] = fuzz(options.run, options.threads, options.examples)
    answers = {**alone.answers, **many.answers, **stopped.answers}
    wrong = different(options.run, answers) + alone.wrong + many.wrong + stopped.wrong + alone.lost + many.lost
    facts["Answers that differ from predict"] = f"{wrong}, of {len(answers):,} different sentences"
    body = report(alone, many, stopped, options, facts)
    print(body)
    if options.write:
        about = f"## The server under load\n\nMeasured on {machine()}, server and clients on one machine, "
        about += f"{options.run.name}, {options.seconds:g} s, beam 5, one sentence per request.\n\n"
        write_section(
            "serving", f"{about}{body}\n\nReproduce: `python benchmarks/serving.py --run RUN --sentences FILE --write`."
        )


if __name__ == "__main__":
    main()
