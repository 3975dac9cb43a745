"""Episodes of machines with a memory, and the pieces of their formulas, in NumPy."""

import numpy as np
import pytest
import torch

from sightline.models.vector_writer import VectorsBatch
from sightline.nn.series import SeriesBatch


def episode(rows=3, seed=2):
    draw = torch.Generator().manual_seed(seed)
    lengths, answers = torch.tensor([5, 2, 4])[:rows], torch.tensor([3, 1, 2])[:rows]
    values = torch.randn(rows, 5, 3, dtype=torch.float64, generator=draw)
    values = values * (torch.arange(5) < lengths[:, None]).unsqueeze(-1)
    target = (torch.rand(rows, 3, 2, dtype=torch.float64, generator=draw) > 0.5).double()
    return SeriesBatch(values, lengths), VectorsBatch(target, answers)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def cosines(key, memory):
    """Of a key and each slot."""
    return np.array([key @ row / (np.linalg.norm(key) * np.linalg.norm(row)) for row in memory])


class Control:
    """The controller of one row of a batch."""

    def __init__(self, model):
        self.weights = {name: one.detach().numpy() for name, one in model.named_parameters()}
        self.recurrent = model.recurrent
        if self.recurrent:
            self.hidden, self.cell = self.weights["first_state"]

    def __call__(self, x, reads):
        """What it makes of a frame and of what was read before."""
        weights, entered = self.weights, np.concatenate([x, reads])
        if not self.recurrent:
            return np.tanh(weights["controller.weight"] @ entered + weights["controller.bias"])
        gates = weights["controller.input.weight"] @ entered + weights["controller.input.bias"]
        gates = gates + weights["controller.recurrent.weight"] @ self.hidden + weights["controller.recurrent.bias"]
        enter, forget, new, leave = np.split(gates, 4)
        self.cell = sigmoid(forget) * self.cell + sigmoid(enter) * np.tanh(new)
        self.hidden = sigmoid(leave) * np.tanh(self.cell)
        return self.hidden


@torch.no_grad()
def check_batches(model):
    """A batch of different lengths equals one by one."""
    source, target = episode()
    together = model.loss(source, target)
    made = model.generate(source, 3, 3)
    alone = 0.0
    for row in range(3):
        frames, count = int(source.lengths[row]), int(target.lengths[row])
        one = SeriesBatch(source.values[row : row + 1, :frames], source.lengths[row : row + 1])
        own = VectorsBatch(target.values[row : row + 1, :count], target.lengths[row : row + 1])
        alone += float(model.loss(one, own).total)
        torch.testing.assert_close(model.generate(one, 3, 3).values, made.values[row : row + 1])
    assert float(together.total) == pytest.approx(alone, rel=1e-10)
    assert together.tokens == 6


def check_nothing_kept(model):
    """A machine is the same after another episode, whole or in between."""
    source, target = episode()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    first = model.loss(source, target).total
    model.loss(*episode(seed=9)).total.backward()
    assert torch.equal(model.loss(source, target).total, first)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    state = model.begin(2)
    x = torch.randn(2, 4, dtype=torch.float64)
    once = model.step(x, state)[0]
    model.step(torch.randn(2, 4, dtype=torch.float64), state)
    assert torch.equal(model.step(x, state)[0], once)
