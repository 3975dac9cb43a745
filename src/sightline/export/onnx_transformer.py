"""The Transformer as two ONNX graphs: the encoder, and one step of the decoder with its caches."""

import numpy as np
from torch import nn

from sightline.attention import MultiHead
from sightline.export.onnx_graph import Graph
from sightline.models.transformer import Transformer
from sightline.nn.plain import scale_of
from sightline.nn.transformer import ACTIVATIONS, DecoderLayer, EncoderLayer, FeedForward, Residual
from sightline.vocabulary import PADDING


def transformer_graphs(model: Transformer, int8: bool) -> tuple[Graph, Graph]:
    """The encoder and the step."""
    return _encoder(model, int8), _step(model, int8)


def _encoder(model: Transformer, int8: bool) -> Graph:
    graph = Graph("encoder", int8)
    source = graph.input("source", "int64", ["rows", "words"])
    hidden = graph("Unsqueeze", graph.hidden(source, PADDING), graph.numbers([1, 2]))
    x = graph.embed(source, model.source_embedding)
    length = graph("Gather", graph("Shape", source), graph.numbers(1))
    angles = _Angles(graph, model, graph("Range", graph.numbers(0), length, graph.numbers(1)))
    x = angles.placed(x)
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        x = _encoder_layer(graph, layer, x, hidden, angles)
    if isinstance(model.encoder_norm, nn.LayerNorm):
        x = graph.norm(x, model.encoder_norm)
    graph.output("hidden", hidden, ["rows", 1, 1, "words"])
    rows, heads = graph("Shape", source, start=0, end=1), model.config.heads
    size = model.config.size // heads
    nothing = graph("Concat", rows, graph.numbers([heads, 0, size]), axis=0)
    empty = graph("ConstantOfShape", nothing)
    for number, layer in enumerate(model.decoder):
        assert isinstance(layer, DecoderLayer)
        assert isinstance(layer.cross, MultiHead)
        joined = graph.linear(x, layer.cross.project_keys, layer.cross.project_values)
        keys, values = graph.several("Split", 2, joined, axis=-1, num_outputs=2)
        # As the products of the step want them, turned once.
        graph.output(f"source_keys_{number}", _split(graph, keys, heads, [0, 2, 3, 1]), ["rows", heads, size, "words"])
        graph.output(f"source_values_{number}", _split(graph, values, heads), ["rows", heads, "words", size])
        graph.output(f"keys_{number}", empty, ["rows", heads, 0, size])
        graph.output(f"values_{number}", empty, ["rows", heads, 0, size])
    return graph


def _step(model: Transformer, int8: bool) -> Graph:
    graph = Graph("step", int8)
    heads, size = model.config.heads, model.config.size // model.config.heads
    tokens = graph.input("tokens", "int64", ["rows"])
    hidden = graph.input("hidden", "float32", ["rows", 1, 1, "words"])
    count = range(len(model.decoder))
    sources = [
        (
            graph.input(f"source_keys_{number}", "float32", ["rows", heads, size, "words"]),
            graph.input(f"source_values_{number}", "float32", ["rows", heads, "words", size]),
        )
        for number in count
    ]
    caches = [
        tuple(graph.input(f"{name}_{number}", "float32", ["rows", heads, "past", size]) for name in ("keys", "values"))
        for number in count
    ]
    x = graph.embed(graph("Unsqueeze", tokens, graph.numbers([1])), model.target_embedding)
    position = graph("Shape", caches[0][0], start=2, end=3)
    angles = _Angles(graph, model, position)
    x = angles.placed(x)
    for number, layer in enumerate(model.decoder):
        assert isinstance(layer, DecoderLayer)
        x, after = _look_back(graph, layer, x, caches[number], angles)
        x = _look_at_source(graph, layer, x, sources[number], hidden)
        x = _forward(graph, layer.feed_forward, layer.around_feed_forward, x)
        for name, cache in zip(("keys", "values"), after, strict=True):
            graph.output(f"next_{name}_{number}", cache, ["rows", heads, "past_and_one", size])
    if isinstance(model.decoder_norm, nn.LayerNorm):
        x = graph.norm(x, model.decoder_norm)
    logits = graph.logits(graph("Squeeze", x, graph.numbers([1])), model.output)
    graph.output("logits", logits, ["rows", model.output.out_features])
    return graph


class _Angles:
    """Positions: added to the embeddings as sinusoids, or turning queries and keys. In float64, as the layers do."""

    def __init__(self, graph: Graph, model: Transformer, positions: str) -> None:
        config = model.config
        self.graph, self.turning = graph, config.positions == "rotary"
        size = config.size // config.heads if self.turning else config.size
        waves = 10_000.0 ** -(np.arange(0, size, 2, dtype=np.float64) / size)
        places = graph("Unsqueeze", graph("Cast", positions, to=11), graph.numbers([1]))  # 11: float64
        angles = graph("Mul", places, graph.numbers(waves, "float64"))
        self.sine, self.cosine = (graph("Cast", graph(kind, angles), to=1) for kind in ("Sin", "Cos"))

    def placed(self, x: str) -> str:
        """Embeddings with their positions."""
        if self.turning:
            return x
        return self.graph("Add", x, self.graph("Concat", self.sine, self.cosine, axis=-1))

    def turned(self, x: str) -> str:
        """Queries or keys, `rows heads words size`, with neighbouring features turned (`Rotary`)."""
        if not self.turning:
            return x
        graph, last = self.graph, self.graph.numbers([-1])
        pairs = graph("Reshape", x, graph.numbers([0, 0, 0, -1, 2]))
        even, odd = graph.several("Split", 2, pairs, axis=-1, num_outputs=2)
        cosine, sine = (graph("Unsqueeze", part, last) for part in (self.cosine, self.sine))
        first = graph("Sub", graph("Mul", even, cosine), graph("Mul", odd, sine))
        second = graph("Add", graph("Mul", even, sine), graph("Mul", odd, cosine))
        joined = graph("Concat", first, second, axis=-1)
        return graph("Reshape", joined, graph.numbers([0, 0, 0, -1]))


def _encoder_layer(graph: Graph, layer: EncoderLayer, x: str, hidden: str, angles: _Angles) -> str:
    query, key, value = _own(graph, layer.attention, _enter(graph, layer.around_attention, x), angles)
    read = _read(graph, layer.attention, query, graph("Transpose", key, perm=[0, 1, 3, 2]), value, hidden)
    x = _leave(graph, layer.around_attention, x, read)
    return _forward(graph, layer.feed_forward, layer.around_feed_forward, x)


def _look_back(
    graph: Graph, layer: DecoderLayer, x: str, cache: tuple[str, ...], angles: _Angles
) -> tuple[str, tuple[str, str]]:
    query, key, value = _own(graph, layer.attention, _enter(graph, layer.around_attention, x), angles)
    keys = graph("Concat", cache[0], key, axis=2)
    values = graph("Concat", cache[1], value, axis=2)
    read = _read(graph, layer.attention, query, graph("Transpose", keys, perm=[0, 1, 3, 2]), values, None)
    return _leave(graph, layer.around_attention, x, read), (keys, values)


def _look_at_source(graph: Graph, layer: DecoderLayer, x: str, source: tuple[str, str], hidden: str) -> str:
    attention = layer.cross
    assert isinstance(attention, MultiHead)
    entered = _enter(graph, layer.around_cross, x)
    query = graph.linear(entered, attention.project_query, factors=[scale_of(attention)])
    read = _read(graph, attention, _split(graph, query, attention.key_heads), *source, hidden)
    return _leave(graph, layer.around_cross, x, read)


def _own(graph: Graph, attention: nn.Module, x: str, angles: _Angles) -> tuple[str, str, str]:
    """Queries (with the scale in them), keys and values of self-attention, by heads."""
    assert isinstance(attention, MultiHead)
    layers = attention.project_query, attention.project_keys, attention.project_values
    joined = graph.linear(x, *layers, factors=[scale_of(attention), 1.0, 1.0])
    parts = graph.several("Split", 3, joined, axis=-1, num_outputs=3)
    query, key, value = (_split(graph, part, attention.key_heads) for part in parts)
    return angles.turned(query), angles.turned(key), value


def _read(graph: Graph, attention: nn.Module, query: str, keys: str, values: str, hidden: str | None) -> str:
    assert isinstance(attention, MultiHead)
    scores = graph("MatMul", query, keys)
    if hidden is not None:
        scores = graph("Add", scores, hidden)
    context = graph("MatMul", graph.softmax(scores), values)
    joined = graph("Reshape", graph("Transpose", context, perm=[0, 2, 1, 3]), graph.numbers([0, 0, -1]))
    return graph.linear(joined, attention.output)


def _split(graph: Graph, x: str, heads: int, order: list[int] | None = None) -> str:
    return graph("Transpose", graph("Reshape", x, graph.numbers([0, 0, heads, -1])), perm=order or [0, 2, 1, 3])


def _forward(graph: Graph, layer: FeedForward, around: Residual, x: str) -> str:
    wide = graph.linear(_enter(graph, around, x), layer.widen)
    return _leave(graph, around, x, graph.linear(_activated(graph, layer, wide), layer.narrow))


def _activated(graph: Graph, layer: FeedForward, x: str) -> str:
    kind = next(name for name, function in ACTIVATIONS.items() if function is layer.activation)
    if kind == "relu":
        return graph("Relu", x)
    if kind == "silu":
        return graph("Mul", x, graph("Sigmoid", x))
    return graph("Gelu", x, approximate="tanh" if kind == "gelu_tanh" else "none")


def _enter(graph: Graph, around: Residual, x: str) -> str:
    return graph.norm(x, around.normalise) if around.pre else x


def _leave(graph: Graph, around: Residual, x: str, y: str) -> str:
    total = graph("Add", x, y)
    return total if around.pre else graph.norm(total, around.normalise)
