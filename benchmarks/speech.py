"""Sound, features and lips to text: error rates on four small corpora, and what the attention looks at.

    python benchmarks/speech.py train DATA --work FOLDER --only an4-joint [--scale 0.1]
    python benchmarks/speech.py report DATA --work FOLDER [--write]

DATA holds the folders of the corpora (FSDD, AN4, HSK, GRID s1) as tables with official splits. `train` trains with one
thread, for the minutes of the table, and scores the test data once; `report` puts what is there together. Settings were
chosen on validation data.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from report import machine, write_section
from speech_data import absolute, mouths, rows_of, spliced, write_table

FAST = ["training.learning_rate=0.003", "model.cell=gru", "model.sampling=0.0"]
MASKS = ["model.front.masking.bands=1", "model.front.masking.band=0.15"]
AN4 = [*FAST, *MASKS, "batch_tokens=4000", "model.front.deltas=2", "validated=105"]
STRINGS = [*FAST, "tokeniser.method=words", "model.size=128", "model.reduces=[4,2]", "model.decoder_size=192"]
STRINGS += ["speeds=[1.0]", "model.front.masking=null", "model.dropout=0.2"]
LIPS = [*FAST, "stacked=32", "tokeniser.method=words", "batch_tokens=1200", "model.size=128", "model.decoder_size=128"]
LIPS += ["model.front.masking=null", "model.dropout=0.2", "training.warmup=150", "validated=50"]
SPOKEN = [*STRINGS, "batch_tokens=3000", "model.front.deltas=2", "training.warmup=150"]

MOUTH = ["batch_tokens=3000", "model.cell=gru", "model.size=96", "model.reduces=[2,2]", "model.dropped=1.0"]
MOUTH += ['model.attention={"kind":"local","place":"monotonic","half_width":3}']
MOUTH += ["model.front.masking=null", "model.dropout=0.2"]


class Experiment(NamedTuple):
    """The task, minutes of training, what is set, and the tables: how they are made of the data."""

    task: str
    minutes: float
    settings: list[str]
    tables: Callable[[Path, Path], dict[str, Path]]
    options: tuple[str, ...] = ()


def _plain(folder: str, columns: dict[str, str]) -> Callable[[Path, Path], dict[str, Path]]:
    def tables(data: Path, work: Path) -> dict[str, Path]:
        names = ("train", "valid", "test")
        return {name: absolute(data / folder / f"{name}.tsv", work / f"{name}.tsv", columns) for name in names}

    return tables


def _strings(data: Path, work: Path) -> dict[str, Path]:
    made = work.parent / "strings"
    made.mkdir(parents=True, exist_ok=True)
    tables = {name: spliced(data / "speech-fsdd", f"strings-{name}", made) for name in ("train", "valid", "test")}
    rows = rows_of(spliced(data / "speech-fsdd", "strings-test-long", made))
    for length in sorted({row["length"] for row in rows}, key=int):
        chosen = [row for row in rows if row["length"] == length]
        tables[f"test-{length}"] = write_table(made / f"test-{length}.tsv", chosen)
    return tables


def _mouths(data: Path, work: Path) -> dict[str, Path]:
    return mouths(data / "lips-grid-s1", work.parent / "mouths")


_an4 = _plain("speech-an4", {"features": "features", "text": "text"})
_grid = _plain("lips-grid-s1", {"audio": "audio", "text": "text"})
EXPERIMENTS = {
    "an4-joint": Experiment("transcribe", 42, AN4, _an4),
    "an4-attention": Experiment("transcribe", 8, [*AN4, "model.ctc=0"], _an4),
    "an4-ctc": Experiment("transcribe", 8, AN4, _an4, ("--model", "ctc")),
    "digits": Experiment(
        "classify", 4, ["training.learning_rate=0.003"], _plain("speech-fsdd", {"audio": "audio", "text": "label"})
    ),
    "strings-content": Experiment("transcribe", 4, [*STRINGS, "model.ctc=0", "model.attention=additive"], _strings),
    "strings-location": Experiment("transcribe", 4, [*STRINGS, "model.ctc=0"], _strings),
    "strings-joint": Experiment("transcribe", 6, [*STRINGS, "model.ctc=0.3"], _strings),
    "grid-sound": Experiment("transcribe", 8, SPOKEN, _grid),
    "grid-lips": Experiment("transcribe", 9, LIPS, _plain("lips-grid-s1", {"frames": "frames", "text": "text"})),
    "mandarin": Experiment(
        "transcribe", 24, [*FAST, *MASKS, "sound.size=80", "batch_tokens=6000"],
        _plain("speech-hsk-zh", {"audio": "audio", "pinyin": "text"}),
    ),
    "mouth": Experiment("sequence", 8, MOUTH, _mouths),
}  # fmt: skip


def sightline(*arguments: object) -> str:
    source = Path(__file__).parents[1] / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "sightline", *map(str, arguments)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def train(name: str, data: Path, work: Path, scale: float) -> None:
    """Train one, and score its test data; what is there is left as it is."""
    one, here = EXPERIMENTS[name], work / name
    here.mkdir(parents=True, exist_ok=True)
    tables = one.tables(data, here)
    if not (here / "run" / "model.safetensors").exists():
        began = time.time()
        given = ["--data", tables["train"], "--valid", tables["valid"], "--out", here / "run", "--overwrite"]
        limits = ["--minutes", one.minutes * scale, "--threads", 1]
        chosen = ["--set", *one.settings] if one.settings else []
        log = sightline("train", one.task, *given, *one.options, *limits, *chosen)
        (here / "log.txt").write_text(f"{log}\n{time.time() - began:.0f} seconds in all\n", encoding="utf-8")
    for part, table in tables.items():
        if part.startswith("test") and not (here / f"{part}.json").exists():
            found = sightline(
                "evaluate", here / "run", "--data", table, "--json", "--threads", 1, "--out", here / f"{part}.jsonl"
            )
            (here / f"{part}.json").write_text(found[found.index("{") : found.rindex("}") + 1], encoding="utf-8")


# -- what is there


def scores(work: Path, name: str, part: str = "test") -> dict[str, Any] | None:
    path = work / name / f"{part}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def resampled(rows: Path) -> tuple[float, float, float]:
    """The word error rate, and the interval of 95 % of 2,000 resamples of the recordings."""
    from sightline.metrics.base import paired_bootstrap
    from sightline.metrics.error_rates import ERROR_RATES

    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").split("\n") if line]
    texts = [[line[side] for line in lines] for side in ("prediction", "reference")]
    (one,) = paired_bootstrap([ERROR_RATES["wer"].statistics(*texts)], 2000)
    return one.value, *one.interval


def errors(work: Path, name: str, part: str = "test") -> str:
    path = work / name / f"{part}.jsonl"
    if not path.exists():
        return "–"
    value, low, high = resampled(path)
    return f"{value:.1f} ({low:.1f}–{high:.1f})"


def by_slot(work: Path, name: str) -> list[str]:
    """Of sentences of six words, the share of wrong words at each place, where six were written."""
    lines = [json.loads(line) for line in (work / name / "test.jsonl").read_text(encoding="utf-8").split("\n") if line]
    pairs = [(line["prediction"].split(), line["reference"].split()) for line in lines]
    wrong = np.array([[a != b for a, b in zip(one, other, strict=True)] for one, other in pairs if len(one) == 6])
    return [f"{100 * share:.0f}" for share in wrong.mean(axis=0)] if len(wrong) else []


def inside(work: Path, name: str, data: Path, beside: float = 2.0) -> tuple[float, float]:
    """The share of a word's attention within its true time, with two frames of the film to each side, and that of
    CTC's alignment. The text that is read is the right one; the map is that of the last layer.
    """
    import sightline as package

    run = package.load(work / name / "run")
    column = "audio" if name == "grid-sound" else "frames"
    shares: tuple[list[float], list[float]] = [], []
    for row in rows_of(data / "lips-grid-s1" / "test.tsv"):
        explanation = run.explain(data / "lips-grid-s1" / row[column], row["text"], measure=False)
        for kept, stack in zip(shares, (explanation.stacks[0], explanation.stacks[-1]), strict=True):
            record = explanation.of(stack.names[-1])[0]
            weights, seconds = record.matrix(), record.columns.seconds  # type: ignore[union-attr]
            middles = (np.arange(weights.shape[1]) + 0.5) * seconds * 25
            for place, times in enumerate(row["words_at"].split()):
                start, end = map(float, times.split("-"))
                kept.append(weights[place][(middles >= start - beside) & (middles <= end + beside)].sum())
    attention, aligned = (float(np.mean(some)) for some in shares)
    return attention, aligned


def tones(work: Path) -> tuple[np.ndarray, float]:
    """How often each tone (rows) was written as each, where as many syllables were written as there are, and the share
    of syllables that are wrong only in their tone."""
    lines = [json.loads(line) for line in (work / "mandarin" / "test.jsonl").read_text().split("\n") if line]
    counts, only, total = np.zeros((5, 5), int), 0, 0
    for line in lines:
        said, written = line["reference"].split(), line["prediction"].split()
        total += len(said)
        if len(said) != len(written):
            continue
        for one, other in zip(said, written, strict=True):
            if one[-1] in "12345" and other[-1:] in "12345" and other:
                counts[int(one[-1]) - 1, int(other[-1]) - 1] += 1
                only += one[:-1] == other[:-1] and one != other
    return counts, 100 * only / max(1, total)


def draw_tones(counts: np.ndarray, path: Path) -> None:
    import matplotlib.pyplot as plt

    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure, axes = plt.subplots(figsize=(4, 3.6), layout="constrained")
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    names = ["1", "2", "3", "4", "neutral"]
    axes.set_xticks(range(5), names)
    axes.set_yticks(range(5), names)
    axes.set_xlabel("tone written")
    axes.set_ylabel("tone said (citation)")
    for row in range(5):
        for column in range(5):
            dark = shares[row, column] > 60
            axes.text(column, row, counts[row, column], ha="center", va="center", color="white" if dark else "black")
    figure.savefig(path, dpi=150)


def report(data: Path, work: Path) -> list[str]:
    lines = ["| AN4, word error rate in % (95 % interval) | test |", "|---|--:|"]
    for name in ("attention", "ctc", "joint"):
        lines.append(f"| {name} | {errors(work, f'an4-{name}')} |")
    lines += ["", "| digit error in % | 1–5 digits | 10 | 20 | 30 | 50 |", "|---|--:|--:|--:|--:|--:|"]
    for name in ("content", "location", "joint"):
        parts = ("test", "test-10", "test-20", "test-30", "test-50")
        lines.append(f"| {name} | {' | '.join(errors(work, f'strings-{name}', part) for part in parts)} |")
    digits = scores(work, "digits")
    if digits is not None:
        lines += [
            "",
            f"Single digits (FSDD, official test): {digits['accuracy']:.1f} % right of {digits['recordings']}.",
        ]
    lines += [
        "",
        "| GRID s1 | WER in % | by place in the sentence | attention inside the word's time | CTC's alignment there |",
        "|---|--:|---|--:|--:|",
    ]
    for name in ("sound", "lips"):
        if (work / f"grid-{name}" / "test.jsonl").exists():
            attention, aligned = inside(work, f"grid-{name}", data)
            slots = " ".join(by_slot(work, f"grid-{name}"))
            looked = f"{100 * attention:.0f} % | {100 * aligned:.0f} %"
            lines.append(f"| {name} | {errors(work, f'grid-{name}')} | {slots} | {looked} |")
    if (work / "mandarin" / "test.jsonl").exists():
        counts, only = tones(work)
        draw_tones(counts, work / "tones.png")
        lines += ["", f"Mandarin: error rate of toned syllables {errors(work, 'mandarin')} %; {only:.1f} % of the"]
        lines += [
            f"syllables are wrong only in their tone. Tones said and written: {counts.tolist()} (FOLDER/tones.png)."
        ]
    mouth = scores(work, "mouth")
    if mouth is not None:
        lines += ["", "| sound to mouth (64 components), free-running over the true length | R² in % |", "|---|--:|"]
        lines += [f"| Sightline | {mouth['r2']:.1f} |"]
        lines += [f"| {name} | {values['r2']:.1f} |" for name, values in mouth["baselines"].items()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("train", "report"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--scale", type=float, default=1.0, help="of the minutes of training")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    data, work = options.data.resolve(), options.work.resolve()
    if options.verb == "train":
        for name in options.only:
            train(name, data, work, options.scale)
        return
    lines = report(data, work)
    print("\n".join(lines))
    if options.write:
        minutes = ", ".join(f"{name} {one.minutes:g}" for name, one in EXPERIMENTS.items())
        title = f"## Speech and lips\n\nMeasured on {machine()}. One thread each; minutes of training: {minutes}. The"
        title += " machine had other work beside them."
        how = "Reproduce: `python benchmarks/speech.py train DATA --work FOLDER`, then `report … --write`."
        write_section("speech", "\n".join([title, "", *lines, "", how]))


if __name__ == "__main__":
    main()
