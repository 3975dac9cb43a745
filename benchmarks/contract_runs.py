"""Figures of commands in processes of their own: walks, losses, memory (`contract.py`)."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract_data import Figures, Options, write_captioned, write_labelled, write_pairs, write_table, write_tagged

# Commands in processes of their own


def environment(source: Path) -> dict[str, str]:
    """One thread; the package of ``source``. Some machines say that they have matrix registers and have none."""
    given = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", **os.environ}
    return {**given, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def called(source: Path, role: str, file: Path, *arguments: str) -> list[str]:
    """This script as another process, in one of its roles."""
    return [sys.executable, str(Path(__file__).resolve()), role, str(source), str(file), *arguments]


def run_command() -> int | str | None:
    """Run the command in sys.argv; what it exits with."""
    from sightline.cli import main as command

    try:
        command()
    except SystemExit as leave:
        return leave.code
    return None


class Walk:
    """A profiler: which functions of the package run after import, and which modules call which others."""

    def __init__(self, package: Path) -> None:
        self.begin = f"{package}{os.sep}"
        self.functions: set[tuple[str, str]] = set()
        self.edges: set[tuple[str, str]] = set()
        self.importing = 0

    def module(self, frame: Any) -> str | None:
        name = frame.f_code.co_filename
        return name.removeprefix(self.begin).removesuffix(".py") if name.startswith(self.begin) else None

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        here = self.module(frame)
        if here is None:
            return
        if frame.f_code.co_name == "<module>":
            self.importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self.importing and frame.f_code.co_flags & 1:  # 1: a function, no body of a class
            self.functions.add((here, frame.f_code.co_qualname))
            self._add_edge(frame.f_back, here)

    def _add_edge(self, caller: Any, here: str) -> None:
        """From the nearest caller that is of the package: a library between them does not hide it."""
        while caller is not None and (name := self.module(caller)) is None:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>" and name is not None and name != here:
            self.edges.add((name, here))

    def figures(self) -> dict[str, int]:
        two_way = sum((there, here) in self.edges for here, there in self.edges) // 2
        modules = {module for module, _ in self.functions}
        figures = {"modules": len(modules), "functions": len(self.functions)}
        return {**figures, "edges": len(self.edges), "two_way": two_way}


def walk_here(source: Path, file: Path) -> None:
    """In a process of its own: run the command in sys.argv under the profiler, and write what it saw."""
    import sightline.cli  # noqa: F401 - what is imported before the command is no part of its way

    walk = Walk(source / "sightline")
    threading.setprofile(walk)
    sys.setprofile(walk)
    code = run_command()
    sys.setprofile(None)
    threading.setprofile(None)
    file.write_text(json.dumps("error" if code else walk.figures()), encoding="utf-8")
    sys.exit(code)


TINY = {
    "translate": "model.size=16 model.heads=2 model.feed_forward=16 model.encoder_layers=1 model.decoder_layers=1 "
    "tokeniser.vocab_size=400",
    "caption": "model.size=16 model.embedding_size=16 model.attention.score.hidden_size=16 tokeniser.min_frequency=1 "
    "encoder.kind=cnn encoder.size=16 encoder.channels=[16,16]",
    "tag": "model.size=16 model.embedding_size=16 tokeniser.vocab_size=400",
}


def walk(options: Options) -> Figures:
    """Train, predict and view, of three tasks, on a few made rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder / "translate.tsv", 40, seed=0)
        write_captioned(folder / "caption.tsv", 12)
        write_tagged(folder / "tag.tsv", 40, seed=0)
        for task in filter(options.wants, TINY):
            given = ["--image", "0.png"] if task == "caption" else ["--text", "bada dede soma"]
            train = ["train", task, "--data", f"{task}.tsv", "--out", task, "--steps", "2", "--threads", "1", "--set"]
            yield f"train {task}", walked(options, folder, [*train, *TINY[task].split()])
            yield f"predict {task}", walked(options, folder, ["predict", task, *given, "--threads", "1"])
            view = ["view", task, *given, "--out", f"{task}.html", "--threads", "1"]
            yield f"view {task}", walked(options, folder, view)


def walked(options: Options, folder: Path, arguments: list[str]) -> Any:
    """The figures of one command, or "error"."""
    file = folder / "walk.json"
    file.unlink(missing_ok=True)
    command = called(options.source, "walk-here", file, *arguments)
    done = subprocess.run(command, cwd=folder, env=environment(options.source), capture_output=True, text=True)
    if done.returncode:
        print(f"{' '.join(arguments[:2])}: {done.stderr.strip()[-500:]}", file=sys.stderr)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else "error"


# Losses

STEPS = 200
SMALLER = {  # than the preset, where 200 steps of it take more than three minutes; an encoder that needs no weights
    "translate": "model.encoder_layers=2 model.decoder_layers=2 batch_tokens=1024",
    "classify": "",
    "tag": "",
    "caption": "encoder.kind=cnn encoder.size=32 encoder.channels=[16,32,64]",
    "grid": "batch=2",
}
SETS = {
    "translate": "translate-multi30k-en-de",
    "classify": "classify-sst2",
    "caption": "caption-flickr8k",
    "grid": "grid-crackforest",
}


def first_photos(table: Path, count: int) -> Iterator[str]:
    """The rows of the first photos of a table with several rows for each."""
    seen: set[str] = set()
    with table.open(encoding="utf-8") as file:
        next(file)
        for row in file:
            seen.add(row.partition("\t")[0])
            if len(seen) > count:
                return
            yield row.rstrip("\n")


def files_of(task: str, data: Path | None, folder: Path) -> tuple[Path, Path]:
    """What to train on and what to validate on."""
    if task == "tag":
        return write_tagged(folder / "train.tsv", 2000, seed=1), write_tagged(folder / "valid.tsv", 300, seed=2)
    if data is None:
        raise SystemExit("loss needs --data, a folder with the data sets")
    own = data / SETS[task]
    if task == "caption":
        (folder / "images").symlink_to((own / "images").resolve())
        for part, count in (("train", 400), ("valid", 100)):
            write_table(folder / f"{part}.tsv", "image\tcaption", first_photos(own / f"{part}.tsv", count))
        own = folder
    return next(path for path in (own / "train.tsv", own / "train.tsv.gz") if path.exists()), own / "valid.tsv"


def step_losses(folder: Path) -> list[float]:
    """The training loss of every step, from what the command wrote for TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [float(f"{event.value:.8g}") for event in events.Scalars("train/loss")]


def loss(options: Options) -> Figures:
    """Train each task for a while, and read what was measured."""
    for task in filter(options.wants, SMALLER):
        with tempfile.TemporaryDirectory() as name:
            folder, begun = Path(name), time.monotonic()
            train, valid = (str(path.resolve()) for path in files_of(task, options.data, folder))
            command = [sys.executable, "-m", "sightline", "train", task, "--data", train, "--valid", valid]
            command += ["--out", "run", "--steps", str(STEPS), "--seed", "0", "--threads", "1", "--tensorboard"]
            command += ["--set", f"training.validate_every={STEPS}", *SMALLER[task].split()]
            done = subprocess.run(command, cwd=folder, env=environment(options.source), capture_output=True, text=True)
            if done.returncode:
                print(f"train {task}: {done.stderr.strip()[-500:]}", file=sys.stderr)
                yield task, "error"
                continue
            lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            figures = {"set": SMALLER[task], "seconds": round(time.monotonic() - begun)}
            yield (
                task,
                {
                    **figures,
                    "losses": step_losses(folder / "run" / "tensorboard"),
                    "metrics": [json.loads(one) for one in lines],
                },
            )


# Memory

ROWS = (10_000, 100_000, 1_000_000)
PATIENCE, INTERVAL = 600, 0.02  # seconds
WRITERS = {"tag": write_tagged, "classify": write_labelled}


def count_here(_: Path, file: Path) -> None:
    """In a process of its own: run the command in sys.argv; a line in ``file`` each time that its data is opened."""
    data = os.path.realpath(sys.argv[sys.argv.index("--data") + 1])

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        named = event == "open" and isinstance(arguments[0], str | bytes | os.PathLike)
        if named and os.path.realpath(os.fsdecode(arguments[0])) == data:
            os.write(log, b"open\n")

    log = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sys.addaudithook(audit)
    sys.exit(run_command())


def anonymous(process: int) -> int:
    """Bytes of memory of a process that are no file's; 0 when it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return 1024 * int(found[1]) if found else 0


def children(process: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have."""
    try:
        listed = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return
    for child in map(int, " ".join(listed).split()):
        yield child
        yield from children(child)


def watched(options: Options, task: str, data: Path, folder: Path) -> Any:
    """Memory and time until the data of one training is prepared; the training itself is ended there."""
    log, ready = folder / "opened.txt", folder / "run" / "config.json"
    arguments = ["train", task, "--data", data.name, "--out", "run", "--steps", "1", "--threads", "1"]
    begun, peak, whole = time.monotonic(), 0, 0
    process = subprocess.Popen(
        called(options.source, "count-here", log, *arguments),
        cwd=folder,
        env=environment(options.source),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not ready.exists() and process.poll() is None and time.monotonic() - begun < PATIENCE:
            own = anonymous(process.pid)
            peak, whole = max(peak, own), max(whole, own + sum(map(anonymous, children(process.pid))))
            time.sleep(INTERVAL)
        seconds, opened = time.monotonic() - begun, log.read_text().count("\n") if log.exists() else 0
        ended = "prepared" if ready.exists() else "error" if process.poll() is not None else "over 10 minutes"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    megabytes = {"peak_mb": round(peak / 2**20, 1), "peak_with_children_mb": round(whole / 2**20, 1)}
    return {"ended": ended, **megabytes, "seconds": round(seconds, 1), "opened": opened}


def memory(options: Options) -> Figures:
    """Prepare more and more made rows."""
    for task, rows in itertools.product(filter(options.wants, WRITERS), ROWS):
        with tempfile.TemporaryDirectory() as name:
            data = WRITERS[task](Path(name) / "rows.tsv", rows, seed=0)
            figures = watched(options, task, data, Path(name))
            yield f"{task} {rows:,}", {**figures, "file_mb": round(data.stat().st_size / 2**20, 1)}


def main() -> None:
    """One of the roles that `called` gives to another process."""
    role, source, file, *arguments = sys.argv[1:]
    sys.argv, sys.path[0] = ["sightline", *arguments], source  # the folder of this script is no place to import from
    {"walk-here": walk_here, "count-here": count_here}[role](Path(source), Path(file))


if __name__ == "__main__":
    main()
