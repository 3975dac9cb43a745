"""Recurrent layers over sequences of many lengths, without any padding.

The words of all sequences form one list. Sequences are ordered from the longest to the shortest, so those that have
not ended are always the first rows of a step, and no step computes padding. For training on a processor the
backward pass is written out: the gradient of the recurrent weights is one product over all words instead of a small one
for each step, and no gradients of slices are filled with zeros. Gain: 1.5 for GRUs, 1.4 for LSTMs
(`benchmarks/kernel_gains.py`).
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from sightline.kernels import enabled

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Steps(NamedTuple):
    """The order in which a list of words is processed: at each step one word of every sequence that is long enough.

    ``ahead`` are the indices of the words in that order, ``back`` the same from each sequence's end;
    ``returns`` and ``returns_back`` undo them. ``counts`` are the sequences of each step.
    """

    ahead: Int[Tensor, " n"]
    back: Int[Tensor, " n"]
    returns: Int[Tensor, " n"]
    returns_back: Int[Tensor, " n"]
    counts: list[int]

    @classmethod
    def of(cls, lengths: Int[Tensor, " r"]) -> "Steps":
        """For sequences concatenated in a list, the longest first, none of them empty."""
        device, longest = lengths.device, int(lengths[0])
        offsets = lengths.cumsum(0) - lengths
        row = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
        step = torch.arange(len(row), device=device) - offsets[row]
        counts = torch.bincount(step, minlength=longest)
        starts = counts.cumsum(0) - counts
        ahead, back = torch.empty_like(row), torch.empty_like(row)
        numbers = torch.arange(len(row), device=device)
        returns = starts[step] + row
        ahead[returns] = numbers
        returns_back = starts[lengths[row] - 1 - step] + row
        back[returns_back] = numbers
        return cls(ahead, back, returns, returns_back, counts.tolist())

    def turned(self) -> "Steps":
        """The same list, with every sequence processed from its end."""
        return Steps(self.back, self.ahead, self.returns_back, self.returns, self.counts)


def supported(layer: nn.RNNBase, x: Float[Tensor, "n e"], steps: Steps) -> bool:
    """PyTorch's kernel is the faster one where nothing is learned: for one long text by a half, LSTMs by much more.

    A layer of one direction is PyTorch's too: there is no other direction to share a product with.
    """
    return layer.bidirectional and x.device.type == "cpu" and torch.is_grad_enabled() and enabled()


def reference(layer: nn.RNNBase, x: Float[Tensor, "n e"], steps: Steps) -> Float[Tensor, "n a"]:
    """A GRU or LSTM layer of one or two directions over a list of words, by PyTorch's own kernel."""
    words = x.index_select(0, steps.ahead).to(layer.weight_hh_l0.dtype)  # type: ignore[arg-type]
    return layer(PackedSequence(words, torch.tensor(steps.counts)))[0].data.index_select(0, steps.returns)


def fast(layer: nn.RNNBase, x: Float[Tensor, "n e"], steps: Steps) -> Float[Tensor, "n a"]:
    """The same; at each step one product serves a word forward and a word backward."""
    ways = [[getattr(layer, f"{part}_l0{way}").to(x.dtype) for part in PARTS] for way in ("", "_reverse")]
    weights = [torch.stack([way[i].t() for way in ways]) for i in (0, 1)]
    biases = [torch.stack([way[i] for way in ways]).unsqueeze(1) for i in (2, 3)]
    loop = _GRU if isinstance(layer, nn.GRU) else _LSTM
    return loop.apply(x, weights[0], biases[0], weights[1], biases[1], steps)


def _enter(x: Tensor, steps: Steps) -> Float[Tensor, "2 n e"]:
    """The words in the order in which each direction reads them."""
    ordered = x.new_empty(2, *x.shape)
    torch.index_select(x, 0, steps.ahead, out=ordered[0])
    torch.index_select(x, 0, steps.back, out=ordered[1])
    return ordered


def _leave(states: Float[Tensor, "2 n h"], steps: Steps) -> Float[Tensor, "n a"]:
    """Both directions' states side by side, in the order of the list."""
    return torch.cat([states[0].index_select(0, steps.returns), states[1].index_select(0, steps.returns_back)], dim=-1)


def _enter_gradient(d: Float[Tensor, "2 n e"], steps: Steps) -> Float[Tensor, "n e"]:
    return d[0].index_select(0, steps.returns).add_(d[1].index_select(0, steps.returns_back))


def _leave_gradient(d: Float[Tensor, "n a"], steps: Steps) -> Float[Tensor, "2 n h"]:
    ahead, back = d.chunk(2, dim=-1)
    return torch.stack([ahead.index_select(0, steps.ahead), back.index_select(0, steps.back)])


def _before(states: Float[Tensor, "2 n h"], counts: list[int]) -> Float[Tensor, "2 n h"]:
    """The state before each word: that of its sequence one step earlier, zeros at the first."""
    before = torch.empty_like(states)
    before[:, : counts[0]] = 0.0
    if counts[-1] == counts[0]:
        before[:, counts[0] :] = states[:, : -counts[0]]
        return before
    blocks = states.split(counts, dim=1), before.split(counts, dim=1)
    for count, earlier, here in zip(counts[1:], blocks[0], blocks[1][1:], strict=False):
        here.copy_(earlier[:, :count])
    return before


def gru_gradients(
    above: Float[Tensor, "*b h"],
    hidden: Float[Tensor, "*b h"],
    gates: Float[Tensor, "*b h2"],
    candidate: Float[Tensor, "*b h"],
    own: Float[Tensor, "*b h"],
    out: Float[Tensor, "*b h4"],
) -> None:
    """The gradients of what a step is made from, side by side in ``out``; the state's own is ``above · update``.

    First that of ``own``, what the state gives to the candidate before it is reset; then those of reset and update,
    which are the same for the state's and for the input's part; last that of the input's part of the candidate. So the
    first three are what the state's weights need, and the last three what the input's do, and nothing stands twice.
    ``gates`` are reset and update.
    """
    size = hidden.shape[-1]
    reset, update = gates.chunk(2, dim=-1)
    d_own, d_gates, d_candidate = out.split((size, 2 * size, size), dim=-1)
    torch.addcmul(above, above, update, value=-1, out=d_candidate)
    d_candidate.addcmul_(d_candidate * candidate, candidate, value=-1)  # tanh' = 1 − tanh²
    torch.mul(d_candidate, own, out=d_gates[..., :size])
    torch.mul(above, hidden - candidate, out=d_gates[..., size:])
    d_gates.mul_(torch.addcmul(gates, gates, gates, value=-1))  # σ' = σ − σ²
    torch.mul(d_candidate, reset, out=d_own)


def tanh_(x: Tensor) -> Tensor:
    """In place, as 2 σ(2x) − 1: on a processor PyTorch's sigmoid takes much less time than its tanh."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


class _GRU(torch.autograd.Function):
    """Words `n e` → annotations `n 2h`. The form of torch.nn.GRU: the reset gate acts on the projected state."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, enter: Tensor, enter_bias: Tensor, weight: Tensor, bias: Tensor, steps: Steps
    ) -> Tensor:
        h, counts = weight.shape[1], steps.counts
        # Reset, update and candidate are made where the input's part of them stands.
        gates = torch.baddbmm(enter_bias, _enter(x, steps), enter)
        states = x.new_empty(2, len(x), h)
        owns = x.new_empty(2, len(x), h if any(ctx.needs_input_grad) else 0)
        state = x.new_zeros(2, counts[0], h)
        parts = (*gates.split((2 * h, h), dim=-1), states, owns)
        for count, both, candidate, moved, kept in zip(
            counts, *(part.split(counts, dim=1) for part in parts), strict=True
        ):
            state = state[:, :count]
            own_gates, own = torch.baddbmm(bias, state, weight).split((2 * h, h), dim=-1)
            both.add_(own_gates).sigmoid_()
            tanh_(candidate.addcmul_(both[..., :h], own))
            torch.lerp(candidate, state, both[..., h:], out=moved)
            if kept.shape[-1]:
                kept.copy_(own)
            state = moved
        ctx.save_for_backward(x, enter, weight, gates, states, owns)
        ctx.steps = steps
        return _leave(states, steps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, enter, weight, gates, states, owns = ctx.saved_tensors
        steps, h, counts = ctx.steps, weight.shape[1], ctx.steps.counts
        above, before = _leave_gradient(upstream[0], steps), _before(states, counts)
        d_all = gates.new_empty(2, len(x), 4 * h)
        # The state's weights in the order of its gradients: the candidate's first.
        back = torch.cat([weight[..., 2 * h :], weight[..., : 2 * h]], dim=-1).transpose(1, 2)
        later = above.new_zeros(2, 0, h)
        parts = (above, before, *gates.split((2 * h, h), dim=-1), owns, d_all)
        blocks = zip(*(reversed(part.split(counts, dim=1)) for part in parts), strict=True)
        for d_state, old, both, candidate, own, to_all in blocks:
            d_state[:, : later.shape[1]] += later
            gru_gradients(d_state, old, both, candidate, own, to_all)
            later = torch.baddbmm(d_state.mul_(both[..., h:]), to_all[..., : 3 * h], back)
        d_own, d_gates = d_all[..., : 3 * h], d_all[..., h:]
        d_weight, d_bias = before.transpose(1, 2) @ d_own, d_own.sum(dim=1, keepdim=True)
        return (
            _enter_gradient(torch.bmm(d_gates, enter.transpose(1, 2)), steps),
            _enter(x, steps).transpose(1, 2) @ d_gates,
            d_gates.sum(dim=1, keepdim=True),
            d_weight.roll(-h, dims=-1),
            d_bias.roll(-h, dims=-1),
            None,
        )


class _LSTM(torch.autograd.Function):
    """The same for the LSTM, with the gates in the order of torch.nn.LSTM: enter, forget, candidate, leave."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, enter: Tensor, enter_bias: Tensor, weight: Tensor, bias: Tensor, steps: Steps
    ) -> Tensor:
        h, counts = weight.shape[1], steps.counts
        gates = torch.baddbmm(enter_bias + bias, _enter(x, steps), enter)
        states, cells = x.new_empty(2, len(x), h), x.new_empty(2, len(x), h)
        state = cell = x.new_zeros(2, counts[0], h)
        parts = (gates, states, cells)
        for count, now, moved, kept in zip(counts, *(part.split(counts, dim=1) for part in parts), strict=True):
            now.baddbmm_(state[:, :count], weight)
            now[..., : 2 * h].sigmoid_()
            now[..., 2 * h : 3 * h].tanh_()
            now[..., 3 * h :].sigmoid_()
            enters, forget, candidate, leave = now.chunk(4, dim=-1)
            torch.mul(forget, cell[:, :count], out=kept).addcmul_(enters, candidate)
            torch.mul(leave, kept.tanh(), out=moved)
            state, cell = moved, kept
        ctx.save_for_backward(x, enter, weight, gates, states, cells)
        ctx.steps = steps
        return _leave(states, steps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, enter, weight, gates, states, cells = ctx.saved_tensors
        steps, h, counts = ctx.steps, weight.shape[1], ctx.steps.counts
        above = _leave_gradient(upstream[0], steps)
        d_gates = torch.empty_like(gates)
        back = weight.transpose(1, 2)
        later = later_cell = above.new_zeros(2, 0, h)
        parts = (above, _before(cells, counts), cells, gates, d_gates)
        blocks = zip(*(reversed(part.split(counts, dim=1)) for part in parts), strict=True)
        for d_state, old, cell, now, d_now in blocks:
            enters, forget, candidate, leave = now.chunk(4, dim=-1)
            to_enter, to_forget, to_candidate, to_leave = d_now.chunk(4, dim=-1)
            d_state[:, : later.shape[1]] += later
            seen = cell.tanh()
            torch.mul(d_state, leave, out=to_leave)
            d_cell = (seen * seen).neg_().add_(1).mul_(to_leave)
            d_cell[:, : later_cell.shape[1]] += later_cell
            to_leave.mul_(seen).mul_(1 - leave)
            torch.mul(d_cell, enters, out=to_enter)
            torch.mul(to_enter, (candidate * candidate).neg_().add_(1), out=to_candidate)
            to_enter.mul_(candidate).mul_(1 - enters)
            later_cell = d_cell.mul_(forget)
            torch.mul(later_cell, old, out=to_forget).mul_(1 - forget)
            later = d_now @ back
        words = _enter(x, steps).transpose(1, 2)
        sums = d_gates.sum(dim=1, keepdim=True)
        d_words = _enter_gradient(d_gates @ enter.transpose(1, 2), steps)
        d_weight = _before(states, counts).transpose(1, 2) @ d_gates
        return d_words, words @ d_gates, sums, d_weight, sums, None
