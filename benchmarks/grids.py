"""Labels for cells: what neighbours are worth on made grids, and which way of labelling is best on photos of cracks.

    python benchmarks/grids.py --data DIR --out runs/grids --write
    python benchmarks/grids.py --part parity
    python benchmarks/grids.py --data DIR --out runs/grids --only single at_once sequential-8-2 --steps 600

DIR holds train.tsv, valid.tsv and test.tsv with the columns image and mask. Every way is a run folder of its own under
--out; one that is complete is not trained again, one that was interrupted goes on, so the command can be given again
until all is there. All ways have the same data, network on pixels, number of updates and pixel output. Thresholds are
fitted on the validation photos, the best checkpoint is chosen there, and the test photos are scored once, at the end.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from report import machine, write_section
from sightline.cli.train import preset
from sightline.config import override
from sightline.data.grids import read_values
from sightline.data.source import Source
from sightline.kernels.allocator import keep_memory
from sightline.synthetic.shapes import parity_grids
from sightline.tasks.configs.grid import GridConfig
from sightline.tasks.evaluate import Evaluation, compare, examples_for
from sightline.tasks.grid import GRID
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.tasks.train import train_task
from sightline.training.folder import CHECKSUMS, CONFIG, RunFolder

FLOOR = "single"
DECODER = {
    f"sequential-{around}-{sweeps}{suffix}": (
        f"decoder, {around} neighbours, {'one sweep' if sweeps == 1 else 'two sweeps'}, {words} attention",
        "sequential",
        (f"model.neighbours={around}", f"model.sweeps={sweeps}", *how),
    )
    for around in (4, 8)
    for sweeps in (1, 2)
    for suffix, words, how in (("", "with", ()), ("-blind", "without", ("model.attention=null",)))
}
WAYS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    FLOOR: ("CNN on single cells (the baseline)", "single", ()),
    "context": ("CNN with context, all at once", "at_once", ("model.rnn_layers=0", "model.attention=null")),
    "lines": ("rows and columns, all at once", "at_once", ("model.attention=null",)),
    "at_once": ("rows, columns and attention, all at once", "at_once", ()),
    **DECODER,
    "sequential-previous": ("decoder, only the previous label", "sequential", ("model.neighbours=1",)),
    "sequential-8-1-snake": ("decoder, 8 neighbours, one sweep, snake", "sequential", ('model.order="snake"',)),
    "sequential-8-1-gru": ("decoder, 8 neighbours, one sweep, GRU", "sequential", ("model.use_gru=true",)),
}
MORE = ("sequential-previous", "sequential-8-1-snake", "sequential-8-1-gru")  # only where they are asked for
PARITY: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "neighbours": ("decoder, 4 neighbours", "sequential", ("model.neighbours=4", "model.own_labels=0")),
    "eight": ("decoder, 8 neighbours", "sequential", ("model.neighbours=8", "model.own_labels=0")),
    "previous": ("decoder, only the previous label", "sequential", ("model.neighbours=1", "model.own_labels=0")),
    "at_once": ("rows, columns and attention, all at once", "at_once", ()),
    "single": ("single cell", "single", ()),
}
PARITY_SIZE = ("model.cell_size=32", "model.rnn_size=8", "model.dropout=0", "batch=32", "training.learning_rate=0.02")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def train_way(name: str, config: GridConfig, train: Path, valid: Path, out: Path) -> None:
    """One run: new, gone on with, or done already."""
    if (out / CHECKSUMS).exists():
        say(f"{name}: is there")
        return
    new = not (out / CONFIG).exists()
    say(f"{name}: {'begins' if new else 'goes on'}, {config.training.steps:,} updates")

    def heard(progress: Any, scores: dict[str, float]) -> None:
        shown = "  ".join(f"{key} {value:.2f}" for key, value in scores.items())
        say(f"{name}: step {progress.step:,}, {progress.seconds / 60:.1f} min  {shown}")

    source = Source(str(train)) if new else None
    train_task(GRID, source, out, config, valid=Source(str(valid)) if new else None, on_scores=heard)


def configured(kind: str, assignments: tuple[str, ...], steps: int, seed: int, more: tuple[str, ...]) -> GridConfig:
    every = max(20, steps // 12)
    training = (f"training.steps={steps}", f"training.validate_every={every}", "training.patience=1000")
    return override(preset(GRID.variants[0], kind), (*training, f"seed={seed}", *assignments, *more))


def parity(steps: int, seed: int) -> list[str]:
    """Accuracy on made grids where ``y_ij = x_ij ⊕ y_up ⊕ y_left``."""
    lines = ["| | accuracy, % |", "| --- | ---: |"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = {}
        for part, (count, draw) in {"train": (1000, 0), "valid": (50, 1), "test": (200, 2)}.items():
            rows = ["image\tlabels"]
            for number, (x, y) in enumerate(parity_grids(count, draw)):
                np.save(folder / f"{part}{number}.npy", x)
                np.save(folder / f"{part}{number}.gold.npy", y)
                rows.append(f"{part}{number}.npy\t{part}{number}.gold.npy")
            tables[part] = folder / f"{part}.tsv"
            tables[part].write_text("\n".join(rows) + "\n", encoding="utf-8")
        for key, (label, kind, assignments) in PARITY.items():
            config = configured(kind, assignments, steps, seed, PARITY_SIZE)
            train_way(f"parity {key}", config, tables["train"], tables["valid"], folder / key)
            accuracy = Run.load(folder / key).evaluate(tables["test"]).values["accuracy"]
            say(f"parity {key}: {accuracy:.2f} %")
            lines.append(f"| {label} | {accuracy:.2f} |")
    return lines


def minutes_of(run: Path) -> float:
    return max(line.get("seconds", 0.0) for line in RunFolder(run).metrics()) / 60


def measured(run: Run, examples: list[Example]) -> tuple[Evaluation, float]:
    """Scores on the test photos, and seconds for one photo at a time, after one that does not count."""
    found = run.evaluate(examples)
    images = [read_values(Path(one.x.name)) for one in examples]
    run.predict(images[:1])
    began = time.perf_counter()
    for image in images:
        run.predict([image])
    return found, (time.perf_counter() - began) / len(images)


def photos(options: argparse.Namespace, chosen: list[str]) -> list[str]:
    test = options.data / "test.tsv"
    evaluations: dict[str, Evaluation] = {}
    seconds: dict[str, float] = {}
    for name in chosen:
        _, kind, assignments = WAYS[name]
        config = configured(kind, assignments, options.steps, options.seed, tuple(options.set))
        train_way(name, config, options.data / "train.tsv", options.data / "valid.tsv", options.out / name)
    runs = {name: Run.load(options.out / name) for name in chosen}
    examples, _ = examples_for(runs[chosen[0]], test)
    for name in chosen:
        evaluations[name], seconds[name] = measured(runs[name], examples)
        say(f"{name}: {json.dumps({key: round(value, 2) for key, value in evaluations[name].values.items()})}")
    # Against the floor, where it is among them.
    compared: dict[str, Any] = {"runs": {}, "difference_interval": {}}
    if chosen[0] == FLOOR and len(chosen) > 1:
        data: Any = compare(runs, examples, metrics=("f1",), samples=options.samples).to_json()
        compared = data["metrics"]["f1"]
    lines = [
        "| | F1 | to the baseline (95 %) | AP | precision | recall "
        "| pixel F1, 0 px | 2 px | 5 px | ms per photo | min |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in chosen:
        values, difference = evaluations[name].values, ""
        if name in compared["difference_interval"]:
            low, high = compared["difference_interval"][name]
            difference = f"{compared['runs'][name]['difference']:+.1f} ({low:+.1f} to {high:+.1f})"
        cells = [f"{values['f1']:.1f}", difference]
        cells += [f"{values[key]:.1f}" for key in ("average_precision", "precision", "recall")]
        cells += [f"{values[f'pixel_f1_{distance}']:.1f}" for distance in (0, 2, 5)]
        cells += [f"{1000 * seconds[name]:.0f}", f"{minutes_of(options.out / name):.0f}"]
        lines.append(f"| {WAYS[name][0]} | {' | '.join(cells)} |")
    return lines


def _given(options: argparse.Namespace) -> list[str]:
    """What decides the figures, as it is given."""
    given = [f"--steps {options.steps} --seed {options.seed} --threads {torch.get_num_threads()}"]
    for name in ("only", "set"):
        given += [f"--{name} {' '.join(getattr(options, name))}"] if getattr(options, name) else []
    return given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("parity", "photos"), help="only this; nothing is written")
    parser.add_argument("--data", type=Path, help="the folder of the photos")
    parser.add_argument("--out", type=Path, help="where the runs go")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), help=f"these ways; else all but {', '.join(MORE)}")
    parser.add_argument("--steps", type=int, default=1000, help="updates of each way on photos")
    parser.add_argument("--parity-steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=10_000, help="resamples of the photos")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--set", nargs="*", default=[], help="fields of the configuration, the same for all ways")
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    options = parser.parse_args()
    if options.part != "parity" and (options.data is None or options.out is None):
        parser.error("--data and --out say where the photos are and where the runs go")
    if options.write and options.part:
        parser.error("--write goes with both parts: leave out --part")
    keep_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    found = {}
    if options.part in (None, "parity"):
        found["parity"] = parity(options.parity_steps, options.seed)
        print("\n".join(found["parity"]), flush=True)
    if options.part in (None, "photos"):
        chosen = [way for way in WAYS if way in (options.only or set(WAYS) - set(MORE))]
        found["photos"] = photos(options, chosen)
        print("\n".join(found["photos"]), flush=True)
    if options.write:
        body = (
            f"## Grids: a label for every cell\n\nMeasured on {machine()}.\n\n"
            f"Synthetic grids of 6 × 6 to 10 × 10 cells, y_ij = x_ij ⊕ y_up ⊕ y_left, {options.parity_steps} updates, "
            "200 grids to test on:\n\n"
            + "\n".join(found["parity"])
            + f"\n\nPhotos of {options.data.name}, cells of 16 px, marked if any of their pixels is; {options.steps:,} "
            "updates each, thresholds and checkpoint selected on the validation photos, test photos scored once. "
            f"Difference to the baseline: 95 % of {options.samples:,} paired resamples of the photos. Pixels: those "
            "that the pixel output marks inside marked cells; correct if a gold pixel is within the distance. Time: "
            "one photo at a time.\n\n"
            + "\n".join(found["photos"])
            + f"\n\nReproduce: `python benchmarks/grids.py --data DIR --out DIR {' '.join(_given(options))} --write`."
        )
        write_section("grids", body)


if __name__ == "__main__":
    main()
