"""Strangers' files: damaged at random, read by every reader and loader, which must answer with their own errors.

    python benchmarks/fuzz.py --cases 100000 --write

Each case takes a good file or run folder, damages it (bytes flipped, cut, doubled, swapped, numbers made huge, parts of
JSON replaced by other kinds) and reads it. Allowed: that it is read, or an error of ours, which the command line prints
as one sentence. Counted as a fault: any other exception, more than 5 seconds, or more than ``--megabytes`` beyond what
the good files need.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from fuzz_targets import Target, images, runs, tables
from report import machine, write_section

SECONDS = 5.0  # of the processor
HANGING = 60  # on the clock: then a case is cut off
# An image of as many pixels as are allowed (100 million) takes 300 MB, and as much again while it is turned into RGB.
MEGABYTES = 1000
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    10**30,
    "",
    "x" * 500,
    [],
    {},
    [[]],
    {"kind": "additive"},
    [None],
    "nan",
    2**31,
]
NUMBERS = [b"0", b"-1", b"99999999999", b"1e999", b"NaN", b"null", b"2147483648", b"1e-400"]


def damaged(content: bytes, draw: random.Random) -> bytes:
    """One to four faults."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(FAULTS)(content, draw)
    return content


def _flip(content: bytes, draw: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 20))):
        if found:
            found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _double(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    end = min(len(content), start + draw.choice((1, 8, 64, 1024)))
    return content[:end] + content[start:end] * draw.choice((1, 2, 50)) + content[end:]


def _put_in(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    odd = (b"\0", b"\xff\xfe", b"\xed\xa0\x80", b'"', b"\t" * 9, b"\n\r", b"{" * 3000, b"[" * 3000, *NUMBERS)
    return content[:start] + draw.choice(odd) + content[start + draw.choice((0, 1, 4)) :]


def _number(content: bytes, draw: random.Random) -> bytes:
    places = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not places:
        return _flip(content, draw)
    start = draw.choice(places)
    end = start
    while end < len(content) and 48 <= content[end] < 58:
        end += 1
    return content[:start] + draw.choice(NUMBERS) + content[end:]


def _json(content: bytes, draw: random.Random) -> bytes:
    """A value somewhere in a JSON file becomes another kind; or in one of its lines, or in a safetensors header."""
    lines = content.split(b"\n")
    if content[:1] == b"{" and len(lines) > 2 and lines[0][-1:] == b"}":
        number = draw.randrange(len(lines))
        return b"\n".join([*lines[:number], _json(lines[number], draw), *lines[number + 1 :]])
    size = int.from_bytes(content[:8], "little")
    if content[8:9] == b"{" and 8 + size <= len(content):
        header = _json(content[8 : 8 + size], draw)
        return len(header).to_bytes(8, "little") + header + content[8 + size :]
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return _flip(content, draw)
    places = list(_places(data))
    if not places:
        return json.dumps(draw.choice(ODD)).encode()
    holder, key = draw.choice(places)
    if draw.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = draw.choice(ODD)
    return json.dumps(data).encode()


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    keys = data.keys() if isinstance(data, dict) else range(min(len(data), 50)) if isinstance(data, list) else ()
    for key in list(keys):
        yield data, key
        yield from _places(data[key])


FAULTS = (_flip, _cut, _double, _put_in, _number, _json, _json)


class TooLong(BaseException):
    """A case that does not end."""


def _too_long(*signal_and_frame: object) -> None:
    raise TooLong


def attempt(target: Target, folder: Path, draw: random.Random) -> tuple[str, float]:
    """What came of one case: read, refused or a fault; and the seconds it took."""
    from sightline.data.images import BadImage
    from sightline.errors import SightlineError

    name = draw.choice(target.names)
    target.write(folder, {name: damaged(target.content[name], draw)})
    began = time.process_time()  # of this process: others may run beside it
    signal.setitimer(signal.ITIMER_REAL, HANGING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(folder)
        result = "read"
    except (SightlineError, BadImage):
        result = "refused"
    except TooLong:
        result = f"fault: cut off after {HANGING} s"
    except BaseException as error:  # also a panic of a library in Rust, which is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        result = f"fault: {type(error).__name__}: {str(error)[:80]} ({Path(where.filename).name}:{where.lineno})"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.process_time() - began
    return (result if seconds <= SECONDS else f"fault: {seconds:.1f} s"), seconds


def work(names: list[str] | None, cases: int, seed: int, megabytes: int, queue: Any) -> None:
    """The share of one process."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _too_long)
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="sightline-fuzz-") as name:
        made = Path(name) / "made"
        made.mkdir()
        targets = {**tables(), **runs(made), **images()}
        targets = {key: target for key, target in targets.items() if names is None or key in names}
        for key, target in targets.items():  # what is good must be read, and what it needs is not counted
            folder = Path(name) / "good" / key.replace(" ", "-")
            target.write(folder, {})
            target.read(folder)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(cases):
            key = list(targets)[number % len(targets)]
            folder = Path(name) / "case"
            result, seconds = attempt(targets[key], folder, draw)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024
            if grown > megabytes:
                result = f"fault: {grown:,.0f} MB"
                base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if result.startswith("fault"):
                kept = Path(tempfile.gettempdir()) / f"sightline-fuzz-fault-{seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept)
                result += f" [{kept}]"
            queue.put((key, result, seconds))
            shutil.rmtree(folder, ignore_errors=True)
    queue.put(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    queue = multiprocessing.get_context("spawn").Queue()
    share = -(-chosen.cases // chosen.processes)
    started = [
        multiprocessing.get_context("spawn").Process(
            target=work, args=(chosen.only, share, chosen.seed + number, chosen.megabytes, queue)
        )
        for number in range(chosen.processes)
    ]
    for process in started:
        process.start()
    counts: dict[str, Counter[str]] = {}
    faults: Counter[str] = Counter()
    slowest, ended, done = 0.0, 0, 0
    while ended < len(started):
        try:
            found = queue.get(timeout=2 * HANGING)
        except Empty:
            codes = [process.exitcode for process in started]
            raise SystemExit(f"a process has ended before its cases did: exit codes {codes}") from None
        if found is None:
            ended += 1
            continue
        key, result, seconds = found
        counts.setdefault(key, Counter())[result.split(":")[0]] += 1
        slowest, done = max(slowest, seconds), done + 1
        if result.startswith("fault"):
            faults[f"{key}: {result}"] += 1
            print(f"{key}: {result}", file=sys.stderr, flush=True)
        if done % 5000 == 0:
            print(f"{done:,} cases, {faults.total()} faults", file=sys.stderr, flush=True)
    rows = [
        f"| {key} | {some.total():,} | {some['read']:,} | {some['refused']:,} | {some['fault']} |"
        for key, some in sorted(counts.items())
    ]
    text = "\n".join(
        [
            f"{done:,} cases, {faults.total()} faults; the slowest took {slowest:.2f} s; no process grew by more than "
            f"{chosen.megabytes} MB."
            if not faults
            else f"{done:,} cases, {faults.total()} faults.",
            "",
            "| | cases | read | refused with one sentence | faults |",
            "|---|--:|--:|--:|--:|",
            *rows,
        ]
    )
    print(text)
    if chosen.write:
        again = "Reproduce: `python benchmarks/fuzz.py --cases 100000 --write`."
        write_section("fuzz", "\n\n".join(["## Untrusted files", f"Measured on {machine()}.", text, again]))


if __name__ == "__main__":
    main()
