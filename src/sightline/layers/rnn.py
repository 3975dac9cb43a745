"""Recurrent layers: a bidirectional encoder over padded batches, and cells for decoders."""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sightline.layers.dropout import Dropout
from sightline.layers.gru import gru_step

CellKind = Literal["gru", "lstm"]
CellState = tuple[Float[Tensor, "*b h"], ...]  # (h,) of a GRU, (h, c) of an LSTM
PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Encoded(NamedTuple):
    """Annotations of the input, and the final states of the last layer: forward at the end, backward at the start."""

    annotations: Float[Tensor, "b s a"]
    forward: Float[Tensor, "b h"]
    backward: Float[Tensor, "b h"]


class BidirectionalEncoder(nn.Module):
    """One or more bidirectional layers. Padding is never read: the backward direction starts at the last word."""

    def __init__(self, kind: CellKind, input_size: int, size: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        network = nn.GRU if kind == "gru" else nn.LSTM
        sizes = [input_size, *[2 * size] * (layers - 1)]
        self.layers = nn.ModuleList(network(n, size, batch_first=True, bidirectional=True) for n in sizes)
        self.dropout = Dropout(dropout)
        self.annotation_size = 2 * size

    def forward(self, x: Float[Tensor, "b s e"], mask: Bool[Tensor, "b s"]) -> Encoded:
        run = _both_ways if x.device.type == "cpu" else _packed
        for i, layer in enumerate(self.layers):
            x, final = run(layer, self.dropout(x) if i else x, mask)
        return Encoded(x, final[0], final[1])


def _packed(layer: nn.Module, x: Float[Tensor, "b s e"], mask: Bool[Tensor, "b s"]) -> tuple[Tensor, Tensor]:
    """By PyTorch's own kernel: the annotations, and the final states of both directions."""
    # A row without any word still gets one position: packing knows no empty sequences.
    lengths = mask.sum(dim=-1).clamp(min=1).cpu()
    output, final = layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    annotations, _ = pad_packed_sequence(output, batch_first=True, total_length=mask.shape[1])
    return annotations, final if isinstance(final, Tensor) else final[0]


def _both_ways(layer: nn.Module, x: Float[Tensor, "b s e"], mask: Bool[Tensor, "b s"]) -> tuple[Tensor, Tensor]:
    """The same, a word forward and a word backward in one product at each step.

    On a processor PyTorch's kernel takes its time in the backward pass: for every word it fills a gradient as large as
    that of all words with zeros. Where a sentence is padded the state stays as it is, so the backward direction starts
    at the last word.
    """
    ways = [[getattr(layer, f"{part}_l0{way}") for part in PARTS] for way in ("", "_reverse")]
    # The whole input is projected before the loop; the backward direction has its words in reverse.
    given = torch.stack([F.linear(x, ways[0][0], ways[0][2]), F.linear(x, ways[1][0], ways[1][2]).flip(1)])
    weight = torch.stack([way[1].t() for way in ways])
    bias = torch.stack([way[3] for way in ways]).unsqueeze(1)
    mask = mask.clone()
    mask[:, 0] |= ~mask.any(dim=-1)  # a row without any word reads one position, as packing makes it do
    real = torch.stack([mask, mask.flip(1)])
    whole = real.all(dim=1).all(dim=0).tolist()
    state: CellState = (x.new_zeros(2, len(x), weight.shape[1]),) * (1 if isinstance(layer, nn.GRU) else 2)
    states = []
    for t, projected in enumerate(given.unbind(2)):
        recurrent = torch.baddbmm(bias, state[0], weight)
        if len(state) == 1:
            moved: CellState = (gru_step(projected, recurrent, state[0]),)
        else:
            moved = _lstm(projected + recurrent, state[1])
        if not whole[t]:
            here = real[:, :, t, None]
            moved = tuple(torch.where(here, new, old) for new, old in zip(moved, state, strict=True))
        state = moved
        states.append(state[0])
    forward, backward = torch.stack(states, dim=2)
    annotations = torch.cat([forward, backward.flip(1)], dim=-1)
    return annotations.masked_fill(~mask.unsqueeze(-1), 0.0) if not all(whole) else annotations, state[0]


class Cell(nn.Module):
    """One recurrent layer, one step at a time, with the input's part of the gates computed by the caller's choice.

    `project` does not depend on the state, so a decoder can do it for all of its inputs at once, outside the loop.
    """

    def __init__(self, kind: CellKind, input_size: int, size: int) -> None:
        super().__init__()
        self.kind, self.size = kind, size
        gates = 3 if kind == "gru" else 4
        self.input = nn.Linear(input_size, gates * size)
        self.recurrent = nn.Linear(size, gates * size)
        with torch.no_grad():
            nn.init.orthogonal_(self.recurrent.weight)
            if kind == "lstm":  # a forget gate that starts open (Jozefowicz et al. 2015)
                self.input.bias[size : 2 * size] = 1.0
                self.recurrent.bias[size : 2 * size] = 0.0

    def begin(self, hidden: Float[Tensor, "b h"], memory: Float[Tensor, "b h"] | None = None) -> CellState:
        """The first state. An LSTM's memory is empty unless it is given; a GRU has none."""
        if self.kind == "gru":
            return (hidden,)
        return hidden, torch.zeros_like(hidden) if memory is None else memory

    def project(self, x: Float[Tensor, "*b e"]) -> Float[Tensor, "*b g"]:
        return self.input(x)

    def forward(self, projected: Float[Tensor, "b g"], state: CellState) -> CellState:
        recurrent = self.recurrent(state[0])
        if self.kind == "gru":
            return (gru_step(projected, recurrent, state[0]),)
        return _lstm(projected + recurrent, state[1])


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(cell), cell
