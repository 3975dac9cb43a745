"""The additive score ``v · tanh(query + key)`` of every query and key, in little memory.

The hidden layer of all pairs, `*b t s h`, is only made whole and kept when it is small. Above that the scores and their
gradients come chunk by chunk, and the backward pass computes each chunk again.

Gain: 1.7 (`benchmarks/kernel_gains.py`), and memory.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled

# Elements of the hidden layer held at once. One million floats (4 MB) stay in the cache of ordinary processors.
CHUNK = 1 << 20


def additive_scores(
    query: Float[Tensor, "*b t h"], keys: Float[Tensor, "*#b s h"], vector: Float[Tensor, "*heads h"]
) -> Float[Tensor, "*b t s"]:
    """``v · tanh(query + key)`` for every pair, from projected queries and keys."""
    return (fast if supported() else reference)(query, keys, vector)


def reference(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    hidden = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))
    return (hidden @ vector[..., None, :, None]).squeeze(-1)


def fast(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    *batch, t, h = query.shape
    s = keys.shape[-2]
    n = math.prod(batch)
    flat = _ChunkedScores.apply(
        query.reshape(n, t, h),
        keys.expand(*batch, s, h).reshape(n, s, h),
        vector if vector.dim() == 1 else vector.expand(*batch, h).reshape(n, h),
    )
    return flat.reshape(*batch, t, s)


supported = enabled


def _chunks(n: int, t: int, s: int, h: int) -> list[tuple[slice, slice]]:
    """Blocks of (rows of the batch, queries) whose hidden layer has about `CHUNK` elements."""
    rows = max(1, CHUNK // max(1, t * s * h))
    queries = t if rows > 1 else max(1, min(t, CHUNK // max(1, s * h)))
    return [
        (slice(i, i + rows), slice(j, j + queries)) for i in range(0, n, rows) for j in range(0, max(t, 1), queries)
    ]


class _ChunkedScores(torch.autograd.Function):
    """query `n t h`, keys `n s h`, vector `h` or one for each row `n h` → scores `n t s`, never holding `n t s h`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        (n, t, h), s = query.shape, keys.shape[-2]
        if query.numel() * s <= CHUNK:
            hidden = _hidden(query, keys)
            ctx.save_for_backward(query, keys, vector, hidden)
            return _weighted(hidden, vector)
        ctx.save_for_backward(query, keys, vector, None)
        scores = query.new_empty(n, t, s)
        for rows, queries in _chunks(n, t, s, h):
            hidden = _hidden(query[rows, queries], keys[rows])
            scores[rows, queries] = _weighted(hidden, _of(vector, rows))
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (upstream,) = gradients
        query, keys, vector, kept = ctx.saved_tensors
        (n, t, h), s = query.shape, keys.shape[-2]
        # The v of each hidden unit is multiplied in once, after the sums.
        factor = vector if vector.dim() == 1 else vector.unsqueeze(1)
        if kept is not None:
            d_query, d_keys = _below(kept, upstream)
            return d_query.mul_(factor), d_keys.mul_(factor), _collected(kept, upstream, vector)
        d_query, d_keys, d_vector = torch.empty_like(query), torch.zeros_like(keys), torch.zeros_like(vector)
        for rows, queries in _chunks(n, t, s, h):
            hidden, above = _hidden(query[rows, queries], keys[rows]), upstream[rows, queries]
            part = _of(d_vector, rows)
            part += _collected(hidden, above, part)
            d_query[rows, queries], d_chunk = _below(hidden, above)
            d_keys[rows] += d_chunk
        return d_query.mul_(factor), d_keys.mul_(factor), d_vector


def _of(vector: Tensor, rows: slice) -> Tensor:
    return vector if vector.dim() == 1 else vector[rows]


def _weighted(hidden: Float[Tensor, "n t s h"], vector: Tensor) -> Float[Tensor, "n t s"]:
    if vector.dim() == 1:  # one product; as one for each row it would take five times as long
        return (hidden.reshape(-1, hidden.shape[-1]) @ vector).reshape(hidden.shape[:-1])
    return (hidden @ vector[:, None, :, None]).squeeze(-1)


def _collected(hidden: Float[Tensor, "n t s h"], above: Float[Tensor, "n t s"], vector: Tensor) -> Tensor:
    """The gradient of the vector."""
    if vector.dim() == 1:
        return above.reshape(-1) @ hidden.reshape(-1, hidden.shape[-1])
    n, _, _, h = hidden.shape
    return (above.reshape(n, 1, -1) @ hidden.reshape(n, -1, h)).squeeze(1)


def _below(hidden: Float[Tensor, "n t s h"], above: Float[Tensor, "n t s"]) -> tuple[Tensor, Tensor]:
    """The gradients of queries and keys, but for the vector: tanh' = 1 − tanh²."""
    slope = torch.addcmul(hidden.new_ones(()), hidden, hidden, value=-1).mul_(above.unsqueeze(-1))
    return slope.sum(dim=2), slope.squeeze(1) if slope.shape[1] == 1 else slope.sum(dim=1)


def _hidden(query: Tensor, keys: Tensor) -> Tensor:
    """tanh x = 2 σ(2x) − 1: on a processor, PyTorch's sigmoid takes much less time than its tanh."""
    return torch.add(2 * query.unsqueeze(2), keys.unsqueeze(1), alpha=2).sigmoid_().mul_(2).sub_(1)
