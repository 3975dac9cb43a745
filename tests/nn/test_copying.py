"""Copying and coverage against plain transcriptions of See et al. 2017."""

import numpy as np
import pytest
import torch

from sightline import kernels
from sightline.kernels import copying as copying_module
from sightline.kernels import loss as loss_module
from sightline.kernels.copying import Sources, first_places
from sightline.kernels.loss import Mixture, smoothed_cross_entropy
from sightline.nn.copying import Copying, Looked, attended_again

WORDS, HEADS = 6, 3


def looked(rows=2, steps=4, places=5, heads=1, seed=0):
    torch.manual_seed(seed)
    shape = (rows, heads, steps, places) if heads > 1 else (rows, steps, places)
    weights = torch.softmax(torch.randn(shape, dtype=torch.float64), dim=-1)
    gate_input = torch.randn(rows, steps, 7, dtype=torch.float64)
    return Looked(torch.randn(rows, steps, 3, dtype=torch.float64), weights, gate_input)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("heads", [1, HEADS])
def test_the_mixture_is_that_of_the_paper(heads):
    """P(w) = p P_vocab(w) + (1 − p) Σ_{i: w_i = w} a_i, with words that stand twice and words without a token."""
    copying, one = Copying(7, heads).double(), looked(heads=heads)
    if heads > 1:
        torch.nn.init.normal_(copying.heads)
    # Of the first source words 4 and 7 (not in the vocabulary, first at place 1) stand twice.
    ids = torch.tensor([[4, WORDS + 1, 4, WORDS + 1, 3], [5, 4, WORDS + 2, 3, 0]])
    vocabulary = torch.log_softmax(torch.randn(2, 4, WORDS, dtype=torch.float64), dim=-1)
    with torch.no_grad():
        mixed = copying.mixed(vocabulary.clone(), one, Sources.of(ids, WORDS)).exp().numpy()
    assert mixed.shape == (2, 4, WORDS + 3)
    np.testing.assert_allclose(mixed.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    gate, bias = copying.gate.weight[0].detach().numpy(), copying.gate.bias.item()
    share = [1.0] if heads == 1 else np.exp(copying.heads.detach().numpy())
    for row, step in np.ndindex(2, 4):
        p = sigmoid(gate @ one.gate_input[row, step].numpy() + bias)
        own = one.weights[row].numpy() if heads > 1 else one.weights[row].numpy()[None]
        attended = sum(weight * own[head, step] for head, weight in enumerate(share / np.sum(share)))
        expected = np.zeros(WORDS + 3)
        expected[:WORDS] = p * np.exp(vocabulary[row, step].numpy())
        for place, word in enumerate(ids[row].tolist()):
            expected[word] += (1 - p) * attended[place]
        np.testing.assert_allclose(mixed[row, step], expected, rtol=0, atol=1e-12)


def test_the_fast_mixture_is_the_reference():
    one, gate = looked(), torch.randn(2, 4, dtype=torch.float64)
    vocabulary = torch.log_softmax(torch.randn(2, 4, WORDS, dtype=torch.float64), dim=-1)
    for ids in (
        torch.tensor([[4, WORDS + 1, 4, WORDS + 1, 3], [5, 4, WORDS + 2, 3, 0]]),
        torch.randint(0, WORDS, (2, 5)),
    ):
        sources = Sources.of(ids, WORDS).for_steps()
        given = (gate, one.weights, sources)
        torch.testing.assert_close(
            copying_module.fast(vocabulary.clone(), *given), copying_module.reference(vocabulary, *given)
        )


def test_shares_are_those_of_the_mixture():
    copying, one = Copying(7).double(), looked()
    ids = torch.tensor([[4, WORDS + 1, 4, WORDS + 1, 3], [5, 4, WORDS + 2, 3, 0]])
    vocabulary = torch.log_softmax(torch.randn(2, 4, WORDS, dtype=torch.float64), dim=-1)
    following = torch.tensor([[4, WORDS + 1, 1, 3], [WORDS + 2, 5, 2, 3]])
    known = following < WORDS
    own = vocabulary.gather(-1, following.where(known, 1).unsqueeze(-1)).squeeze(-1)
    both, written = Mixture(*copying.shares(one, following, ids), known).log_prob(own)
    mixed = copying.mixed(vocabulary.clone(), one, Sources.of(ids, WORDS))
    torch.testing.assert_close(both, mixed.gather(-1, following.unsqueeze(-1)).squeeze(-1))
    assert (written[~known] == 0).all()
    assert ((written >= 0) & (written <= 1)).all()


def test_first_places_are_those_of_numpy():
    draws = np.random.default_rng(0)
    for length in (1, 2, 7, 40):
        ids = draws.integers(0, 6, (3, length))
        expected = [[int(np.argmax(row == word)) for word in row] for row in ids]
        assert first_places(torch.tensor(ids)).tolist() == expected


def test_the_coverage_loss_is_that_of_the_paper():
    """Σ_t Σ_i min(a_i^t, c_i^t) over the words that are written; none for the first."""
    weights = looked().weights
    real = torch.tensor([[True, True, True, True], [True, True, False, False]])
    expected = 0.0
    for row, step in np.ndindex(2, 4):
        covered = weights[row, :step].sum(dim=0)
        expected += float(real[row, step]) * np.minimum(weights[row, step].numpy(), covered.numpy()).sum()
    assert attended_again(weights, real).item() == pytest.approx(expected, abs=1e-12)
    assert attended_again(weights[:, :1], real[:, :1]).item() == 0.0


def problem(smoothing):
    torch.manual_seed(0)
    features, weight = torch.randn(13, 5, dtype=torch.float64), torch.randn(11, 5, dtype=torch.float64)
    bias, targets = torch.randn(11, dtype=torch.float64), torch.randint(11, (13,))
    gate, other = torch.randn(13, dtype=torch.float64), 2 * torch.randn(13, dtype=torch.float64) - 1
    learnt = tuple(one.requires_grad_() for one in (features, weight, bias, gate, other))
    known = torch.arange(13) % 4 != 0

    def loss(features, weight, bias, gate, other, to=smoothed_cross_entropy):
        mixture = Mixture(torch.nn.functional.logsigmoid(gate), torch.nn.functional.logsigmoid(-gate) + other, known)
        return to(features, weight, bias, targets, smoothing, mixture)

    return learnt, loss


@pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [4, 100])
def test_the_loss_with_copies_and_its_gradients_equal_the_reference(smoothing, rows, monkeypatch):
    monkeypatch.setattr(loss_module, "chunk_rows", lambda words: rows)
    learnt, loss = problem(smoothing)
    made, expected = loss(*learnt), loss(*learnt, to=loss_module.reference)
    torch.testing.assert_close(made, expected)
    for one, other in zip(
        torch.autograd.grad(made / 3, learnt), torch.autograd.grad(expected / 3, learnt), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_of_the_loss_with_copies(smoothing):
    learnt, loss = problem(smoothing)
    assert torch.autograd.gradcheck(loss, learnt, fast_mode=True)


def test_gradients_of_the_mixture():
    copying, one = Copying(7, HEADS).double(), looked(heads=HEADS)
    sources = Sources.of(torch.tensor([[4, WORDS + 1, 4, WORDS + 1, 3], [5, 4, WORDS + 2, 3, 0]]), WORDS)
    vocabulary = torch.log_softmax(torch.randn(2, 4, WORDS, dtype=torch.float64), dim=-1)

    def probs(logits, weights, gate_input):
        log_probs = copying.mixed(logits, Looked(one.features, weights, gate_input), sources)
        return log_probs[log_probs > -torch.inf].exp()

    given = (vocabulary, one.weights, one.gate_input)
    assert torch.autograd.gradcheck(probs, tuple(part.requires_grad_() for part in given), fast_mode=True)
