"""Every kind of hook, on every model, is called as often as PyTorch calls it when the ordinary modules run."""

import collections
import contextlib

import pytest
import torch
from torch import nn
from torch.nn.modules import module as of_all_modules

from sightline import kernels
from sightline.attention import MultiHeadConfig
from sightline.attention.observed import is_observed, may_bypass
from sightline.attention.tap import Tap, open_tap
from sightline.decoding.search import Rules, greedy
from sightline.kernels import ragged, rnnsearch, transformer_search, unpadded
from sightline.models.attentive import AttentiveConfig
from sightline.models.captioning_transformer import CaptioningTransformerConfig
from sightline.models.encoder import EncoderConfig
from sightline.models.grammar import GrammarConfig
from sightline.models.grid import Gold, Grids, Inputs
from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
from sightline.models.grid_sequential import SequentialConfig
from sightline.models.han import HANConfig
from sightline.models.heads import OneLabel
from sightline.models.image_to_text import Places
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig, additive
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.show_attend_tell import ShowAttendTellConfig
from sightline.models.text_to_labels import Texts
from sightline.models.transformer import TransformerConfig

WORDS, START, END, PADDING = 20, 2, 3, 0
SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0], [11, 12, 13, 3, 0]])
TARGET = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0], [2, 8, 9, 3]])
PLACES = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(1))
CELLS = torch.ones(2, 3, 3, dtype=torch.bool)
CELLS[1, 2] = CELLS[1, :, 2] = False
GRIDS = Grids(
    torch.randint(0, 255, (2, 12, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)), CELLS
)
GOLD = Gold(torch.where(CELLS, 1, -1), torch.where(CELLS.repeat_interleave(4, 1).repeat_interleave(4, 2), 1, -1))
NO_DROPOUT = {"dropout": 0.0}
GRID = {"width": 4, "cell_size": 8, "rnn_size": 4, "pixel_width": 4, **NO_DROPOUT}


def labeller(config):
    return OneLabel(config.build(WORDS), 3)


def translator(config):
    return config.build(WORDS, WORDS)


MODELS = {
    "seq2seq": lambda: translator(Seq2SeqConfig(8, 8, **NO_DROPOUT)),
    "luong": lambda: translator(LuongConfig(8, 8, **NO_DROPOUT)),
    "grammar": lambda: translator(GrammarConfig(8, 8, **NO_DROPOUT)),
    "rnnsearch": lambda: translator(RNNSearchConfig(8, 8, attention=additive(8), **NO_DROPOUT)),
    "transformer": lambda: translator(TransformerConfig(8, 2, 16, 1, 2, **NO_DROPOUT)),
    "transformer, post": lambda: translator(TransformerConfig(8, 2, 16, 2, 1, norm="post", **NO_DROPOUT)),
    "encoder": lambda: labeller(EncoderConfig(8, 2, 16, 2, **NO_DROPOUT)),
    "encoder, first token": lambda: labeller(EncoderConfig(8, 2, 16, 2, pooling="first", **NO_DROPOUT)),
    "attentive": lambda: labeller(AttentiveConfig(embedding_size=8, size=8, layers=2, word_dropout=0.0, **NO_DROPOUT)),
    "han": lambda: labeller(HANConfig(embedding_size=8, size=8, word_dropout=0.0, **NO_DROPOUT)),
    "show_attend_tell": lambda: ShowAttendTellConfig(8, 8, **NO_DROPOUT).build(Places(8, 2, 3), WORDS),
    "captioning transformer": lambda: CaptioningTransformerConfig(8, 2, 16, 1, 2, **NO_DROPOUT).build(
        Places(8, 2, 3), WORDS
    ),
    "grid, sequential": lambda: SequentialConfig(attn_num_hidden=8, own_labels=0.0, **GRID).build(Inputs(4, 3, 2)),
    "grid, at once": lambda: AtOnceConfig(use_gru=True, **GRID).build(Inputs(4, 3, 2)),
    "grid, multi-head": lambda: AtOnceConfig(attention=MultiHeadConfig(2), **GRID).build(Inputs(4, 3, 2)),
    "grid, single": lambda: SingleConfig(width=4, cell_size=8, pixel_width=4, **NO_DROPOUT).build(Inputs(4, 3, 2)),
}
LABELLERS = [name for name in MODELS if name.startswith(("encoder", "attentive", "han"))]
WRITERS = [name for name in MODELS if not name.startswith("grid") and name not in LABELLERS]


def inputs_of(name):
    if name.startswith("grid"):
        return GRIDS, GOLD
    if name in LABELLERS:
        return Texts(SOURCE), torch.tensor([0, 1, 2])
    return (PLACES if "tell" in name or "captioning" in name else SOURCE), TARGET


def train(name, model):
    x, y = inputs_of(name)
    model.train().zero_grad()
    total = model.loss(x, y).total
    total.backward()
    return [total.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def evaluate(name, model):
    x, y = inputs_of(name)
    with torch.no_grad():
        if name.startswith("grid"):
            return [part for part in model.eval().answer(x) if part is not None]
        return [model.eval().scores(x) if name in LABELLERS else model.eval().loss(x, y).total]


def search(name, model):
    x, _ = inputs_of(name)
    with torch.no_grad():
        step, state = model.eval().searching(x)
        hypotheses = greedy(step, state, len(x), Rules(START, END, 4, 4, forbidden=(PADDING,)))
    return [torch.tensor([one.log_prob for one in hypotheses])]


MODES = {"training": train, "evaluation": evaluate, "search": search}
CASES = [(model, mode) for model in MODELS for mode in MODES if mode != "search" or model in WRITERS]

KINDS = {
    "forward": (nn.Module.register_forward_hook, of_all_modules.register_module_forward_hook),
    "forward pre": (nn.Module.register_forward_pre_hook, of_all_modules.register_module_forward_pre_hook),
    "backward": (nn.Module.register_full_backward_hook, of_all_modules.register_module_full_backward_hook),
    "backward pre": (nn.Module.register_full_backward_pre_hook, of_all_modules.register_module_full_backward_pre_hook),
}


def build(name):
    torch.manual_seed(0)
    return MODELS[name]()


@contextlib.contextmanager
def references(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_on", False)
        yield


@contextlib.contextmanager
def counted(model, monkeypatch):
    """How often PyTorch calls each module, seen without any hook: `Module.__call__` itself is replaced."""
    names, counts, call = (
        {module: name for name, module in model.named_modules()},
        collections.Counter(),
        nn.Module.__call__,
    )

    def counting(module, *arguments, **options):
        if module in names:
            counts[names[module]] += 1
        return call(module, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "__call__", counting)
        yield counts


def expected_calls(name, mode, monkeypatch):
    model = build(name)
    with references(monkeypatch), counted(model, monkeypatch) as counts:
        MODES[mode](name, model)
    return counts


@pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")
def test_a_fast_path_is_taken_without_hooks_and_calls_fewer_modules(monkeypatch):
    """Else this file would show nothing."""
    taken = collections.Counter()
    for kernel, function in (
        (ragged, "fast"),
        (rnnsearch, "fast"),
        (transformer_search, "fast"),
        (unpadded, "encode_unpadded"),
    ):
        real, name = getattr(kernel, function), kernel.__name__.rpartition(".")[2]
        monkeypatch.setattr(
            kernel, function, lambda *a, real=real, name=name, **o: taken.update([name]) or real(*a, **o)
        )
    monkeypatch.setattr("sightline.models.encoder.encode_unpadded", unpadded.encode_unpadded)
    fewer = []
    for name, mode in CASES:
        model = build(name)
        with counted(model, monkeypatch) as counts:
            MODES[mode](name, model)
        if counts.total() < expected_calls(name, mode, monkeypatch).total():
            fewer.append((name, mode))
    assert set(taken) == {"ragged", "rnnsearch", "transformer_search", "unpadded"}
    assert len(fewer) >= 12


def hooked_calls(name, mode, register):
    """How often a hook is called for each module, and what the model gives."""
    counts, model = collections.Counter(), build(name)
    names = {module: one for one, module in model.named_modules()}

    def see(module, *_):
        if module in names:
            counts[names[module]] += 1

    handles = register(names, see)
    assert is_observed(model)
    try:
        results = MODES[mode](name, model)
    finally:
        for handle in handles:
            handle.remove()
    assert not is_observed(model)
    return counts, results


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of embeddings, which take no gradients
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "mode"), CASES, ids=str)
def test_hooks_are_called_as_often_as_pytorch_calls_them(name, mode, kind, monkeypatch):
    """On each module by itself, and registered for all modules; and what the model gives stays what it is."""
    usual, calls = MODES[mode](name, build(name)), expected_calls(name, mode, monkeypatch)
    on_one, on_all = KINDS[kind]
    for register in (
        lambda modules, see: [on_one(module, see) for module in modules],
        lambda modules, see: [on_all(see)],
    ):
        with references(monkeypatch):
            expected, _ = hooked_calls(name, mode, register)
        counts, results = hooked_calls(name, mode, register)
        assert counts == expected
        if kind.startswith("forward"):
            assert counts == calls
        else:  # autograd calls them where a tensor that needs a gradient goes through
            assert bool(counts) == (mode == "training")
            assert all(counts[one] <= calls[one] for one in counts)
        for one, other in zip(results, usual, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "part"), [("encoder", "model.layers.0"), ("rnnsearch", "decoder.attention")])
def test_backward_hooks_see_gradients_inside(name, part):
    model, seen = build(name), []
    module = model.get_submodule(part)
    module.register_full_backward_pre_hook(lambda module, gradients: seen.append("pre"))
    train(name, model)
    assert len(seen) == (1 if name == "encoder" else TARGET.shape[1] - 1)


def test_what_is_observed(monkeypatch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert not is_observed(model)
    assert may_bypass(model) == kernels.enabled()
    with open_tap(Tap()):
        assert is_observed(model)
    handle = model[1][0].register_state_dict_post_hook(lambda *_: None)
    assert not is_observed(model), "it runs when weights are saved"
    handle.remove()
    model[1][0].forward = lambda x: x
    assert is_observed(model)
    del model[1][0].forward
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert is_observed(model)
        assert not kernels.enabled()
    monkeypatch.setattr(kernels, "_on", False)
    assert not is_observed(model)
    assert not may_bypass(model)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
def test_a_compiler_sees_the_ordinary_modules():
    torch.manual_seed(0)
    encoder = EncoderConfig(8, 2, 16, 2, **NO_DROPOUT).build(WORDS).eval()

    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, words):
            return self.encoder.features(Texts(words))

    exported = torch.export.export(Features(), (SOURCE,))
    other = torch.randint(4, WORDS, SOURCE.shape)
    torch.testing.assert_close(exported.module()(other), encoder.features(Texts(other)))
    assert any("layers.1.attention" in str(node.meta.get("nn_module_stack")) for node in exported.graph.nodes)
    traced = []
    layer = nn.Linear(2, 2)
    torch.jit.trace(lambda x: traced.append(is_observed(layer)) or x + 1, (torch.zeros(1),))
    assert all(traced[:1])
