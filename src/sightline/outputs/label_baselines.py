"""Baselines of labels: the simple models that scores are compared with, one kind for texts and one for images."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.baselines.texts import FACTS, WEIGHTS, LinearBaselines, fit_baselines
from sightline.data.features import Features
from sightline.errors import UserError
from sightline.outputs.label_scores import Labels
from sightline.tasks.prepare import SomePrepared, SomeRows

NB_SVM = "nb-svm"
MOST_ROWS = 100_000  # that baselines are fitted to, drawn from all


class LabelBaselines:
    """Baselines of one kind of items, and their names in the card."""

    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    missing: ClassVar[str] = ""  # the sentence of the card where there are none
    unknown: ClassVar[str] = ""  # that of an evaluation
    names: ClassVar[dict[str, str]] = {}  # in the card

    def __init__(self, input: Any, labels: Labels, config: Any) -> None:
        self.input, self.labels, self.config = input, labels, config

    def fit(self, rows: SomeRows, folder: Path) -> list[str]:
        """Fit them to training rows, and save them in the run folder; the names of their files."""
        return []

    def files(self, folder: Path) -> list[str]:
        """Those of the files that a run folder has."""
        return []

    def scores(
        self, folder: Path | None, xs: Sequence[Any], prepared: SomePrepared | None = None
    ) -> dict[str, np.ndarray]:
        """Of each baseline, logits (margins) or numbers of the items; ``prepared`` is given at the end of training."""
        return {}

    def section(self, kind: str, own: dict[str, float], baselines: dict[str, dict[str, float]]) -> list[str]:
        """The section of a card: scores of a model of this kind beside those of the baselines."""
        if not baselines:
            return [self.missing, ""] if self.missing else []
        systems = {f"**this model** (`{kind}`)": own}
        systems |= {self.names.get(name, name): values for name, values in baselines.items()}
        metrics = [name.replace("_", " ") for name in own]
        lines = [f"## {self.title}", "", self.about, ""]
        lines += [f"| | {' | '.join(metrics)} |", f"| --- |{' --- |' * len(metrics)}"]
        for name, values in systems.items():
            lines.append(f"| {name} | {' | '.join(f'{values[metric]:.2f}' for metric in own)} |")
        return [*lines, ""]


class TextBaselines(LabelBaselines):
    """Linear models on words and n-grams (`sightline.baselines.texts`)."""

    title = "Beside the floors"
    about = (
        "Linear models on the same training texts, scored on all validation data. What they reach needs no attention."
    )
    missing = "The floors, linear models on words, were left out or interrupted: what this model adds is not known."
    unknown = "the run was trained without floors (linear models on words): what it adds to them is not known"
    names: ClassVar[dict[str, str]] = {
        "linear": "linear model on words",
        NB_SVM: "NB-SVM on word n-grams",
        "ngrams": "linear on word n-grams",
    }

    def fit(self, rows: SomeRows, folder: Path) -> list[str]:
        if not self.config.baselines:
            return []
        texts, given = zip(*rows.limited(MOST_ROWS, self.config.seed), strict=True)
        labels = self.labels
        itself = (NB_SVM,) if self.config.model.kind == "nb_svm" else ()
        floors = fit_baselines(texts, labels.gold(given), labels.kind, labels.classes, self.config.seed, itself)
        return replace(floors, texts=rows.count).save(folder)

    def files(self, folder: Path) -> list[str]:
        return [WEIGHTS, FACTS] if (folder / FACTS).exists() else []

    def scores(
        self, folder: Path | None, xs: Sequence[Any], prepared: SomePrepared | None = None
    ) -> dict[str, np.ndarray]:
        if folder is None or not self.files(folder):
            return {}
        floors, labels = LinearBaselines.load(folder), self.labels
        outputs = {len(floor.bias) for floor in floors.floors.values()}
        fitting = {labels.classes, 1} if labels.kind == "one" and labels.classes == 2 else {labels.classes}
        if floors.kind != labels.kind or not outputs <= fitting:
            raise UserError(f"{folder / FACTS} is damaged: its baselines are not those of the run's labels")
        return floors.scores(xs)


# -- the baseline of images: a linear model without attention
#
# It reads the mean of an image's features where the encoder is frozen; where the encoder learns, the image in 8 × 8
# pixels. The penalty on its weights is chosen on a fifth of the training images; then it is fitted to all of them. A
# model with attention that does not beat it has learnt nothing from where things are.

SIDE = 8
AT_ONCE = 256
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the penalty, against the mean loss of an image
MOST = 20_000  # images that it is fitted to
ROUNDS = 50


class ImageBaselines(LabelBaselines):
    """The one of images, which is fitted at the end of training; the run does not store it."""

    title = "Beside the floor"
    about = "A linear model on the same training images, scored on all validation data: what needs no attention."

    def scores(
        self, folder: Path | None, xs: Sequence[Any], prepared: SomePrepared | None = None
    ) -> dict[str, np.ndarray]:
        if prepared is None:
            return {}
        order = np.random.default_rng(self.config.seed).permutation(len(prepared.corpus))[:MOST]
        training, targets = zip(*(prepared.corpus[row] for row in order.tolist()), strict=True)
        gold = cast("Tensor", prepared.output.collate(targets, None))
        return self.linear([int(one[0]) for one in training], gold, [x.row for x in xs])

    def linear(self, training: Sequence[int], gold: Tensor, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """The scores of these rows, of a model that is fitted to the rows for training."""
        return linear_scores(self.input.features, training, gold, rows, self.labels)


class SeriesBaselines(ImageBaselines):
    """The same for recordings: a linear model on the mean and the deviation of each feature, without any order."""

    about = "A linear model on the same training data, scored on all validation data: what needs no order of time."

    def linear(self, training: Sequence[int], gold: Tensor, rows: Sequence[int]) -> dict[str, np.ndarray]:
        margins = linear_margins(self._moments(training), gold, self._moments(rows), self.labels)
        return {"linear model on means and deviations": margins}

    def _moments(self, rows: Sequence[int]) -> Tensor:
        frames = (torch.from_numpy(self.input.store.frames(row).astype(np.float64)).flatten(1) for row in rows)
        return torch.stack([torch.cat([one.mean(dim=0), one.std(dim=0, correction=0)]) for one in frames])


def linear_scores(
    features: Features, training: Sequence[int], gold: Tensor, rows: Sequence[int], labels: Labels
) -> dict[str, np.ndarray]:
    """Logits (or numbers) of these rows, of a linear model that is fitted to the rows for training."""
    margins = linear_margins(_features(features, training), gold, _features(features, rows), labels)
    pixels = features.dtype == np.uint8
    return {f"linear model on {SIDE} × {SIDE} pixels" if pixels else "linear model on the mean of all places": margins}


def linear_margins(x: Tensor, gold: Tensor, scored: Tensor, labels: Labels) -> np.ndarray:
    """Logits (or numbers) of the scored rows, of a linear model that is fitted to x."""
    middle, spread = x.mean(dim=0), x.std(dim=0, correction=0).clamp_min(1e-3)
    x, scored = (x - middle) / spread, (scored - middle) / spread
    kind = labels.kind
    gold = (gold - labels.mean) / labels.spread if kind == "number" else gold.double() if kind == "several" else gold
    apart = max(1, len(x) // 5)
    chosen = STRENGTHS[1]
    if len(x) >= 10:
        losses = []
        for strength in STRENGTHS:
            weights, bias = _fit(x[apart:], gold[apart:], kind, labels.classes, strength)
            losses.append(float(_loss(x[:apart] @ weights + bias, gold[:apart], kind)))
        chosen = STRENGTHS[int(np.argmin(losses))]
    weights, bias = _fit(x, gold, kind, labels.classes, chosen)
    margins = (scored @ weights + bias).numpy()
    if kind == "number":
        margins = margins[:, 0] * labels.spread + labels.mean
    return margins


def _features(features: Features, numbers: Sequence[int]) -> Tensor:
    parts = []
    for start in range(0, len(numbers), AT_ONCE):
        rows = torch.from_numpy(features.rows(numbers[start : start + AT_ONCE]))
        if rows.dtype == torch.uint8:
            small = F.adaptive_avg_pool2d(rows.permute(0, 3, 1, 2).double() / 255, SIDE)
            parts.append(small.flatten(1))
        else:
            parts.append(rows.double().mean(dim=1))
    return torch.cat(parts)


def _loss(outputs: Tensor, gold: Tensor, kind: str) -> Tensor:
    if kind == "number":
        return F.mse_loss(outputs[:, 0], gold)
    if kind == "several":
        return F.binary_cross_entropy_with_logits(outputs, gold)
    return F.cross_entropy(outputs, gold)


def _fit(x: Tensor, gold: Tensor, kind: str, classes: int, strength: float) -> tuple[Tensor, Tensor]:
    weights = torch.zeros(x.shape[1], classes, dtype=torch.double, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.double, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = _loss(x @ weights + bias, gold, kind) + strength * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return weights.detach(), bias.detach()
