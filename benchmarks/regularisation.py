"""Regularisation and stopping of `classify` on texts, judged on validation data alone; test data is not read.

    python benchmarks/regularisation.py DATA --out runs/regularisation --settings default,smooth --seeds 0,1

DATA holds a folder for each corpus (classify-trec, classify-sst2, classify-hotel-zh, classify-imdb), as for
classification.py. Each setting is trained with the defaults otherwise, and the logits of every validation are kept: so
rules that choose the checkpoint are compared on the same trainings, one half of the validation data choosing and the
other being scored. A training that is there is not repeated.
"""

import argparse
import gzip
import random
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
ALL = "highest F1, all data"  # chooses and is scored
MARGINS = {ALL: 0.0, "highest F1": 0.0, "F1 within ½ s.e.": 0.5, "F1 within 1 s.e.": 1.0, "least loss": 1e9}
SPLITS = 50  # of the validation data into halves: one chooses the checkpoint and the temperature, the other is scored


def rows_of(folder: Path, name: str) -> list[list[str]] | None:
    """The rows of a table of a corpus, gzip or not, without its header."""
    for ending, opened in ((".tsv", open), (".tsv.gz", gzip.open)):
        path = folder / f"{name}{ending}"
        if path.exists():
            with opened(path, "rt", encoding="utf-8", newline="") as file:
                return [line.rstrip("\n").split("\t") for line in file][1:]
    return None


def corpus_of(data: Path, corpus: str, rows: int | None) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Training and validation rows, always the same ones."""
    folder = data / f"classify-{corpus}"
    train, valid = rows_of(folder, "train"), rows_of(folder, "valid")
    assert train is not None, f"{folder} has no train.tsv"
    draw = random.Random(0)
    draw.shuffle(train)
    if valid is None:
        valid, train = train[: len(train) // 10], train[len(train) // 10 :]
    pairs = [[(text, label) for text, label in some] for some in (train[: rows or ROWS.get(corpus)], valid[:VALID])]
    return pairs[0], pairs[1]


def trained(
    data: Path, corpus: str, setting: str, seed: int, rows: int | None, out: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Logits at every validation of a training, and the labels; the last one is of the mean of the last checkpoints."""
    name = f"{corpus}{rows or ''}-{setting}-{seed}"
    kept = out / f"{name}.npz"
    if kept.exists():
        with np.load(kept) as stored:
            return stored["outputs"], stored["gold"]
    train, valid = corpus_of(data, corpus, rows)
    config = override(ClassifyConfig(), [*SETTINGS[setting], f"seed={seed}", "baselines=false"])
    outputs: list[np.ndarray] = []
    gold: list[np.ndarray] = []
    validate = LabelsOutput.validate

    def watched(self: Any, run: Any, raws: Any, examples: Any) -> dict[str, float]:
        outputs.append(np.array(raws, dtype=np.float32))
        gold.append(truth_of(self.labels, [one.y for one in examples]).gold)
        return validate(self, run, raws, examples)

    with patch.object(LabelsOutput, "validate", watched):
        sightline.train(train, out / name, task="classify", valid=valid, config=config)
    np.savez(kept, outputs=np.array(outputs), gold=gold[0])
    return np.array(outputs), gold[0]


def judged(outputs: np.ndarray, gold: np.ndarray, margin: float, halves: bool) -> np.ndarray:
    """Macro-F1, loss, temperature, and loss and calibration error after it.

    One half of the validation data chooses the least loss of those within so many standard errors of the highest
    macro-F1, the other half is scored; without ``halves``, all data do both.
    """
    draw, classes, rows = np.random.default_rng(0), outputs.shape[2], len(gold)
    scored = []
    for _ in range(SPLITS if halves else 1):
        order = draw.permutation(rows)
        some, others = (order[: rows // 2], order[rows // 2 :]) if halves else (order, order)
        f1 = np.array([metrics.macro_f1(one[some].argmax(axis=1), gold[some], classes).value for one in outputs])
        losses = np.array([metrics.nll(one[some], gold[some]).value for one in outputs])
        best = f1.max()
        error = np.sqrt(best * (100 - best) / len(some))
        allowed = np.flatnonzero(f1 >= best - margin * error)
        one = outputs[allowed[losses[allowed].argmin()] if margin else f1.argmax()]
        temperature = metrics.fit_temperature(one[some], gold[some])
        logits, truth = one[others], gold[others]
        scored.append(
            (
                metrics.macro_f1(logits.argmax(axis=1), truth, classes).value,
                metrics.nll(logits, truth).value,
                temperature,
                metrics.nll(logits, truth, temperature).value,
                metrics.ece(metrics.probabilities(logits, temperature), truth).value,
            )
        )
    return np.mean(scored, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpora", default="trec,sst2,hotel-zh,imdb")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--rows", type=int, help="training rows of each corpus")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.out.mkdir(parents=True, exist_ok=True)
    print("| corpus | setting | checkpoint | macro-F1 | loss | T | loss after T | ECE after T |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for setting in given.settings.split(","):
        for corpus in given.corpora.split(","):
            runs = [
                trained(given.data, corpus, setting, int(seed), given.rows, given.out)
                for seed in given.seeds.split(",")
            ]
            for rule, margin in MARGINS.items():
                means = np.mean([judged(*run, margin, rule != ALL) for run in runs], axis=0)
                print(f"| {corpus} | {setting} | {rule} | {' | '.join(f'{one:.3f}' for one in means)} |", flush=True)


if __name__ == "__main__":
    main()
