"""Models from images to text: the paper's formula, exact gradients of hard attention, looking at the right place."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import sightline.decoding.search
from caption_models import MODELS, PLACES, SMALL, WORDS, captions
from sightline import kernels
from sightline.config import ConfigError, kinds
from sightline.decoding.search import Rules, beam_search
from sightline.kernels.transformer_search import OneTokenDecoder
from sightline.models.image_to_text import ImageToTextConfig, Places, grid_sinusoids
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.show_attend_tell import ShowAttendTellConfig, soft, unevenness
from sightline.models.text_to_text import TextToText
from sightline.models.writer import Writer
from sightline.nn.decoder import DecoderShape, RecurrentAttentionDecoder
from sightline.nn.rnn import Cell
from sightline.vocabulary import END, PADDING, START

RECURRENT = [name for name in MODELS if not name.startswith("transformer")]


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param].build(PLACES, WORDS).double().eval()


def test_one_word_at_a_time_equals_all_at_once_and_company_changes_nothing(model):
    source, target = captions()
    whole = torch.log_softmax(model.logits(source, target), dim=-1)
    state = model.begin(source)
    for i in range(target.shape[1]):
        log_probs, state = model.step(target[:, i], state)
        torch.testing.assert_close(log_probs, whole[:, i], atol=1e-10, rtol=0)
    for i, length in enumerate((3, 4, 1)):
        alone = torch.log_softmax(model.logits(source[i : i + 1], target[i : i + 1, : length + 2]), dim=-1)
        torch.testing.assert_close(whole[i, : length + 2], alone[0], atol=1e-10, rtol=0)
    assert not torch.allclose(whole[0, 0], whole[1, 0]), "the image says something before the first word"


def test_search_drives_every_model(model):
    source, _ = captions((1,) * 2)
    rules = Rules(START, END, max_length=5, forbidden=(PADDING,))
    with torch.no_grad():
        step, state = model.searching(source)
        whole = beam_search(step, state, 2, rules, beam=3)
        plain = beam_search(model.step, model.begin(source), 2, rules, beam=3)
        for i in range(2):
            assert whole[i][0].tokens == plain[i][0].tokens
            assert whole[i][0].score == pytest.approx(plain[i][0].score, abs=1e-9)
            (alone,) = beam_search(model.step, model.begin(source[i : i + 1]), 1, rules, beam=3)
            assert whole[i][0].tokens == alone[0].tokens


def test_the_loss_in_evaluation_is_cross_entropy_alone(model):
    source, target = captions()
    found = model.loss(source, target)
    logits = model.logits(source, target[:, :-1])
    expected = nn.functional.cross_entropy(
        logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PADDING, reduction="sum"
    )
    torch.testing.assert_close(found.total, expected)
    assert found.tokens == 3 + 4 + 1 + 3


def test_every_parameter_learns_and_gradients_are_finite(model):
    source, target = captions()
    model.train().loss(source, target, 0.1).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # Keys' biases move all scores alike: they alone may have no gradient to speak of.
        assert parameter.grad.abs().max() > 0 or name.endswith("bias"), name


def test_one_decoder_and_one_search_serve_translators_and_captioners():
    """The proof of the design: places instead of words, and not one class more."""
    translator = RNNSearchConfig(12, 12).build(WORDS, WORDS)
    for name in RECURRENT:
        captioner = MODELS[name].build(PLACES, WORDS)
        assert type(captioner.decoder) is type(translator.decoder) is RecurrentAttentionDecoder
        assert type(captioner).step is type(translator).step is Writer.step
        assert type(captioner).searching is Writer.searching  # translators, which may copy, begin with the same
    assert issubclass(TextToText, Writer)
    assert beam_search is sightline.decoding.search.beam_search
    assert isinstance(translator.step, sightline.decoding.search.Step)
    step, _ = MODELS["transformer"].build(PLACES, WORDS).eval().searching(torch.randn(2, 6, 6))
    assert type(step) is OneTokenDecoder or not kernels.enabled()


def test_configs_survive_json():
    assert kinds("image_to_text") == ["show_attend_tell", "transformer"]
    for config in MODELS.values():
        assert ImageToTextConfig.loads(config.dumps()) == config
    for wrong, message in {
        '{"kind": "show_attend_tell", "penalty": -1}': "penalty is -1.0; it must be at least 0",
        '{"kind": "show_attend_tell", "annotation_size": 0}': "annotation_size is 0",
        '{"kind": "show_attend_tell", "decay": 1}': "decay is 1.0",
        '{"kind": "transformer", "size": 10}': "size is 10; 4 must divide it",
    }.items():
        with pytest.raises(ConfigError, match=message):
            ImageToTextConfig.loads(wrong)


def array(parameter):
    return parameter.detach().numpy()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


@pytest.mark.parametrize("name", ["soft", "hard"])
def test_show_attend_tell_is_the_paper_s_formula(name):
    """In plain NumPy: f_init, the score with h_{t−1}, the gate, the LSTM, the deep output with h_t; and the penalty."""
    model = ShowAttendTellConfig(**SMALL, attention=MODELS[name].attention, normalised=False).build(PLACES, WORDS)
    model = model.double().eval()
    source, target = captions((5,))
    words = target[:, :-1]
    found = model.logits(source, words)[0].detach().numpy()
    a, size, decoder = source[0].numpy(), 8, model.decoder
    score, cell = decoder.attention.score, decoder.cells[0]
    start = np.tanh(array(model.start.weight) @ a.mean(axis=0) + array(model.start.bias))
    h, c = start[:size], start[size:]
    summed, log_likelihood = np.zeros(len(a)), 0.0
    for t, word in enumerate(model.target_embedding(words)[0].detach().numpy()):
        query = h @ array(score.query.weight) + array(score.query.bias)[0]
        e = np.array([array(score.vector) @ np.tanh(query + a_i @ array(score.key.weight)) for a_i in a])
        alpha = softmax(e) if name == "soft" else np.eye(len(a))[e.argmax()]
        beta = sigmoid(array(decoder.gate.weight)[0] @ h + array(decoder.gate.bias)[0])
        z = beta * sum(weight * a_i for weight, a_i in zip(alpha, a, strict=True))
        gates = array(cell.input.weight) @ word + array(cell.input.bias) + array(decoder.inner_input.weight) @ z
        gates = gates + array(cell.recurrent.weight) @ h + array(cell.recurrent.bias)
        i, f, g, o = gates.reshape(4, size)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        written = array(decoder.write.weight)
        l_h, l_z = written[:, :size], written[:, size:]
        logits = array(model.output.weight) @ (word + l_h @ h + l_z @ z + array(decoder.write.bias))
        np.testing.assert_allclose(found[t], logits + array(model.output.bias), atol=1e-10)
        summed += alpha
        log_likelihood += np.log(softmax(logits + array(model.output.bias)))[target[0, t + 1]]
    if name == "soft":
        expected = -log_likelihood + ((1 - summed) ** 2).sum()
        assert model.train().loss(source, target).total.item() == pytest.approx(expected, abs=1e-9)


def test_the_penalty_counts_real_words_only_and_no_caption_pays_for_another():
    weights = torch.softmax(torch.randn(3, 7, 6, dtype=torch.float64), dim=-1)
    real = torch.arange(7) < torch.tensor([[5], [7], [2]])
    expected = sum((1 - weights[i, :n].sum(dim=0)).square().sum().item() for i, n in enumerate((5, 7, 2)))
    assert unevenness(weights, real).item() == pytest.approx(expected)
    assert unevenness(weights.unsqueeze(1).expand(3, 4, 7, 6), real).item() == pytest.approx(4 * expected)
    evenly = torch.full((1, 6, 6), 1 / 6)
    assert unevenness(evenly, torch.ones(1, 6, dtype=torch.bool)).item() == pytest.approx(0, abs=1e-9)


class Pixels(nn.Module):
    """The least of an encoder: a place is a pixel."""

    annotation_size = 3

    def __init__(self):
        super().__init__()
        self.tone = nn.Linear(3, 3)

    def forward(self, pixels):
        return self.tone(pixels.flatten(1, 2) / 255)


def test_an_encoder_that_learns_is_a_part_of_the_model():
    encoder = Pixels()
    model = ShowAttendTellConfig(**SMALL).build(Places(3, 2, 3), WORDS, encoder)
    pixels = torch.randint(256, (2, 2, 3, 3), dtype=torch.uint8)
    target = torch.tensor([[START, 5, END], [START, 6, END]])
    model.loss(pixels, target).total.backward()
    assert encoder.tone.weight.grad.abs().sum() > 0
    assert "encoder.tone.weight" in model.state_dict()
    with pytest.raises(ValueError, match="encoder gives 3 features for a place; the model expects 6"):
        ShowAttendTellConfig(**SMALL).build(PLACES, WORDS, encoder)
    with pytest.raises(ValueError, match=r"shape \(2, 5, 6\); expected 6 of 6 features .* 2 rows by 3 columns"):
        ShowAttendTellConfig(**SMALL).build(PLACES, WORDS).begin(torch.randn(2, 5, 6))


def test_features_kept_in_half_precision_are_read():
    source, target = captions()
    model = MODELS["soft"].build(PLACES, WORDS).eval()
    found = model.logits(source.half(), target)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, model.logits(source.float(), target), atol=2e-2, rtol=0)


def test_positions_tell_row_and_column():
    found = grid_sinusoids(2, 3, 8, torch.empty(0, dtype=torch.float64))
    assert found.shape == (6, 8)
    for place in range(6):
        row, column = divmod(place, 3)
        for half, position in ((0, row), (4, column)):
            angles = [position, position / 100]
            expected = [*map(math.sin, angles), *map(math.cos, angles)]
            torch.testing.assert_close(found[place, half : half + 4].tolist(), expected)
    with pytest.raises(ValueError, match="a size that 4 divides, found 6"):
        grid_sinusoids(2, 3, 6, torch.empty(0))


@pytest.mark.parametrize("feeds", [True, False])
def test_a_decoder_that_looks_afterwards_gives_its_reads_too(feeds):
    """Whatever papers a decoder is put together from, losses see every look."""
    shape = DecoderShape(5, 6, 4, attention=soft(3), feeds_input=feeds, gates_context=True)
    decoder = RecurrentAttentionDecoder(shape).double()
    words, places = torch.randn(2, 3, 5, dtype=torch.float64), torch.randn(2, 6, 6, dtype=torch.float64)
    reads = []
    state = decoder.begin(torch.zeros(1, 2, 4, dtype=torch.float64), places, None)
    features, _ = decoder(words, state, reads)
    weights = torch.cat([read.weights for read in reads], dim=-2)
    assert weights.shape == (2, 3, 6)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
    nn.init.constant_(decoder.gate.bias, -50.0)  # a closed gate: the places no longer matter
    closed, _ = decoder(words, decoder.begin(torch.zeros(1, 2, 4, dtype=torch.float64), places, None))
    empty, _ = decoder(words, decoder.begin(torch.zeros(1, 2, 4, dtype=torch.float64), 0 * places, None))
    torch.testing.assert_close(closed, empty, atol=1e-12, rtol=0)
    assert not torch.allclose(features, closed)


def test_a_cell_starts_from_the_memory_it_is_given():
    hidden, memory = torch.randn(2, 4), torch.randn(2, 4)
    assert Cell("lstm", 3, 4).begin(hidden, memory)[1] is memory
    assert (Cell("lstm", 3, 4).begin(hidden)[1] == 0).all()
    assert len(Cell("gru", 3, 4).begin(hidden, memory)) == 1
