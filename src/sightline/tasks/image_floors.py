"""The floor of images: what a linear model reaches that looks nowhere.

It reads the mean of an image's places as a frozen encoder sees them, or, where the encoder learns, the image shrunk to
8 × 8 pixels. How strongly it is held to small weights is chosen on a fifth of the training images; then it is fitted to
all of them. A model with attention that does not beat it has learnt nothing from where things are.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.tasks.image_data import LabelledImage, PreparedImages
from sightline.tasks.labels import Labels

SIDE = 8
AT_ONCE = 256
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the penalty, against the mean loss of an image
MOST = 20_000  # images that it is fitted to
ROUNDS = 50


def floor_scores(prepared: PreparedImages, seed: int = 0) -> dict[str, np.ndarray]:
    """Logits (or numbers) of the validation images."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(prepared.train))[:MOST]
    training = [prepared.train[row] for row in order.tolist()]
    x, valid = _features(prepared, training), _features(prepared, prepared.valid)
    middle, spread = x.mean(dim=0), x.std(dim=0, correction=0).clamp_min(1e-3)
    x, valid = (x - middle) / spread, (valid - middle) / spread
    gold = _gold(prepared.labels, training)
    apart = max(1, len(x) // 5)
    kind = prepared.labels.kind
    chosen = STRENGTHS[1]
    if len(x) >= 10:
        losses = []
        for strength in STRENGTHS:
            weights, bias = _fit(x[apart:], gold[apart:], kind, prepared.labels.classes, strength)
            losses.append(float(_loss(x[:apart] @ weights + bias, gold[:apart], kind)))
        chosen = STRENGTHS[int(np.argmin(losses))]
    weights, bias = _fit(x, gold, kind, prepared.labels.classes, chosen)
    found = (valid @ weights + bias).numpy()
    if kind == "number":
        found = found[:, 0] * prepared.labels.spread + prepared.labels.mean
    pixels = prepared.inputs.dtype == np.uint8
    return {f"linear model on {SIDE} × {SIDE} pixels" if pixels else "linear model on the mean of all places": found}


def _features(prepared: PreparedImages, images: list[LabelledImage]) -> Tensor:
    parts = []
    for start in range(0, len(images), AT_ONCE):
        rows = torch.from_numpy(prepared.inputs.rows([one.row for one in images[start : start + AT_ONCE]]))
        if rows.dtype == torch.uint8:
            small = F.adaptive_avg_pool2d(rows.permute(0, 3, 1, 2).double() / 255, SIDE)
            parts.append(small.flatten(1))
        else:
            parts.append(rows.double().mean(dim=1))
    return torch.cat(parts)


def _gold(labels: Labels, images: list[LabelledImage]) -> Tensor:
    gold = torch.from_numpy(labels.gold([one.label for one in images]))
    if labels.kind == "number":
        return (gold - labels.mean) / labels.spread
    return gold.double() if labels.kind == "several" else gold


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
