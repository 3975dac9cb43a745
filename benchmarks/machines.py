"""Memory and time: what machines learn of made sequences, and what they do beyond the lengths of their training.

    python benchmarks/machines.py list                              # the trainings, with their settings
    python benchmarks/machines.py train copy-ntm --seeds 0 1 2      # one after the other; runs go to --folder
    python benchmarks/machines.py harder logic-act-0                # repeats against the difficulty of a step
    python benchmarks/machines.py report                            # the table of all runs in --folder

Every training is `sightline train sequence` with one thread, every score `sightline evaluate` on sequences of another
seed than that of training and validation. Minutes are those of training.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from report import RESULTS, write_section


class Training(NamedTuple):
    """The options of a training, its minutes, and the data that it is scored on, by name. ``start`` is the training
    that it starts from, with the same seed."""

    data: str
    model: str
    minutes: float
    sets: tuple[str, ...] = ()
    scored: tuple[str, ...] = ()
    start: str | None = None


COPY = ("made:copy:seed=2", "made:copy:seed=2:lengths=40:count=100", "made:copy:seed=2:lengths=120:count=100")
REPEAT = (
    "made:repeat-copy:seed=2:count=200",
    "made:repeat-copy:seed=2:lengths=20:repeats=10:count=50",
    "made:repeat-copy:seed=2:lengths=10:repeats=20:count=50",
)
RECALL = ("made:associative-recall:seed=2", "made:associative-recall:seed=2:lengths=12:count=200")
SORT = ("made:priority-sort:seed=2:count=500",)
PARITY = ("made:parity:seed=2:count=2000",)
BEYOND_PAPER = (
    "made:scattered-parity:seed=2:width=96:lengths=1-48:count=2000",
    "made:scattered-parity:seed=2:width=96:lengths=49-96:count=2000",
)
BEYOND = (
    "made:scattered-parity:seed=2:width=16:lengths=1-8:count=2000",
    "made:scattered-parity:seed=2:width=16:lengths=9-16:count=2000",
)
PAPER, SHORT = "made:scattered-parity:width=96:lengths=1-48", "made:scattered-parity:width=16:lengths=1-8"
LOGIC, ADDITION = "made:logic:width=4:lengths=1-5", "made:addition:width=3:lengths=3"
GATES = "made:logic:width=8:lengths=1"  # one step alone: the more gates, the harder, at the same place
OFTEN, STEADY = "training.validate_every=100", "training.decay=none"
LONG = ("training.patience=100000", "training.averaged=1")
# One step of a tanh network of 128, batches of 128, as in Graves 2016 and Fojo et al. 2018; the rate is 3e-3 for the
# first half of the steps and then falls to nothing. With decay of weights fixed repeats learn more, and ACT less.
FLAT = (
    "batch_rows=128",
    "training.validate_every=1000",
    "training.learning_rate=0.003",
    "training.decay=none",
    "training.warmup=100",
    "training.cooldown=0.5",
    "model.front.centring=none",
    *LONG,
)
# With learned slots far more is learnt than with slots that begin alike (`sort-constant`).
SORTING = (
    "batch_rows=64",
    "model.read_heads=4",
    "model.write_heads=4",
    "model.first_memory=learned",
    "training.warmup=100",
    "training.cooldown=0.3",
    STEADY,
    OFTEN,
    *LONG,
)
RNN = ("model.cell=rnn", "model.size=128", "training.weight_decay=0.1", *FLAT)
RNN_ACT = ("model.cell=rnn", "model.size=128", "training.weight_decay=0", *FLAT)
GRU = ("model.cell=gru", "model.size=128", "training.weight_decay=0.1", *FLAT)


def steps(number: int) -> str:
    return f"training.steps={number}"


def thinking(kind: str, **fields: float) -> str:
    return f"model.thinking={json.dumps({'kind': kind, **fields})}"


TRAININGS = {
    "copy-ntm": Training("made:copy", "ntm", 9, ("batch_rows=16", OFTEN, *LONG), COPY),
    "copy-lstm": Training("made:copy", "lstm", 9, ("batch_rows=16", "model.size=256", OFTEN, *LONG), COPY),
    "copy-transformer": Training("made:copy", "transformer", 9, ("batch_rows=16", OFTEN, *LONG), COPY),
    # From the start with up to 10 repeats, 67 of 208 bits are wrong after 2,800 steps. With 1 or 2 repeats it is
    # learnt in as many.
    "repeat-copy-twice": Training(
        "made:repeat-copy:repeats=1-2", "ntm", 10, ("batch_rows=16", steps(3500), STEADY, OFTEN, *LONG)
    ),
    "repeat-copy-ntm": Training(
        "made:repeat-copy", "ntm", 11, ("batch_rows=16", "training.learning_rate=0.001", STEADY, OFTEN, *LONG),
        REPEAT, "repeat-copy-twice",
    ),
    "repeat-copy-lstm": Training("made:repeat-copy", "lstm", 10, ("batch_rows=16", "model.size=256", *LONG), REPEAT),
    "recall-ntm": Training("made:associative-recall", "ntm", 10, ("batch_rows=16", OFTEN, *LONG), RECALL),
    "recall-lstm": Training("made:associative-recall", "lstm", 10, ("batch_rows=16", "model.size=256", *LONG), RECALL),
    "sort-ntm": Training("made:priority-sort", "ntm", 45, (*SORTING, steps(9000)), SORT),
    "sort-ntm-longer": Training("made:priority-sort", "ntm", 45, (*SORTING, steps(4000)), SORT, "sort-ntm"),
    "sort-constant": Training(
        "made:priority-sort", "ntm", 12, (*SORTING, "model.first_memory=constant", steps(9000)), SORT
    ),
    "sort-lstm": Training("made:priority-sort", "lstm", 15, ("batch_rows=64", "model.size=256", *LONG), SORT),
    "parity-1": Training("made:parity", "lstm", 15, (*RNN, steps(10_000), thinking("fixed", repeats=1)), PARITY),
    "parity-2": Training("made:parity", "lstm", 15, (*RNN, steps(22_000), thinking("fixed", repeats=2)), PARITY),
    "parity-3": Training("made:parity", "lstm", 15, (*RNN, steps(22_000), thinking("fixed", repeats=3)), PARITY),
    "parity-2-longer": Training("made:parity", "lstm", 15, (*RNN, steps(53_000), thinking("fixed", repeats=2)), PARITY),
    "parity-3-longer": Training("made:parity", "lstm", 15, (*RNN, steps(53_000), thinking("fixed", repeats=3)), PARITY),
    "parity-act": Training(
        "made:parity", "lstm", 25,
        (*RNN_ACT, steps(53_000), thinking("act", cost=0.01, most=5, bias=0, rises=30_000)), PARITY,
    ),
    "parity-act-decayed": Training(
        "made:parity", "lstm", 25,
        (*RNN, steps(53_000), thinking("act", cost=0.01, most=5, bias=0, rises=30_000)), PARITY,
    ),
    "parity-act-paper": Training(
        "made:parity", "lstm", 15, (*RNN_ACT, steps(10_000), thinking("act", cost=0.01)), PARITY
    ),
    "parity-ponder": Training(
        "made:parity", "lstm", 15, (*RNN, steps(53_000), thinking("ponder", cost=0.01, prior=0.3, most=6)), PARITY
    ),
    "parity-ponder-4": Training(
        "made:parity", "lstm", 15, (*RNN, steps(53_000), thinking("ponder", cost=0.01, prior=0.4, most=8)), PARITY
    ),
    "beyond-act": Training(
        SHORT, "lstm", 15, (*GRU, steps(30_000), thinking("act", cost=0.01, most=8, bias=0, rises=15_000)), BEYOND
    ),
    "beyond-ponder": Training(
        SHORT, "lstm", 15, (*GRU, steps(30_000), thinking("ponder", cost=0.01, prior=0.3, most=8)), BEYOND
    ),
    "beyond-fixed": Training(SHORT, "lstm", 15, (*GRU, steps(30_000), thinking("fixed", repeats=4)), BEYOND),
    "beyond-paper-act": Training(
        PAPER, "lstm", 15, (*GRU, steps(53_000), thinking("act", cost=0.01, most=8, bias=0, rises=30_000)), BEYOND_PAPER
    ),
    "beyond-paper-ponder": Training(
        PAPER, "lstm", 15, (*GRU, steps(53_000), thinking("ponder", cost=0.01, prior=0.3, most=8)), BEYOND_PAPER
    ),
    "logic-act": Training(
        LOGIC, "lstm", 8,
        ("batch_rows=64", "model.size=128", thinking("act", cost=0.03, most=10), STEADY, *LONG),
        (f"{LOGIC}:seed=2:count=2000",),
    ),
    "logic-1": Training(
        LOGIC, "lstm", 5, ("batch_rows=64", "model.size=128", STEADY, *LONG), (f"{LOGIC}:seed=2:count=2000",)
    ),
    # The size of the paper: up to 10 gates at each of 1 to 10 steps.
    "logic-paper-1": Training(
        "made:logic", "lstm", 12, ("batch_rows=64", "model.size=128", STEADY, *LONG), ("made:logic:seed=2:count=2000",)
    ),
    "logic-paper-act": Training(
        "made:logic", "lstm", 12,
        ("batch_rows=64", "model.size=128", thinking("act", cost=0.01, most=10, bias=0, rises=2000), STEADY, *LONG),
        ("made:logic:seed=2:count=2000",),
    ),
    "logic-universal": Training(
        LOGIC, "universal", 15,
        ("batch_rows=64", thinking("act", cost=0.001, most=8, bias=-1, rises=6000), STEADY, steps(12_000), *LONG),
        (f"{LOGIC}:seed=2:count=2000",),
    ),
    **{
        f"logic-universal-{cost:g}": Training(
            LOGIC, "universal", 15,
            ("batch_rows=64", thinking("act", cost=cost, most=8, bias=-1, rises=6000), STEADY, steps(12_000), *LONG),
            (f"{LOGIC}:seed=2:count=2000",),
        )
        for cost in (0.003, 0.01)
    },
    "logic-universal-3": Training(
        LOGIC, "universal", 15, ("batch_rows=64", thinking("fixed", repeats=3), STEADY, steps(12_000), *LONG),
        (f"{LOGIC}:seed=2:count=2000",),
    ),
    "logic-gates-universal": Training(
        GATES, "universal", 10,
        ("batch_rows=64", thinking("act", cost=0.001, most=10, bias=-1, rises=6000), STEADY, steps(12_000), *LONG),
        (f"{GATES}:seed=2:count=2000",),
    ),
    "logic-gates-universal-3": Training(
        GATES, "universal", 10, ("batch_rows=64", thinking("fixed", repeats=3), STEADY, steps(12_000), *LONG),
        (f"{GATES}:seed=2:count=2000",),
    ),
    "logic-gates-universal-8": Training(
        GATES, "universal", 10, ("batch_rows=64", thinking("fixed", repeats=8), STEADY, steps(40_000), *LONG),
        (f"{GATES}:seed=2:count=2000",),
    ),
    "logic-gates-universal-cheap": Training(
        GATES, "universal", 10,
        ("batch_rows=64", thinking("act", cost=1e-4, most=10, bias=-1, rises=20_000), STEADY, steps(40_000), *LONG),
        (f"{GATES}:seed=2:count=2000",),
    ),
    "addition-act": Training(
        ADDITION, "lstm", 5,
        ("batch_rows=32", "model.size=256", thinking("act", cost=0.03, most=6), STEADY, *LONG),
        (f"{ADDITION}:seed=2:count=2000",),
    ),
    "addition-1": Training(
        ADDITION, "lstm", 5, ("batch_rows=32", "model.size=256", STEADY, *LONG), (f"{ADDITION}:seed=2:count=2000",)
    ),
    "addition-6": Training(
        ADDITION, "lstm", 5,
        ("batch_rows=32", "model.size=256", thinking("fixed", repeats=6), STEADY, *LONG),
        (f"{ADDITION}:seed=2:count=2000",),
    ),
    "copy-dnc": Training("made:copy", "dnc", 9, ("batch_rows=16", OFTEN, *LONG), COPY),
    "repeat-copy-dnc": Training("made:repeat-copy", "dnc", 20, ("batch_rows=16", OFTEN, *LONG), REPEAT),
}  # fmt: skip


def sightline(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "sightline", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def train(name: str, seed: int, folder: Path, minutes: float | None, rate: float | None) -> None:
    """Train once, score once, and write both."""
    training, out = TRAININGS[name], folder / f"{name}-{seed}"
    if not (out / "card.md").exists():
        options = ["--data", training.data, "--model", training.model, "--seed", str(seed), "--threads", "1"]
        options += ["--minutes", str(minutes or training.minutes), "--set", *training.sets]
        options += [f"training.learning_rate={rate}"] if rate else []
        options += ["--from", str(folder / f"{training.start}-{seed}")] if training.start else []
        print(sightline("train", "sequence", "--out", str(out), *options).splitlines()[-1], flush=True)
    scores = {}
    for data in training.scored:
        scores[data] = json.loads(sightline("evaluate", str(out), "--data", data, "--json", "--threads", "1"))
        print(name, seed, data, {key: scores[data][key] for key in ("bit_error", "exact") if key in scores[data]})
    (out / "scores.json").write_text(json.dumps(scores, indent=1))


def harder(run: Path, rows: int = 1000) -> None:
    """Whether a run of logic repeats a step more often the more gates it has, the more gates there were up to it (over
    all steps, and over the deviations from the means of each step), or the more steps: correlations, with intervals
    over sequences drawn with replacement. And how many of the sequences are right with every step repeated as often."""
    import numpy as np
    import torch

    import sightline as package
    from sightline.explain.thinking import fixed_repeats
    from sightline.nn.series import SeriesBatch
    from sightline.synthetic.made import MadeData

    torch.set_num_threads(1)
    model: Any = package.load(run).model
    training = TRAININGS[run.name.rpartition("-")[0]].data
    made = MadeData.read(training, lengths=MadeData.read(training).lengths.most)
    x, y = made.draw(np.random.default_rng(5), rows)
    source = SeriesBatch(torch.from_numpy(x), torch.full((rows,), x.shape[1]))
    schedule, bits = model.eval().schedule(source, source.lengths), torch.from_numpy(np.asarray(y)) > 0.5

    def right() -> str:
        same = (model.output(model.run(schedule).features) > 0) == bits
        return f"{100 * float(same.flatten(1).all(dim=1).float().mean()):.1f} %"

    with torch.no_grad():
        repeats = model.run(schedule).repeats.numpy()
        print(f"{run.name}: {right()} right", end="")
        for number in (1, 2, 3, 4, 6):
            with fixed_repeats(model, number):
                print(f"; with {number} everywhere {right()}", end="")
        print()
    gates = x[:, :, 2:].sum(axis=-1)
    so_far = gates.cumsum(axis=1)
    drawn = np.random.default_rng(0).integers(0, rows, (1000, rows))
    measures = {
        "gates": (gates, repeats),
        "gates up to it": (so_far, repeats),
        "steps up to it": (np.ones_like(gates).cumsum(axis=1), repeats),
        "gates up to it, each step by itself": (so_far - so_far.mean(axis=0), repeats - repeats.mean(axis=0)),
    }
    if not repeats.std():
        measures = {}
        print(f"{run.name}: every step has {repeats[0, 0]:.2f} repeats")
    for name, (values, shown) in measures.items():
        if not values.std():
            continue
        own = np.corrcoef(values.ravel(), shown.ravel())[0, 1]
        again = [np.corrcoef(values[some].ravel(), shown[some].ravel())[0, 1] for some in drawn]
        low, high = np.quantile(again, (0.025, 0.975))
        print(f"{run.name}: correlation of repeats and {name}: {own:.2f} (95 % interval {low:.2f} to {high:.2f})")
    means = [repeats[gates == number].mean() for number in range(1, made.width + 1)]
    print("  ", ", ".join(f"{number} gates {mean:.2f}" for number, mean in enumerate(means, 1)))
    print("  ", ", ".join(f"step {place + 1} {one:.2f}" for place, one in enumerate(repeats.mean(axis=0))))


def curve(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
    return [json.loads(line) for line in lines]


HEAD = (
    "| run | steps | minutes | 98 % first | no wrong bit | scored on | wrong bits | exact, % | repeats |",
    "|---|--:|--:|--:|---|---|--:|--:|--:|",
)


def report(folder: Path, write: bool) -> None:
    """For each run: steps and minutes, when 98 % of its validation data were first right, when it first had no wrong
    bit, and its scores. In RESULTS.md the rows of other runs stay, and the text below the table."""
    rows: dict[str, list[str]] = {}
    for run in sorted(path for path in folder.iterdir() if (path / "scores.json").exists()):
        points = [one for one in curve(run) if "seconds" in one]
        solved = next((one for one in points if one.get("bit_error") == 0), None)
        first = "" if solved is None else f"step {solved['step']:,}, minute {solved['seconds'] / 60:.1f}"
        bits = run.name.startswith(("parity", "beyond"))  # one for each sequence
        reached = next((f"{one['step']:,}" for one in points if bits and one["bit_error"] <= 0.02), "")
        start = f"{run.name} | {points[-1]['step']:,} | {points[-1]['seconds'] / 60:.0f} | {reached} | {first}"
        for data, scores in json.loads((run / "scores.json").read_text()).items():
            repeats = f"{scores['repeats']:.2f}" if scores.get("repeats") else ""
            name = data.removeprefix("made:").replace(":seed=2", "").replace(":", ", ")
            line = f"| {start} | {name} | {scores['bit_error']:.3g} | {scores['exact']:.1f} | {repeats} |"
            rows.setdefault(run.name, []).append(line)
            start = " | | | | "
    print(*HEAD, *(line for some in rows.values() for line in some), sep="\n")
    if write:
        before, kept, after = earlier()
        lines = [line for _, some in sorted((kept | rows).items()) for line in some]
        write_section("machines", "\n".join([*before, *HEAD, *lines, *after]))


def earlier() -> tuple[list[str], dict[str, list[str]], list[str]]:
    """The section of RESULTS.md: what stands above the table, the rows of each run, and what stands below."""
    section = RESULTS.read_text(encoding="utf-8").partition("<!-- machines:start -->\n")[2]
    lines = section.partition("\n<!-- machines:end -->")[0].splitlines()
    start = lines.index(HEAD[0])
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    rows, name = dict[str, list[str]](), ""
    for line in lines[start + len(HEAD) : end]:
        name = line.split("|")[1].strip() or name
        rows.setdefault(name, []).append(line)
    return lines[:start], rows, lines[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("list", "train", "report", "harder"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/machines"))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.command == "list":
        for name, training in TRAININGS.items():
            print(f"{name:20} {training.data} {training.model} {training.minutes:g} minutes {' '.join(training.sets)}")
    elif options.command == "report":
        report(options.folder, options.write)
    elif options.command == "harder":
        for name in options.names:
            harder(options.folder / name)
    else:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in options.names:
            for seed in options.seeds:
                train(name, seed, options.folder, options.minutes, options.rate)


if __name__ == "__main__":
    main()
