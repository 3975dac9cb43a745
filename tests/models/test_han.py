"""The hierarchical attention network against the paper's formulas, and against a plain padded one."""

import numpy as np
import pytest
import torch
from torch import nn

from sightline import capture
from sightline.attention import AttentionConfig
from sightline.attention.pooling import PoolingConfig
from sightline.models import han as han_module
from sightline.models.han import HANConfig
from sightline.models.heads import OneLabel
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.vocabulary import END, PADDING, Specials

WORDS, SIZE = 30, 8
DOCUMENTS = [
    [[5, 6, 7], [8, 9], [10, 11, 12, 13, 14, 15, 16]],
    [[4]],
    [],
    [[20, 21], [22], [23, 24, 25, 26], [27, 28, 29]],
]


def small(**changes):
    config = HANConfig(embedding_size=6, size=SIZE, dropout=0.0, word_dropout=0.0, **changes)
    return config.build(WORDS).double().eval()


def flat(documents, end=END, padding=PADDING, wider=0):
    """As a model is given them: sentences with an END each, padded behind."""
    rows = [[word for sentence in document for word in [*sentence, end]] for document in documents]
    found = torch.full((len(rows), max(map(len, rows)) + wider), padding)
    for i, row in enumerate(rows):
        found[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return Texts(found)


class PlainHAN(nn.Module):
    """The same network over a padded cube of documents × sentences × words, with torch's own GRU."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def level(self, encoder, pooling, x, mask):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, mask.sum(dim=-1).clamp(min=1), batch_first=True, enforce_sorted=False
        )
        output, _ = encoder.layers[0](packed)
        h, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
        score = pooling.inner.score
        u = torch.tanh(h @ score.key.weight + pooling.query @ score.query.weight + score.query.bias)
        weights = (u @ score.vector).masked_fill(~mask, -torch.inf).softmax(dim=-1)
        weights = torch.where(mask.any(dim=-1, keepdim=True), weights, 0.0)
        return (weights.unsqueeze(-1) * h).sum(dim=-2), weights

    def forward(self, documents):
        model = self.model
        n, t = max(map(len, documents)), max(len(s) for document in documents for s in document)
        cube = torch.full((len(documents), n, t), PADDING)
        for i, document in enumerate(documents):
            for j, sentence in enumerate(document):
                cube[i, j, : len(sentence)] = torch.tensor(sentence)
        mask = cube != PADDING
        words = model.embedding(cube).flatten(0, 1)
        sentences, alpha = self.level(model.word_encoder, model.words, words, mask.flatten(0, 1))
        real = mask.any(dim=-1)
        sentences = sentences.unflatten(0, real.shape)
        read, beta = self.level(model.sentence_encoder, model.sentences, sentences, real)
        return read, alpha.unflatten(0, real.shape), beta


@pytest.fixture(params=["gru", "lstm"])
def model(request):
    return small(cell=request.param)


def test_equal_to_a_plain_padded_one(model, monkeypatch):
    monkeypatch.setattr(han_module, "SMALL", 1)  # several groups, even of so few words
    texts = flat(DOCUMENTS)
    expected, alpha, beta = PlainHAN(model)(DOCUMENTS)
    torch.testing.assert_close(model.features(texts), expected, atol=1e-10, rtol=0)
    words, sentences, numbers = model.weights(texts)
    torch.testing.assert_close(sentences, beta, atol=1e-10, rtol=0)
    for i, document in enumerate(DOCUMENTS):
        place = 0
        for j, sentence in enumerate(document):
            here = slice(place, place + len(sentence))
            torch.testing.assert_close(words[i, here], alpha[i, j, : len(sentence)], atol=1e-10, rtol=0)
            assert numbers[i, place : place + len(sentence) + 1].tolist() == [j] * (len(sentence) + 1)
            assert words[i, here.stop] == 0
            place += len(sentence) + 1
        assert (numbers[i, place:] == -1).all()
        assert (words[i, place:] == 0).all()


def test_gradients_are_those_of_the_plain_one(model):
    wanted = torch.randn(4, SIZE, dtype=torch.float64)
    gradients = []
    for found in (model.features(flat(DOCUMENTS)), PlainHAN(model)(DOCUMENTS)[0]):
        model.zero_grad()
        ((found - wanted) ** 2).sum().backward()
        gradients.append({name: one.grad.clone() for name, one in model.named_parameters()})
    for name in gradients[0]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], atol=1e-9, rtol=0, msg=name)


def numpy_gru(layer, x, way):
    """Cho et al. 2014 in torch's form, one direction."""
    w_in, w_own, b_in, b_own = (
        getattr(layer, f"{part}_l0{way}").detach().numpy() for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h = np.zeros(w_own.shape[1])
    found = []
    for word in x if not way else x[::-1]:
        given, own = np.split(w_in @ word + b_in, 3), np.split(w_own @ h + b_own, 3)
        r, z = 1 / (1 + np.exp(-given[0] - own[0])), 1 / (1 + np.exp(-given[1] - own[1]))
        h = (1 - z) * np.tanh(given[2] + r * own[2]) + z * h
        found.append(h)
    return np.array(found if not way else found[::-1])


def numpy_level(encoder, pooling, x):
    h = np.concatenate([numpy_gru(encoder.layers[0], x, way) for way in ("", "_reverse")], axis=-1)
    score = {name: one.detach().numpy() for name, one in pooling.inner.score.named_parameters()}
    b = (pooling.query.detach().numpy() @ score["query.weight"] + score["query.bias"])[0]
    weights = np.exp(np.tanh(h @ score["key.weight"] + b) @ score["vector"])
    return (weights / weights.sum()) @ h


def test_the_formulas_of_the_paper():
    model = small()
    document = DOCUMENTS[0]
    table = model.embedding.weight.detach().numpy() * np.sqrt(6)
    sentences = np.stack([numpy_level(model.word_encoder, model.words, table[sentence]) for sentence in document])
    expected = numpy_level(model.sentence_encoder, model.sentences, sentences)
    np.testing.assert_allclose(model.features(flat([document])).detach().numpy()[0], expected, atol=1e-12)


def test_padding_and_company_change_nothing(model):
    whole = model.features(flat(DOCUMENTS))
    for i, document in enumerate(DOCUMENTS):
        torch.testing.assert_close(model.features(flat([document], wider=3))[0], whole[i], atol=1e-12, rtol=0)
    assert (whole[2] == 0).all()


def test_empty_sentences_do_not_exist_and_a_lost_end_is_forgiven():
    model = small()
    plain = model.features(Texts(torch.tensor([[5, 6, END, 7, END]])))
    odd = model.features(Texts(torch.tensor([[END, 5, 6, END, END, 7]])))
    torch.testing.assert_close(odd, plain, atol=1e-12, rtol=0)
    _, _, numbers = model.weights(Texts(torch.tensor([[END, 5, 6, END, END, 7]])))
    # An END belongs to the sentence before it; one with nothing before it to none.
    assert numbers.tolist() == [[-1, 0, 0, 0, -1, 1]]


def test_documents_without_any_end_stay_apart():
    model = small()
    both = model.features(Texts(torch.tensor([[5, 6, 7], [8, 9, 10]])))
    for words, found in zip(([5, 6, 7], [8, 9, 10]), both, strict=True):
        torch.testing.assert_close(model.features(flat([[words]]))[0], found, atol=1e-12, rtol=0)


def test_nothing_at_all():
    model = small()
    for words in (torch.zeros(2, 0, dtype=torch.long), torch.full((2, 3), PADDING), torch.full((1, 2), END)):
        found = model.features(Texts(words))
        assert found.shape == (len(words), SIZE)
        assert (found == 0).all()
        weights = model.weights(Texts(words))
        assert weights[0].shape == words.shape
        assert (weights[2] == -1).all()


def test_long_sentences_are_cut_into_parts():
    model = small(max_length=3)
    parts = [[5, 6, 7], [8, 9, 10], [11]]
    torch.testing.assert_close(
        model.features(flat([[[5, 6, 7, 8, 9, 10, 11]], [[5, 6, 7]]])),
        model.features(flat([parts, [[5, 6, 7]]])),
        atol=1e-12,
        rtol=0,
    )
    assert model.weights(flat([[[5, 6, 7, 8]]]))[2].tolist() == [[0, 0, 0, 1, 1]]


def test_other_peoples_ids():
    """A vocabulary of a Hugging Face folder has its padding and its end elsewhere."""
    model = small()
    other = HANConfig(embedding_size=6, size=SIZE, dropout=0.0).build(WORDS, Specials(1, 2, 4, 0)).double().eval()
    state = model.state_dict()
    with torch.no_grad():
        other.load_state_dict(state)
    ours = model.features(flat([[[5, 6], [7]], [[8]]]))
    torch.testing.assert_close(other.features(flat([[[5, 6], [7]], [[8]]], end=0, padding=1)), ours)


def test_captured_weights_go_back_to_their_places(monkeypatch):
    monkeypatch.setattr(han_module, "SMALL", 1)
    model = small()
    texts = flat(DOCUMENTS)
    words, sentences, _ = model.weights(texts)
    with capture(model) as trace, torch.no_grad():
        model.features(texts)
    assert trace.names == ["words", "sentences"]
    torch.testing.assert_close(trace["sentences"].weights[:, 0, 0], sentences)
    cut = model.cut(texts)
    maps = [one for one in trace.maps if one.name == "words"]
    groups = list(cut.groups())
    assert len(maps) == len(groups) > 1
    back = torch.zeros(texts.words.numel(), dtype=torch.float64)
    for one, (_, places, here) in zip(maps, groups, strict=True):
        back[cut.places[places[here]]] = one.weights[:, 0, 0][here]
    torch.testing.assert_close(back.view(texts.words.shape), words)


def test_any_pooling_fits():
    pooling = PoolingConfig(2, AttentionConfig.from_json({"kind": "multi_head", "heads": 2, "inner": "scaled_dot"}))
    config = HANConfig(6, SIZE, word_pooling=pooling, sentence_pooling=pooling)
    assert TextModelConfig.loads(config.dumps()) == config
    model = config.build(WORDS).eval()
    assert model.features(flat(DOCUMENTS)).shape == (4, model.feature_size)
    words, sentences, _ = model.weights(flat(DOCUMENTS))
    torch.testing.assert_close(words.sum(dim=-1), torch.tensor([3.0, 1.0, 0.0, 4.0]))
    torch.testing.assert_close(sentences.sum(dim=-1), torch.tensor([1.0, 1.0, 0.0, 1.0]))


def test_groups_hold_every_sentence_once_and_little_padding(monkeypatch):
    monkeypatch.setattr(han_module, "SMALL", 64)
    monkeypatch.setattr(han_module, "LARGE", 512)
    model = small()
    texts = flat([[list(range(4, 4 + n % 23 + 1)) for n in range(200)] for _ in range(3)])
    cut = model.cut(texts)
    seen, padded = [], 0
    for rows, places, here in cut.groups():
        assert here.sum(dim=-1).tolist() == cut.lengths[rows].tolist()
        assert here.numel() <= 512
        seen.extend(places[here].tolist())
        padded += here.numel()
    assert sorted(seen) == list(range(len(cut.places)))
    assert padded < 1.4 * len(seen)


def test_a_long_document_keeps_to_linear_memory():
    """50,000 words, most of the sentences short and one very long: what is held at once is bounded."""
    model = HANConfig(4, 4).build(50).eval()
    words = torch.randint(4, 50, (1, 50_000))
    words[0, 5_000::20] = END
    cut = model.cut(Texts(words))
    assert max(here.numel() for _, _, here in cut.groups()) <= han_module.LARGE
    assert sum(here.numel() for _, _, here in cut.groups()) < 1.2 * 50_000
    with torch.no_grad():
        assert torch.isfinite(model.features(Texts(words))).all()


def test_it_learns_which_sentence_matters():
    """The label is that of the sentence which begins with word 4; all others hold words of both labels."""
    torch.manual_seed(1)
    documents, labels = [], []
    for i in range(64):
        sentences = [torch.randint(5, 20, (int(n),)).tolist() for n in torch.randint(2, 6, (4,))]
        sentences[int(torch.randint(0, 4, ()))] = [4, 20 + i % 2, int(torch.randint(5, 20, ()))]
        sentences.append([21 - i % 2, 6])
        documents.append(sentences)
        labels.append(i % 2)
    texts, gold = flat(documents), torch.tensor(labels)
    model = OneLabel(HANConfig(16, 16, dropout=0.1, word_dropout=0.0).build(WORDS), 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        loss = model.loss(texts, gold)
        (loss.total / loss.tokens).backward()
        optimiser.step()
    model.eval()
    assert (model.scores(texts).argmax(dim=-1) == gold).float().mean() > 0.95


def test_it_says_that_it_has_no_annotations():
    with pytest.raises(ValueError, match="han has no annotations"):
        small().annotate(flat(DOCUMENTS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"size": 7}, "even"), ({"max_length": 0}, "max_length is 0"), ({"embedding_size": 0}, "embedding_size is 0")],
)
def test_sizes_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        HANConfig(**changes)
