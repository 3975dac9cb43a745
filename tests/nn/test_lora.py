"""Low-rank adaptation: it begins with nothing, moves alone, and merges into what it was."""

import dataclasses

import pytest
import torch
from torch import nn

from sightline.models.encoder import EncoderConfig
from sightline.models.text_to_labels import Texts
from sightline.models.transformer import TransformerConfig
from sightline.nn.lora import LoraConfig, add_lora, is_adapted, merge_lora
from sightline.training.groups import parameter_groups
from sightline.training.loop import TrainingConfig
from sightline.training.steps import make_optimiser

pytestmark = pytest.mark.fast

SMALL = EncoderConfig(size=16, heads=2, feed_forward=24, layers=2, dropout=0.0)
FACTORS = ("parametrizations.weight.0.up", "parametrizations.weight.0.down")


def texts(rows=6):
    words = torch.randint(4, 30, (rows, 7))
    words[0, 4:] = 0
    return Texts(words)


def learn(model, output, steps=3):
    given, labels = texts(), torch.tensor([0, 1, 0, 1, 1, 0])
    groups = [*parameter_groups(model, 0.0), *parameter_groups(output, 0.0)]
    optimiser = torch.optim.AdamW(groups, lr=1e-2)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(output(model.features(given)), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def test_only_its_own_parameters_move():
    model, output = SMALL.build(30), nn.Linear(16, 2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adapted = add_lora(model, LoraConfig(rank=2), also=[model.pool])
    names = [f"layers.{layer}.attention.{part}" for layer in (0, 1) for part in ("project_query", "project_values")]
    assert adapted == names
    begun = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learn(model, output)
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, begun[name])}
    assert moved <= {name for name in begun if name.endswith(FACTORS) or name.startswith("pool.")}
    assert {name for name in begun if name.endswith(FACTORS)} <= moved
    assert any(name.startswith("pool.") for name in moved)
    for name, tensor in before.items():
        kept = name.replace("weight", "parametrizations.weight.original") if name[:-7] in adapted else name
        if not name.startswith("pool."):
            assert torch.equal(model.state_dict()[kept], tensor), name


def test_merged_equals_unmerged_and_has_the_old_names():
    model, output = SMALL.build(30), nn.Linear(16, 2)
    names = list(model.state_dict())
    plain = model.annotate(texts_ := texts())
    add_lora(model, LoraConfig(rank=3, alpha=6.0))
    torch.testing.assert_close(model.annotate(texts_), plain, atol=0, rtol=0)
    learn(model, output, steps=8)
    model.eval()
    unmerged, weight = model.annotate(texts_), model.layers[0].attention.project_query.weight.clone()
    assert (unmerged - plain).abs().max() > 1e-3
    adding = model.layers[0].attention.project_query.parametrizations.weight
    torch.testing.assert_close(weight, adding.original + 2.0 * adding[0].up @ adding[0].down)
    assert merge_lora(model) == [
        "layers.0.attention.project_query",
        "layers.0.attention.project_values",
        "layers.1.attention.project_query",
        "layers.1.attention.project_values",
    ]
    torch.testing.assert_close(model.annotate(texts_), unmerged, atol=1e-6, rtol=0)
    assert sorted(model.state_dict()) == sorted(names)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(map(is_adapted, model.modules()))
    fresh = SMALL.build(30).eval()
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(fresh.annotate(texts_), unmerged, atol=1e-6, rtol=0)


def test_fast_paths_read_the_sum():
    """A translator's search works on bare weights: they must be those that are being learnt."""
    model = TransformerConfig(16, 2, 24, 1, 1, 0.0).build(30, 30)
    add_lora(model, LoraConfig(layers=("project_query", "widen")))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("up"):
                parameter.normal_()
    model.eval()
    source = torch.randint(4, 30, (3, 5))
    step, state = model.searching(source)
    found, _ = step(torch.full((3,), 2), state)
    expected, _ = model.step(torch.full((3,), 2), model.begin(source))
    torch.testing.assert_close(found, expected)


def test_the_loop_s_optimiser_leaves_out_what_rests():
    model = SMALL.build(30)
    add_lora(model, LoraConfig(rank=2))
    config = TrainingConfig(learning_rate=1.0, layer_decay=0.5)
    groups = make_optimiser(model, config).param_groups
    assert sum(len(group["params"]) for group in groups) == 2 * 4
    assert sorted({group["scale"] for group in groups}) == [0.25, 0.5]


def test_wrong_use_is_refused():
    model = SMALL.build(30)
    with pytest.raises(ValueError, match="no linear layer 'query'; there is narrow, output, project_keys"):
        add_lora(model, LoraConfig(layers=("query",)))
    add_lora(model, LoraConfig())
    with pytest.raises(ValueError, match="adapted already"):
        add_lora(model, LoraConfig())
    for wrong in ({"rank": 0}, {"alpha": 0.0}, {"layers": ()}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            dataclasses.replace(LoraConfig(), **wrong)
