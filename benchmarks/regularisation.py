"""Regularisation and stopping of `classify` on texts, judged on validation data alone; test data is not read.

    python benchmarks/regularisation.py DATA --out runs/regularisation --settings default,smooth --seeds 0,1

DATA holds a folder for each corpus (classify-trec, classify-sst2, classify-hotel-zh, classify-imdb), as for
classification.py. Each setting is trained with the defaults otherwise, and every validation is kept: macro-F1, loss,
and the temperature that fits it, with the loss and the calibration error after it. So rules that choose the checkpoint
are compared on the same trainings. A training that is there is not repeated.
"""

import argparse
import gzip
import json
import random
import statistics
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import sightline
from sightline import metrics
from sightline.config import override
from sightline.outputs.label_scores import truth_of
from sightline.outputs.labels import LabelsOutput
from sightline.tasks.configs.classify import ClassifyConfig

ROWS = {"sst2": 3500, "hotel-zh": 2000, "imdb": 2000}  # training rows, drawn at random; of the others all
VALID = 900
SETTINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "smooth": ("smoothing=0.1",),
    "dropout": ("model.dropout=0.5",),
    "dropouts": ("model.dropout=0.5", "model.word_dropout=0.3"),
    "decay": ("training.weight_decay=1.0",),
    "slower": ("training.learning_rate=5e-4",),
    "short": ("training.epochs=8", "training.cooldown=1.0"),
}
LIMITS = {"F1": float("inf"), "F1, loss ≤ 1.5": 1.5, "F1, loss ≤ 1.25": 1.25, "F1, loss ≤ 1.1": 1.1, "loss": 1.0}


def rows_of(folder: Path, name: str) -> list[list[str]] | None:
    """The rows of a table of a corpus, gzip or not, without its header."""
    for ending, opened in ((".tsv", open), (".tsv.gz", gzip.open)):
        path = folder / f"{name}{ending}"
        if path.exists():
            with opened(path, "rt", encoding="utf-8", newline="") as file:
                return [line.rstrip("\n").split("\t") for line in file][1:]
    return None


def corpus_of(data: Path, corpus: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Training and validation rows, always the same ones."""
    folder = data / f"classify-{corpus}"
    train, valid = rows_of(folder, "train"), rows_of(folder, "valid")
    assert train is not None, f"{folder} has no train.tsv"
    draw = random.Random(0)
    draw.shuffle(train)
    if valid is None:
        valid, train = train[: len(train) // 10], train[len(train) // 10 :]
    pairs = [[(text, label) for text, label in some] for some in (train[: ROWS.get(corpus)], valid[:VALID])]
    return pairs[0], pairs[1]


def trained(data: Path, corpus: str, setting: str, seed: int, out: Path) -> list[dict[str, float]]:
    """Every validation of a training, and the one that ended it, which is the last."""
    kept = out / f"{corpus}-{setting}-{seed}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    train, valid = corpus_of(data, corpus)
    config = override(ClassifyConfig(), [*SETTINGS[setting], f"seed={seed}", "baselines=false"])
    lines: list[dict[str, float]] = []
    validate = LabelsOutput.validate

    def watched(self: Any, run: Any, raws: Any, examples: Any) -> dict[str, float]:
        scores = validate(self, run, raws, examples)
        logits, gold = np.array(raws), truth_of(self.labels, [one.y for one in examples]).gold
        temperature = metrics.fit_temperature(logits, gold)
        lines.append(
            {
                "f1": scores["macro_f1"],
                "loss": scores["valid_loss"],
                "temperature": temperature,
                "calibrated": metrics.nll(logits, gold, temperature).value,
                "ece": metrics.ece(metrics.probabilities(logits, temperature), gold).value,
                "ece_before": metrics.ece(metrics.probabilities(logits, 1.0), gold).value,
            }
        )
        return scores

    with patch.object(LabelsOutput, "validate", watched):
        run = sightline.train(train, out / f"{corpus}-{setting}-{seed}", task="classify", valid=valid, config=config)
    final = next(one for one in run.folder.joinpath("metrics.jsonl").read_text().splitlines()[::-1] if "final" in one)
    lines.append(next(one for one in lines if one["f1"] == json.loads(final)["macro_f1"]))
    kept.write_text(json.dumps(lines))
    return lines


def chosen(lines: list[dict[str, float]], limit: float) -> dict[str, float]:
    """The validation with the highest macro-F1 of those whose loss is at most so many times the least one.

    The last two lines are no candidates: the mean of the last checkpoints, and the end of the run.
    """
    least = min(one["loss"] for one in lines[:-2])
    return max((one for one in lines[:-2] if one["loss"] <= limit * least), key=lambda one: one["f1"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpora", default="trec,sst2,hotel-zh,imdb")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.out.mkdir(parents=True, exist_ok=True)
    names = ("f1", "loss", "temperature", "calibrated", "ece_before", "ece")
    print("| corpus | setting | chosen by | macro-F1 | loss | T | loss after T | ECE before | ECE |")
    print("| --- | --- | --- |" + " --- |" * len(names))
    for setting in given.settings.split(","):
        for corpus in given.corpora.split(","):
            runs = [trained(given.data, corpus, setting, int(seed), given.out) for seed in given.seeds.split(",")]
            for rule, limit in LIMITS.items():
                picked = [chosen(lines, limit) for lines in runs]
                means = (statistics.mean(one[name] for one in picked) for name in names)
                print(f"| {corpus} | {setting} | {rule} | {' | '.join(f'{one:.3f}' for one in means)} |", flush=True)


if __name__ == "__main__":
    main()
