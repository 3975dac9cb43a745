"""Layers against PyTorch's own, and the laws of padding and seeds."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sightline import kernels
from sightline.kernels import loss as loss_module
from sightline.kernels.loss import LARGEST, chunk_rows, smoothed_cross_entropy
from sightline.kernels.maxout import maxout
from sightline.kernels.products import STEP, WORTH
from sightline.models.attentive import AttentiveConfig
from sightline.models.han import HANConfig
from sightline.nn.annotating import QUIET, TokenEmbedding, sinusoids
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import BidirectionalEncoder, Cell
from sightline.nn.rnn import _gru as gru_step


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    x = torch.ones(400, 1000)
    y = Dropout(rate)(x)
    assert (y == 0).float().mean().item() == pytest.approx(rate, abs=0.004)
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)
    assert y.unique().numel() == 2
    rows = (y == 0).float().mean(dim=1)
    assert rows.std().item() < 0.05, "no row is dropped as a whole"


def test_dropout_follows_the_seed_and_rests_in_evaluation():
    layer, x = Dropout(0.4), torch.randn(5, 7)
    torch.manual_seed(3)
    one, two = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), one)
    assert not torch.equal(one, two)
    assert layer.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(0.999)(torch.ones(10_000)).max() > 0
    assert Dropout(0.5)(torch.empty(0, 4)).shape == (0, 4)
    with pytest.raises(ValueError, match="dropout is 1"):
        Dropout(1.0)


def test_dropout_has_the_gradient_of_its_mask():
    x = torch.randn(50, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    y = Dropout(0.3)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x).detach())


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.999, 0.001])
def test_dropout_adds_what_it_leaves(rate):
    """With the masks of the seed, and in evaluation everything."""
    dropout, (x, y) = Dropout(rate), torch.randn(2, 5, 40, dtype=torch.float64)
    x.requires_grad_()
    y.requires_grad_()
    results = []
    for add in (dropout.add, lambda x, y: x + dropout(y)):
        torch.manual_seed(3)
        found = add(x, y)
        results.append([found, *torch.autograd.grad(found.cos().sum(), (x, y))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
    if rate != 0.001 or kernels.enabled():  # a kernel rounds it to nothing
        assert (results[0][2] == 0).any() == (rate in (0.3, 0.999))
    assert torch.equal(dropout.eval().add(x, y), x + y)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("chunk", [1, 40, 10**6])
def test_the_chunked_loss_equals_torch(monkeypatch, smoothing, biased, chunk):
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", chunk)
    features = torch.randn(13, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(11, dtype=torch.float64, requires_grad=True) if biased else None
    targets = torch.randint(11, (13,))
    found = smoothed_cross_entropy(features, weight, bias, targets, smoothing)
    expected = F.cross_entropy(F.linear(features, weight, bias), targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(found, expected)
    tensors = [features, weight, *([bias] if biased else [])]
    for one, other in zip(
        torch.autograd.grad(found / 3, tensors), torch.autograd.grad(expected / 3, tensors), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("times", [100.0, 1e4])
def test_the_loss_of_large_logits_equals_torch(times):
    """e to the power of them is no number in float32."""
    features, weight = (times * torch.randn(9, 6)).requires_grad_(), torch.randn(50, 6, requires_grad=True)
    targets = torch.randint(50, (9,))
    found = smoothed_cross_entropy(features, weight, None, targets, 0.1)
    expected = F.cross_entropy(features @ weight.t(), targets, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found, (features, weight)), torch.autograd.grad(expected, (features, weight)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * times)


@pytest.mark.parametrize("raised", [0.0, 30.0, 500.0])
@pytest.mark.parametrize("lowered", [0.0, -1000.0])
@pytest.mark.parametrize("many", [False, True])
def test_the_loss_of_logits_far_apart_equals_torch(raised, lowered, many):
    """Whether one number can be taken from all of them or not, and whichever way products go."""
    words = WORTH // 64 if many else 50
    features, weight = torch.randn(9, 64, requires_grad=True), torch.randn(words, 64).mul_(0.2).requires_grad_()
    bias = torch.full((words,), lowered)
    bias[3] += raised
    bias[5] -= raised
    bias.requires_grad_()
    targets = torch.tensor([3, 5, *torch.randint(50, (7,)).tolist()])
    found = smoothed_cross_entropy(features, weight, bias, targets, 0.1)
    expected = F.cross_entropy(F.linear(features, weight, bias), targets, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)
    tensors = (features, weight, bias)
    for one, other in zip(torch.autograd.grad(found, tensors), torch.autograd.grad(expected, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_the_loss_knows_how_far_it_may_shift():
    """Logits as large as the lengths of the vectors allow, and rows that are far below the largest."""
    along = torch.nn.functional.normalize(torch.randn(WORTH // 64, 64), dim=-1)
    for features, weight, lowered in (
        (4 * along[:9], along, 0.0),
        (8 * torch.randn(9, 64), 0.2 * torch.randn(WORTH // 64, 64), -1000.0),
        (torch.randn(9, 64), 0.2 * torch.randn(WORTH // 64, 64), 1e30),
    ):
        bias, targets = torch.full((len(weight),), lowered), torch.arange(9)
        tensors = (features.requires_grad_(), weight.requires_grad_())
        found = smoothed_cross_entropy(*tensors, bias, targets, 0.1)
        # A bias of all words alike does nothing, but where it is so large that logits are lost in it.
        logits = F.linear(*tensors, bias if lowered > LARGEST else None)
        expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)
        for one, other in zip(torch.autograd.grad(found, tensors), torch.autograd.grad(expected, tensors), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_in_half_precision_knows_more_words_than_its_numbers_go(dtype):
    features, weight = torch.zeros(2, 4, dtype=dtype, requires_grad=True), torch.zeros(70_000, 4, dtype=dtype)
    found = smoothed_cross_entropy(features, weight.requires_grad_(), None, torch.tensor([0, 1]))
    assert found.item() == pytest.approx(2 * math.log(70_000), rel=1e-2)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found, (features, weight)))


@pytest.mark.parametrize("biased", [True, False])
def test_the_loss_over_many_words_equals_torch(biased):
    """The sizes for which products go another way; the last chunk is no whole one."""
    words, rows = WORTH // 64 + 7, 700
    assert rows > chunk_rows(words) > 0 == chunk_rows(words) % STEP
    features = torch.randn(rows, 64, requires_grad=True)
    weight = torch.randn(words, 64).mul_(0.2).requires_grad_()
    bias = torch.randn(words, requires_grad=True) if biased else None
    targets = torch.randint(words, (rows,))
    found = smoothed_cross_entropy(features, weight, bias, targets, 0.1)
    expected = F.cross_entropy(F.linear(features, weight, bias), targets, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(found, expected)
    tensors = [features, weight, *([bias] if biased else [])]
    for one, other in zip(torch.autograd.grad(found, tensors), torch.autograd.grad(expected, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_loss_of_nothing_is_zero():
    weight = torch.randn(4, 3, requires_grad=True)
    total = smoothed_cross_entropy(torch.empty(0, 3), weight, None, torch.empty(0, dtype=torch.long))
    total.backward()
    assert total == 0
    assert (weight.grad == 0).all()
    with torch.no_grad():
        assert smoothed_cross_entropy(torch.zeros(2, 3), weight, None, torch.tensor([0, 1])).item() == pytest.approx(
            2 * math.log(4)
        )


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_cells_equal_torch(kind):
    ours = Cell(kind, 5, 4).double()
    theirs = (nn.GRUCell if kind == "gru" else nn.LSTMCell)(5, 4).double()
    with torch.no_grad():
        theirs.weight_ih.copy_(ours.input.weight)
        theirs.bias_ih.copy_(ours.input.bias)
        theirs.weight_hh.copy_(ours.recurrent.weight)
        theirs.bias_hh.copy_(ours.recurrent.bias)
    state = ours.begin(torch.randn(3, 4, dtype=torch.float64))
    other = state[0] if kind == "gru" else state
    for _ in range(3):
        x = torch.randn(3, 5, dtype=torch.float64)
        state = ours(ours.project(x), state)
        other = theirs(x, other)
        torch.testing.assert_close(state[0], other if kind == "gru" else other[0])


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_encoder_does_not_read_padding(kind, layers):
    encoder = BidirectionalEncoder(kind, 5, 4, layers, dropout=0.0).double()
    x, mask = torch.randn(3, 6, 5, dtype=torch.float64), torch.arange(6) < torch.tensor([[6], [2], [4]])
    whole = encoder(x, mask)
    assert whole.annotations.shape == (3, 6, 8)
    for i, length in enumerate((6, 2, 4)):
        alone = encoder(x[i : i + 1, :length], mask[i : i + 1, :length])
        torch.testing.assert_close(whole.annotations[i, :length], alone.annotations[0])
        torch.testing.assert_close(whole.backward[i], alone.annotations[0, 0, 4:])
        torch.testing.assert_close(whole.forward[i], alone.annotations[0, -1, :4])
    assert encoder(x, torch.zeros(3, 6, dtype=torch.bool)).annotations.isfinite().all()
    assert [part.shape for part in encoder(x[:0], mask[:0])] == [(0, 6, 8), (0, 4), (0, 4)]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("lengths", [[3, 6, 0, 1], [6, 6, 6, 6]])
def test_the_encoder_s_own_loop_equals_torch_s_kernel(kind, lengths):
    """With its gradients, for sentences of all lengths, in any order; one without a word reads one position."""
    torch.manual_seed(0)
    encoder = BidirectionalEncoder(kind, 5, 4).double()
    words, mask = torch.randn(4, 6, 5, dtype=torch.float64), torch.arange(6) < torch.tensor(lengths)[:, None]

    def by_torch(x):
        packed = pack_padded_sequence(x, torch.tensor(lengths).clamp(min=1), batch_first=True, enforce_sorted=False)
        output, final = encoder.layers[0](packed)
        final = final if kind == "gru" else final[0]
        return pad_packed_sequence(output, batch_first=True)[0], final[0], final[1]

    results = []
    for run in (lambda x: encoder(x, mask), by_torch):
        x = words.clone().requires_grad_()
        annotations, forward, backward = run(x)
        wished = annotations.cos().sum() + ((forward - 2 * backward) * torch.arange(4)).sum()
        gradients = torch.autograd.grad(wished, [x, *encoder.parameters()])
        results.append([annotations, forward, backward, *gradients])
    with torch.no_grad():
        results.append([*encoder(words, mask), *results[0][3:]])
    for found, expected, without_learning in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(found, without_learning, rtol=0, atol=1e-12)


@pytest.mark.parametrize("init_std", [1.0, QUIET])
def test_embeddings_start_with_their_init_std_and_padding_is_zero(init_std):
    embedding = TokenEmbedding(1000, 64, padding=0, init_std=init_std)
    found = embedding(torch.arange(1000))
    assert (found[0] == 0).all()
    assert found[1:].std().item() == pytest.approx(init_std, rel=0.02)


def test_readers_of_labelled_texts_begin_quietly_or_as_they_are_told():
    for kind in (AttentiveConfig, HANConfig):
        for config, wanted in ((kind(), QUIET), (kind(init_std=0.5), 0.5)):
            tables = [one for one in config.build(1000).modules() if isinstance(one, TokenEmbedding)]
            assert [one(torch.arange(1, 1000)).std().item() for one in tables] == [pytest.approx(wanted, rel=0.02)]
        with pytest.raises(ValueError, match=r"init_std is 0\.0; it must be above 0"):
            kind(init_std=0.0)


def test_sinusoids_are_the_paper_s_numbers():
    found = sinusoids(3, 2, 6, torch.empty(0, dtype=torch.float64))
    for row, position in enumerate((3, 4)):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            assert found[row, pair].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert found[row, 3 + pair].item() == pytest.approx(math.cos(angle), abs=1e-12)
    with pytest.raises(ValueError, match="even size, found 5"):
        sinusoids(0, 1, 5, torch.empty(0))


def test_a_step_of_the_gru_and_its_gradient_are_those_of_the_formula():
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 4).double()
    x, hidden = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    projected, recurrent = x @ cell.weight_ih.T + cell.bias_ih, hidden @ cell.weight_hh.T + cell.bias_hh
    torch.testing.assert_close(gru_step(projected, recurrent, hidden), cell(x, hidden))
    parts = [part.detach().requires_grad_() for part in (projected, recurrent, hidden)]
    assert torch.autograd.gradcheck(gru_step, parts)


def test_maxout_takes_the_larger_of_two_and_teaches_it_alone():
    x = torch.tensor([[1.0, 3.0, 2.0, -1.0], [0.0, 0.0, -5.0, -4.0]], requires_grad=True)
    found = maxout(x)
    assert found.tolist() == [[3.0, 2.0], [0.0, -4.0]]
    found.backward(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert x.grad.tolist() == [[0.0, 1.0, 2.0, 0.0], [3.0, 0.0, 0.0, 4.0]]
    assert torch.autograd.gradcheck(maxout, torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True))
