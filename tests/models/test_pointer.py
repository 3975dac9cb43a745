"""Pointer networks: one step against NumPy, gradients, batches, search, and what is never chosen twice."""

import itertools
import math

import numpy as np
import pytest
import torch

from sightline.attention import AdditiveConfig
from sightline.models.pointer import PointerConfig, PositionsBatch
from sightline.nn.series import SeriesBatch, SeriesShape

LENGTHS = (5, 3, 1)


def small(cell="gru", seed=0):
    torch.manual_seed(seed)
    config = PointerConfig(cell=cell, size=4, decoder_size=6, score=AdditiveConfig(hidden_size=5))
    return config.build(SeriesShape((2,))).eval()


def batch(lengths=LENGTHS, seed=0, dtype=torch.float32):
    values = torch.randn(len(lengths), max(lengths), 2, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(-1)
    return SeriesBatch(values * mask.unsqueeze(-1), torch.tensor(lengths))


def row(source, number):
    length = int(source.lengths[number])
    return SeriesBatch(source.values[number : number + 1, :length], source.lengths[number : number + 1])


def softmax(x):
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def transcribed(model, states, summary, places):
    """The distributions of all choices as the paper has them, with a GRU: p_i = softmax(v · tanh(W1 e_j + W2 d_i))."""
    own = {name: tensor.detach().double().numpy() for name, tensor in model.named_parameters()}
    hidden = np.tanh(own["start.weight"] @ summary + own["start.bias"])
    columns = [*states, own["end"]]
    made, last = [], own["first"]
    for place in [*places, None]:
        entering = np.split(own["cell.input.weight"] @ last + own["cell.input.bias"], 3)
        going = np.split(own["cell.recurrent.weight"] @ hidden + own["cell.recurrent.bias"], 3)
        reset, update = sigmoid(entering[0] + going[0]), sigmoid(entering[1] + going[1])
        hidden = (1 - update) * np.tanh(entering[2] + reset * going[2]) + update * hidden
        query = own["attention.score.query.weight"].T @ hidden + own["attention.score.query.bias"].ravel()
        keys = [own["attention.score.key.weight"].T @ one for one in columns]
        scores = np.array([own["attention.score.vector"] @ np.tanh(query + key) for key in keys])
        scores[-1] -= np.inf if not made else 0.0  # at least one position comes out
        made.append(softmax(scores))
        last = None if place is None else columns[place]
    return np.stack(made)


def test_the_choices_are_those_of_the_paper():
    model = small()
    source, places = row(batch(), 0), [3, 0, 4]
    annotations = model.annotate(source)
    states, summary = (one[0].detach().double().numpy() for one in (annotations.states, annotations.summary))
    weights = model.follow(annotations, torch.tensor([places]))[0].detach().numpy()
    np.testing.assert_allclose(weights, transcribed(model, states, summary, places), atol=1e-5)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_are_exact(cell):
    model = small(cell).double()
    source = batch((3, 2), dtype=torch.float64)
    target = PositionsBatch(torch.tensor([[2, 0], [1, 0]]), torch.tensor([2, 1]))

    def loss(values, end, first):
        given = {"end": end, "first": first}
        call = torch.func.functional_call(Loss(model), {f"model.{k}": v for k, v in given.items()}, (values, target))
        return call.total

    class Loss(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, values, target):
            return self.model.loss(SeriesBatch(values, source.lengths), target)

    inputs = [source.values, model.end.detach(), model.first.detach()]
    assert torch.autograd.gradcheck(loss, [one.clone().requires_grad_() for one in inputs])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_batch_gives_what_each_row_gives(cell):
    model, source = small(cell), batch()
    targets = [[3, 0, 4], [1, 1], [0]]
    places = torch.tensor([[*own, *[0] * (3 - len(own))] for own in targets])
    together = model.loss(source, PositionsBatch(places, torch.tensor([3, 2, 1])))
    alone = [
        model.loss(row(source, number), PositionsBatch(torch.tensor([own]), torch.tensor([len(own)])))
        for number, own in enumerate(targets)
    ]
    assert together.tokens == sum(one.tokens for one in alone) == 9  # an end each
    assert float(together.total.detach()) == pytest.approx(sum(float(one.total.detach()) for one in alone), rel=1e-5)
    assert together.parts["cross_entropy"] == pytest.approx(float(together.total.detach()), rel=1e-5)
    for once, beam in itertools.product((True, False), (1, 3)):
        for number, made in enumerate(model.generate(source, 6, once=once, beam=beam)):
            (own,) = model.generate(row(source, number), 6, once=once, beam=beam)
            assert (own.places, own.complete) == (made.places, made.complete)
            assert own.log_prob == pytest.approx(made.log_prob, abs=1e-4)


def test_the_loss_is_the_log_probability_of_the_choices_and_the_end():
    model, source = small(), row(batch(), 0)
    places = torch.tensor([[2, 2]])
    weights = model.follow(model.annotate(source), places)[0].detach()
    expected = -sum(math.log(float(weights[step, place])) for step, place in enumerate((2, 2, 5)))
    loss = model.loss(source, PositionsBatch(places, torch.tensor([2])))
    assert float(loss.total.detach()) == pytest.approx(expected, rel=1e-5)
    places = torch.tensor([[2, 4]])
    (before,), (after,) = (model.follow(model.annotate(source), places, once).detach() for once in (False, True))
    without = before.clone()  # what was chosen leaves the softmax, and the others share its weight
    without[1, 2] = without[2, 2] = without[2, 4] = 0
    torch.testing.assert_close(after, without / without.sum(dim=-1, keepdim=True))
    once = model.loss(source, PositionsBatch(places, torch.tensor([2])), once=True)
    expected = -sum(math.log(float(after[step, place])) for step, place in enumerate((2, 4, 5)))
    assert float(once.total.detach()) == pytest.approx(expected, rel=1e-5)


def test_no_position_is_chosen_twice():
    model, source = small(), batch()
    with torch.no_grad():
        model.cell.input.bias[6:12] = 60.0  # the state stays as it is, and so do the weights
        model.end.copy_(-5 * torch.sign(model.attention.score.key.weight @ model.attention.score.vector))
    weights = model.follow(model.annotate(source), torch.zeros(3, 0, dtype=torch.long))[:, 0]
    repeated, different = model.generate(source, 6), model.generate(source, max(LENGTHS), once=True)
    for number, length in enumerate(LENGTHS):
        second = model.follow(model.annotate(row(source, number)), torch.zeros(1, 1, dtype=torch.long))[0]
        assert second[1, -1] < second[1, :length].min()  # the end comes last
        order = weights[number, :length].argsort(descending=True).tolist()
        assert repeated[number][::2] == ((order[0],) * 6, False)
        assert different[number][::2] == (tuple(order), True)
    weights = model.follow(model.annotate(row(source, 0)), torch.tensor([[3, 1]]), True)[0]
    assert weights[0, 5] == 0  # nothing ends before it has begun
    assert (weights[1, [3]] == 0).all()
    assert (weights[2, [1, 3]] == 0).all()


def test_greedy_search_takes_the_likeliest_and_a_wide_beam_the_best_of_all():
    model, source = small(seed=3), row(batch((3,), seed=4), 0)
    with torch.no_grad():
        model.attention.score.vector.mul_(3.0)
    annotations = model.annotate(source)

    def log_prob(places):
        weights = model.follow(annotations, torch.tensor([places]), True)[0].detach()
        return sum(math.log(float(weights[step, place])) for step, place in enumerate([*places, 3]))

    every = [list(some) for count in (1, 2, 3) for some in itertools.permutations(range(3), count)]
    best = max(every, key=log_prob)
    (made,) = model.generate(source, 3, once=True, beam=20)
    assert list(made.places) == best
    assert made.log_prob == pytest.approx(log_prob(best), abs=1e-4)
    (greedy,) = model.generate(source, 3, once=True)
    steps, place = [], None
    while place != 3:
        given = torch.tensor([steps], dtype=torch.long)
        place = int(model.follow(annotations, given, True)[0, -1].argmax())
        steps += [] if place == 3 else [place]
    assert list(greedy.places) == steps
    assert greedy.log_prob == pytest.approx(log_prob(steps), abs=1e-4)
    assert greedy.log_prob <= made.log_prob + 1e-6


def test_every_frame_needs_a_state():
    with pytest.raises(ValueError, match=r"reduces is \[1, 2\]; each must be 1"):
        PointerConfig(reduces=(1, 2))
    assert PointerConfig.from_json(PointerConfig(cell="lstm").to_json()) == PointerConfig(cell="lstm")
