"""The floor of images: what a linear model reaches that looks nowhere.

It reads the mean of an image's places as a frozen encoder sees them, or, where the encoder learns, the image shrunk to
8 × 8 pixels. How strongly it is held to small weights is chosen on a fifth of the training images; then it is fitted to
all of them. A model with attention that does not beat it has learnt nothing from where things are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.features import Features
from sightline.outputs.label_baselines import LabelBaselines
from sightline.outputs.label_names import Labels
from sightline.tasks.prepare import Prepared

SIDE = 8
AT_ONCE = 256
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the penalty, against the mean loss of an image
MOST = 20_000  # images that it is fitted to
ROUNDS = 50


class ImageBaselines(LabelBaselines):
    """The one of images, which is fitted when training has ended; the run keeps nothing of it."""

    title = "Beside the floor"
    about = "A linear model on the same training images, scored on all validation data: what needs no attention."
    one = "The floor"

    def scores(self, folder: Path | None, xs: Sequence[Any], prepared: Prepared | None = None) -> dict[str, np.ndarray]:
        if prepared is None:
            return {}
        order = np.random.default_rng(self.config.seed).permutation(len(prepared.corpus))[:MOST]
        training, targets = zip(*(prepared.corpus[row] for row in order.tolist()), strict=True)
        gold = prepared.output.collate(targets, None)
        return linear_scores(
            self.input.features, [int(one[0]) for one in training], gold, [x.row for x in xs], self.labels
        )


def linear_scores(
    features: Features, training: Sequence[int], gold: Tensor, rows: Sequence[int], labels: Labels
) -> dict[str, np.ndarray]:
    """Logits (or numbers) of these rows, of a linear model that is fitted to the rows for training."""
    x, scored = _features(features, training), _features(features, rows)
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
    found = (scored @ weights + bias).numpy()
    if kind == "number":
        found = found[:, 0] * labels.spread + labels.mean
    pixels = features.dtype == np.uint8
    return {f"linear model on {SIDE} × {SIDE} pixels" if pixels else "linear model on the mean of all places": found}


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
