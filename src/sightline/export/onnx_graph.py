"""ONNX graphs written node by node, which is quicker and plainer than tracing: what is written is what is run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from sightline.files import whole_file

OPSET, IR = 20, 10  # what runtimes since 2024 read
HIDDEN = -1e30  # added to the scores of padding: no weight is left, and no sum overflows
Kind = Literal["int64", "float32"]
_TYPES = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}


class Graph:
    """Calling it with the kind of a node and its inputs adds the node, and gives the name of its output."""

    def __init__(self, name: str, int8: bool = False) -> None:
        self.name, self.int8 = name, int8
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._names: dict[Any, str] = {}
        self._kept: list[Tensor] = []  # the addresses of tensors are keys as long as they live

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
        """A parameter; the same one twice is kept once."""
        self._kept.append(tensor)
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        return self._names.get(key) or self._constant(key, tensor.detach().to("cpu", torch.float32).numpy())

    def linear(self, x: str, *layers: nn.Linear, factors: Sequence[float] = ()) -> str:
        """Layers that read the same, in one product; ``factors`` are multiplied into what each gives."""
        times = factors or [1.0] * len(layers)
        weight = torch.cat([layer.weight * factor for layer, factor in zip(layers, times, strict=True)])
        x = self("MatMul", x, self.weight(weight.t().contiguous()))
        if layers[0].bias is None:
            return x
        bias = torch.cat([layer.bias * factor for layer, factor in zip(layers, times, strict=True)])
        return self("Add", x, self.weight(bias))

    def logits(self, x: str, layer: nn.Linear) -> str:
        """The output layer, which may share its table with the embedding."""
        if self.int8:  # the converter to int8 wants a product with a table of its own
            return self.linear(x, layer)
        return self("Gemm", x, self.weight(layer.weight), self.weight(layer.bias), transB=1)

    def norm(self, x: str, layer: nn.LayerNorm) -> str:
        scale, shift = self.weight(layer.weight), self.weight(layer.bias)
        return self("LayerNormalization", x, scale, shift, axis=-1, epsilon=layer.eps)

    def embed(self, tokens: str, table: nn.Embedding) -> str:
        """Vectors of tokens, as `TokenEmbedding` gives them."""
        factor = float(table.embedding_dim) ** 0.5
        if not self.int8:
            return self("Mul", self("Gather", self.weight(table.weight), tokens), self.numbers(factor, "float32"))
        # Every word has a scale of its own: rare ones are small.
        weight = table.weight.detach().to("cpu", torch.float32)
        scale = weight.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 127
        rounded = self("Gather", self.numbers((weight / scale).round().numpy(), "int8"), tokens)
        return self("Mul", self("Cast", rounded, to=1), self("Gather", self.weight(scale * factor), tokens))

    def hidden(self, tokens: str, padding: int) -> str:
        """What is added to the scores of a source: nothing where words stand, `HIDDEN` on padding."""
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
        if self.int8:  # there is nothing to prepare here that the converter would otherwise ask for
            helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
        onnx.checker.check_model(model)
        with whole_file(path) as part:
            part.write_bytes(model.SerializeToString())

    def _constant(self, key: Any, array: np.ndarray) -> str:
        if key not in self._names:
            name = self._names[key] = f"constant_{len(self._constants)}"
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return self._names[key]
