"""The same numbers and gradients as PyTorch's own attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sightline import kernels
from sightline.attention import (
    AdditiveConfig,
    AlibiConfig,
    Causal,
    ComposedConfig,
    DotConfig,
    Entmax15Config,
    MultiHeadConfig,
    RotaryConfig,
    ScaledDotConfig,
    SparsemaxConfig,
    T5BucketsConfig,
    Window,
)
from sightline.attention import fused as fused_module
from sightline.explain.capture import capture
from sightline.kernels import additive as additive_module
from sightline.kernels.additive import additive_scores

PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
B, H, T, D = 3, 4, 7, 8


@pytest.fixture(params=["kernel", "short"])
def _both_fast_paths(request, monkeypatch):
    """The tests here have few keys, which take plain products: the kernel must be asked for."""
    if request.param == "kernel":
        monkeypatch.setattr(fused_module, "SHORT", 0)


def close(found, expected, tolerance):
    assert found.shape == expected.shape
    assert (found - expected).abs().max().item() <= tolerance


def padding(causal):
    """Some keys missing; with a causal mask the first key must exist or torch.nn gives NaN where we give zeros."""
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 5:] = False
    mask[2, 2:] = False
    return mask


@pytest.mark.usefixtures("_both_fast_paths")
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_scaled_dot_equals_torch(dtype, tolerance, causal, padded, plain):
    """Forward and gradients, on the fused path and on the plain one that `capture` takes."""
    query, keys, values = (torch.randn(B, H, T, D, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = padding(causal) if padded else None
    attention = ComposedConfig().build(D, heads=(H,)).to(dtype)
    memory = attention.remember(keys, values, None if mask is None else mask.unsqueeze(1))
    found = attention(query, memory, allow=Causal() if causal else None, need_weights=plain).context

    allowed = torch.ones(B, 1, T, T, dtype=torch.bool) if mask is None else mask[:, None, None].expand(B, 1, T, T)
    if causal:
        allowed = allowed & torch.ones(T, T, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(query, keys, values, attn_mask=allowed)
    close(found, expected, tolerance)
    upstream = torch.randn_like(expected)
    tensors = (query, keys, values)
    ours, theirs = (torch.autograd.grad(y, tensors, upstream) for y in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, tolerance)


def copy_weights(ours, theirs):
    """The parameters of a torch.nn.MultiheadAttention into a MultiHead."""
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            parts = theirs.in_proj_weight.chunk(3)
        else:
            parts = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        projections = (ours.project_query, ours.project_keys, ours.project_values)
        for projection, weight, bias in zip(projections, parts, theirs.in_proj_bias.chunk(3), strict=True):
            projection.weight.copy_(weight)
            projection.bias.copy_(bias)
        ours.output.weight.copy_(theirs.out_proj.weight)
        ours.output.bias.copy_(theirs.out_proj.bias)


@pytest.mark.usefixtures("_both_fast_paths")
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["self", "cross", "cross with other sizes"])
def test_multi_head_equals_torch(dtype, tolerance, causal, padded, kind):
    """Weights copied; self and cross, padding, causal and both; forward, weights, gradients by input and parameter."""
    size = H * D
    key_size, value_size = (20, 12) if kind == "cross with other sizes" else (size, size)
    theirs = nn.MultiheadAttention(size, H, batch_first=True, kdim=key_size, vdim=value_size, dtype=dtype)
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    ours = MultiHeadConfig(heads=H, output_size=size).build(size, key_size, value_size).to(dtype)
    copy_weights(ours, theirs)
    query = torch.randn(B, T, size, dtype=dtype, requires_grad=True)
    keys = query if kind == "self" else torch.randn(B, T, key_size, dtype=dtype, requires_grad=True)
    values = keys if key_size == value_size else torch.randn(B, T, value_size, dtype=dtype, requires_grad=True)
    mask = padding(causal) if padded else None
    read = ours(query, ours.remember(keys, values, mask), allow=Causal() if causal else None)
    weights = ours(query, ours.remember(keys, values, mask), allow=Causal() if causal else None, need_weights=True)
    expected, expected_weights = theirs(
        query,
        keys,
        values,
        key_padding_mask=None if mask is None else ~mask,
        attn_mask=~torch.ones(T, T, dtype=torch.bool).tril() if causal else None,
        average_attn_weights=False,
    )
    close(read.context, expected, tolerance)
    close(weights.weights, expected_weights, tolerance)
    tensors = list({id(tensor): tensor for tensor in (query, keys, values)}.values())
    upstream = torch.randn_like(expected)
    own = [*tensors, ours.output.weight, ours.project_query.weight, ours.project_values.bias]
    found = torch.autograd.grad(read.context, own, upstream)
    in_weights = [theirs.in_proj_weight] if theirs.in_proj_weight is not None else [theirs.q_proj_weight]
    theirs_all = torch.autograd.grad(
        expected, [*tensors, theirs.out_proj.weight, *in_weights, theirs.in_proj_bias], upstream
    )
    for one, other in zip(found[: len(tensors) + 1], theirs_all[: len(tensors) + 1], strict=True):
        close(one, other, tolerance * 10)
    close(found[-2], theirs_all[-2][:size], tolerance * 10)
    close(found[-1], theirs_all[-1].chunk(3)[2], tolerance * 10)


@pytest.mark.usefixtures("_both_fast_paths")
def test_grouped_heads_equal_torch():
    """Four heads on two sets of keys, against the kernel's own grouping."""
    attention = MultiHeadConfig(heads=4, key_heads=2).build(16)
    x = torch.randn(2, 5, 16)
    query = attention.project_query(x).unflatten(-1, (4, 4)).transpose(1, 2)
    keys = attention.project_keys(x).unflatten(-1, (2, 4)).transpose(1, 2)
    values = attention.project_values(x).unflatten(-1, (2, 4)).transpose(1, 2)
    context = F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
    expected = attention.output(context.transpose(1, 2).flatten(2))
    memory = attention.remember(x)
    close(attention(x, memory).context, expected, 1e-6)
    assert memory.keys.shape[1:3] == (2, 1), "the memory holds two sets of keys, not four"


@pytest.mark.usefixtures("_both_fast_paths")
@pytest.mark.parametrize("relative", [None, RotaryConfig(), AlibiConfig(), T5BucketsConfig()])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("allow", [None, Causal(), Causal() & Window(2)])
@pytest.mark.parametrize("axes", [(), (2,), (2, 3)])
def test_the_fused_path_equals_the_plain_one(relative, key_heads, allow, axes):
    """Whatever the positions, the sharing of keys, the mask and the number of batch axes; gradients as well."""
    attention = MultiHeadConfig(
        heads=4, key_heads=key_heads, inner=ComposedConfig(ScaledDotConfig(relative)), head_size=4
    ).build(6)
    attention = attention.double()
    x = torch.randn(*axes, 5, 6, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(*axes, 5, dtype=torch.bool)
    mask[..., 3:] = False
    reads = [
        attention(x, attention.remember(x, mask=given), allow=allow, need_weights=plain).context
        for given in (None, mask)
        for plain in (False, True)
    ]
    for fused, plain in (reads[:2], reads[2:]):
        close(fused, plain, 1e-12)
        parameters = [x, *attention.parameters()]
        gradients = [torch.autograd.grad(y.square().sum(), parameters, retain_graph=True) for y in (fused, plain)]
        for one, other in zip(*gradients, strict=True):
            close(one, other, 1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "t", "s", "h"), [((3,), 5, 7, 4), ((2, 3), 9, 4, 5), ((), 6, 6, 3)])
@pytest.mark.parametrize("chunk", [1, 50, 200, 10**9])
def test_additive_in_chunks_equals_the_plain_formula(monkeypatch, dtype, batch, t, s, h, chunk):
    """Scores and all three gradients, whatever the size of the chunks."""
    monkeypatch.setattr(additive_module, "CHUNK", chunk)
    query = torch.randn(*batch, t, h, dtype=dtype, requires_grad=True)
    keys = torch.randn(*batch, s, h, dtype=dtype, requires_grad=True)
    heads = batch[-1:] if len(batch) == 2 else ()
    vector = torch.randn(*heads, h, dtype=dtype, requires_grad=True)
    found = additive_scores(query, keys, vector)
    expected = (torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3)) * vector[..., None, None, :]).sum(-1)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    close(found, expected, tolerance)
    upstream = torch.randn_like(expected)
    tensors = (query, keys, vector)
    for one, other in zip(
        torch.autograd.grad(found, tensors, upstream), torch.autograd.grad(expected, tensors, upstream), strict=True
    ):
        close(one, other, tolerance * 10)


def test_sparse_normalisers_equal_the_entmax_package():
    """On the same scores, large and small, with and without hidden keys."""
    import entmax

    keys = torch.eye(6, dtype=torch.float64)
    for config, function in ((SparsemaxConfig(), entmax.sparsemax), (Entmax15Config(), entmax.entmax15)):
        attention = ComposedConfig(DotConfig(), config).build(6).double()
        for scale in (0.1, 1.0, 30.0):
            query = torch.randn(4, 6, dtype=torch.float64) * scale
            found = attention(query, attention.remember(keys), need_weights=True).weights
            close(found, function(query, dim=-1), 1e-12)
            mask = torch.tensor([True, True, False, True, False, True])
            masked = attention(query, attention.remember(keys, mask=mask), need_weights=True).weights
            close(masked[:, mask], function(query[:, mask], dim=-1), 1e-12)


def test_scores_of_any_size_give_no_nan():
    """Huge scores, and huge differences between them."""
    for normaliser in (SparsemaxConfig(), Entmax15Config()):
        attention = ComposedConfig(DotConfig(), normaliser).build(2)
        keys = torch.tensor([[1e18, 0.0], [-1e18, 0.0], [0.0, 1.0]])
        read = attention(torch.tensor([[1e18, 1.0]]), attention.remember(keys), need_weights=True)
        assert read.weights.tolist() == [[1.0, 0.0, 0.0]]


def test_capture_of_a_model_of_many_layers_equals_torch():
    """Exact weights inside, against the weights that torch.nn computes."""
    layers = nn.ModuleList(MultiHeadConfig(heads=2).build(8) for _ in range(3))
    theirs = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(3))
    x = torch.randn(2, 5, 8)
    with capture(layers) as trace:
        y = x
        for layer, other in zip(layers, theirs, strict=True):
            copy_weights(layer, other)
            y = y + layer(y, layer.remember(y), allow=Causal()).context
    assert trace.names == ["0", "1", "2"]
    for i, other in enumerate(theirs):
        future = ~torch.ones(5, 5, dtype=torch.bool).tril()
        z, weights = other(x, x, x, attn_mask=future, average_attn_weights=False)
        close(trace[str(i)].weights, weights, 1e-6)
        x = x + z


def test_additive_with_many_queries_uses_the_chunked_path(monkeypatch):
    """A mechanism above the threshold gives what it gives below it."""
    attention = ComposedConfig(AdditiveConfig(4)).build(5)
    x = torch.randn(2, 6, 5)
    plain = attention(x, attention.remember(x)).context
    monkeypatch.setattr(additive_module, "CHUNK", 16)
    close(attention(x, attention.remember(x)).context, plain, 1e-6)


@pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")
def test_few_keys_take_the_short_path_and_many_the_kernel(monkeypatch):
    taken = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: taken.append(1) or kernel(*a, **k))
    attention = ComposedConfig().build(D)
    for keys, calls in ((fused_module.SHORT, 0), (fused_module.SHORT + 1, 1)):
        x = torch.randn(1, keys, D)
        attention(x[:, :2], attention.remember(x))
        assert len(taken) == calls


def test_a_query_without_keys_reads_zeros_on_both_fast_paths(monkeypatch):
    x = torch.randn(2, 5, D, requires_grad=True)
    attention = ComposedConfig().build(D)
    mask = torch.tensor([[True] * 5, [False] * 5])
    for short in (96, 0):
        monkeypatch.setattr(fused_module, "SHORT", short)
        context = attention(x, attention.remember(x, mask=mask)).context
        assert (context[1] == 0).all()
        (gradient,) = torch.autograd.grad(context.square().sum(), x)
        assert gradient.isfinite().all()
