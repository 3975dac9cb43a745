"""Models that label cells: the scan, the decoder and the search of the translators, padding, who sees what."""

import numpy as np
import pytest
import torch
from torch import nn

import sightline.models.grid_sequential as sequential
from sightline.config import kinds
from sightline.decoding.search import greedy
from sightline.inputs.grid import collate
from sightline.models.grid import NOTHING, Gold, GridModelConfig, Grids, Inputs
from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
from sightline.models.grid_sequential import SequentialConfig
from sightline.models.luong import LuongConfig
from sightline.nn.decoder import RecurrentAttentionDecoder
from sightline.nn.grid import ConvolutionBlock, GridEncoder, PixelCells, directions, scan
from sightline.nn.image import CNNConfig
from sightline.outputs.cell_scores import collate_gold

SMALL = {"width": 8, "cell_size": 12, "rnn_size": 4, "pixel_width": 6, "dropout": 0.0}
DECODER = {**SMALL, "attn_num_hidden": 12}
MODELS = {
    "at_once": AtOnceConfig(**SMALL),
    "no_lines": AtOnceConfig(**{**SMALL, "rnn_layers": 0}, attention=None),
    "single": SingleConfig(width=8, cell_size=12, pixel_width=6, dropout=0.0),
    "sequential": SequentialConfig(**DECODER, attn_num_layers=2),
    "two_sweeps": SequentialConfig(**DECODER, sweeps=2, neighbours=4, order="snake", use_gru=True, attention=None),
}
AROUND = {4: ((-1, 0), (0, -1), (0, 1), (1, 0))}
AROUND[8] = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)


def photos(*sizes, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.integers(256, size=(*size, 3), dtype=np.uint8) for size in sizes]


def features(*sizes, count=3):
    draw = np.random.default_rng(1)
    return [draw.normal(size=(*size, count)).astype(np.float32) for size in sizes]


def warmed(model, grids):
    """Running means that are not those of the beginning: a normalisation that does nothing would hide mistakes."""
    model.train()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.3)
                module.running_var.uniform_(0.5, 2)
                module.bias.normal_(std=0.5)
    return model.eval()


@pytest.mark.parametrize("order", ["rows", "snake"])
@pytest.mark.parametrize("neighbours", [4, 8])
@pytest.mark.parametrize("sweeps", [1, 2])
def test_a_step_reads_what_was_written_before_it(order, neighbours, sweeps):
    rows, columns = 3, 4
    mask = torch.zeros(2, rows + 1, columns + 2, dtype=torch.bool)
    mask[0, :rows, :columns] = True
    mask[1, :2, :2] = True
    plan = scan(mask, order, neighbours, sweeps)
    assert plan.lengths.tolist() == [sweeps * rows * columns, sweeps * 4]
    steps = sweeps * rows * columns
    written = {}
    for step in range(steps):
        i, j = divmod(int(plan.cells[0, step]), columns + 2)
        assert i < rows
        assert j < columns
        wanted = []
        for down, right in (*AROUND[neighbours], *([(0, 0)] if sweeps > 1 else [])):
            at = (i + down, j + right)
            outside = not (0 <= at[0] < rows and 0 <= at[1] < columns)
            wanted.append(steps + 1 if outside else written.get(at, steps))
        assert plan.sources[0, step].tolist() == wanted
        first = step - step % (rows * columns)
        assert plan.earlier[0, step].tolist() == [source < first for source in wanted]
        written[(i, j)] = step
    path = [divmod(int(cell), columns + 2) for cell in plan.cells[0]]
    assert sorted(path[: rows * columns]) == [(i, j) for i in range(rows) for j in range(columns)]
    assert path[columns] == ((1, columns - 1) if order == "snake" else (1, 0))
    if sweeps == 2:
        assert path[rows * columns :] == path[: rows * columns][::-1]
        inner = [step for step in range(steps // 2, steps) if path[step] == (1, 1)]
        assert (plan.sources[0, inner] < steps).all()  # the second sweep sees all labels around
    assert (plan.cells[1, 4 * sweeps :] == mask[0].numel()).all()


def test_only_the_label_before_or_none_at_all():
    mask = torch.ones(1, 2, 3, dtype=torch.bool)
    assert scan(mask, "snake", 1, 1).sources[0, :, 0].tolist() == [7, 0, 1, 2, 3, 4]
    assert scan(mask, "rows", 0, 1).sources.shape == (1, 6, 0)
    assert [directions(0, 1), directions(1, 2), directions(8, 2)] == [0, 2, 9]


def test_the_decoder_and_the_search_are_those_of_the_translators(monkeypatch):
    model = MODELS["sequential"].build(Inputs(0, 3, 2)).eval()
    translator = LuongConfig(embedding_size=8, size=8, encoder_size=8).build(9, 9)
    assert type(model.decoder) is RecurrentAttentionDecoder is type(translator.decoder)
    assert sequential.greedy is greedy
    calls = []
    monkeypatch.setattr(
        sequential, "greedy", lambda step, *rest, **how: calls.append(step) or greedy(step, *rest, **how)
    )
    model.answer(collate(features((2, 3)), 0))
    assert calls == [model.step]


@pytest.mark.parametrize("name", ["sequential", "two_sweeps"])
def test_what_search_decides_is_what_a_pass_over_it_finds_likeliest(name):
    model = MODELS[name].build(Inputs(0, 3, 4)).eval()
    grids = collate(features((3, 4), (2, 2), (4, 1)), 0)
    with torch.inference_mode():
        annotated, _ = model.annotate(grids)
        plan = scan(grids.mask, model.order, model.around, model.sweeps)
        tokens = model.decide(annotated, grids.mask, plan)
        again = model.logits(annotated, grids.mask, plan, tokens, tokens).argmax(dim=-1)
        said = model.label(annotated, grids.mask)
    for row, length in enumerate(plan.lengths.tolist()):
        assert tokens[row, :length].tolist() == again[row, :length].tolist()
        assert (tokens[row, length:] == model.start).all()
    cells = plan.cells[plan.sweeps == model.sweeps - 1]
    assert said.argmax(dim=-1)[0].flatten()[plan.cells[0, -12:]].tolist() == tokens[0, -12:].tolist()
    assert len(cells)
    assert len(set(tokens[0].tolist())) > 1  # a model that says one thing only would prove nothing


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cell", [0, 4])
def test_padding_changes_nothing(name, cell):
    values = photos((8, 12), (4, 4), (11, 6)) if cell else features((3, 4), (1, 1), (4, 2))
    model = MODELS[name].build(Inputs(cell, 3, 3))
    model = warmed(model, None)
    with torch.inference_mode():
        together = model.answer(collate(values, cell))
        for row, one in enumerate(values):
            alone = model.answer(collate([one], cell))
            rows, columns = alone.cells.shape[1:3]
            torch.testing.assert_close(together.cells[row, :rows, :columns], alone.cells[0], rtol=1e-4, atol=1e-5)
            if cell:
                height, width = rows * cell, columns * cell
                pixels = together.pixels[row, :, :height, :width]
                torch.testing.assert_close(pixels, alone.pixels[0], rtol=1e-4, atol=1e-5)


def test_an_image_encoder_gives_cells_and_padding_changes_nothing():
    encoder = CNNConfig(size=32, channels=(8, 8))
    model = AtOnceConfig(**SMALL, encoder=encoder).build(Inputs(8, 3, 2)).eval()
    assert model.pixel_head is None
    values = photos((16, 24), (8, 8))
    with torch.inference_mode():
        together, alone = model.answer(collate(values, 8)), model.answer(collate(values[1:], 8))
    assert together.cells.shape == (2, 2, 3, 2)
    assert together.pixels is None
    torch.testing.assert_close(together.cells[1, :1, :1], alone.cells[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="features already"):
        AtOnceConfig(encoder=encoder).build(Inputs(0, 3, 2))


def test_a_frozen_encoder_does_not_learn():
    class Frozen(CNNConfig):
        frozen = True

    model = AtOnceConfig(**SMALL, encoder=Frozen(size=32, channels=(8, 8))).build(Inputs(8, 3, 2)).train()
    grids = collate(photos((16, 16)), 8)
    model.loss(grids, Gold(torch.ones(1, 2, 2, dtype=torch.long), None)).total.backward()
    assert not model.cells.encoder.training
    assert all(one.grad is None for one in model.cells.encoder.parameters())
    assert model.cells.output.weight.grad is not None


def test_a_single_cell_sees_itself_only():
    one = photos((12, 16))[0]
    other = one.copy()
    other[:4, 4:8] ^= 255  # another cell
    with torch.inference_mode():
        for name, sees in (("single", False), ("no_lines", True), ("at_once", True)):
            model = warmed(MODELS[name].build(Inputs(4, 3, 2)), None)
            a, b = (model.answer(collate([values], 4)) for values in (one, other))
            same = (a.cells == b.cells).all(dim=-1)[0]
            assert not same[0, 1]
            same[0, 1] = True
            assert bool(same.all()) is not sees
            if not sees:
                assert torch.equal(a.pixels[..., :4, :4], b.pixels[..., :4, :4])


def test_normalisation_counts_what_there_is():
    plain, padded = ConvolutionBlock(2, 3), ConvolutionBlock(2, 3)
    padded.load_state_dict(plain.state_dict())
    x = torch.randn(1, 2, 4, 4)
    wide = torch.zeros(1, 2, 6, 8)
    wide[:, :, :4, :4] = x
    mask = torch.zeros(1, 6, 8, dtype=torch.bool)
    mask[:, :4, :4] = True
    a, b = plain(x, None), padded(wide, mask)
    torch.testing.assert_close(a, b[:, :, :4, :4])
    assert not b[~mask.unsqueeze(1).expand_as(b)].any()
    torch.testing.assert_close(plain.norm.running_var, padded.norm.running_var)
    b.sum().backward()
    assert padded.norm.weight.grad is not None


def test_rows_and_columns_are_read_both_ways():
    """A cell's annotation knows its own row and its own column, and no other cell, after one layer."""
    encoder = GridEncoder("lstm", 3, 4).eval()
    x = torch.randn(1, 3, 4, 3, requires_grad=True)
    found = encoder(x, torch.ones(1, 3, 4, dtype=torch.bool))
    assert found.annotations.shape == (1, 3, 4, 16)
    assert found.final.shape == (1, 16)
    (gradient,) = torch.autograd.grad(found.annotations[0, 1, 2].sum(), x)
    reached = gradient[0].abs().sum(dim=-1) > 0
    wanted = torch.zeros(3, 4, dtype=torch.bool)
    wanted[1], wanted[:, 2] = True, True
    assert torch.equal(reached, wanted)


def test_final_states_are_means_over_lines_that_there_are():
    encoder = GridEncoder("gru", 3, 4).eval()
    x = torch.randn(1, 2, 3, 3)
    wide = torch.zeros(1, 5, 4, 3)
    wide[:, :2, :3] = x
    mask = torch.zeros(1, 5, 4, dtype=torch.bool)
    mask[:, :2, :3] = True
    torch.testing.assert_close(encoder(x, mask[:, :2, :3]).final, encoder(wide, mask).final)


@pytest.mark.parametrize("name", MODELS)
def test_loss_reaches_every_parameter_and_no_cell_without_label(name):
    model = MODELS[name].build(Inputs(4, 3, 2)).train()
    values = photos((8, 12), (4, 8))
    grids = collate(values, 4)
    gold = collate_gold([np.tile(np.arange(value.shape[1]) % 2, (len(value), 1)) for value in values], grids, 4, 0.0, 2)
    assert gold.cells[1, 1].tolist() == [NOTHING] * 3
    loss = model.loss(grids, gold)
    assert loss.tokens == 6 + 2
    loss.total.backward()
    silent = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.abs().sum()]
    assert not [one for one in silent if not one.startswith(("sweep", "memory"))], silent  # a GRU has no memory
    unlabelled = gold._replace(cells=torch.full_like(gold.cells, NOTHING), pixels=None)
    assert float(model.loss(grids, unlabelled).total.detach()) == 0.0


def test_weights_of_classes_count():
    config = AtOnceConfig(**SMALL)
    models = [config.build(Inputs(0, 3, 2), weights) for weights in ((1.0, 1.0), (1.0, 3.0))]
    models[1].load_state_dict(models[0].state_dict())
    grids = collate(features((2, 3)), 0)
    for label, factor in ((0, 1.0), (1, 3.0)):
        gold = Gold(torch.full((1, 2, 3), label), None)
        one, three = (float(model.eval().loss(grids, gold).total.detach()) for model in models)
        assert three == pytest.approx(factor * one, rel=1e-5)


def test_in_training_labels_of_an_earlier_sweep_are_its_own(monkeypatch):
    model = MODELS["two_sweeps"].build(Inputs(0, 3, 2)).train()
    seen = []
    logits = model.logits

    def watched(annotated, mask, plan, tokens, before):
        seen.append((tokens, before))
        return logits(annotated, mask, plan, tokens, before)

    monkeypatch.setattr(model, "logits", watched)
    monkeypatch.setattr(model, "_own", lambda annotated, mask, plan, right: torch.ones_like(right))
    model.own_labels = 0.0
    model.loss(collate(features((3, 3)), 0), Gold(torch.zeros(1, 3, 3, dtype=torch.long), None))
    tokens, before = seen[-1]
    assert not tokens.any()
    assert before.all()
    model.own_labels = 1.0
    model.loss(collate(features((3, 3)), 0), Gold(torch.zeros(1, 3, 3, dtype=torch.long), None))
    assert seen[-1][0].all()


def test_what_is_drawn_in_a_later_sweep_comes_after_what_was_drawn_before(monkeypatch):
    """A model that is sure of 1 in its first sweep, and then says of each cell what it said of it before: nothing that
    it draws is the right label, 0."""
    model = MODELS["two_sweeps"].build(Inputs(0, 3, 2)).train()
    behind = torch.tensor([[model.start, model.end]])

    def logits(annotated, mask, plan, tokens, before):
        own = torch.cat([before, behind], dim=1).gather(1, plan.sources[..., -1])
        around = torch.cat([tokens, behind], dim=1).gather(1, plan.sources[..., :-1].flatten(1)).view(1, 18, -1)
        labels = around.masked_fill(plan.earlier[..., :-1] | (around > 1), 0)
        seen.append((labels * (plan.sweeps == 0).unsqueeze(-1)).sum())
        said = torch.where(plan.sweeps == 0, 1, own.clamp(max=1))
        return 100 * torch.nn.functional.one_hot(said, 2).float()

    seen = []
    monkeypatch.setattr(model, "logits", logits)
    grids = collate(features((3, 3)), 0)
    annotated, _ = model.annotate(grids)
    plan = scan(grids.mask, model.order, model.around, model.sweeps)
    unlabelled = plan.cells == 4
    right = torch.where(unlabelled, model.start, 0)
    drawn = model._own(annotated, grids.mask, plan, right)
    assert torch.equal(drawn, torch.where(unlabelled, model.start, 1))
    assert seen[0] == 0  # the first sweep reads right labels
    assert seen[1] > 0  # where the second is drawn, the first has read what was drawn


@pytest.mark.parametrize("name", ["at_once", "single", "sequential"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_of_one_cell_is_learnt_from(name, padded):
    model = MODELS[name].build(Inputs(4, 3, 2)).train()
    mask = torch.zeros(1, 2, 1, dtype=torch.bool) if padded else torch.ones(1, 1, 1, dtype=torch.bool)
    mask[0, 0, 0] = True
    pixels = torch.randint(256, (1, 4 * mask.shape[1], 4, 3), dtype=torch.uint8)
    cells = torch.where(mask, 1, NOTHING)
    marked = torch.where(mask, 1, NOTHING).repeat_interleave(4, 1).repeat_interleave(4, 2)
    loss = model.loss(Grids(pixels, mask), Gold(cells, marked)).total
    loss.backward()
    assert loss.isfinite()
    assert all(one.grad.isfinite().all() for one in model.cells.parameters())


def test_configurations_survive_json_and_refuse_nonsense():
    for config in MODELS.values():
        assert GridModelConfig.loads(config.dumps()) == config
    assert kinds("grid_model") == ["at_once", "sequential", "single"]
    for wrong in ({"neighbours": 5}, {"sweeps": 0}, {"own_labels": 2.0}, {"dropout": 1.0}, {"attn_num_layers": 0}):
        with pytest.raises(ValueError):
            SequentialConfig.from_json({"kind": "sequential", **wrong})
    with pytest.raises(ValueError, match="read other cells"):
        SingleConfig(rnn_layers=1)
    with pytest.raises(ValueError, match="cell is 12"):
        PixelCells(12, 8, 8)


def test_a_grid_of_one_cell():
    for name, config in MODELS.items():
        model = config.build(Inputs(4, 3, 2)).eval()
        with torch.inference_mode():
            found = model.answer(Grids(torch.zeros(1, 4, 4, 3, dtype=torch.uint8), torch.ones(1, 1, 1).bool()))
        assert found.cells.shape == (1, 1, 1, 2), name
        assert found.pixels.shape == (1, 2, 4, 4)
        torch.testing.assert_close(found.cells.exp().sum(), torch.tensor(1.0))
