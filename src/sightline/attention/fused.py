"""The fast path: softmax attention on PyTorch's fused kernel, which never makes the weights.

With few keys, on a processor, two matrix products and a softmax are faster than the kernel, and the weights they make
are small.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.attention.allow import Allow, Causal, visible_keys
from sightline.attention.checks import check_allowed
from sightline.attention.contract import Memory
from sightline.attention.scores import DotProductScore
from sightline.kernels.softmax import SHORT, softmax


def fused_context(
    score: DotProductScore,
    query: Float[Tensor, "*b t q"],
    memory: Memory,
    position: int,
    allow: Allow | None,
) -> Float[Tensor, "*b t v"]:
    """softmax(scale · q kᵀ + bias) v in one kernel. Heads that share keys (a key axis of size 1) are not copied."""
    t, s = query.shape[-2], memory.keys.shape[-2]
    if s <= SHORT and query.device.type == "cpu":
        return _short_context(score, query, memory, position, allow)
    bias = score.bias(position, t, s, query)
    causal = type(allow) is Causal and memory.mask is None and bias is None and position == 0 and t <= s and t > 1
    allowed = None if causal else visible_keys(allow, memory.mask, position, t, s, query.device)
    if allowed is not None:
        check_allowed(allowed, query, s)
    mask = _kernel_mask(bias, allowed)
    batch = query.shape[:-2]
    # Grouped heads: the last batch axis counts the heads that share one set of keys.
    grouped = len(batch) > 1 and memory.keys.shape[-3] == 1 and batch[-1] > 1
    head_axes = 2 if grouped else min(1, max(0, len(batch) - 1))
    rows = len(batch) - head_axes
    keys_batch = (*batch[:-1], 1) if grouped else batch
    context = F.scaled_dot_product_attention(
        _four_axes(score.project_query(query, position), rows),
        _four_axes(memory.keys.expand(*keys_batch, -1, -1), rows),
        _four_axes(memory.values.expand(*keys_batch, -1, -1), rows),
        attn_mask=None if mask is None else _mask_four_axes(mask, batch, rows),
        is_causal=causal,
        scale=score.scale,
        enable_gqa=grouped,
    )
    return context.reshape(*batch, t, memory.values.shape[-1])


def _short_context(
    score: DotProductScore, query: Tensor, memory: Memory, position: int, allow: Allow | None
) -> Float[Tensor, "*b t v"]:
    """The same by plain products. A query that may see nothing reads zeros, as it does from the kernel."""
    t, s = query.shape[-2], memory.keys.shape[-2]
    scores = score(query, memory.keys, position)
    allowed = visible_keys(allow, memory.mask, position, t, s, query.device)
    if allowed is None:
        return softmax(scores) @ memory.values
    check_allowed(allowed, query, s)
    # The mask is smaller than the scores: adding it is faster than filling them. The lowest number instead of minus
    # infinity keeps a row without keys finite; its weights are then taken away.
    lowest = torch.finfo(scores.dtype).min
    hidden = torch.zeros(allowed.shape, dtype=scores.dtype).masked_fill_(~allowed, lowest)
    weights = softmax(scores + hidden)
    if not (seen := allowed.any(dim=-1, keepdim=True)).all():
        weights = weights * seen
    return weights @ memory.values


def _four_axes(x: Tensor, rows: int) -> Tensor:
    """The kernel wants batch, heads, positions, features: fold the first ``rows`` axes, and those behind them."""
    if rows == 1 and x.dim() == 4:
        return x
    return x.reshape(math.prod(x.shape[:rows]), math.prod(x.shape[rows:-2]), *x.shape[-2:])


def _mask_four_axes(mask: Tensor, batch: torch.Size, rows: int) -> Tensor:
    """The mask with the kernel's axes, still of size 1 where it says the same for every row or for every head."""
    mask = mask.reshape(*[1] * (len(batch) + 2 - mask.dim()), *mask.shape)
    sizes = [
        part if math.prod(axes) != 1 else (1,) * len(part)
        for part, axes in ((batch[:rows], mask.shape[:rows]), (batch[rows:], mask.shape[rows:-2]))
    ]
    return _four_axes(mask.expand(*sizes[0], *sizes[1], -1, -1), rows)


def _kernel_mask(bias: Tensor | None, allowed: Bool[Tensor, "..."] | None) -> Tensor | None:
    if bias is None or allowed is None:
        return allowed if bias is None else bias
    bias, allowed = torch.broadcast_tensors(bias, allowed)
    return bias.masked_fill(~allowed, -math.inf)
