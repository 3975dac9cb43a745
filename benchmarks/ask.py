"""Questions about tables: what programs learn, against simple answers, and what they take in time and memory.

    python benchmarks/ask.py made --folder RUNS                       # made tables: a score for every kind of question
    python benchmarks/ask.py wikitables --data FOLDER --folder RUNS   # WikiTableQuestions: train, validate; --test once
    python benchmarks/ask.py wikitables --given ...                   # with the values of cells that come with the data
    python benchmarks/ask.py grow --out FOLDER                        # against rows, columns and passes, as plots
    python benchmarks/ask.py ask                                      # one question about a table of 1,000 rows

FOLDER has train.tsv, valid.tsv, test.tsv and tables/. Every training is `sightline train ask` with one thread. Settings
are chosen on the validation data; `--test` scores the test data, which is to be done once.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

SIZES = {"rows": (10, 100, 1000, 10_000), "columns": (4, 20, 100, 500), "passes": (1, 2, 4, 8)}
USUAL = {"rows": 100, "columns": 6, "passes": 4}
MADE = (
    "min_frequency=5",
    "training.warmup=1000",
    "training.decay=none",
    "training.validate_every=1000",
    "training.patience=1000",
)
WIKITABLES = (
    "min_frequency=5",
    "batch_rows=20",
    "model.dropout=0.3",
    "training.weight_decay=0.05",
    "training.warmup=2000",
    "training.validate_every=400",
    "training.patience=1000",
    "training.averaged=5",
)


GIVEN: list[str] = []  # the folder whose values are used instead of those that our parser reads


def sightline(*arguments: str) -> str:
    program = [str(Path(__file__).parent / "given_values.py"), *GIVEN] if GIVEN else ["-m", "sightline"]
    done = subprocess.run([sys.executable, *program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def train(out: Path, options: list[str], minutes: float, sets: tuple[str, ...]) -> None:
    if not (out / "card.md").exists():
        chosen = [*options, "--minutes", str(minutes), "--threads", "1", "--set", *sets]
        print(sightline("train", "ask", "--out", str(out), *chosen).splitlines()[-1], flush=True)


def score(run: Path, data: str) -> None:
    scores = json.loads(sightline("evaluate", str(run), "--data", data, "--json", "--threads", "1"))
    print(json.dumps(scores, indent=1))


def made(folder: Path, minutes: float, model: str, seed: int) -> None:
    """Unseen questions about unseen tables, of every kind."""
    out = folder / f"made-{model}-{seed}"
    train(out, ["--data", f"made:tables:count=20000:seed={seed}", "--model", model], minutes, MADE)
    score(out, f"made:tables:seed={seed + 1000}:count=3000")


def wikitables(data: Path, folder: Path, minutes: float, model: str, test: bool) -> None:
    """Copies the rows with the paths of their tables, trains, and scores the validation data, or once the test data."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        lines = (data / f"{name}.tsv").read_text(encoding="utf-8").split("\n")
        place = lines[0].split("\t").index("table")
        rows = [line.split("\t") for line in lines[1:] if line]
        for row in rows:
            row[place] = str((data / "tables" / row[place]).resolve())
        (folder / f"{name}.tsv").write_text("\n".join([lines[0], *("\t".join(row) for row in rows)]) + "\n", "utf-8")
    out = folder / f"wikitables-{model}{'-given' if GIVEN else ''}"
    options = ["--data", str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv"), "--model", model]
    train(out, options, minutes, WIKITABLES)
    score(out, str(folder / ("test.tsv" if test else "valid.tsv")))


def one(rows: int, columns: int, passes: int) -> None:
    """What a training step of 20 questions takes for each, what an answer takes, and the memory of the step.

    Milliseconds are those of the processor: other work on the machine counts little.
    """
    import resource

    import numpy as np
    import torch

    from sightline.models.asking import AnswerArrays, TableArrays, collate_answers, collate_tables
    from sightline.models.neural_programmer import NeuralProgrammerConfig

    torch.set_num_threads(1)
    torch.manual_seed(0)
    draws, cells = np.random.default_rng(0), (rows, columns)
    item = TableArrays(
        draws.integers(1, 2000, 12), np.array([3, -1]), draws.integers(1, 2000, (columns, 2)),
        draws.integers(0, rows + 1, cells), draws.integers(-1, 3, (2, *cells)), draws.integers(0, rows, cells),
        draws.integers(0, 2, cells), draws.integers(0, 2, columns),
    )  # fmt: skip
    gold = np.zeros(cells, int)
    gold[0, 0] = 1
    model, many = NeuralProgrammerConfig(passes=passes).build(2000), 20
    batch, single = collate_tables([item] * many), collate_tables([item])
    targets = collate_answers([AnswerArrays(-1, 1, gold)] * many, batch)

    def step() -> None:
        model.train().zero_grad()
        model.loss(batch, targets).total.backward()

    def timed(run: object) -> float:
        times = []
        for _ in range(6):
            start = time.process_time()
            run()  # type: ignore[operator]
            times.append(1000 * (time.process_time() - start))
        return statistics.median(times[1:])

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    milliseconds = timed(step) / many
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = timed(lambda: model.eval().programs(single))
    print(json.dumps({"training": milliseconds, "answer": answer, "megabytes": (peak - before) / 1024}))


def grow(out: Path) -> None:
    """Time and memory against rows, columns and passes, each in a process of its own."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), sharey=True, layout="constrained")
    for axis, (name, sizes) in zip(axes, SIZES.items(), strict=True):
        rows = []
        for size in sizes:
            shape = {**USUAL, name: size}
            command = [sys.executable, __file__, "one", *(f"--{key}={value}" for key, value in shape.items())]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout))
            print(name, size, {key: round(value, 1) for key, value in rows[-1].items()}, flush=True)
        axis.plot(sizes, [row["training"] for row in rows], "o-", label="training, ms for each of 20 questions")
        axis.plot(sizes, [row["answer"] for row in rows], "s--", label="answer, ms")
        axis.plot(sizes, [max(row["megabytes"], 0.1) for row in rows], "^:", label="memory of this step, MB")
        axis.set(xlabel=name, xscale="log", yscale="log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "ask.png", dpi=110)


def ask(rows: int = 1000) -> None:
    """How long a question about a table of so many rows takes, with reading the table and a model that is loaded."""
    import random
    import tempfile

    import sightline as package

    draw = random.Random(0)
    table = [
        [f"Place {n}", str(draw.randint(1, 9999)), f"{draw.randint(1900, 2020)}", draw.choice("abcdef")]
        for n in range(rows)
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = ["--data", "made:tables:count=400", "--out", str(folder / "run"), "--steps", "20", "--threads", "1"]
        sightline("train", "ask", *options)
        run = package.load(folder / "run")
        header = ["Name", "People", "Founded", "Class"]
        for what, other in (("further questions about one table", 0), ("each about a table of its own", 1)):
            times, processor = [], []
            for number in range(12):
                cells = [[f"Place {number * other}", *table[0][1:]], *table[1:]]
                item = {"question": f"which place has the most people after {1950 + number}?",
                        "table": {"header": header, "rows": cells}}  # fmt: skip
                start = time.perf_counter(), time.process_time()
                run.predict([item])
                times.append(1000 * (time.perf_counter() - start[0]))
                processor.append(1000 * (time.process_time() - start[1]))
            middle, busy = (statistics.median(one[1:]) for one in (times, processor))
            shown = f"median {middle:.0f} ms ({busy:.0f} of a processor), slowest {max(times[1:]):.0f}"
            print(f"{rows:,} rows, {what}: {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("made", "wikitables", "grow", "ask", "one"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/ask"))
    parser.add_argument("--out", type=Path, default=Path("runs/ask"))
    parser.add_argument("--minutes", type=float, default=28)
    parser.add_argument("--model", default="neural_programmer")
    parser.add_argument("--seed", type=int, default=0, help="of the made data")
    parser.add_argument(
        "--given", action="store_true", help="use the values of cells that come with WikiTableQuestions"
    )
    parser.add_argument("--test", action="store_true", help="score the test data: once")
    for name, usual in USUAL.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    chosen = parser.parse_args()
    if chosen.what == "made":
        made(chosen.folder, chosen.minutes, chosen.model, chosen.seed)
    elif chosen.what == "wikitables":
        if chosen.data is None:
            parser.error("wikitables needs --data FOLDER")
        GIVEN.extend([str(chosen.data)] if chosen.given else [])
        wikitables(chosen.data, chosen.folder, chosen.minutes, chosen.model, chosen.test)
    elif chosen.what == "grow":
        grow(chosen.out)
    elif chosen.what == "ask":
        ask()
    else:
        one(chosen.rows, chosen.columns, chosen.passes)


if __name__ == "__main__":
    main()
