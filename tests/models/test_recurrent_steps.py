"""Recurrent steps: repeated always as often, or as often as the model decides; and where a row answers."""

import pytest
import torch

from sightline.models.recurrent_steps import RecurrentStepsConfig
from sightline.models.transformer_steps import TransformerStepsConfig, UniversalStepsConfig
from sightline.models.vector_writer import TargetShape, VectorsBatch
from sightline.nn.series import SeriesBatch, SeriesShape
from sightline.nn.thinking import AdaptiveConfig, FixedRepeatsConfig, PonderingConfig

WAYS = {
    "once": FixedRepeatsConfig(),
    "three times": FixedRepeatsConfig(3),
    "act": AdaptiveConfig(most=6),
    "ponder": PonderingConfig(most=6),
}


def network(way, answers="each", **fields):
    torch.manual_seed(3)
    config = RecurrentStepsConfig(answers=answers, size=6, thinking=WAYS[way], **fields)
    return config.build(SeriesShape((3,)), TargetShape(2, True)).double()


def batch(rows=3):
    draw = torch.Generator().manual_seed(1)
    lengths = torch.tensor([4, 2, 3])[:rows]
    there = (torch.arange(4) < lengths[:, None]).unsqueeze(-1)
    values = torch.randn(rows, 4, 3, dtype=torch.float64, generator=draw) * there
    return SeriesBatch(values, lengths), VectorsBatch((torch.rand(rows, 4, 2, generator=draw) > 0.5).double(), lengths)


def assert_rows_are_alone(model, source, target):
    """The loss of a batch is the sum of those of its rows."""
    together, alone = model.loss(source, target), 0.0
    for row, length in enumerate(source.lengths.tolist()):
        one = SeriesBatch(source.values[row : row + 1, :length], source.lengths[row : row + 1])
        own = VectorsBatch(target.values[row : row + 1, :length], target.lengths[row : row + 1])
        alone += float(model.loss(one, own).total)
    assert float(together.total) == pytest.approx(alone, rel=1e-9)
    assert together.tokens == 9


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answers", ["each", "after"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@torch.no_grad()
def test_a_batch_of_different_lengths_equals_one_by_one(way, answers, cell):
    model = network(way, answers, cell=cell, layers=2)
    source, target = batch()
    assert_rows_are_alone(model, source, target)


def test_repeats_are_those_by_hand():
    model, (source, _) = network("three times"), batch(1)
    schedule = model.schedule(source, source.lengths)
    cell, hidden = model.cells[0], (torch.zeros(1, 6, dtype=torch.float64),) * 2
    for x in schedule.inputs[0]:
        for flag in (1.0, 0.0, 0.0):
            hidden = cell(cell.project(torch.cat([x, x.new_tensor([flag])]).unsqueeze(0)), hidden)
    torch.testing.assert_close(model.run(schedule).features[:, -1], hidden[0])


@torch.no_grad()
def test_the_loss_of_pondering_is_the_expected_loss_and_its_cost():
    model, (source, target) = network("ponder"), batch(1)
    steps = model.run(model.schedule(source, source.lengths))
    true = target.values.expand(len(steps.repeated), -1, -1, -1)
    each = torch.nn.functional.binary_cross_entropy_with_logits(
        model.output(steps.repeated), true, reduction="none"
    ).sum(-1)
    torch.testing.assert_close(steps.weights.sum(0), torch.ones(1, 4, dtype=torch.float64))
    loss = model.loss(source, target)
    assert float(loss.total) == pytest.approx(float((steps.weights * each).sum() + steps.cost.sum()))
    assert loss.parts["ponder"] == pytest.approx(float(steps.cost.sum()))
    assert loss.measures["repeats"] / loss.tokens == pytest.approx(float(steps.repeats.mean()))


@torch.no_grad()
def test_act_costs_repeats_and_remainder():
    model, (source, target) = network("act"), batch()
    loss = model.loss(source, target)
    free = network("act")
    free.thinking.cost = 0.0
    assert float(loss.total - free.loss(source, target).total) == pytest.approx(loss.parts["ponder"])
    assert 1 < loss.parts["ponder"] / 0.01 / loss.tokens <= 7  # N + R of each step


@pytest.mark.parametrize("way", ["act", "ponder"])
def test_gradients_are_those_of_finite_differences(way):
    model, (source, target) = network(way), batch(2)
    weights = tuple(model.parameters())
    assert torch.autograd.gradcheck(lambda *_: model.loss(source, target).total, weights, atol=1e-6, fast_mode=True)


def test_it_stops_where_it_has_learnt_to():
    model = network("once", "after")
    source, _ = batch()
    with torch.no_grad():
        model.stop.weight.zero_()
        model.stop.bias.fill_(-20.0)
    never = model.generate(source, 50)
    assert never.values.shape == (3, 50, 2)
    assert (never.stops == 51).all()
    with torch.no_grad():
        model.stop.bias.fill_(20.0)
    assert (model.generate(source, 50).stops == 1).all()


@torch.no_grad()
@pytest.mark.parametrize("kind", [TransformerStepsConfig, UniversalStepsConfig])
def test_no_answer_of_a_transformer_depends_on_how_many_follow(kind):
    torch.manual_seed(0)
    config = kind(answers="after", size=8, heads=2, feed_forward=8)
    model = config.build(SeriesShape((3,)), TargetShape(2, True)).double().eval()
    source, target = batch()
    few, many = (model.generate(source, count, count) for count in (3, 40))
    torch.testing.assert_close(few.values, many.values[:, :3])
    assert_rows_are_alone(model, source, target)
