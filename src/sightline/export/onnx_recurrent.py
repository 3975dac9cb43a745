"""The recurrent models as two ONNX graphs: the encoder, and one step of the decoder."""

from typing import Any

import torch
from torch import Tensor, nn

from sightline.attention import Composed
from sightline.attention.additive import Additive
from sightline.attention.dot import Dot, General, ScaledDot
from sightline.attention.normalisers import Softmax
from sightline.errors import UserError
from sightline.export.onnx_graph import Graph
from sightline.kernels.ragged import PARTS
from sightline.models.recurrent import RecurrentModel
from sightline.nn.decoder import RecurrentAttentionDecoder
from sightline.nn.rnn import Cell
from sightline.vocabulary import PADDING

# The order of gates: ours is PyTorch's (reset, update, candidate; enter, forget, candidate, leave).
_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def recurrent_graphs(model: RecurrentModel, int8: bool) -> tuple[Graph, Graph]:
    """The encoder and the step."""
    attention = model.decoder.attention
    if attention is not None and not _is_known(attention):
        raise UserError(
            "the attention of this run has no ONNX graph yet; those of softmax over additive, dot, scaled_dot and "
            "general scores have one"
        )
    return _recurrent_encoder(model, int8), _recurrent_step(model, int8)


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
        x, final = _both_ways(graph, layer, x, lengths)
    annotations = graph("Transpose", x, perm=[1, 0, 2])
    ends = graph.several("Split", 2, final, axis=0, num_outputs=2)
    ends = [graph("Squeeze", end, graph.numbers([0])) for end in ends]
    summary = ends[1] if model.starts_from == "backward" else graph("Concat", *ends, axis=-1)
    started = graph("Tanh", graph.linear(summary, model.start))
    layers = len(model.decoder.cells)
    firsts = graph.several("Split", layers, started, axis=-1, num_outputs=layers) if layers > 1 else [started]
    nothing = graph("Mul", firsts[0], graph.numbers(0.0, "float32"))
    for (name, shape), value in zip(_moving(model.decoder), _first(model.decoder, firsts, nothing), strict=True):
        graph.output(name, value, ["rows", shape])
    if model.decoder.attention is not None:
        score = _score(model.decoder)
        keys = graph("MatMul", annotations, graph.weight(score.key.weight)) if hasattr(score, "key") else annotations
        graph.output("hidden", graph.hidden(source, PADDING), ["rows", "words"])
        graph.output("keys", keys, ["rows", "words", _key_size(model.decoder)])
        graph.output("values", annotations, ["rows", "words", model.decoder.shape.annotation_size])
    return graph


def _both_ways(graph: Graph, layer: nn.Module, x: str, lengths: str) -> tuple[str, str]:
    """A bidirectional layer: `words rows features` in and out, and the final states of both directions."""
    kind = "GRU" if isinstance(layer, nn.GRU) else "LSTM"
    assert isinstance(layer, nn.GRU | nn.LSTM)
    ways = [[getattr(layer, f"{part}_l0{way}") for part in PARTS] for way in ("", "_reverse")]
    weight, recurrent = (torch.stack([_ordered(kind, way[part]) for way in ways]) for part in (0, 1))
    bias = torch.stack([torch.cat([_ordered(kind, way[2]), _ordered(kind, way[3])]) for way in ways])
    inputs = [x, *(graph.weight(one) for one in (weight, recurrent, bias)), lengths]
    options: dict[str, Any] = {"hidden_size": layer.hidden_size, "direction": "bidirectional"}
    if kind == "GRU":
        options["linear_before_reset"] = 1  # the reset gate acts on the projected state, as in PyTorch
    found, final = graph.several(kind, 2, *inputs, **options)
    turned = graph("Transpose", found, perm=[0, 2, 1, 3])
    return graph("Reshape", turned, graph.numbers([0, 0, -1])), final


def _ordered(kind: str, parameter: Tensor) -> Tensor:
    gates = parameter.detach().chunk(len(_GATES[kind]))
    return torch.cat([gates[number] for number in _GATES[kind]])


def _moving(decoder: RecurrentAttentionDecoder) -> list[tuple[str, int]]:
    """The names and sizes of what changes from word to word."""
    parts = 1 if decoder.shape.cell == "gru" else 2
    names = [f"cell_{number}_{part}" for number in range(len(decoder.cells)) for part in range(parts)]
    if decoder.shape.feeds_input:
        names.append("fed")
    return [(name, decoder.shape.size) for name in names]


def _first(decoder: RecurrentAttentionDecoder, firsts: list[str], nothing: str) -> list[str]:
    """Their values before the first word."""
    values = []
    for first in firsts:
        values += [first] if decoder.shape.cell == "gru" else [first, nothing]
    return [*values, nothing] if decoder.shape.feeds_input else values


def _recurrent_step(model: RecurrentModel, int8: bool) -> Graph:
    graph, decoder, shape = Graph("step", int8), model.decoder, model.decoder.shape
    tokens = graph.input("tokens", "int64", ["rows"])
    states = {name: graph.input(name, "float32", ["rows", size]) for name, size in _moving(decoder)}
    if decoder.attention is not None:
        graph.input("hidden", "float32", ["rows", "words"])
        graph.input("keys", "float32", ["rows", "words", _key_size(decoder)])
        graph.input("values", "float32", ["rows", "words", shape.annotation_size])
    word = graph.embed(tokens, model.target_embedding)
    top = f"cell_{len(decoder.cells) - 1}_0"
    context = _look(graph, decoder, states[top]) if decoder.looks_before else None
    moved = _move(graph, decoder, word, [part for part in (context, states.get("fed")) if part is not None], states)
    if decoder.attention is not None and not decoder.looks_before:
        context = _look(graph, decoder, moved[top])
    read = [] if context is None else [context]
    if shape.writes_from == "maxout":
        pairs = graph.linear(graph("Concat", states[top], word, *read, axis=-1), decoder.write)
        pairs = graph("Reshape", pairs, graph.numbers([0, shape.size, 2]))
        features = graph("ReduceMax", pairs, graph.numbers([2]), keepdims=0)
    else:
        features = graph("Tanh", graph.linear(_joined(graph, [moved[top], *read]), decoder.write))
    if shape.feeds_input:
        moved["fed"] = features
    for name, size in _moving(decoder):
        graph.output(f"next_{name}", moved[name], ["rows", size])
    graph.output("logits", graph.logits(features, model.output), ["rows", model.output.out_features])
    return graph


def _move(
    graph: Graph, decoder: RecurrentAttentionDecoder, word: str, inner: list[str], states: dict[str, str]
) -> dict[str, str]:
    """Every cell, one word further."""
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


def _look(graph: Graph, decoder: RecurrentAttentionDecoder, query: str) -> str:
    """Score, normalise, read: one query for each row."""
    score, last = _score(decoder), graph.numbers([2])
    if isinstance(score, Additive):
        assert score.query.bias is not None
        asked = graph("MatMul", query, graph.weight(score.query.weight))
        asked = graph("Add", asked, graph.weight(score.query.bias))
        layer = graph("Tanh", graph("Add", graph("Unsqueeze", asked, graph.numbers([1])), "keys"))
        scores = graph("MatMul", layer, graph.weight(score.vector.detach().unsqueeze(-1)))
    else:
        asked = graph("Mul", query, graph.numbers(score.scale, "float32"))
        scores = graph("MatMul", "keys", graph("Unsqueeze", asked, last))
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
