"""The encoder: its fast path against its layers, padding, pooling, learning, and what a translator takes from it."""

import dataclasses

import pytest
import torch
from torch import nn

from sightline import capture, kernels
from sightline.kernels.unpadded import Unpadded, _DroppedAttention, attend_unpadded
from sightline.models.encoder import EncoderConfig, start_translator, translator_tensors
from sightline.models.masked import MaskedWords
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.models.transformer import TransformerConfig
from sightline.nn.transformer import EncoderLayer, FeedForward, LayerShape
from sightline.training.groups import parameter_groups
from sightline.vocabulary import Specials

SMALL = EncoderConfig(size=16, heads=2, feed_forward=24, layers=2, dropout=0.0)
CONFIGS = {
    "pre": SMALL,
    "rotary": dataclasses.replace(SMALL, positions="rotary", norm="post", activation="silu"),
    "bert": dataclasses.replace(
        SMALL,
        positions="learned",
        max_length=12,
        norm="post",
        parts=2,
        embedding_norm=True,
        scaled=False,
        pooling="first",
        pooler=True,
    ),
    "mean": dataclasses.replace(SMALL, pooling="mean", activation="gelu_tanh"),
}
LENGTHS = (9, 3, 9, 0, 5)


def batch(padding=0, parts=False):
    words = torch.randint(8, 50, (len(LENGTHS), 9))
    for row, length in enumerate(LENGTHS):
        words[row, length:] = padding
    return Texts(words, (torch.arange(9) > 2).long().expand_as(words) if parts else None)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("padding", [0, 7])
def test_without_padding_equals_the_layers_with_it(name, padding):
    """Values and gradients; under `capture` the layers themselves run."""
    model = CONFIGS[name].build(50, Specials(padding=padding)).double()
    texts = batch(padding, parts=name == "bert")
    with capture(model) as trace:
        slow, slow_features = model.annotate(texts), model.features(texts)
    fast, features = model.annotate(texts), model.features(texts)
    assert trace.maps[0].weights.shape == (5, 2, 9, 9)
    torch.testing.assert_close(fast, slow, atol=1e-12, rtol=0)
    torch.testing.assert_close(features, slow_features, atol=1e-12, rtol=0)
    assert (fast[1, 3:] == 0).all()
    parameters = list(model.parameters())
    found = torch.autograd.grad(fast.cos().sum() + features.sin().sum(), parameters)
    expected = torch.autograd.grad(slow.cos().sum() + slow_features.sin().sum(), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_text_is_read_alike_alone_and_in_a_batch(name):
    model = CONFIGS[name].build(50).double().eval()
    texts = batch(parts=name == "bert")
    features = model.features(texts)
    for row, length in enumerate(LENGTHS):
        if length:
            alone = Texts(*(None if part is None else part[row : row + 1, :length] for part in texts))
            torch.testing.assert_close(model.features(alone)[0], features[row], atol=1e-12, rtol=0)


@pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")
def test_the_first_token_s_short_cut_is_taken_and_reads_everything(monkeypatch):
    model = CONFIGS["bert"].build(50).double().eval()
    seen, forward = [], FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda module, x: seen.append(len(x)) or forward(module, x))
    texts = batch()
    before = model.features(texts)
    assert seen[1:] == [4], "one row for each text that has a token"
    texts.words[0, 8] = 4 + (texts.words[0, 8] - 3) % 40
    after = model.features(texts)
    assert not torch.allclose(before[0], after[0])
    torch.testing.assert_close(before[1:], after[1:])


def test_order_and_parts_matter_and_too_long_is_an_error():
    model = CONFIGS["bert"].build(50).eval()
    words = torch.tensor([[2, 5, 6, 3]])
    swapped, parts = torch.tensor([[2, 6, 5, 3]]), torch.tensor([[0, 0, 1, 1]])
    assert not torch.allclose(model.features(Texts(words)), model.features(Texts(swapped)))
    assert not torch.allclose(model.features(Texts(words)), model.features(Texts(words, parts)))
    with pytest.raises(ValueError, match="13 tokens; this encoder has positions for 12"):
        model.features(Texts(torch.full((1, 13), 5)))
    one_part = dataclasses.replace(CONFIGS["bert"], parts=1).build(50).eval()
    torch.testing.assert_close(one_part.features(Texts(words)), one_part.features(Texts(words, parts)))


def test_dropped_attention_has_the_gradient_of_its_formula():
    given = [torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    bias = torch.randn(5, 5, dtype=torch.float64)

    def same_mask(*tensors):
        torch.manual_seed(5)
        return _DroppedAttention.apply(*tensors, bias, 0.4)

    assert torch.autograd.gradcheck(same_mask, given)
    query, key, value = given
    whole = torch.softmax(query @ key.transpose(-2, -1) + bias, dim=-1) @ value
    several = torch.stack([_DroppedAttention.apply(*given, bias, 0.4) for _ in range(200)])
    assert not torch.allclose(several[0], several[1])
    torch.testing.assert_close(several.mean(dim=0), whole, atol=0.4, rtol=0)


def test_attention_dropout_is_for_training_only():
    layer = EncoderLayer(LayerShape(16, 2, 24, dropout=0.0, attention_dropout=0.5))
    assert set(layer.state_dict()) == set(EncoderLayer(LayerShape(16, 2, 24)).state_dict())
    model = dataclasses.replace(SMALL, attention_dropout=0.5).build(50)
    texts = batch()
    assert not torch.allclose(model.annotate(texts), model.annotate(texts))
    model.eval()
    assert torch.equal(model.annotate(texts), model.annotate(texts))


def test_attention_without_padding_equals_torch():
    ours = LayerShape(12, 3, 8).attention(positions=True).double()
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    with torch.no_grad():
        projections = (ours.project_query, ours.project_keys, ours.project_values)
        theirs.in_proj_weight.copy_(torch.cat([one.weight for one in projections]))
        theirs.in_proj_bias.copy_(torch.cat([one.bias for one in projections]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    x, real = torch.randn(3, 6, 12, dtype=torch.float64), torch.arange(6) < torch.tensor([[4], [6], [4]])
    unpadded = Unpadded.of(real)
    assert unpadded.runs == ((2, 4), (1, 6))
    found = unpadded.spread(attend_unpadded(ours, unpadded.take(x), unpadded))
    expected, _ = theirs(x, x, x, key_padding_mask=~real)
    torch.testing.assert_close(found[real], expected[real], atol=1e-12, rtol=0)


def test_a_batch_of_nothing():
    model = SMALL.build(50)
    assert model.annotate(Texts(torch.zeros(2, 3, dtype=torch.long))).shape == (2, 3, 16)
    assert (model.features(Texts(torch.zeros(2, 3, dtype=torch.long))) == 0).all()


def test_configurations_survive_json_and_wrong_ones_are_refused():
    for config in CONFIGS.values():
        assert TextModelConfig.from_json(config.to_json()) == config
    wrong = [
        ({"size": 15}, "does not divide into 2 heads"),
        ({"layers": 0}, "layers is 0"),
        ({"parts": -1}, "parts is -1"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"size": 6, "positions": "rotary"}, "rotary positions need heads of an even size"),
        ({"epsilon": 0.0}, "epsilon is 0"),
    ]
    for change, message in wrong:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(SMALL, **change)


def test_it_learns_a_label_that_no_bag_of_words_can_say():
    """Whether two words are the same one, where every word is as likely with either label."""
    torch.manual_seed(1)
    model = dataclasses.replace(SMALL, size=32, layers=1, pooling="first").build(8)
    output = nn.Linear(32, 2)
    pairs = torch.cartesian_prod(torch.arange(4, 8), torch.arange(4, 8))
    words = torch.cat([torch.full((16, 1), 2), pairs], dim=1)
    labels = (pairs[:, 0] == pairs[:, 1]).long()
    optimiser = torch.optim.AdamW([*model.parameters(), *output.parameters()], lr=1e-2)
    for _ in range(40):
        loss = nn.functional.cross_entropy(output(model.features(Texts(words))), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1


def test_a_translator_begins_with_an_encoder_s_tensors():
    config = dataclasses.replace(SMALL, activation="relu")
    encoder = config.build(30)
    translator = TransformerConfig(16, 2, 24, 2, 1, 0.0).build(30, 30)
    names = start_translator(translator, encoder)
    state = translator.state_dict()
    source = translator_tensors(encoder)
    expected = {name for name in state if name.startswith(("encoder.", "encoder_norm.", "source_embedding."))}
    assert set(names) == set(source) == expected
    for name in names:
        assert torch.equal(state[name], source[name]), name
    assert torch.equal(state["target_embedding.weight"], encoder.embedding.weight), "the sides share one table"
    words = torch.randint(4, 30, (2, 5))
    memory = translator.eval().begin(words).layers[0].source
    expected_memory = translator.decoder[0].cross.remember(encoder.eval().annotate(Texts(words)))
    torch.testing.assert_close(memory.keys, expected_memory.keys)
    with pytest.raises(ValueError, match="the encoder's words is 31, the translator needs 30"):
        start_translator(translator, config.build(31))
    with pytest.raises(ValueError, match="the encoder's activation is gelu"):
        start_translator(translator, SMALL.build(30))


def test_layers_further_down_learn_more_slowly():
    model = MaskedWords(CONFIGS["bert"].build(50))
    scale_of = {
        id(parameter): (group["scale"], group["weight_decay"])
        for group in parameter_groups(model, 0.1, 0.5)
        for parameter in group["params"]
    }
    named = dict(model.named_parameters())
    assert len(scale_of) == len(named)
    assert scale_of[id(named["transform.weight"])] == (1.0, 0.1)
    assert scale_of[id(named["encoder.pooler.weight"])] == (1.0, 0.1)
    assert scale_of[id(named["encoder.layers.1.feed_forward.widen.weight"])] == (0.5, 0.1)
    assert scale_of[id(named["encoder.layers.0.feed_forward.widen.bias"])] == (0.25, 0.0)
    assert scale_of[id(named["encoder.embedding.weight"])] == (0.125, 0.1)
    assert scale_of[id(named["encoder.embedding_norm.bias"])] == (0.125, 0.0)
    for one in model.encoder.parameters():
        one.requires_grad_(False)
    kept = [one for group in parameter_groups(model, 0.1, 0.5) for one in group["params"]]
    assert len(kept) == 5
    assert not {id(one) for one in kept} & {id(one) for one in model.encoder.parameters()}
    with pytest.raises(ValueError, match="layer_decay is 0"):
        parameter_groups(model, 0.0, 0.0)


def test_without_a_decay_the_groups_are_those_of_earlier_checkpoints():
    model = SMALL.build(50)
    groups = parameter_groups(model, 0.1)
    assert [group["scale"] for group in groups] == [1.0, 1.0]
    assert [id(one) for one in groups[0]["params"]] == [id(one) for one in model.parameters() if one.dim() > 1]
    assert [id(one) for one in groups[1]["params"]] == [id(one) for one in model.parameters() if one.dim() <= 1]


def test_a_model_may_give_its_own_groups():
    class Own(nn.Linear):
        def parameter_groups(self):
            return [{"params": [self.weight], "scale": 0.1}, {"params": [self.bias]}]

    groups = parameter_groups(Own(2, 2), 0.3)
    assert [(group["scale"], group["weight_decay"]) for group in groups] == [(0.1, 0.3), (1.0, 0.0)]
