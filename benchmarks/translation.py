"""Translation: the built-in models on a corpus of your own, each within a limit of time, scored once on its test data.

    python benchmarks/translation.py FOLDER --runs runs/translation --write

FOLDER holds train.tsv.gz, valid.tsv and test.tsv with the columns source and target, tokenised and lower-cased as in
the tables of papers (Multi30k English to German is what RESULTS.md has). A run that is there is gone on with, a run
that has ended is only scored, and a score that is there is only read: the test data decide nothing.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import machine, write_section
from sightline import load
from sightline.files import write_text
from sightline.metrics import buckets_by_length
from sightline.view.charts import draw_curves, lines_by_length

ABOUT = (
    "Multi30k English to German (29,000 pairs, tokenised and lower-cased; test 2016), joint BPE of 5,000, the tiny "
    "presets, two threads, beam 5, weights chosen on validation data. Minutes are wall time of training with its "
    "validations; the columns by words are tokenised BLEU by the length of the source."
)
EDGES = (1, 10, 15, 20)
VOCABULARY = "tokeniser.vocab_size=5000"


@dataclass(frozen=True)
class System:
    """A model and its training, which ends after all of its ``minutes``, validation too, or after its ``epochs``."""

    name: str
    model: str
    minutes: float | None = None
    epochs: int | None = None
    settings: tuple[str, ...] = ()

    @property
    def limit(self) -> list[str]:
        return ["--minutes", str(self.minutes)] if self.epochs is None else ["--epochs", str(self.epochs)]


RECURRENT = ("training.warmup=500",)
SYSTEMS = (
    System("transformer", "transformer", 72),
    System("rnnsearch", "rnnsearch", 38, settings=RECURRENT),
    System("luong", "luong", 19.5, settings=RECURRENT),
    System("luong, fixed score", "luong", 19.5, settings=(*RECURRENT, "model.attention=fixed")),
    System("seq2seq", "seq2seq", 14.5, settings=RECURRENT),
    System("transformer, 80 epochs", "transformer", epochs=80, settings=("validated=1014", "training.averaged=10")),
)


def folder_of(system: System, runs: Path) -> Path:
    return runs / system.name.replace(", ", "-").replace(" ", "-")


def train(system: System, data: Path, run: Path) -> None:
    """By command, as anyone would."""
    if (run / "checksums.json").exists():
        return
    command = [sys.executable, "-m", "sightline"]
    if (run / "config.json").exists():
        command += ["resume", str(run)]
    else:
        command += ["train", "translate", "--data", str(data / "train.tsv.gz"), "--valid", str(data / "valid.tsv")]
        command += ["--out", str(run), "--model", system.model, *system.limit]
        command += ["--metric", "tokenised_bleu", "--set", VOCABULARY, "training.patience=1000", *system.settings]
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True)


def score(run: Path, data: Path) -> dict[str, Any]:
    """The test scores of a run, computed once."""
    path = run / "test.json"
    if not path.exists():
        found = load(run).evaluate(data / "test.tsv", beam=5)
        score = found.statistics["tokenised_bleu"].score
        about = found.to_json()
        about["by_length"] = [
            {"least": one.least, "most": one.most, "pairs": len(one.rows), "tokenised_bleu": score(one.rows)}
            for one in buckets_by_length([str(example.x) for example in found.examples], EDGES)
        ]
        about["predictions"] = list(found.rows())
        write_text(path, json.dumps(about, ensure_ascii=False, indent=1))
    scores = json.loads(path.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in lines if "seconds" in line][-1]
    scores["minutes"], scores["epochs"] = last["seconds"] / 60, last["epoch"]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/translation"))
    parser.add_argument("--only", nargs="+", choices=[system.name for system in SYSTEMS])
    parser.add_argument("--note", default="", help="what a reader has to know of how these runs came about")
    parser.add_argument("--write", action="store_true", help="put the table and the picture beside RESULTS.md")
    options = parser.parse_args()
    chosen = [system for system in SYSTEMS if not options.only or system.name in options.only]
    results = {}
    for system in chosen:
        run = folder_of(system, options.runs)
        train(system, options.data, run)
        results[system.name] = score(run, options.data)
        value = results[system.name]["tokenised_bleu"]["value"]
        print(f"{system.name}: {value:.2f} in {results[system.name]['minutes']:.1f} minutes", flush=True)
    first = next(iter(results.values()))
    labels = [_label(bucket) for bucket in first["by_length"]]
    head = [
        "model",
        "minutes",
        "epochs",
        "tokenised BLEU",
        "sacreBLEU",
        "chrF",
        *(f"{label} words" for label in labels),
    ]
    rows = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    for name, found in results.items():
        cells = [f"{found['minutes']:.0f}", str(found["epochs"])]
        cells += [f"{found[metric]['value']:.2f}" for metric in ("tokenised_bleu", "bleu", "chrf")]
        cells += [f"{bucket['tokenised_bleu']:.1f}" for bucket in found["by_length"]]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    table = "\n".join(rows)
    print(table)
    if options.write:
        lines = {name: [b["tokenised_bleu"] for b in found["by_length"]] for name, found in results.items()}
        counts = [bucket["pairs"] for bucket in first["by_length"]]
        picture = Path(__file__).parent / "translation.png"
        lines_by_length(labels, counts, lines, picture, score="tokenised BLEU")
        body = f"## Translation\n\nMeasured on {machine()}. {ABOUT}\n\n{table}\n\n"
        body += f"{options.note}\n\n" if options.note else ""
        body += f"![BLEU by the length of the source]({picture.name})\n\n"
        for system in chosen[:1]:
            curves = Path(__file__).parent / f"{folder_of(system, options.runs).name}-curves.png"
            lines_of_run = (folder_of(system, options.runs) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            draw_curves([json.loads(line) for line in lines_of_run], curves)
            body += f"![Training curves of {system.name}]({curves.name})\n\n"
        body += f"tokenised BLEU: {first['tokenised_bleu']['signature']}; sacreBLEU: {first['bleu']['signature']}.\n\n"
        body += "Reproduce: `python benchmarks/translation.py FOLDER --write`, with the corpus in FOLDER."
        write_section("translation", body)


def _label(bucket: dict[str, Any]) -> str:
    return f"{bucket['least']}+" if bucket["most"] is None else f"{bucket['least']}–{bucket['most']}"


if __name__ == "__main__":
    main()
