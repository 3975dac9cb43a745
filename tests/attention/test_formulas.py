"""Each mechanism against its paper's formula, written a second time in plain NumPy, one query and one key at a time.

A transcription sees one sentence without its padding. What it gives is compared with a padded batch, whose padding
is NaN, in float64. What positions decide is in `test_formulas_positions.py`.
"""

import math

import entmax
import numpy as np
import pytest
import torch

from formulas import (
    EXISTS,
    KEYS,
    LENGTHS,
    QUERIES,
    VALUE_SIZE,
    Problem,
    attend,
    close,
    compare,
    dot,
    general,
    numbers,
    problem,
    sigmoid,
    softmax,
)
from sightline.attention import (
    AdditiveConfig,
    AddressingConfig,
    ComposedConfig,
    CosineConfig,
    CoverageConfig,
    DotConfig,
    Entmax15Config,
    GeneralConfig,
    HardConfig,
    LocationAwareConfig,
    Memory,
    MultiHeadConfig,
    PoolingConfig,
    ScaledDotConfig,
    SoftmaxConfig,
    SparsemaxConfig,
)
from sightline.kernels import additive

pytestmark = pytest.mark.fast


def softplus(x):
    return math.log(1 + math.exp(x))


def cosine(q, k):
    return dot(q, k) / math.sqrt(dot(q, q) * dot(k, k))


def perceptron(p, q, k):
    """v · tanh(W_q q + W_k k + b)"""
    hidden = p["query.weight"].T @ q + p["key.weight"].T @ k + p["query.bias"][0]
    return sum(v * math.tanh(x) for v, x in zip(p["vector"], hidden, strict=True))


def concat(p, q, k):
    """v · tanh(W [q; k] + b), W the two parts of the perceptron side by side."""
    w = np.concatenate([p["query.weight"], p["key.weight"]]).T
    return p["vector"] @ np.tanh(w @ np.concatenate([q, k]) + p["query.bias"].reshape(-1))


@pytest.mark.parametrize(
    ("config", "sizes", "score"),
    [
        pytest.param(DotConfig(), (6, 6), lambda p, q, k: dot(q, k), id="dot, Luong et al. 2015"),
        pytest.param(
            ScaledDotConfig(), (6, 6), lambda p, q, k: dot(q, k) / math.sqrt(6), id="scaled dot, Vaswani et al. 2017"
        ),
        pytest.param(GeneralConfig(), (6, 5), general, id="general, Luong et al. 2015"),
        pytest.param(AdditiveConfig(4), (6, 5), perceptron, id="additive, Bahdanau et al. 2015"),
        pytest.param(AdditiveConfig(4), (6, 5), concat, id="concat, Luong et al. 2015"),
        pytest.param(
            CosineConfig(strength=3.0),
            (6, 6),
            lambda p, q, k: softplus(p["raw_strength"].item()) * cosine(q, k),
            id="cosine, Graves et al. 2014",
        ),
    ],
)
def test_score(config, sizes, score):
    attention = ComposedConfig(config).build(*sizes, VALUE_SIZE).double()
    p = numbers(attention.score)
    compare(
        attention, lambda queries, keys: [softmax([score(p, q, k) for k in keys]) for q in queries], problem(*sizes)
    )


@pytest.mark.parametrize("chunk", [1, 50, 150])
def test_additive_in_chunks(chunk, monkeypatch):
    """Bahdanau et al. 2015 again, where the hidden layer is too large to be held whole."""
    monkeypatch.setattr(additive, "CHUNK", chunk)
    test_score(AdditiveConfig(4), (6, 5), perceptron)


def test_cosine_starts_at_its_strength():
    raw = CosineConfig(strength=3.0).build(6, 6).raw_strength.item()
    assert softplus(raw) == pytest.approx(3.0, abs=1e-6)


def sparsemax(z):
    """Martins & Astudillo 2016, algorithm 1: the largest k with 1 + k z_(k) > Σ_{j≤k} z_(j) gives τ."""
    tau = 0.0
    for k in range(1, len(z) + 1):
        best = sorted(z, reverse=True)[:k]
        if 1 + k * best[-1] > sum(best):
            tau = (sum(best) - 1) / k
    return [max(score - tau, 0.0) for score in z]


def entmax15(z):
    """Peters et al. 2019, p = [(α − 1) z − τ]₊^{1/(α − 1)} with α = 1.5; bisection finds the τ at which Σ p = 1."""

    def powers(tau):
        return [max(0.5 * score - tau, 0.0) ** 2 for score in z]

    low, high = 0.5 * max(z) - 1, 0.5 * max(z)  # at the first the best alone has 1, at the second all have 0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(powers(middle)) > 1 else (low, middle)
    return powers(low)


NORMALISERS = {
    "softmax": (SoftmaxConfig(), softmax, torch.softmax),
    "sparsemax": (SparsemaxConfig(), sparsemax, entmax.sparsemax),
    "entmax15": (Entmax15Config(), entmax15, entmax.entmax15),
}


@pytest.mark.parametrize("name", NORMALISERS)
def test_normaliser(name):
    config, transcribed, published = NORMALISERS[name]
    attention = ComposedConfig(ScaledDotConfig(), config).build(6, 6, VALUE_SIZE).double()
    read = compare(
        attention,
        lambda queries, keys: [transcribed([dot(q, k) / math.sqrt(6) for k in keys]) for q in queries],
        problem(),
    )
    zeros = (read.weights.numpy() == 0) & EXISTS[:, None]
    assert zeros.any() == (name != "softmax"), "the scores must be such that sparsity shows"
    scores = 5 * torch.randn(20, 4, 9, dtype=torch.float64)
    close(config.build()(scores, None).weights, published(scores, dim=-1).numpy())


def test_hard_in_evaluation():
    """Xu et al. 2015: when predicting, the likeliest annotation; its log-probability, the distribution's entropy."""
    attention = ComposedConfig(DotConfig(), HardConfig()).build(6, 6, VALUE_SIZE).double().eval()
    batch = problem()

    def one_hot(queries, keys):
        scores = [[dot(q, k) for k in keys] for q in queries]
        return [[float(score == max(row)) for score in row] for row in scores]

    read = compare(attention, one_hot, batch)
    for row, i in np.ndindex(len(LENGTHS), QUERIES):
        p = softmax([dot(batch.queries[row, i], k) for k in batch.keys[row, : LENGTHS[row]]])
        close(read.log_prob[row, i], math.log(max(p)))
        close(read.entropy[row, i], -sum(x * math.log(x) for x in p))


def test_location_aware():
    """Chorowski et al. 2015: f = F * α_{t−1}; e = w · tanh(W s + V h + U f + b), α_0 zero."""
    attention = LocationAwareConfig(hidden_size=4, filters=2, width=5).build(6, 5, VALUE_SIZE).double()
    p = numbers(attention)
    filters = p["filters"]  # learned, so their direction is free: as in conv1d, entry 0 looks furthest back

    def weights_of(queries, keys):
        rows, last = [], [0.0] * len(keys)
        for s in queries:
            scores = []
            for j, h in enumerate(keys):
                f = [0.0, 0.0]
                for channel in range(2):
                    for offset in range(-2, 3):
                        if 0 <= j + offset < len(keys):
                            f[channel] += filters[channel, offset + 2] * last[j + offset]
                hidden = p["score.query.weight"].T @ s + p["score.key.weight"].T @ h
                hidden += p["location.weight"].T @ f + p["score.query.bias"][0]
                scores.append(p["score.vector"] @ np.tanh(hidden))
            last = softmax(scores)
            rows.append(last)
        return rows

    compare(attention, weights_of, problem(6, 5))


def test_coverage():
    """See et al. 2017: c^t = Σ a of the queries before; e = v · tanh(W s + V h + w c + b), c^1 zero."""
    attention = CoverageConfig(hidden_size=4).build(6, 5, VALUE_SIZE).double()
    torch.nn.init.normal_(attention.coverage, std=2.0)
    p = numbers(attention)

    def weights_of(queries, keys):
        rows, covered = [], [0.0] * len(keys)
        for s in queries:
            scores = []
            for j, h in enumerate(keys):
                hidden = p["score.query.weight"].T @ s + p["score.key.weight"].T @ h + p["score.query.bias"][0]
                scores.append(p["score.vector"] @ np.tanh(hidden + p["coverage"][0] * covered[j]))
            rows.append(softmax(scores))
            covered = [before + weight for before, weight in zip(covered, rows[-1], strict=True)]
        return rows

    compare(attention, weights_of, problem(6, 5))


def test_hierarchical_pooling():
    """Yang et al. 2016: u_t = tanh(W h_t + b), α = softmax(u_t · u_w), s = Σ α_t h_t; words, then sentences."""
    config = PoolingConfig(inner=ComposedConfig(AdditiveConfig(hidden_size=4)))
    levels = [config.build(6).double() for _ in ("words", "sentences")]

    def pool(level, vectors):
        p = numbers(level)
        b = p["inner.score.query.weight"].T @ p["query"][0] + p["inner.score.query.bias"][0]
        u = [np.tanh(p["inner.score.key.weight"].T @ h + b) for h in vectors]
        alpha = softmax([dot(u_t, p["inner.score.vector"]) for u_t in u])
        return alpha, sum(a * h for a, h in zip(alpha, vectors, strict=True))

    lengths = [[5, 2, 3], [1, 4, 0]]  # words of each sentence of two documents; the last sentence does not exist
    words = np.random.default_rng(1).normal(size=(2, 3, 5, 6))
    for document, sentence in np.ndindex(2, 3):
        words[document, sentence, lengths[document][sentence] :] = math.nan
    word_mask = torch.arange(5) < torch.tensor(lengths)[..., None]

    read = levels[0](torch.from_numpy(words), mask=word_mask, need_weights=True)
    documents = levels[1](read.context.squeeze(-2), mask=word_mask.any(dim=-1), need_weights=True)
    for document in range(2):
        sentences = []
        for sentence, length in enumerate(n for n in lengths[document] if n):
            alpha, vector = pool(levels[0], words[document, sentence, :length])
            close(read.weights[document, sentence, 0, :length], alpha)
            sentences.append(vector)
        alpha, vector = pool(levels[1], sentences)
        close(documents.weights[document, 0, : len(alpha)], alpha)
        close(documents.context[document, 0], vector)


@pytest.mark.parametrize("furthest", [1, 2])
def test_addressing(furthest):
    """Graves et al. 2014, equations 5 to 9: content, interpolate, shift around the ring, sharpen."""
    attention = AddressingConfig(furthest_shift=furthest).build(6, 5, VALUE_SIZE).double()
    p = numbers(attention)

    def address(query, slots, last):
        emitted = list(p["head.weight"].T @ query + p["head.bias"][0])
        k, (beta, g, *shift, gamma) = emitted[:5], emitted[5:]
        content = softmax([softplus(beta) * cosine(k, slot) for slot in slots])
        gated = [sigmoid(g) * c + (1 - sigmoid(g)) * w for c, w in zip(content, last, strict=True)]
        shifted = [0.0] * len(slots)
        for offset, share in zip(range(-furthest, furthest + 1), softmax(shift), strict=True):
            for j, w in enumerate(gated):
                shifted[(j + offset) % len(slots)] += w * share
        powers = [w ** (1 + softplus(gamma)) for w in shifted]
        return [power / sum(powers) for power in powers]

    def weights_of(queries, slots):
        rows = [[1.0] + [0.0] * (len(slots) - 1)]
        for query in queries:
            rows.append(address(query, slots, rows[-1]))
        return rows[1:]

    compare(attention, weights_of, problem(6, 5))


@pytest.mark.parametrize("writers", [1, 2])
def test_write(writers):
    """Graves et al. 2014, equations 3 and 4: every head erases, M ∘ (1 − w e), and then every head adds w a."""
    random = np.random.default_rng(1)
    slots, weights = random.normal(size=(2, 5, 3)), random.uniform(size=(2, writers, 5))
    erase, add = random.uniform(size=(2, writers, 3)), random.normal(size=(2, writers, 3))
    expected = slots.copy()
    for row, i, m in np.ndindex(2, 5, 3):
        for head in range(writers):
            expected[row, i, m] *= 1 - weights[row, head, i] * erase[row, head, m]
        for head in range(writers):
            expected[row, i, m] += weights[row, head, i] * add[row, head, m]
    memory = Memory(torch.from_numpy(slots), torch.from_numpy(slots))
    written = AddressingConfig().build(6, 3).write(memory, *map(torch.from_numpy, (weights, erase, add)))
    close(written.values, expected)
    close(written.keys, expected)


def scaled(p, q, k):
    return dot(q, k) / math.sqrt(len(k))


@pytest.mark.parametrize(("inner", "score"), [(ScaledDotConfig(), scaled), (AdditiveConfig(3), perceptron)])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_multi_head(inner, score, key_heads):
    """Vaswani et al. 2017, Concat(head_1 … head_h) W_O; Ainslie et al. 2023 where groups of heads share keys."""
    heads, size, value_size = 4, 2, 3
    config = MultiHeadConfig(heads, key_heads, size, value_size, output_size=5, inner=ComposedConfig(inner))
    attention = config.build(6, 5, VALUE_SIZE).double()
    p, batch = numbers(attention), problem(6, 5)
    read = attend(attention, batch)
    head_axes = 1 if key_heads == heads else 2
    own = {name: x.reshape(heads, *x.shape[head_axes:]) for name, x in numbers(attention.inner.score).items()}

    def project(name, x, head, width):
        part = slice(head * width, (head + 1) * width)
        return p[f"project_{name}.weight"][part] @ x + p[f"project_{name}.bias"][part]

    for row, length in enumerate(LENGTHS):
        for i, query in enumerate(batch.queries[row]):
            heads_read = []
            for head in range(heads):
                group = head * key_heads // heads
                q = project("query", query, head, size)
                keys = [project("keys", k, group, size) for k in batch.keys[row, :length]]
                values = [project("values", v, group, value_size) for v in batch.values[row, :length]]
                weights = softmax([score({name: x[head] for name, x in own.items()}, q, k) for k in keys])
                close(read.weights[row, head, i], weights + [0.0] * (KEYS - length))
                heads_read.append(sum(w * v for w, v in zip(weights, values, strict=True)))
            close(read.context[row, i], p["output.weight"] @ np.concatenate(heads_read) + p["output.bias"])


def test_worked_example():
    """Vaswani et al. 2017 in numbers: embedding 512; W_q, W_k, W_v to 64; scores ÷ 8; softmax; weighted sum."""
    config = MultiHeadConfig(heads=1, head_size=64, output_size=64, bias=False)
    attention = config.build(512).double()
    with torch.no_grad():
        attention.output.weight.copy_(torch.eye(64))
    p = numbers(attention)
    x = np.random.default_rng(1).normal(size=(len(LENGTHS), KEYS, 512))
    read = attend(attention, Problem(x, x, x))
    for row, length in enumerate(LENGTHS):
        q, k, v = (x[row] @ p[f"project_{name}.weight"].T for name in ("query", "keys", "values"))
        assert q.shape == k.shape == v.shape == (KEYS, 64)
        scores = q @ k[:length].T / 8
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        close(read.weights[row, 0, :, :length], weights)
        close(read.weights[row, 0, :, length:], 0.0)
        close(read.context[row], weights @ v[:length])
