"""Runs that survive: killed fifty times, in two processes, with a worker lost; each compared with a run left in peace.

    python benchmarks/survival.py --work FOLDER --write

The data is made here. ``--part kills``: one training of ``--steps`` steps is killed with SIGKILL at random moments,
``--kills`` times, from its first second on (while data is prepared, within steps, within writes), and gone on with by
the command a user gives; its parameters must be those of a run without a break. ``--part processes``: tokens a second
of one process with one and with two threads, and of two processes. ``--part worker``: `torchrun` with two workers, one
of which is killed; the launcher starts them anew, and as many examples must have been seen. ``--part lost``: two
processes without a launcher, one of which is killed, for classify and caption; the other one must end soon with a
sentence, and the run must be resumable. ``--part server``: a server of texts and images is killed under load; none of
its processes may stay, and its port must be free. Then a client reads a large answer slowly: it must be cut off, and
others be answered meanwhile. ``--part scarce``: training with too little memory, and every kind of command on a run
folder that cannot be written: each must end well or in a sentence, and no checkpoint may be lost.
"""

import argparse
import base64
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from kills import Sample
from report import machine, write_section
from serving import server
from sightline.errors import SightlineError
from sightline.training.checkpoint import OPTIMISER, checkpoints, read_progress
from sightline.training.folder import CONFIG, LOCK, MODEL, RunFolder, load_tensors

SLOWLY = 12  # seconds that a client reads slowly: twice as long as the server waits for it
SETTINGS = ["training.validate_every=50", "training.save_minutes=0.02", "batch_tokens=1024", "validated=50"]


def make_pairs(path: Path, count: int) -> None:
    """Numbers of five digits, and the same backwards with blanks between them."""
    draw = random.Random(0)
    rows = (f"{number} {number * 7 % 99_991}" for number in draw.choices(range(10_000, 99_999), k=count))
    path.write_text("source\ttarget\n" + "".join(f"{row}\t{' '.join(row[::-1])}\n" for row in rows), encoding="utf-8")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "sightline", *map(str, words)]


def training(data: Path, run: Path, steps: int, threads: int, *settings: str) -> list[str]:
    words = ("train", "translate", "--data", data, "--out", run, "--steps", steps, "--threads", threads)
    return command(*words, "--set", *SETTINGS, *settings)


def going_on(run: Path, fresh: list[str], threads: int) -> list[str]:
    """What a user would give: resume where there is a run, and the first command again where there is none yet."""
    return command("resume", run, "--threads", threads) if (run / CONFIG).exists() else fresh


def finish(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {done.stderr[-800:]}")


def state_of(run: Path) -> dict[str, object]:
    last = checkpoints(run)[-1]
    used = {f"used.{name}": tensor for name, tensor in load_tensors(run / MODEL).items()}
    return {**load_tensors(last / MODEL), **load_tensors(last / OPTIMISER), **used}


def kills(work: Path, count: int, steps: int) -> str:
    """The run that is killed, and what came of it."""
    data, whole, killed = work / "pairs.tsv", work / "whole", work / "killed"
    make_pairs(data, 20_000)
    finish(training(data, whole, steps, 2))
    fresh, draw = training(data, killed, steps, 2), random.Random(1)
    where: dict[str, int] = {}
    done, step, began = 0, 0, time.perf_counter()
    while done < count:
        process = subprocess.Popen(
            going_on(killed, fresh, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            process.wait(timeout=draw.uniform(0.2, 12.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
            found = checkpoints(killed)
            before, step = step, read_progress(found[-1]).step if found else 0
            if step > before:
                stage = "after new checkpoints"
            elif found:
                stage = "before a new checkpoint"
            else:
                stage = "before the first checkpoint" if (killed / CONFIG).exists() else "while preparing"
            where[stage] = where.get(stage, 0) + 1
            print(f"killed {done} times, {stage}; the last checkpoint is of step {step}", flush=True)
            continue
        if process.returncode:
            raise SystemExit(f"it did not go on: {process.stderr.read() if process.stderr else ''}")
        if (killed / "checksums.json").exists():
            raise SystemExit(f"it ended after {done} kills; give more --steps")
    finish(going_on(killed, fresh, 2))
    minutes = (time.perf_counter() - began) / 60
    states = state_of(whole), state_of(killed)
    differing = [name for name, tensor in states[0].items() if not tensor.equal(states[1][name])]  # type: ignore[attr-defined]
    left = [path.name for path in killed.rglob(".*") if path.name != LOCK]
    lines = [[(line["step"], line.get("final")) for line in RunFolder(run).metrics()] for run in (whole, killed)]
    differing += ["the lines of metrics.jsonl"] if lines[0] != lines[1] else []
    said = "equal, bit for bit" if not differing else f"NOT equal: {differing[:3]}"
    moments = ", ".join(f"{number} {stage}" for stage, number in where.items())
    return (
        f"{count} SIGKILLs at random moments ({moments}) through one training of {steps:,} steps, in {minutes:.0f} "
        f"minutes: parameters, optimiser and random state are {said}; files left over: {len(left)}."
    )


def launched(processes: int, words: list[str], restarts: int = 0) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    return [*launcher, "--max-restarts", str(restarts), *words[1:]]


def speed_of(run: Path) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    return statistics.median(measured[1:])  # the first steps are slower


def processes(work: Path, rounds: int) -> str:
    """The same updates: two batches each, in one process or two."""
    data = work / "pairs.tsv"
    make_pairs(data, 20_000)
    ways = {
        "one process, one thread": (1, 1, "training.accumulate=2"),
        "one process, two threads": (1, 2, "training.accumulate=2"),
        "two processes, one thread each": (2, 1, "training.accumulate=1"),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for place, (name, (count, threads, setting)) in enumerate(ways.items()):
            run = work / f"speed-{number}-{place}"
            words = training(
                data, run, 300, threads, setting, "training.save_minutes=10", "training.validate_every=100"
            )
            finish(launched(count, words) if count > 1 else words)
            speeds[name].append(speed_of(run))
            print(f"{name}: {speeds[name][-1]:,.0f} tokens/s", flush=True)
    rows = [f"| {name} | {statistics.median(some):,.0f} |" for name, some in speeds.items()]
    return "\n".join(["| | target tokens/s |", "|---|--:|", *rows])


def worker(work: Path, steps: int) -> str:
    """The writing worker killed at a random moment, and in another run the other one; both are started anew."""
    data, whole = work / "pairs.tsv", work / "whole-two"
    make_pairs(data, 20_000)
    finish(launched(2, training(data, whole, steps, 1)))
    names = {0: "the one that writes", 1: "the other one"}
    return "\n\n".join(_lose(data, whole, work / f"lost-{which}", steps, which, name) for which, name in names.items())


def _step_of(run: Path) -> int:
    try:
        return read_progress(checkpoints(run)[-1]).step
    except (IndexError, SightlineError):  # none yet, or it made way for a newer one just now
        return 0


def _lose(data: Path, whole: Path, lost: Path, steps: int, which: int, name: str) -> str:
    process = subprocess.Popen(
        launched(2, training(data, lost, steps, 1), restarts=3), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    draw = random.Random(which)
    moment = draw.randrange(steps // 4, steps // 2)
    while _step_of(lost) < moment:
        time.sleep(0.02)
        if process.poll() is not None:
            raise SystemExit("training ended before a worker was killed; give more --steps")
    time.sleep(draw.uniform(0.0, 1.0))  # not always behind a checkpoint
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(children[which]), signal.SIGKILL)
    if process.wait() != 0:
        raise SystemExit("training did not go on after a worker was killed")
    ended = [read_progress(checkpoints(run)[-1]) for run in (whole, lost)]
    seen = "as many" if (ended[0].step, ended[0].tokens) == (ended[1].step, ended[1].tokens) else "NOT as many"
    return (
        f"Of two workers, {name} was killed some time after step {moment}: `torchrun --max-restarts` restarted both, "
        f"training ended at step {ended[1].step:,} with {ended[1].tokens:,} target tokens seen, {seen} as without "
        "the loss."
    )


def lost(work: Path) -> str:
    """For each task: what the process that is left says, how soon, and whether the run goes on."""
    rows = ["| task | seconds until the other one ended | exit code | resumed |", "|---|--:|--:|---|"]
    for kind in ("classify-text", "caption"):
        sample = Sample(kind, work / kind, 2_000)
        run, port = sample.folder / "run", str(29_600 + os.getpid() % 300)
        place = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        words, quiet = sample.train("run"), {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        left, killed = (subprocess.Popen(words, env={**place, "RANK": str(rank)}, **quiet) for rank in range(2))  # type: ignore[call-overload]
        while _step_of(run) < 8 and left.poll() is None:
            time.sleep(0.05)
        killed.kill()
        began = time.monotonic()
        _, said = left.communicate(timeout=120)
        seconds, step = time.monotonic() - began, _step_of(run)
        if "Traceback" in said or not said.startswith("sightline: another process"):
            raise SystemExit(f"{kind}: {said[-800:]}")
        finish(command("resume", run, "--steps", step + 5, "--threads", 1))
        resumed = "equal step" if _step_of(run) == step + 5 else f"step {_step_of(run)}"
        rows.append(f"| {kind} | {seconds:.1f} | {left.returncode} | {resumed} |")
        print(rows[-1], flush=True)
    return "\n".join(["Two processes, one of them killed with SIGKILL:", "", *rows])


def served(work: Path) -> str:
    """SIGKILL under load, and an answer that is read slowly."""
    from attacks import RUNS, Probe, children_of, post

    for name in ("translate", "classify-image"):
        shutil.copytree(RUNS / name / "run", work / "served" / name)
    photo = base64.b64encode(next((RUNS / "classify-image" / "images").glob("*.png")).read_bytes()).decode()
    bodies = [{"run": "translate", "texts": ["ga di ke"] * 8}, {"run": "classify-image", "images": [photo] * 4}]
    over = threading.Event()

    def load(port: int, body: bytes) -> None:
        while not over.is_set():
            with suppress(OSError):
                post(port, body, 20)

    with server(work / "served" / "translate", 1, also=(work / "served" / "classify-image",)) as (process, port):
        for number in range(8):
            body = json.dumps(bodies[number % 2]).encode()
            threading.Thread(target=load, args=(port, body), daemon=True).start()
        time.sleep(4)
        helpers = children_of(process.pid)
        process.kill()
        process.wait()
        over.set()
        began = time.monotonic()
        while any(Path(f"/proc/{one}").exists() for one in helpers) and time.monotonic() - began < 30:
            time.sleep(0.02)
        gone = time.monotonic() - began
    limits = ("--max-reading", "2", "--max-weights", "5000000", "--max-characters", "20000", "--port", str(port))
    with server(work / "served" / "translate", 1, *limits) as (process, again):
        if again != port or gone >= 30:
            raise SystemExit(f"port {port} became {again}; processes were left for {gone:.0f} s")
        post(port, json.dumps(bodies[0]).encode())  # the first request imports what search needs
        text = " ".join(["ga", "di", "ke", "bo", "su"] * 60)
        asked = {"text": text, "output": " ".join(["GA", "DI", "KE"] * 100), "measure": False, "beam": 1}
        content = json.dumps(asked).encode()
        head = b"POST /explain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(head + b"%d\r\n\r\n" % len(content) + content)
            answer, begun = client.recv(4096), time.monotonic()
            size = int(re.search(rb"content-length: (\d+)", answer.lower())[1])  # type: ignore[index]
            with Probe(process.pid, port) as probe, suppress(ConnectionError):
                while time.monotonic() - begun < SLOWLY and (some := client.recv(1024)):
                    answer += some
                    time.sleep(0.1)
                while some := client.recv(1 << 16):  # what the system holds for the client
                    answer += some
    if len(answer) >= size or probe.failed:
        raise SystemExit(f"{len(answer):,} of {size:,} bytes; {probe.failed}")
    return (
        f"A server killed under the load of 8 clients: its {len(helpers)} processes were gone after {gone:.1f} s, and "
        f"the next server had the same port. An answer of {size / 1e6:.0f} MB that was read at 10 kB a second was cut "
        f"off within {SLOWLY} s (--max-reading 2); others waited {probe.latest:.1f} s at most for an answer."
    )


def scarce(work: Path) -> str:
    """Too little memory in training, and a folder that cannot be written."""
    make_pairs(work / "pairs.tsv", 20_000)
    run = work / "scarce"
    fresh, said = training(work / "pairs.tsv", run, 40, 1, "training.validate_every=10"), Counter[str]()
    for megabytes in (900, 1_100, 1_200, 1_300, 1_400, 1_600, 2_400):

        def limit(megabytes: int = megabytes) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

        before = _step_of(run)
        words = going_on(run, fresh, 1)
        done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit)
        if "Traceback" in done.stderr or _step_of(run) < before:
            raise SystemExit(f"{megabytes} MB: {done.stderr[-1500:]}")
        said["ended" if done.returncode == 0 else "said that memory is not enough"] += 1
        print(f"{megabytes} MB: {done.returncode}, step {_step_of(run)} {done.stderr.strip()}", flush=True)
    finish(going_on(run, fresh, 1))
    for path in (*run.rglob("*"), run):
        path.chmod(path.stat().st_mode & ~0o222)
    as_user = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    codes = []
    for some in (
        ("predict", run, "--text", "123"),
        ("evaluate", run, "--data", work / "pairs.tsv", "--beam", "1"),
        ("view", run, "--text", "123", "--quick", "--out", work / "a.html"),
        ("resume", run, "--steps", "50"),
        ("tidy", run),
    ):
        done = subprocess.run([*as_user, *command(*some)], capture_output=True, text=True)
        if done.returncode not in (0, 3) or len(done.stderr.splitlines()) > 1:
            raise SystemExit(f"{some}: {done.stderr[-800:]}")
        codes.append(f"{some[0]} {done.returncode}")
    for path in (run, *run.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    counts = ", ".join(f"{count} {what}" for what, count in said.items())
    return (
        f"One training under {said.total()} limits of memory from 900 to 2,400 MB, resumed each time: {counts}; no "
        f"checkpoint was lost. Exit codes with a run folder that cannot be written: {', '.join(codes)}."
    )


PARTS = {
    "kills": lambda work, chosen: kills(work, chosen.kills, chosen.steps),
    "worker": lambda work, chosen: worker(work, max(200, chosen.steps // 4)),
    "processes": lambda work, chosen: processes(work, chosen.rounds),
    "lost": lambda work, chosen: lost(work),
    "server": lambda work, chosen: served(work),
    "scarce": lambda work, chosen: scarce(work),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a new folder for runs")
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put what was found into RESULTS.md")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True)
    found = [do(chosen.work, chosen) for name, do in PARTS.items() if name in chosen.part]
    text = "\n\n".join(found)
    print(text)
    if chosen.write:
        again = "Reproduce: `python benchmarks/survival.py --work FOLDER --write`."
        write_section("survival", "\n\n".join(["## Survival", f"Measured on {machine()}.", text, again]))


if __name__ == "__main__":
    main()
