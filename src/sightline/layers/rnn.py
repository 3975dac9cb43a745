"""Recurrent layers: a bidirectional encoder over padded batches, and cells for decoders."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sightline.layers.dropout import Dropout

CellKind = Literal["gru", "lstm"]
CellState = tuple[Float[Tensor, "b h"], ...]  # (h,) of a GRU, (h, c) of an LSTM


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
        # A row without any word still gets one position: packing knows no empty sequences.
        lengths = mask.sum(dim=-1).clamp(min=1).cpu()
        for i, layer in enumerate(self.layers):
            packed = pack_padded_sequence(self.dropout(x) if i else x, lengths, batch_first=True, enforce_sorted=False)
            output, final = layer(packed)
            x, _ = pad_packed_sequence(output, batch_first=True, total_length=mask.shape[1])
        hidden = final if isinstance(final, Tensor) else final[0]
        return Encoded(x, hidden[0], hidden[1])


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

    def begin(self, hidden: Float[Tensor, "b h"]) -> CellState:
        return (hidden,) if self.kind == "gru" else (hidden, torch.zeros_like(hidden))

    def project(self, x: Float[Tensor, "*b e"]) -> Float[Tensor, "*b g"]:
        return self.input(x)

    def forward(self, projected: Float[Tensor, "b g"], state: CellState) -> CellState:
        recurrent = self.recurrent(state[0])
        if self.kind == "gru":
            return (_gru(projected, recurrent, state[0], self.size),)
        return _lstm(projected + recurrent, state[1])


def _gru(projected: Tensor, recurrent: Tensor, hidden: Tensor, size: int) -> Tensor:
    """Cho et al. 2014, in the form of torch.nn.GRU: the reset gate acts on the projected state."""
    given_gates, given = projected.split((2 * size, size), dim=-1)
    own_gates, own = recurrent.split((2 * size, size), dim=-1)
    reset, update = torch.sigmoid(given_gates + own_gates).chunk(2, dim=-1)
    candidate = torch.tanh(torch.addcmul(given, reset, own))
    return torch.lerp(candidate, hidden, update)


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(cell), cell
