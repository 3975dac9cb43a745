"""What `test_formulas` and other tests share."""

import math
from typing import NamedTuple

import numpy as np
import torch

LENGTHS = (7, 4, 5)  # the keys that exist in each row of the batch

QUERIES, KEYS, VALUE_SIZE = 4, max(LENGTHS), 3

EXISTS = np.arange(KEYS) < np.array(LENGTHS)[:, None]


class Problem(NamedTuple):
    """A padded batch: queries ``b *h t q``, keys ``b *h s k``, values ``b *h s v``."""

    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray


def problem(query_size=6, key_size=6, heads=()):
    random = np.random.default_rng(1)
    keys = random.normal(size=(len(LENGTHS), *heads, KEYS, key_size))
    values = random.normal(size=(len(LENGTHS), *heads, KEYS, VALUE_SIZE))
    for row, length in enumerate(LENGTHS):
        keys[row, ..., length:, :] = values[row, ..., length:, :] = math.nan
    return Problem(random.normal(size=(len(LENGTHS), *heads, QUERIES, query_size)), keys, values)


def numbers(module):
    """Parameters by name, as NumPy arrays."""
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=0, atol=1e-10, equal_nan=False)


@torch.no_grad()
def attend(attention, batch, position=0):
    """Our read of a batch, with weights; the path without weights must read the same."""
    queries, keys, values = map(torch.from_numpy, batch)
    mask = torch.from_numpy(EXISTS.reshape(len(LENGTHS), *[1] * (keys.dim() - 3), KEYS))
    memory = attention.remember(keys, values, mask)
    carry = attention.begin(memory)._replace(position=position)
    read = attention(queries, memory, carry, need_weights=True)
    close(attention(queries, memory, carry).context, read.context.numpy())
    return read


def compare(attention, weights_of, batch, position=0):
    """``weights_of(queries, keys, *head)`` transcribes the weights of one sentence; the context is their sum."""
    read = attend(attention, batch, position)
    for row, *head in np.ndindex(batch.keys.shape[:-2]):
        place, length = (row, *head), LENGTHS[row]
        expected = np.zeros((QUERIES, KEYS))
        expected[:, :length] = weights_of(batch.queries[place], batch.keys[place][:length], *head)
        close(read.weights[place], expected)
        contexts = [sum(w[j] * batch.values[place][j] for j in range(length)) for w in expected]
        close(read.context[place], contexts)
    return read


def softmax(scores):
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def dot(q, k):
    return sum(a * b for a, b in zip(q, k, strict=True))


def general(p, q, k):
    """qᵀ W k; ours holds Wᵀ, the map from keys to queries."""
    w = p["key.weight"].T
    return sum(q[i] * w[i, j] * k[j] for i in range(len(q)) for j in range(len(k)))
