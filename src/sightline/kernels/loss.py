"""The loss over a large vocabulary without ever holding all of its logits.

Gain: 1.1 (`benchmarks/kernel_gains.py`), and memory: a quarter of what all logits of 32,000 words take.
"""

from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled
from sightline.kernels.products import STEP, VANISHING, Product

# Rows of logits held at once. 512 rows of 8,000 words are 16 MB.
CHUNK_ELEMENTS = 1 << 22
LOWEST = -70.0  # exp of it, and of what is 16 below it, is a normal number of float32
LARGEST = 1e4  # a larger shift would cancel the digits of the logits
LEAST_SHARE = 1e-12  # of a gradient that is divided by it


class Mixture(NamedTuple):
    """What stands beside the vocabulary in a sum of probabilities: for each row log p, and log of (1 − p) times the
    probability of its target elsewhere. ``known``: whether the vocabulary has the target; any index stands for it else.
    """

    log_gate: Float[Tensor, "*n"]
    log_other: Float[Tensor, "*n"]
    known: Bool[Tensor, "*n"]

    def log_prob(self, log_prob: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """That of the target in both together, and that of having been written, not copied."""
        written = torch.where(self.known, self.log_gate + log_prob, -torch.inf)
        both = torch.logaddexp(written, self.log_other)
        return both, (written - both).exp()


def smoothed_cross_entropy(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, " v"] | None,
    targets: Int[Tensor, " n"],
    smoothing: float = 0.0,
    mixture: Mixture | None = None,
) -> Float[Tensor, ""]:
    """Σ over rows of −(1 − ε) log p(target) − ε · mean log p, with logits = features · weightᵀ + bias.

    The sum, not the mean: the caller knows how many tokens all processes have. With a mixture p(target) is that of
    both parts; the mean is over the vocabulary alone.
    """
    return (fast if supported() else reference)(features, weight, bias, targets, smoothing, mixture)


def reference(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    mixture: Mixture | None = None,
) -> Tensor:
    return of_logits(F.linear(features, weight, bias), targets, smoothing, mixture)


def of_logits(
    logits: Float[Tensor, "n v"], targets: Int[Tensor, " n"], smoothing: float, mixture: Mixture | None = None
) -> Float[Tensor, ""]:
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))  # the sum over words overflows float16
    if mixture is None:
        return F.cross_entropy(precise, targets, reduction="sum", label_smoothing=smoothing).to(logits.dtype)
    log_probs = torch.log_softmax(precise, dim=-1)
    both, _ = mixture.log_prob(log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1))
    return (-(1 - smoothing) * both - smoothing * log_probs.mean(dim=-1)).sum().to(logits.dtype)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and gradient are made together, chunk by chunk, so that memory does not grow with rows × words."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        log_gate: Tensor | None,
        log_other: Tensor | None,
        known: Tensor | None,
    ) -> Tensor:
        needs = ctx.needs_input_grad
        words = weight.shape[0]
        spread = smoothing / words
        total = features.new_zeros((), dtype=torch.float64)
        # Smoothing gives the same share to every word: sums over the weights replace a pass over the logits, and its
        # gradient is what the others are added to.
        weights = weight.sum(dim=0)
        d_features = torch.empty_like(features) if needs[0] else None
        d_weight = (-spread * features.sum(dim=0)).repeat(words, 1) if needs[1] else None
        d_bias = torch.full_like(bias, -spread * len(features)) if bias is not None and needs[2] else None
        shift = _common_shift(features, weight, bias, weights)
        if shift is None:
            logits_of = Product(weight, bias)
        else:
            logits_of = Product(weight, weight.new_full((words,), -shift) if bias is None else bias - shift)
        features_of = Product(weight.t()) if needs[0] else None
        written = None if log_gate is None else torch.empty_like(log_gate)  # how likely the target was not copied
        rows = chunk_rows(words)
        for start in range(0, len(features), rows):
            x, y = features[start : start + rows], targets[start : start + rows]
            target_logits = _logits_of_targets(x, weight, bias, y)
            loss = torch.zeros_like(target_logits) if written is not None else -(1 - smoothing) * target_logits
            if smoothing:
                loss -= spread * (x @ weights + (0.0 if bias is None else bias.sum()))
            # Passes over a vocabulary are slow. So the softmax is never made: the gradients, which are smaller, are
            # divided by its denominator. And what is subtracted from all logits is in the bias already.
            powers, taken = _powers(logits_of, x, shift)
            sums = powers.sum(dim=-1, keepdim=True, dtype=torch.promote_types(powers.dtype, torch.float32))
            log_sums = sums.squeeze(
                -1
            ).log()  # apart from what was taken, which may be so large that they are lost in it
            share: Tensor | None = None
            if written is None:
                loss += taken
                loss += log_sums
            else:
                assert log_gate is not None and log_other is not None and known is not None  # noqa: PT018
                own = Mixture(*(part[start : start + rows] for part in (log_gate, log_other, known)))
                both, share = own.log_prob(target_logits - taken - log_sums)
                loss += smoothing * taken
                loss += smoothing * log_sums - (1 - smoothing) * both
                written[start : start + rows] = share
            total += loss.sum(dtype=torch.float64)
            if not any(needs[:3]):
                continue
            if sums.dtype != powers.dtype:  # half precision, where a sum may be no number
                powers, sums = (powers / sums).to(powers.dtype), torch.ones_like(sums, dtype=powers.dtype)
            # d loss / d logits = softmax − (1 − ε) · one-hot − ε / words, the last of which is in already. Where
            # targets can be copied, r of each was written: (ε + (1 − ε) r) · softmax − (1 − ε) r · one-hot − ε / words.
            if share is None:
                hits = (smoothing - 1) * sums
            else:
                own_share = ((1 - smoothing) * share).unsqueeze(-1)
                sums = sums / (smoothing + own_share).clamp(min=LEAST_SHARE)
                hits = (-own_share * sums).to(powers.dtype)
            powers.scatter_add_(-1, y.unsqueeze(-1), hits)
            if d_features is not None and features_of is not None:
                torch.sub(features_of(powers).div_(sums), spread * weights, out=d_features[start : start + rows])
            if d_weight is not None:
                d_weight.addmm_(powers.t(), x / sums)
            if d_bias is not None:
                d_bias.addmv_(powers.t(), sums.reciprocal().squeeze(-1))
        d_gate = d_other = None
        if written is not None:
            d_gate, d_other = (smoothing - 1) * written, (smoothing - 1) * (1 - written)
        ctx.gradients = (d_features, d_weight, d_bias, None, None, d_gate, d_other, None)
        return total.to(features.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = upstream
        return tuple(None if gradient is None else gradient * factor for gradient in ctx.gradients)


def fast(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    mixture: Mixture | None = None,
) -> Tensor:
    parts = (None, None, None) if mixture is None else mixture
    return cast("Tensor", _ChunkedCrossEntropy.apply(features, weight, bias, targets, smoothing, *parts))


supported = enabled


def _powers(logits_of: Product, x: Tensor, shift: float | None) -> tuple[Tensor, Tensor | float]:
    """e to the power of all logits, and what was subtracted from those of each row."""
    if shift is not None:
        return logits_of.powers(x), shift
    logits = logits_of(x)
    top = logits.amax(dim=-1, keepdim=True)
    return logits.sub_(top).exp_(), top.squeeze(-1)


def chunk_rows(words: int) -> int:
    """How many rows of logits are held at once."""
    rows = max(1, CHUNK_ELEMENTS // max(1, words))
    return rows // STEP * STEP or rows


def _logits_of_targets(x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor) -> Float[Tensor, " n"]:
    logits = (x * weight.index_select(0, y)).sum(dim=-1, dtype=torch.promote_types(x.dtype, torch.float32))
    return logits if bias is None else logits + bias.index_select(0, y)


def _common_shift(features: Tensor, weight: Tensor, bias: Tensor | None, weights: Tensor) -> float | None:
    """A number that brings every logit below −`VANISHING` and the largest of each row not below `LOWEST`; None where
    there may be none.

    No logit is larger than the product of the norms of its two vectors, and the largest is not smaller than the mean.
    Where that bound is too loose, on a graphics card and in half precision, each row takes its own maximum.
    """
    if features.device.type != "cpu" or features.dtype not in (torch.float32, torch.float64) or not len(features):
        return None
    if torch.is_autocast_enabled("cpu"):
        return None
    largest, mean = features.norm(dim=-1).amax() * weight.norm(dim=-1), (features @ weights).amin() / len(weight)
    if bias is not None:
        largest, mean = largest + bias, mean + bias.mean()
    shift = float(largest.amax()) + VANISHING
    return shift if abs(shift) < LARGEST and float(mean) - shift > LOWEST else None
