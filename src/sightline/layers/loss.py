"""The loss over a large vocabulary without ever holding all of its logits."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

# Rows of logits held at once. 512 rows of 8,000 words are 16 MB.
CHUNK_ELEMENTS = 1 << 22


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
        total = features.new_zeros((), dtype=torch.float64)
        d_features = torch.empty_like(features) if needs[0] else None
        d_weight = torch.zeros_like(weight) if needs[1] else None
        d_bias = torch.zeros_like(bias) if bias is not None and needs[2] else None
        words = weight.shape[0]
        rows = max(1, CHUNK_ELEMENTS // max(1, words))
        for start in range(0, len(features), rows):
            x, y = features[start : start + rows], targets[start : start + rows].unsqueeze(-1)
            logits = x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())
            loss = -(1 - smoothing) * logits.gather(-1, y)
            if smoothing:
                loss -= smoothing * logits.mean(dim=-1, keepdim=True)
            # The exponentials serve the loss and the gradient: over a vocabulary, one pass more is felt.
            largest = logits.amax(dim=-1, keepdim=True)
            exponentials = logits.sub_(largest).exp_()
            sums = exponentials.sum(dim=-1, keepdim=True)
            loss += largest + sums.log()
            total += loss.sum(dtype=torch.float64)
            if not any(needs[:3]):
                continue
            # d loss / d logits = softmax − (1 − ε) · one-hot − ε / words
            gradient = exponentials.div_(sums)
            if smoothing:
                gradient.sub_(smoothing / words)
            gradient.scatter_add_(-1, y, gradient.new_full(y.shape, smoothing - 1))
            if d_features is not None:
                torch.mm(gradient, weight, out=d_features[start : start + rows])
            if d_weight is not None:
                d_weight.addmm_(gradient.t(), x)
            if d_bias is not None:
                d_bias += gradient.sum(dim=0)
        ctx.gradients = (d_features, d_weight, d_bias)
        return total.to(features.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = upstream
        scaled = [None if gradient is None else gradient * factor for gradient in ctx.gradients]
        return (*scaled, None, None)
