"""The loss over a large vocabulary without ever holding all of its logits."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.layers.products import STEP, Product

# Rows of logits held at once. 512 rows of 8,000 words are 16 MB.
CHUNK_ELEMENTS = 1 << 22
SAFE = 60.0


def smoothed_cross_entropy(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, " v"] | None,
    targets: Int[Tensor, " n"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Σ over rows of −(1 − ε) log p(target) − ε · mean log p, with logits = features · weightᵀ + bias.

    The sum, not the mean: the caller knows how many tokens all processes have. Loss and gradient are made together,
    chunk by chunk, so that memory does not grow with rows × words.
    """
    return _ChunkedCrossEntropy.apply(features, weight, bias, targets, smoothing)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        needs = ctx.needs_input_grad
        words = weight.shape[0]
        spread = smoothing / words
        total = features.new_zeros((), dtype=torch.float64)
        # What smoothing spreads over all words is the same for each of them: their sums serve, and no pass over the
        # logits. Its share of the gradients is where they begin.
        weights = weight.sum(dim=0)
        d_features = torch.empty_like(features) if needs[0] else None
        d_weight = (-spread * features.sum(dim=0)).repeat(words, 1) if needs[1] else None
        d_bias = torch.full_like(bias, -spread * len(features)) if bias is not None and needs[2] else None
        small = _are_small(features, weight, bias)
        logits_of, features_of = Product(weight, bias), Product(weight.t()) if needs[0] else None
        rows = chunk_rows(words)
        for start in range(0, len(features), rows):
            x, y = features[start : start + rows], targets[start : start + rows].unsqueeze(-1)
            logits = logits_of(x)
            loss = -(1 - smoothing) * logits.gather(-1, y)
            if smoothing:
                loss -= spread * ((x @ weights).unsqueeze(-1) + (0.0 if bias is None else bias.sum()))
            if not small:
                top = logits.amax(dim=-1, keepdim=True)
                loss += top
                logits.sub_(top)
            # Passes over a vocabulary are felt. The softmax is never made: what it divides by is divided out of the
            # gradients, which are smaller.
            powers = logits.exp_()
            sums = powers.sum(dim=-1, keepdim=True, dtype=torch.promote_types(powers.dtype, torch.float32))
            total += (loss + sums.log()).sum(dtype=torch.float64)
            if not any(needs[:3]):
                continue
            if sums.dtype != powers.dtype:  # half precision, where a sum may be no number
                powers, sums = (powers / sums).to(powers.dtype), torch.ones_like(sums, dtype=powers.dtype)
            # d loss / d logits = softmax − (1 − ε) · one-hot − ε / words, the last of which is in already
            powers.scatter_add_(-1, y, (smoothing - 1) * sums)
            if d_features is not None and features_of is not None:
                torch.sub(features_of(powers).div_(sums), spread * weights, out=d_features[start : start + rows])
            if d_weight is not None:
                d_weight.addmm_(powers.t(), x / sums)
            if d_bias is not None:
                d_bias.addmv_(powers.t(), sums.reciprocal().squeeze(-1))
        ctx.gradients = (d_features, d_weight, d_bias)
        return total.to(features.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = upstream
        scaled = [None if gradient is None else gradient * factor for gradient in ctx.gradients]
        return (*scaled, None, None)


def chunk_rows(words: int) -> int:
    """How many rows of logits are held at once."""
    rows = max(1, CHUNK_ELEMENTS // max(1, words))
    return rows // STEP * STEP or rows


def _are_small(features: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether e to the power of every logit, and their sum, is a number, by the lengths of the vectors: most are."""
    if features.device.type != "cpu" or features.dtype not in (torch.float32, torch.float64) or not len(features):
        return False  # where the answer would be waited for, and where numbers end early
    largest = features.norm(dim=-1).amax() * weight.norm(dim=-1).amax() + (0.0 if bias is None else bias.abs().amax())
    return bool(largest < SAFE)
