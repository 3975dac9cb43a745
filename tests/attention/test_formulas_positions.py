"""Mechanisms that know positions against their papers' formulas, as in `test_formulas.py`."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from formulas import LENGTHS, VALUE_SIZE, close, compare, dot, general, numbers, problem, sigmoid, softmax
from sightline.attention import (
    AlibiConfig,
    ComposedConfig,
    FixedConfig,
    LocalConfig,
    RotaryConfig,
    ScaledDotConfig,
    T5BucketsConfig,
)

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("position", [0, 3])
def test_fixed(position):
    """A table of positions; what lies past its end uses its last row or column."""
    attention = ComposedConfig(FixedConfig(queries=3, keys=5)).build(6, 5, VALUE_SIZE).double()
    table = numbers(attention)["score.table"]

    def weights_of(queries, keys):
        rows = [min(position + i, 2) for i in range(len(queries))]
        return [softmax([table[i][min(j, 4)] for j in range(len(keys))]) for i in rows]

    compare(attention, weights_of, problem(6, 5), position)


def turned(x, position, base):
    """Su et al. 2021: the pair (x_{2i}, x_{2i+1}) turns by the angle position · base^(−2i/d)."""
    y = np.zeros(len(x))
    for i in range(len(x) // 2):
        angle = position * base ** (-2 * i / len(x))
        matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        y[2 * i : 2 * i + 2] = matrix @ x[2 * i : 2 * i + 2]
    return y


@pytest.mark.parametrize(("position", "base"), [(0, 10_000.0), (5, 10_000.0), (5, 100.0)])
def test_rotary(position, base):
    attention = ComposedConfig(ScaledDotConfig(RotaryConfig(base))).build(6, 6, VALUE_SIZE).double()

    def weights_of(queries, keys):
        keys = [turned(k, j, base) for j, k in enumerate(keys)]
        queries = [turned(q, position + i, base) for i, q in enumerate(queries)]
        return [softmax([dot(q, k) / math.sqrt(6) for k in keys]) for q in queries]

    compare(attention, weights_of, problem(), position)


@torch.no_grad()
def test_rotary_scores_depend_on_distance_only():
    """One query and one key, everywhere: equal scores where the distance is equal, and only there."""
    score = ScaledDotConfig(RotaryConfig()).build(6, 6).double()
    query, key = torch.randn(2, 6, dtype=torch.float64)
    scores = score(query.expand(8, 6), score.project_keys(key.expand(8, 6), 0), 0)
    for i, j in np.ndindex(7, 7):
        close(scores[i + 1, j + 1], scores[i, j])
    assert len(set(scores.numpy().round(6).flatten())) == 15
    close(score(query.expand(8, 6), score.project_keys(key.expand(8, 6), 1000), 1000), scores)


def published_slopes(heads):
    """Press et al. 2022: from 2^(−8/n), times the same each head; else those of the powers of two around n."""
    if math.log2(heads).is_integer():
        first = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [first * first**i for i in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return published_slopes(below) + published_slopes(2 * below)[0::2][: heads - below]


def test_published_slopes():
    """The numbers printed in Press et al. 2022, and those that their code gives for six heads."""
    assert published_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert published_slopes(6) == [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]


@pytest.mark.parametrize("position", [0, 3])
@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 16])
def test_alibi(heads, position):
    """Press et al. 2022: softmax(q · k / √d − m |i − j|), the bias not scaled."""
    attention = ComposedConfig(ScaledDotConfig(AlibiConfig())).build(6, 6, VALUE_SIZE, heads=(heads,)).double()
    slopes = published_slopes(heads)

    def weights_of(queries, keys, head):
        return [
            softmax([dot(q, k) / math.sqrt(6) - slopes[head] * abs(i - j) for j, k in enumerate(keys)])
            for i, q in enumerate(queries, start=position)
        ]

    compare(attention, weights_of, problem(heads=(heads,)), position)


def t5_bucket(distance, buckets, furthest, bidirectional):
    """Raffel et al. 2020: half of the buckets for exact distances, half for logarithmically larger ones.

    The number of the far bucket is ⌊n · log(d/e) / log(f/e)⌋, found without rounding: the last k for which
    (f/e)^k ≤ (d/e)^n. ``distance`` is the key's position minus the query's.
    """
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    n, k = buckets - exact, 0
    while k < n - 1 and Fraction(furthest, exact) ** (k + 1) <= Fraction(distance, exact) ** n:
        k += 1
    return first + exact + k


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 16), (12, 100)])
def test_t5_buckets(buckets, furthest, bidirectional):
    relative = T5BucketsConfig(buckets, furthest, bidirectional).build(6)
    distances = range(-2 * furthest, 2 * furthest + 1)
    expected = [t5_bucket(distance, buckets, furthest, bidirectional) for distance in distances]
    assert relative.bucket(torch.tensor([distances])).tolist() == [expected]
    assert set(expected) == set(range(buckets)) - ({buckets // 2} if bidirectional else set())


@pytest.mark.parametrize("position", [0, 9])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5(bidirectional, position):
    """Raffel et al. 2020: each head adds a learned number for the bucket of the distance to the score."""
    relative = T5BucketsConfig(8, 16, bidirectional)
    attention = ComposedConfig(ScaledDotConfig(relative)).build(6, 6, VALUE_SIZE, heads=(2,)).double()
    table = numbers(attention)["score.relative.table"]

    def weights_of(queries, keys, head):
        return [
            softmax(
                dot(q, k) / math.sqrt(6) + table[head][t5_bucket(j - i, 8, 16, bidirectional)]
                for j, k in enumerate(keys)
            )
            for i, q in enumerate(queries, start=position)
        ]

    compare(attention, weights_of, problem(heads=(2,)), position)


def softmax_within(scores, centre, half_width):
    """Softmax over the keys of the window [centre − D, centre + D]; zero for the others."""
    window = [j for j in range(len(scores)) if centre - half_width <= j <= centre + half_width]
    weights = [0.0] * len(scores)
    for j, weight in zip(window, softmax([scores[j] for j in window]), strict=True):
        weights[j] = weight
    return weights


@pytest.mark.parametrize("position", [0, 4])
def test_local_monotonic(position):
    """Luong et al. 2015, local-m: p_t = t, nothing outside of [p_t − D, p_t + D]; past the keys it reads nothing."""
    attention = LocalConfig("monotonic", half_width=1).build(6, 5, VALUE_SIZE).double()
    p = numbers(attention.score)

    def weights_of(queries, keys):
        return [softmax_within([general(p, q, k) for k in keys], position + i, 1) for i, q in enumerate(queries)]

    read = compare(attention, weights_of, problem(6, 5), position)
    assert read.weights[LENGTHS.index(4), -1].any() == (position == 0)


@pytest.mark.parametrize("half_width", [1, 3])
def test_local_predicted(half_width):
    """Luong et al. 2015, local-p: p_t = S σ(v · tanh(W q)); the softmax of the window times a Gaussian, σ = D/2."""
    attention = LocalConfig("predicted", half_width).build(6, 5, VALUE_SIZE).double()
    p, of_score = numbers(attention), numbers(attention.score)

    def weights_of(queries, keys):
        rows = []
        for q in queries:
            centre = len(keys) * sigmoid(dot(p["vector"], np.tanh(p["hidden.weight"].T @ q)))
            weights = softmax_within([general(of_score, q, k) for k in keys], centre, half_width)
            deviation = half_width / 2
            rows.append([w * math.exp(-((j - centre) ** 2) / (2 * deviation**2)) for j, w in enumerate(weights)])
        return rows

    read = compare(attention, weights_of, problem(6, 5), position=3)
    assert (read.weights.sum(dim=-1) < 0.99).all(), "the weights are not normalised again"
