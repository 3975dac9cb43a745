"""Our models from text to text as ONNX: an encoder and one step of the decoder, for onnxruntime anywhere.

Every model has the same shape from outside. The encoder reads ``source`` and gives the state; the step reads ``tokens``
and the state, and gives ``logits`` and, as ``next_NAME``, the new value of ``NAME`` in the state. The batch is the
first axis everywhere, so beams are selected by indexing.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from sightline.attention import Composed, MultiHead
from sightline.attention.additive import Additive
from sightline.attention.dot import Dot, General, ScaledDot
from sightline.attention.normalisers import Softmax
from sightline.errors import UserError
from sightline.export.engine import ENCODER, STEP, library
from sightline.files import whole_file
from sightline.kernels.ragged import PARTS
from sightline.kernels.transformer_search import scale_of
from sightline.models.recurrent import RecurrentModel
from sightline.models.text_to_text import TextToText
from sightline.models.transformer import Transformer
from sightline.nn.decoder import RecurrentAttentionDecoder
from sightline.nn.rnn import Cell, Reading
from sightline.nn.transformer import ACTIVATIONS, DecoderLayer, EncoderLayer, FeedForward, Residual
from sightline.vocabulary import PADDING

# --- ONNX graphs are written node by node, which is faster and plainer than tracing.

OPSET, IR = 20, 10  # what runtimes since 2024 read
HIDDEN = -1e30  # added to the scores of padding: their weight is 0, and no sum overflows
Kind = Literal["int64", "float32"]
_TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}


class Graph:
    """Call it with the kind of a node and its inputs: it adds the node and returns the name of its output."""

    def __init__(self, name: str, int8: bool = False) -> None:
        self.name, self.int8 = name, int8
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._names: dict[Any, str] = {}
        self._kept: list[Tensor] = []  # addresses of tensors are keys only while the tensors live

    def __call__(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        names = [f"{kind}_{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def input(self, name: str, kind: Kind, shape: Sequence[str | int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], list(shape)))
        return name

    def output(self, name: str, value: str, shape: Sequence[str | int]) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def numbers(self, values: Any, kind: str = "int64") -> str:
        """A constant: one number or several."""
        array = np.asarray(values, dtype=kind)
        return self._constant((kind, array.shape, array.tobytes()), array)

    def weight(self, tensor: Tensor) -> str:
        """A parameter; it is stored once however often it is used."""
        self._kept.append(tensor)
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        return self._names.get(key) or self._constant(key, tensor.detach().to("cpu", torch.float32).numpy())

    def linear(self, x: str, *layers: nn.Linear, factors: Sequence[float] = ()) -> str:
        """Layers with the same input, in one product; ``factors`` scale the output of each."""
        times = factors or [1.0] * len(layers)
        weight = torch.cat([layer.weight * factor for layer, factor in zip(layers, times, strict=True)])
        x = self("MatMul", x, self.weight(weight.t().contiguous()))
        if layers[0].bias is None:
            return x
        bias = torch.cat([layer.bias * factor for layer, factor in zip(layers, times, strict=True)])
        return self("Add", x, self.weight(bias))

    def logits(self, x: str, layer: nn.Linear) -> str:
        """The output layer, which may share its table with the embedding."""
        if self.int8:  # the converter to int8 needs a product with a table of its own
            return self.linear(x, layer)
        return self("Gemm", x, self.weight(layer.weight), self.weight(layer.bias), transB=1)

    def norm(self, x: str, layer: nn.LayerNorm) -> str:
        scale, shift = self.weight(layer.weight), self.weight(layer.bias)
        return self("LayerNormalization", x, scale, shift, axis=-1, epsilon=layer.eps)

    def embed(self, tokens: str, table: nn.Embedding) -> str:
        """Embeddings of tokens, as `TokenEmbedding` gives them."""
        factor = float(table.embedding_dim) ** 0.5
        if not self.int8:
            return self("Mul", self("Gather", self.weight(table.weight), tokens), self.numbers(factor, "float32"))
        # Each token has its own scale: rare tokens have small embeddings.
        weight = table.weight.detach().to("cpu", torch.float32)
        scale = weight.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 127
        rounded = self("Gather", self.numbers((weight / scale).round().numpy(), "int8"), tokens)
        return self("Mul", self("Cast", rounded, to=1), self("Gather", self.weight(scale * factor), tokens))

    def hidden(self, tokens: str, padding: int) -> str:
        """What is added to the scores of a source: 0 for tokens, `HIDDEN` for padding."""
        nothing = self("Equal", tokens, self.numbers(padding))
        return self("Where", nothing, self.numbers(HIDDEN, "float32"), self.numbers(0.0, "float32"))

    def softmax(self, scores: str) -> str:
        return self("Softmax", scores, axis=-1)

    def save(self, path: Path) -> None:
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, initializer=list(self._constants.values())
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
        model.producer_name = "sightline"
        if self.int8:  # the converter would otherwise ask for a preparation that these graphs do not need
            helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
        onnx.checker.check_model(model)
        with whole_file(path) as part:
            part.write_bytes(model.SerializeToString())

    def _constant(self, key: Any, array: np.ndarray) -> str:
        if key not in self._names:
            name = self._names[key] = f"constant_{len(self._constants)}"
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return self._names[key]


# --- The Transformer as two ONNX graphs: the encoder, and one step of the decoder with its caches.


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
        query, key, value = _own(graph, layer.attention, _enter(graph, layer.around_attention, x), angles)
        read = _read(graph, layer.attention, query, graph("Transpose", key, perm=[0, 1, 3, 2]), value, hidden)
        x = _leave(graph, layer.around_attention, x, read)
        x = _forward(graph, layer.feed_forward, layer.around_feed_forward, x)
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
        # Transposed once, as the products of the step need them.
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
    for number in range(len(model.decoder)):
        graph.input(f"source_keys_{number}", "float32", ["rows", heads, size, "words"])
        graph.input(f"source_values_{number}", "float32", ["rows", heads, "words", size])
    for number in range(len(model.decoder)):
        graph.input(f"keys_{number}", "float32", ["rows", heads, "past", size])
        graph.input(f"values_{number}", "float32", ["rows", heads, "past", size])
    x = graph.embed(graph("Unsqueeze", tokens, graph.numbers([1])), model.target_embedding)
    angles = _Angles(graph, model, graph("Shape", "keys_0", start=2, end=3))
    x = angles.placed(x)
    for number, layer in enumerate(model.decoder):
        assert isinstance(layer, DecoderLayer)
        query, key, value = _own(graph, layer.attention, _enter(graph, layer.around_attention, x), angles)
        keys = graph("Concat", f"keys_{number}", key, axis=2)
        values = graph("Concat", f"values_{number}", value, axis=2)
        read = _read(graph, layer.attention, query, graph("Transpose", keys, perm=[0, 1, 3, 2]), values, None)
        x = _leave(graph, layer.around_attention, x, read)
        x = _cross(graph, layer, x, (f"source_keys_{number}", f"source_values_{number}"), hidden)
        x = _forward(graph, layer.feed_forward, layer.around_feed_forward, x)
        graph.output(f"next_keys_{number}", keys, ["rows", heads, "past_and_one", size])
        graph.output(f"next_values_{number}", values, ["rows", heads, "past_and_one", size])
    if isinstance(model.decoder_norm, nn.LayerNorm):
        x = graph.norm(x, model.decoder_norm)
    logits = graph.logits(graph("Squeeze", x, graph.numbers([1])), model.output)
    graph.output("logits", logits, ["rows", model.output.out_features])
    return graph


class _Angles:
    """Positions: sinusoids added to embeddings, or rotations of queries and keys. In float64, as in the layers."""

    def __init__(self, graph: Graph, model: Transformer, positions: str) -> None:
        config = model.config
        self.graph, self.rotary = graph, config.positions == "rotary"
        size = config.size // config.heads if self.rotary else config.size
        waves = 10_000.0 ** -(np.arange(0, size, 2, dtype=np.float64) / size)
        places = graph("Unsqueeze", graph("Cast", positions, to=11), graph.numbers([1]))  # 11: float64
        angles = graph("Mul", places, graph.numbers(waves, "float64"))
        self.sine, self.cosine = (graph("Cast", graph(kind, angles), to=1) for kind in ("Sin", "Cos"))

    def placed(self, x: str) -> str:
        """Embeddings with their positions."""
        if self.rotary:
            return x
        return self.graph("Add", x, self.graph("Concat", self.sine, self.cosine, axis=-1))

    def rotated(self, x: str) -> str:
        """Queries or keys, `rows heads words size`, with neighbouring features rotated (`Rotary`)."""
        if not self.rotary:
            return x
        graph, last = self.graph, self.graph.numbers([-1])
        pairs = graph("Reshape", x, graph.numbers([0, 0, 0, -1, 2]))
        even, odd = graph.several("Split", 2, pairs, axis=-1, num_outputs=2)
        cosine, sine = (graph("Unsqueeze", part, last) for part in (self.cosine, self.sine))
        first = graph("Sub", graph("Mul", even, cosine), graph("Mul", odd, sine))
        second = graph("Add", graph("Mul", even, sine), graph("Mul", odd, cosine))
        joined = graph("Concat", first, second, axis=-1)
        return graph("Reshape", joined, graph.numbers([0, 0, 0, -1]))


def _cross(graph: Graph, layer: DecoderLayer, x: str, source: tuple[str, str], hidden: str) -> str:
    attention = layer.cross
    assert isinstance(attention, MultiHead)
    entered = _enter(graph, layer.around_cross, x)
    query = graph.linear(entered, attention.project_query, factors=[scale_of(attention)])
    read = _read(graph, attention, _split(graph, query, attention.key_heads), *source, hidden)
    return _leave(graph, layer.around_cross, x, read)


def _own(graph: Graph, attention: nn.Module, x: str, angles: _Angles) -> tuple[str, str, str]:
    """Queries (already scaled), keys and values of self-attention, by heads."""
    assert isinstance(attention, MultiHead)
    layers = attention.project_query, attention.project_keys, attention.project_values
    joined = graph.linear(x, *layers, factors=[scale_of(attention), 1.0, 1.0])
    parts = graph.several("Split", 3, joined, axis=-1, num_outputs=3)
    query, key, value = (_split(graph, part, attention.key_heads) for part in parts)
    return angles.rotated(query), angles.rotated(key), value


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


# --- The recurrent models as two ONNX graphs: the encoder, and one step of the decoder.

# The order of gates: ours is PyTorch's (reset, update, candidate; enter, forget, candidate, leave).
_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def _is_known(attention: nn.Module) -> bool:
    if type(attention) is not Composed or type(attention.normaliser) is not Softmax or attention.heads:
        return False
    score = attention.score
    return type(score) in (Additive, Dot, General) or (type(score) is ScaledDot and score.relative is None)


def _recurrent_encoder(model: RecurrentModel, int8: bool) -> Graph:
    graph = Graph("encoder", int8)
    source = graph.input("source", "int64", ["rows", "words"])
    real = graph("Cast", graph("Not", graph("Equal", source, graph.numbers(PADDING))), to=6)  # 6: int32
    lengths = graph("ReduceSum", real, graph.numbers([1]), keepdims=0)
    x = graph("Transpose", graph.embed(source, model.source_embedding), perm=[1, 0, 2])
    final = ""
    for layer in model.encoder.layers:
        x, final = _layer(graph, layer, x, lengths, model.encoder.reads)
    encoder_states = graph("Transpose", x, perm=[1, 0, 2])
    ends = graph.several("Split", 2, final, axis=0, num_outputs=2) if model.encoder.reads == "both" else [final]
    ends = [graph("Squeeze", end, graph.numbers([0])) for end in ends]
    summary = ends[-1] if model.starts_from == "backward" else _joined(graph, ends)
    started = graph("Tanh", graph.linear(summary, model.start))
    layers = len(model.decoder.cells)
    firsts = graph.several("Split", layers, started, axis=-1, num_outputs=layers) if layers > 1 else [started]
    zeros = graph("Mul", firsts[0], graph.numbers(0.0, "float32"))
    for name, shape in _state(model.decoder):  # the hidden state of each cell, zeros for everything else
        if name == "fed":
            sizes = graph("Concat", graph("Shape", source, start=0, end=1), graph.numbers([shape]), axis=0)
            graph.output(name, graph("ConstantOfShape", sizes), ["rows", shape])
            continue
        _, number, part = name.split("_")
        graph.output(name, firsts[int(number)] if part == "0" else zeros, ["rows", shape])
    if model.decoder.attention is not None:
        score = _score(model.decoder)
        keys = (
            graph("MatMul", encoder_states, graph.weight(score.key.weight)) if hasattr(score, "key") else encoder_states
        )
        graph.output("hidden", graph.hidden(source, PADDING), ["rows", "words"])
        graph.output("keys", keys, ["rows", "words", _key_size(model.decoder)])
        graph.output("values", encoder_states, ["rows", "words", model.decoder.shape.annotation_size])
    return graph


_DIRECTIONS: dict[Reading, str] = {"both": "bidirectional", "forwards": "forward", "backwards": "reverse"}


def _layer(graph: Graph, layer: nn.Module, x: str, lengths: str, reads: Reading) -> tuple[str, str]:
    """A layer of the encoder: `words rows features` in and out, and the final state of each direction."""
    kind = "GRU" if isinstance(layer, nn.GRU) else "LSTM"
    assert isinstance(layer, nn.GRU | nn.LSTM)
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)
    ways = [[getattr(layer, f"{part}_l0{way}") for part in PARTS] for way in suffixes]
    weight, recurrent = (torch.stack([_ordered(kind, way[part]) for way in ways]) for part in (0, 1))
    bias = torch.stack([torch.cat([_ordered(kind, way[2]), _ordered(kind, way[3])]) for way in ways])
    inputs = [x, *(graph.weight(one) for one in (weight, recurrent, bias)), lengths]
    options: dict[str, Any] = {"hidden_size": layer.hidden_size, "direction": _DIRECTIONS[reads]}
    if kind == "GRU":
        options["linear_before_reset"] = 1  # the reset gate acts on the projected state, as in PyTorch
    states, final = graph.several(kind, 2, *inputs, **options)
    states = graph("Transpose", states, perm=[0, 2, 1, 3])
    return graph("Reshape", states, graph.numbers([0, 0, -1])), final


def _ordered(kind: str, parameter: Tensor) -> Tensor:
    gates = parameter.detach().chunk(len(_GATES[kind]))
    return torch.cat([gates[number] for number in _GATES[kind]])


def _state(decoder: RecurrentAttentionDecoder) -> list[tuple[str, int]]:
    """The names and sizes of what each step updates."""
    parts = 1 if decoder.shape.cell == "gru" else 2
    names = [f"cell_{number}_{part}" for number in range(len(decoder.cells)) for part in range(parts)]
    fed = [("fed", decoder.feature_size)] if decoder.shape.feeds_input else []
    return [(name, decoder.shape.size) for name in names] + fed


def _recurrent_step(model: RecurrentModel, int8: bool) -> Graph:
    graph, decoder, shape = Graph("step", int8), model.decoder, model.decoder.shape
    tokens = graph.input("tokens", "int64", ["rows"])
    states = {name: graph.input(name, "float32", ["rows", size]) for name, size in _state(decoder)}
    if decoder.attention is not None:
        graph.input("hidden", "float32", ["rows", "words"])
        graph.input("keys", "float32", ["rows", "words", _key_size(decoder)])
        graph.input("values", "float32", ["rows", "words", shape.annotation_size])
    word = graph.embed(tokens, model.target_embedding)
    top = f"cell_{len(decoder.cells) - 1}_0"
    context = _attend(graph, decoder, states[top]) if decoder.attends_before else None
    moved = _move(graph, decoder, word, [part for part in (context, states.get("fed")) if part is not None], states)
    if decoder.attention is not None and not decoder.attends_before:
        context = _attend(graph, decoder, moved[top])
    read = [] if context is None else [context]
    if shape.writes_from == "maxout":
        pairs = graph.linear(graph("Concat", states[top], word, *read, axis=-1), decoder.write)
        pairs = graph("Reshape", pairs, graph.numbers([0, shape.size, 2]))
        features = graph("ReduceMax", pairs, graph.numbers([2]), keepdims=0)
    else:
        features = _joined(graph, [moved[top], *read])
        if shape.writes_from != "joined":
            features = graph("Tanh", graph.linear(features, decoder.write))
    if shape.feeds_input:
        moved["fed"] = features
    for name, size in _state(decoder):
        graph.output(f"next_{name}", moved[name], ["rows", size])
    graph.output("logits", graph.logits(features, model.output), ["rows", model.output.out_features])
    return graph


def _move(
    graph: Graph, decoder: RecurrentAttentionDecoder, word: str, inner: list[str], states: dict[str, str]
) -> dict[str, str]:
    """Every cell, one step further."""
    moved: dict[str, str] = {}
    below = word
    for number, cell in enumerate(decoder.cells):
        assert isinstance(cell, Cell)
        given = graph.linear(below, cell.input)
        if not number and decoder.inner_input is not None:
            given = graph("Add", given, graph.linear(_joined(graph, inner), decoder.inner_input))
        old = [states[f"cell_{number}_{part}"] for part in range(1 if cell.kind == "gru" else 2)]
        own = graph.linear(old[0], cell.recurrent)
        new = _gru(graph, given, own, *old) if cell.kind == "gru" else _lstm(graph, graph("Add", given, own), old[1])
        moved |= {f"cell_{number}_{part}": value for part, value in enumerate(new)}
        below = new[0]
    return moved


def _gru(graph: Graph, given: str, own: str, state: str) -> list[str]:
    given_parts = graph.several("Split", 3, given, axis=-1, num_outputs=3)
    own_parts = graph.several("Split", 3, own, axis=-1, num_outputs=3)
    reset, update = (graph("Sigmoid", graph("Add", a, b)) for a, b in zip(given_parts[:2], own_parts[:2], strict=True))
    candidate = graph("Tanh", graph("Add", given_parts[2], graph("Mul", reset, own_parts[2])))
    return [graph("Add", candidate, graph("Mul", update, graph("Sub", state, candidate)))]


def _lstm(graph: Graph, gates: str, state: str) -> list[str]:
    enter, forget, candidate, leave = graph.several("Split", 4, gates, axis=-1, num_outputs=4)
    kept = graph("Mul", graph("Sigmoid", forget), state)
    new = graph("Add", kept, graph("Mul", graph("Sigmoid", enter), graph("Tanh", candidate)))
    return [graph("Mul", graph("Sigmoid", leave), graph("Tanh", new)), new]


def _attend(graph: Graph, decoder: RecurrentAttentionDecoder, query: str) -> str:
    """Score, normalise, read: one query for each row."""
    score, last = _score(decoder), graph.numbers([2])
    if isinstance(score, Additive):
        assert score.query.bias is not None
        projected = graph("MatMul", query, graph.weight(score.query.weight))
        projected = graph("Add", projected, graph.weight(score.query.bias))
        layer = graph("Tanh", graph("Add", graph("Unsqueeze", projected, graph.numbers([1])), "keys"))
        scores = graph("MatMul", layer, graph.weight(score.vector.detach().unsqueeze(-1)))
    else:
        scaled = graph("Mul", query, graph.numbers(score.scale, "float32"))
        scores = graph("MatMul", "keys", graph("Unsqueeze", scaled, last))
    scores = graph("Add", graph("Squeeze", scores, last), "hidden")
    weights = graph("Unsqueeze", graph.softmax(scores), graph.numbers([1]))
    return graph("Squeeze", graph("MatMul", weights, "values"), graph.numbers([1]))


def _score(decoder: RecurrentAttentionDecoder) -> Any:
    assert isinstance(decoder.attention, Composed)
    return decoder.attention.score


def _key_size(decoder: RecurrentAttentionDecoder) -> int:
    score = _score(decoder)
    return score.key.weight.shape[-1] if hasattr(score, "key") else decoder.shape.annotation_size


def _joined(graph: Graph, parts: list[str]) -> str:
    return graph("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]


def write_onnx(model: TextToText, folder: Path, int8: bool = False) -> None:
    """Write the two graphs; with ``int8`` the products with weights are in 8 bits."""
    library("onnxruntime")
    if isinstance(model, Transformer):
        graphs = _encoder(model, int8), _step(model, int8)
    elif isinstance(model, RecurrentModel):
        if model.decoder.attention is not None and not _is_known(model.decoder.attention):
            raise UserError(
                "the attention of this run has no ONNX graph yet; those of softmax over additive, dot, scaled_dot and "
                "general scores have one"
            )
        graphs = _recurrent_encoder(model, int8), _recurrent_step(model, int8)
    else:
        raise UserError(f"a {type(model).__name__} has no ONNX graphs; the Transformer and the recurrent models have")
    for graph, name in zip(graphs, (ENCODER, STEP), strict=True):
        if not int8:
            graph.save(folder / name)
            continue
        with tempfile.TemporaryDirectory() as between:
            graph.save(Path(between) / name)
            _quantise(Path(between) / name, folder / name)


def _quantise(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Unsigned weights: on a CPU without VNNI signed ones changed 77 of 200 outputs of a Multi30k run, unsigned ones 19;
    # an overflow of 16-bit sums would explain it.
    quantize_dynamic(source, target, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QUInt8)
