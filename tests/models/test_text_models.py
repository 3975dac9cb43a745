"""Models that read a text with attention: their laws, their parts against torch's own, and a toy soon learned."""

import pytest
import torch
from torch import nn

from sightline import capture
from sightline.attention import AttentionConfig
from sightline.attention.pooling import PoolingConfig
from sightline.models.attentive import AttentiveConfig
from sightline.models.heads import OneLabel, TagEach
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.nn.annotating import AnnotationShape, Convolution, WordDropout
from sightline.nn.rnn import BidirectionalEncoder
from sightline.vocabulary import END, OURS, PADDING, START, UNKNOWN, Specials

WORDS = 20
SMALL = {"embedding_size": 12, "size": 12, "dropout": 0.0, "word_dropout": 0.0}
MULTI_HEAD = AttentionConfig.from_json({"kind": "multi_head", "heads": 2, "inner": "additive"})
SPARSE = AttentionConfig.from_json({"kind": "composed", "score": "scaled_dot", "normaliser": "sparsemax"})
MODELS = {
    "gru": AttentiveConfig(**SMALL),
    "lstm, two layers, largest": AttentiveConfig(**SMALL, annotations="lstm", layers=2, largest=True),
    "gru, self-attention": AttentiveConfig(**SMALL, self_attention=2),
    "cnn": AttentiveConfig(**SMALL, annotations="cnn", widths=(1, 2, 3, 4, 5)),
    "cnn, two layers, self-attention": AttentiveConfig(**SMALL, annotations="cnn", layers=2, self_attention=3),
    "feed-forward, self-attention": AttentiveConfig(**SMALL, annotations="feed_forward", layers=2, self_attention=2),
    "embeddings": AttentiveConfig(**SMALL, annotations="embedding"),
    "embeddings, sparse, two queries": AttentiveConfig(
        **SMALL, annotations="embedding", largest=True, pooling=PoolingConfig(2, SPARSE)
    ),
    "gru, multi-head": AttentiveConfig(**SMALL, pooling=PoolingConfig(1, MULTI_HEAD)),
    "pairs": AttentiveConfig(**SMALL, pairs=True, largest=True),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param].build(WORDS).double().eval()


def batch(lengths=(5, 0, 2, 7), wider=0):
    """``START a… END`` each, but nothing at all for 0; the second half is the second part."""
    words = torch.full((len(lengths), max(lengths) + 2 + wider), PADDING)
    parts = torch.zeros_like(words)
    generator = torch.Generator().manual_seed(3)
    for i, n in enumerate(lengths):
        if n:
            row = [START, *torch.randint(4, WORDS, (n,), generator=generator).tolist(), END]
            words[i, : n + 2] = torch.tensor(row)
            parts[i, n // 2 + 1 : n + 2] = 1
    return Texts(words, parts)


def test_padding_and_company_change_nothing(model):
    lengths = (5, 0, 2, 7)
    texts = batch(lengths, wider=3)
    whole, annotations = model.features(texts), model.annotate(texts)
    assert whole.shape == (4, model.feature_size)
    assert annotations.shape == (*texts.words.shape, model.size)
    assert torch.isfinite(whole).all()
    assert torch.isfinite(annotations).all()
    for i, n in enumerate(lengths):
        length = n + 2 if n else 0
        alone = Texts(texts.words[i : i + 1, :length], texts.parts[i : i + 1, :length])
        torch.testing.assert_close(model.features(alone)[0], whole[i], atol=1e-10, rtol=0)
        torch.testing.assert_close(model.annotate(alone)[0], annotations[i, :length], atol=1e-10, rtol=0)
    assert not torch.allclose(whole[0], whole[2])


def test_gradients_reach_every_parameter_and_are_finite(model):
    model.features(batch()).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    assert (model.annotator.embedding.weight.grad[PADDING] == 0).all()


def test_weights_are_captured_and_see_no_padding(model):
    texts = batch()
    with capture(model) as trace, torch.no_grad():
        model.features(texts)
    weights = trace["pooling"].weights
    hidden = (texts.words == PADDING)[:, None, None].expand_as(weights)
    assert (weights[hidden] == 0).all()
    torch.testing.assert_close(weights[0].sum(dim=-1), torch.ones_like(weights[0, ..., 0]))


def test_configs_survive_json():
    for config in MODELS.values():
        assert TextModelConfig.loads(config.dumps()) == config
    assert type(TextModelConfig.from_json("attentive")) is AttentiveConfig


def test_the_formula_of_the_pooling():
    """α = softmax(tanh(W h + b) · u) over what torch's own GRU says."""
    model = MODELS["gru"].build(WORDS).double().eval()
    texts = batch((6,))
    h, _ = model.annotator.recurrent.layers[0](model.annotator.embedding(texts.words))
    score = model.pooling.inner.score
    u = torch.tanh(h @ score.key.weight + model.pooling.query @ score.query.weight + score.query.bias)
    expected = torch.softmax(u @ score.vector, dim=-1).unsqueeze(1) @ h
    torch.testing.assert_close(model.features(texts), expected[:, 0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("lengths", [(7, 4, 4, 1), (3, 3), (1,), (5, 1, 1)], ids=str)
def test_ragged_layers_are_torchs(kind, lengths):
    """Values and every gradient, over two layers."""
    encoder = BidirectionalEncoder(kind, 5, 4, layers=2).double()
    x = torch.randn(sum(lengths), 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(sum(lengths), 8, dtype=torch.float64)

    def by_torch():
        packed = nn.utils.rnn.pack_sequence(list(x.split(lengths)))
        for layer in encoder.layers:
            packed, _ = layer(packed)
        return torch.cat(nn.utils.rnn.unpack_sequence(packed))

    found = []
    for y in (encoder.annotate(x, torch.tensor(lengths)), by_torch()):
        encoder.zero_grad()
        x.grad = None
        y.backward(upstream)
        found.append([y.detach(), x.grad.clone(), *(one.grad.clone() for one in encoder.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_ragged_layers_without_gradients_and_in_parts(kind):
    """What is frozen gets no gradient, and prediction gives what training gives."""
    encoder = BidirectionalEncoder(kind, 5, 4)
    x, lengths = torch.randn(6, 5), torch.tensor([4, 2])
    trained = encoder.annotate(x, lengths)
    with torch.no_grad():
        torch.testing.assert_close(encoder.annotate(x, lengths), trained)
    for parameter in encoder.parameters():
        parameter.requires_grad_(False)
    x.requires_grad_(True)
    encoder.annotate(x, lengths).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is None for parameter in encoder.parameters())


def test_the_convolution_is_torchs():
    layer = Convolution(4, 7, (1, 3, 5)).double()
    assert [one.out_channels for one in layer.filters] == [3, 2, 2]
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    expected = [nn.functional.conv1d(x.transpose(1, 2), one.weight, one.bias, padding="same") for one in layer.filters]
    torch.testing.assert_close(layer(x, None), torch.cat(expected, dim=1).relu().transpose(1, 2))


def test_word_dropout():
    drop = WordDropout(0.25, OURS)
    words = torch.cat([torch.randint(4, WORDS, (100, 100)), torch.tensor([[PADDING, START, END]]).repeat(100, 1)], 1)
    dropped = drop(words)
    assert 0.22 < (dropped[:, :100] == UNKNOWN).double().mean() < 0.28
    kept = dropped != UNKNOWN
    assert (dropped[kept] == words[kept]).all()
    assert (dropped[:, 100:] == words[:, 100:]).all()
    assert drop.eval()(words) is words
    masked = WordDropout(0.9, Specials(mask=4)).train()(torch.full((1, 500), 4))
    assert (masked == 4).all()


def test_other_peoples_padding():
    ours, theirs = MODELS["gru"].build(WORDS).eval(), MODELS["gru"].build(WORDS, Specials(1, 3, 0, 2)).eval()
    theirs.load_state_dict(ours.state_dict())
    words = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(theirs.features(Texts(torch.tensor([[5, 6, 7, 1, 1]]))), ours.features(Texts(words)))


def test_pairs_are_told_apart():
    """A pair the other way round is another pair, and a model for pairs does not guess which text is which."""
    model = MODELS["pairs"].build(WORDS).eval()
    words = torch.tensor([[START, 5, 6, END, 7, 8, END]])
    parts = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    features = model.features(Texts(words, parts))
    first, second, apart, product = features.chunk(4, dim=-1)
    torch.testing.assert_close(apart, (first - second).abs())
    torch.testing.assert_close(product, first * second)
    assert not torch.allclose(first, second)
    with pytest.raises(ValueError, match="without parts"):
        model.features(Texts(words))


@pytest.mark.slow
def test_a_very_long_text_goes_through():
    """100,000 words, in all kinds whose time is not quadratic."""
    words = Texts(torch.randint(4, WORDS, (1, 100_000)))
    for kind in ("gru", "cnn", "embedding"):
        model = AttentiveConfig(kind, 4, 4, dropout=0.0).build(WORDS).eval()
        with torch.no_grad():
            assert torch.isfinite(model.features(words)).all()


@pytest.mark.parametrize(
    "name",
    ["gru", "lstm, two layers, largest", "cnn", "embeddings, sparse, two queries", "feed-forward, self-attention"],
)
def test_a_toy_is_soon_learned(name):
    """Whether word 4 stands in the text."""
    torch.manual_seed(2)
    words = torch.randint(5, WORDS, (48, 8))
    words[::2, 3] = 4
    words[::4] = words[::4].roll(2, dims=1)
    gold = (words == 4).any(dim=-1).long()
    model = OneLabel(MODELS[name].build(WORDS), 2)
    train(model, Texts(words), gold, steps=40)
    assert (model.scores(Texts(words)).argmax(dim=-1) == gold).all()


@pytest.mark.parametrize(("kind", "learns"), [("gru", True), ("cnn", True), ("embedding", False)])
def test_annotations_know_their_neighbours(kind, learns):
    """Each word's tag is the parity of the word two places before: embeddings alone cannot know it."""
    words = torch.randint(4, WORDS, (64, 10))
    gold = torch.full_like(words, -1)
    gold[:, 2:] = words[:, :-2] % 2
    model = TagEach(AttentiveConfig(kind, 24, 24, widths=(5,), dropout=0.0, word_dropout=0.0).build(WORDS), 2)
    train(model, Texts(words), gold, steps=60)
    right = (model.scores(Texts(words)).argmax(dim=-1) == gold)[:, 2:].float().mean()
    assert right > 0.98 if learns else right < 0.9


def train(model, texts, gold, steps):
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    for _ in range(steps):
        optimiser.zero_grad()
        loss = model.loss(texts, gold)
        (loss.total / loss.tokens).backward()
        optimiser.step()
    model.eval()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 7}, "even"),
        ({"kind": "cnn", "widths": ()}, "widths"),
        ({"kind": "cnn", "size": 2}, "3 widths"),
        ({"heads": 5}, "5 heads"),
        ({"word_dropout": 1.0}, "word_dropout is 1.0"),
        ({"layers": 0}, "layers is 0"),
    ],
)
def test_shapes_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        AnnotationShape(**{"kind": "gru", "embedding_size": 8, "size": 8, **changes})
