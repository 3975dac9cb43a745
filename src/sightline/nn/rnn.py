"""Recurrent layers: a bidirectional encoder over padded batches, and cells for decoders."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention.observed import may_bypass
from sightline.kernels import ragged
from sightline.nn.dropout import Dropout

CellKind = Literal["gru", "lstm"]
Reading = Literal["both", "forwards", "backwards"]
CellState = tuple[Float[Tensor, "*b h"], ...]  # (h,) of a GRU, (h, c) of an LSTM


class Encoded(NamedTuple):
    """Annotations of the input, and the final states of the last layer: forward at the end, backward at the start.

    The state of a direction in which nothing is read has no features.
    """

    annotations: Float[Tensor, "b s a"]
    forward: Float[Tensor, "b h"]
    backward: Float[Tensor, "b g"]


def longest_first(mask: Bool[Tensor, "b s"]) -> tuple[Int[Tensor, " b"], Int[Tensor, " b"], Int[Tensor, " n"]]:
    """The rows of a padded batch from the longest to the shortest: their lengths, which they are, and the places of
    their words in the flattened batch, one row behind the other.
    """
    lengths, order = mask.sum(dim=-1).sort(descending=True, stable=True)
    return lengths, order, torch.arange(mask.numel(), device=mask.device).view(mask.shape)[order][mask[order]]


class BidirectionalEncoder(nn.Module):
    """One or more bidirectional layers. Padding is never read: the backward direction starts at the last word.

    ``reads`` can leave one direction out. The annotation of a word stands where the word stands, in any direction.
    """

    def __init__(
        self,
        kind: CellKind,
        input_size: int,
        size: int,
        layers: int = 1,
        dropout: float = 0.0,
        reads: Reading = "both",
    ) -> None:
        super().__init__()
        network = nn.GRU if kind == "gru" else nn.LSTM
        self.reads = reads
        self.sizes = (0 if reads == "backwards" else size, 0 if reads == "forwards" else size)
        self.annotation_size = sum(self.sizes)
        sizes = [input_size, *[self.annotation_size] * (layers - 1)]
        self.layers = nn.ModuleList(network(n, size, batch_first=True, bidirectional=reads == "both") for n in sizes)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b s e"], mask: Bool[Tensor, "b s"]) -> Encoded:
        there = mask.clone()
        there[:, 0] |= ~mask.any(dim=-1)  # a row without any word reads one position
        lengths, order, places = longest_first(there)
        words = self.annotate(x.flatten(0, 1).index_select(0, places), lengths)
        annotations = words.new_zeros(mask.numel(), self.annotation_size).index_copy(0, places, words)
        ends = lengths.cumsum(0)
        forward, backward = words.split(self.sizes, dim=-1)
        rows = order.argsort()
        return Encoded(
            annotations.view(*mask.shape, self.annotation_size),
            forward.index_select(0, (ends - 1)[rows]),
            backward.index_select(0, (ends - lengths)[rows]),
        )

    def annotate(self, words: Float[Tensor, "n e"], lengths: Int[Tensor, " r"]) -> Float[Tensor, "n a"]:
        """Each word of sequences that stand one behind the other, the longest first, none of them empty."""
        if not len(words):
            return words.new_zeros(0, self.annotation_size)
        steps = ragged.Steps.of(lengths)
        if self.reads == "backwards":
            steps = steps.turned()
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, nn.RNNBase)
            inputs = (layer, self.dropout(words) if i else words, steps)
            kernel = ragged.fast if ragged.supported(*inputs) and may_bypass(layer) else ragged.reference
            words = kernel(*inputs)
        return words


class Cell(nn.Module):
    """One recurrent layer, one step at a time, with the input's part of the gates computed by the caller's choice.

    `project` does not depend on the state, so a decoder can do it for all of its inputs at once, outside the loop.
    """

    def __init__(self, kind: CellKind | Literal["rnn"], input_size: int, size: int) -> None:
        super().__init__()
        self.kind, self.size = kind, size
        gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
        self.input = nn.Linear(input_size, gates * size)
        self.recurrent = nn.Linear(size, gates * size)
        with torch.no_grad():
            nn.init.orthogonal_(self.recurrent.weight)
            if kind == "lstm":  # a forget gate that starts open (Jozefowicz et al. 2015)
                self.input.bias[size : 2 * size] = 1.0
                self.recurrent.bias[size : 2 * size] = 0.0

    def begin(self, hidden: Float[Tensor, "b h"], memory: Float[Tensor, "b h"] | None = None) -> CellState:
        """The first state. An LSTM's memory is empty unless it is given; a GRU has none."""
        if self.kind != "lstm":
            return (hidden,)
        return hidden, torch.zeros_like(hidden) if memory is None else memory

    def project(self, x: Float[Tensor, "*b e"]) -> Float[Tensor, "*b g"]:
        return self.input(x)

    def forward(self, projected: Float[Tensor, "b g"], state: CellState) -> CellState:
        recurrent = self.recurrent(state[0])
        if self.kind == "rnn":
            return (torch.tanh(projected + recurrent),)
        if self.kind == "gru":
            return (_gru(projected, recurrent, state[0]),)
        return _lstm(projected + recurrent, state[1])


def _gru(projected: Tensor, recurrent: Tensor, hidden: Tensor) -> Tensor:
    """Cho et al. 2014, in the form of torch.nn.GRU: the reset gate acts on the projected state."""
    inputs, own = projected.chunk(3, dim=-1), recurrent.chunk(3, dim=-1)
    reset, update = (torch.sigmoid(inputs[i] + own[i]) for i in (0, 1))
    return torch.lerp(torch.tanh(inputs[2] + reset * own[2]), hidden, update)


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(cell), cell
