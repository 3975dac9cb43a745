"""All steps of a Neural Turing Machine with the backward pass written out.

A step is some fifty small operations, and PyTorch's own backward pass takes twice as many. Written out, heads share
what they can, the gradients of all weights are one product over all steps at the end, and norms of the memory's
gradient come from the cosines. Gain: 2.1 in training, at 128 slots of 20 numbers (`benchmarks/kernel_gains.py`).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled

if TYPE_CHECKING:
    from sightline.models.turing import TuringMachine

TINY = 1e-12  # as of `sightline.attention.dot.unit_length`


class MachineSizes(NamedTuple):
    """Whether the controller is an LSTM, its size, the heads of both kinds, the width of a slot, the shifts."""

    lstm: bool
    size: int
    write_heads: int
    read_heads: int
    width: int
    shifts: int


def supported(machine: "TuringMachine", inputs: Float[Tensor, "b t d"]) -> bool:
    """Softmax alone, and no ring that is shorter than the shifts."""
    addressing = machine.config.addressing
    plain = addressing.normaliser.kind == "softmax" and 2 * addressing.furthest_shift < machine.slots
    return plain and inputs.device.type == "cpu" and inputs.dtype in (torch.float32, torch.float64) and enabled()


def reference(machine: "TuringMachine", inputs: Float[Tensor, "b t d"]) -> Float[Tensor, "b t f"]:
    """Features of all steps, step by step."""
    return machine.features(inputs)


def fast(machine: "TuringMachine", inputs: Float[Tensor, "b t d"]) -> Float[Tensor, "b t f"]:
    """The same. Weights of maps that read the same are put side by side."""
    state, size, config = machine.begin(len(inputs)), inputs.shape[-1], machine.config
    own = machine.controller.input if machine.recurrent else machine.controller
    assert isinstance(own, nn.Linear)
    bias: Tensor = own.bias
    recurrent = own.weight[:, size:].t()
    hidden = cell = inputs.new_zeros(len(inputs), config.size)
    if machine.recurrent:
        back = machine.controller.recurrent
        assert isinstance(back, nn.Linear)
        bias, recurrent = bias + back.bias, torch.cat([recurrent, back.weight.t()])
        hidden, cell = state.controller
    projected = F.linear(inputs.transpose(0, 1), own.weight[:, :size], bias)
    weights: list[Tensor] = [machine.content.weight.t()]
    biases: list[Tensor] = [machine.content.bias]
    for one in (machine.read.head, machine.write.head):
        assert one.bias is not None
        weights.insert(0, one.weight.transpose(0, 1).flatten(1))
        biases.insert(0, one.bias.flatten())
    assert state.writing.weights is not None
    assert state.reading.weights is not None
    start = (state.memory, state.reads, hidden, cell, state.writing.weights, state.reading.weights)
    shifts = 2 * config.addressing.furthest_shift + 1
    sizes = MachineSizes(machine.recurrent, config.size, config.write_heads, config.read_heads, config.width, shifts)
    made = _Run.apply(projected, recurrent, torch.cat(weights, dim=-1), torch.cat(biases), *start, sizes)
    return made.transpose(0, 1)


class _Heads(NamedTuple):
    """What heads need of their parameters: key and its inverse length, strength, gate, shifts, sharpness."""

    key: Tensor
    inverse: Tensor
    strength: Tensor
    gate: Tensor
    shift: Tensor
    sharp: Tensor

    def part(self, start: int, end: int) -> "_Heads":
        return _Heads(*(one[:, start:end] for one in self))


class _Address(NamedTuple):
    """What the backward pass of addressing needs."""

    unit: Tensor  # the memory in units of its lengths
    inverse: Tensor  # of these lengths
    cosine: Tensor
    content: Tensor
    last: Tensor
    around: Tensor  # mixed weights, with those of the other end behind each end
    shifted: Tensor
    logs: Tensor  # of the shifted weights
    weights: Tensor


def _heads(raw: Float[Tensor, "b n p"], sizes: MachineSizes) -> _Heads:
    width, shifts = sizes.width, sizes.shifts
    key = raw[..., :width]
    inverse = torch.linalg.vector_norm(key, dim=-1, keepdim=True).clamp_(min=TINY).reciprocal_()
    soft = F.softplus(raw[..., width :: shifts + 2])  # strength and sharpness
    return _Heads(
        key * inverse,
        inverse,
        soft[..., :1],
        torch.sigmoid(raw[..., width + 1 : width + 2]),
        torch.softmax(raw[..., width + 2 : -1], dim=-1),
        1 + soft[..., 1:],
    )


def _address(heads: _Heads, memory: Tensor, last: Tensor) -> _Address:
    inverse = torch.linalg.vector_norm(memory, dim=-1, keepdim=True).clamp_(min=TINY).reciprocal_()
    unit = memory * inverse
    cosine = torch.bmm(heads.key, unit.transpose(1, 2))
    content = torch.softmax(heads.strength * cosine, dim=-1)
    around = _around(torch.lerp(last, content, heads.gate), heads.shift.shape[-1] // 2)
    shifted = _turned(around, heads.shift.flip(-1)).clamp_(min=torch.finfo(last.dtype).tiny)
    logs = shifted.log()
    weights = torch.softmax(heads.sharp * logs, dim=-1)  # w^γ / Σ w^γ
    return _Address(unit, inverse, cosine, content, last, around, shifted, logs, weights)


def _around(x: Float[Tensor, "b n s"], furthest: int) -> Float[Tensor, "b n e"]:
    """With so many of the other end's numbers behind each end of the ring."""
    return torch.cat([x[..., -furthest:], x, x[..., :furthest]], dim=-1) if furthest else x


def _turned(around: Float[Tensor, "b n e"], shift: Float[Tensor, "b n k"]) -> Float[Tensor, "b n s"]:
    """The sum of the ring's turns, weighed by ``shift``."""
    shifts = shift.shape[-1]
    slots = around.shape[-1] - shifts + 1
    total = around[..., :slots] * shift[..., :1]
    for number in range(1, shifts):
        total = total.addcmul_(around[..., number : number + slots], shift[..., number : number + 1])
    return total


def _address_back(grad: Tensor, heads: _Heads, seen: _Address) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the raw parameters, of the memory and of the last weights."""
    shift, shifts, slots = heads.shift, heads.shift.shape[-1], grad.shape[-1]
    centred = (grad - (grad * seen.weights).sum(dim=-1, keepdim=True)).mul_(seen.weights)
    to_sharp = (centred * seen.logs).sum(dim=-1, keepdim=True)
    to_shifted = (centred * heads.sharp).div_(seen.shifted)
    to_shift = torch.stack(
        [(to_shifted * seen.around[..., start : start + slots]).sum(dim=-1) for start in range(shifts - 1, -1, -1)],
        dim=-1,
    )
    to_mixed = _turned(_around(to_shifted, shifts // 2), shift)
    to_gate = (to_mixed * (seen.content - seen.last)).sum(dim=-1, keepdim=True)
    to_content = to_mixed * heads.gate
    scored = (to_content - (to_content * seen.content).sum(dim=-1, keepdim=True)).mul_(seen.content)
    to_cosine = scored * heads.strength
    pairs = to_cosine * seen.cosine
    to_key = (torch.bmm(to_cosine, seen.unit) - pairs.sum(dim=-1, keepdim=True) * heads.key).mul_(heads.inverse)
    to_memory = torch.bmm(to_cosine.transpose(1, 2), heads.key)
    to_memory = to_memory.addcmul_(seen.unit, pairs.sum(dim=1).unsqueeze(-1), value=-1).mul_(seen.inverse)
    to_strength = (scored * seen.cosine).sum(dim=-1, keepdim=True)
    raw = torch.cat(
        [
            to_key,
            to_strength * -torch.expm1(-heads.strength),
            to_gate * heads.gate * (1 - heads.gate),
            shift * (to_shift - (to_shift * shift).sum(dim=-1, keepdim=True)),
            to_sharp * -torch.expm1(1 - heads.sharp),
        ],
        dim=-1,
    )
    return raw, to_memory, to_mixed.sub_(to_content)


def _write(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The memory after all heads erased and then added; and what each left of it."""
    left = [1 - weights[:, head].unsqueeze(-1) * erase[:, head].unsqueeze(1) for head in range(weights.shape[1])]
    kept = memory
    for one in left:
        kept = kept * one
    return torch.baddbmm(kept, weights.transpose(1, 2), add), left


def _write_back(
    grad: Tensor, memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor, left: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the memory before, of the weights, of what is erased and of what is added."""
    to_add = torch.bmm(weights, grad)
    to_weights = torch.bmm(add, grad.transpose(1, 2))
    to_erase = torch.empty_like(erase)
    product = grad * memory
    for head in range(len(left)):
        others = product
        for other, one in enumerate(left):
            if other != head:
                others = others * one
        to_weights[:, head] -= torch.bmm(others, erase[:, head].unsqueeze(-1)).squeeze(-1)
        to_erase[:, head] = -torch.bmm(weights[:, head].unsqueeze(1), others).squeeze(1)
    to_memory = grad
    for one in left:
        to_memory = to_memory * one
    return to_memory, to_weights, to_erase, to_add


class _Kept(NamedTuple):
    """What the backward pass needs of a step."""

    entered: Tensor  # what the controller's recurrent map read
    gates: tuple[Tensor, ...]
    cell: Tensor  # of the step before
    hidden: Tensor
    heads: _Heads
    writing: _Address
    reading: _Address
    erase: Tensor
    add: Tensor
    left: list[Tensor]
    before: Tensor
    memory: Tensor


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        inputs: Tensor,
        recurrent: Tensor,
        head_weight: Tensor,
        bias: Tensor,
        memory: Tensor,
        reads: Tensor,
        hidden: Tensor,
        cell: Tensor,
        writing: Tensor,
        reading: Tensor,
        sizes: MachineSizes,
    ) -> Tensor:
        size, writers, readers, width = sizes.size, sizes.write_heads, sizes.read_heads, sizes.width
        heads = writers + readers
        each = width + sizes.shifts + 3
        learns = any(context.needs_input_grad)
        kept: list[_Kept] = []
        features = inputs.new_empty(len(inputs), len(reads), size + reads.shape[-1])
        for step, x in enumerate(inputs):
            if sizes.lstm:
                entered = torch.cat([reads, hidden], dim=-1)
                gates = torch.addmm(x, entered, recurrent)
                enter, forget, new, leave = gates.chunk(4, dim=-1)
                enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
                before_cell, cell = cell, forget * cell + enter * new
                shown = cell.tanh()
                hidden = leave * shown
                acts: tuple[Tensor, ...] = (enter, forget, new, leave, shown)
            else:
                entered, before_cell = reads, cell
                hidden = torch.addmm(x, entered, recurrent).tanh()
                acts = ()
            raw = torch.addmm(bias, hidden, head_weight)
            parts = _heads(raw[:, : heads * each].unflatten(-1, (heads, each)), sizes)
            written = _address(parts.part(0, writers), memory, writing)
            content = raw[:, heads * each :].unflatten(-1, (2, writers, width))
            erase, add = content[:, 0].sigmoid(), content[:, 1].tanh()
            before = memory
            memory, left = _write(memory, written.weights, erase, add)
            read = _address(parts.part(writers, heads), memory, reading)
            reads = torch.bmm(read.weights, memory).flatten(1)
            writing, reading = written.weights, read.weights
            features[step, :, :size], features[step, :, size:] = hidden, reads
            if learns:
                kept.append(
                    _Kept(entered, acts, before_cell, hidden, parts, written, read, erase, add, left, before, memory)
                )
        context.kept, context.sizes = kept, sizes
        context.save_for_backward(recurrent, head_weight)
        return features

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, head_weight = context.saved_tensors
        sizes: MachineSizes = context.sizes
        kept: list[_Kept] = context.kept
        size, writers, width = sizes.size, sizes.write_heads, sizes.width
        last = kept[-1]
        to_memory = torch.zeros_like(last.memory)
        to_reads = grad.new_zeros(grad.shape[1], grad.shape[2] - size)
        to_hidden, to_cell = torch.zeros_like(last.hidden), torch.zeros_like(last.cell)
        to_writing, to_reading = torch.zeros_like(last.writing.weights), torch.zeros_like(last.reading.weights)
        to_inputs = grad.new_empty(len(grad), grad.shape[1], recurrent.shape[1])
        to_raw = grad.new_empty(len(grad), grad.shape[1], head_weight.shape[1])
        for step in range(len(grad) - 1, -1, -1):
            now = kept[step]
            parts, memory = now.heads, now.memory
            read_grad = (to_reads + grad[step, :, size:]).unflatten(-1, (-1, width))
            weights_grad = torch.baddbmm(to_reading, read_grad, memory.transpose(1, 2))
            reading = parts.part(writers, parts.key.shape[1])
            read_raw, through, to_reading = _address_back(weights_grad, reading, now.reading)
            to_memory = torch.baddbmm(to_memory + through, now.reading.weights.transpose(1, 2), read_grad)
            writing = parts.part(0, writers)
            weights = now.writing.weights
            to_memory, more, to_erase, to_add = _write_back(
                to_memory, now.before, weights, now.erase, now.add, now.left
            )
            write_raw, through, to_writing = _address_back(to_writing + more, writing, now.writing)
            to_memory = to_memory + through
            raw = to_raw[step]
            torch.cat(
                [
                    write_raw.flatten(1),
                    read_raw.flatten(1),
                    (to_erase * now.erase * (1 - now.erase)).flatten(1),
                    (to_add * (1 - now.add.square())).flatten(1),
                ],
                dim=-1,
                out=raw,
            )
            to_hidden = torch.addmm(to_hidden + grad[step, :, :size], raw, head_weight.t())
            gates = to_inputs[step]
            if sizes.lstm:
                enter, forget, new, leave, shown = now.gates
                to_cell = torch.addcmul(to_cell, to_hidden * leave, 1 - shown.square())
                torch.cat(
                    [
                        to_cell * new * enter * (1 - enter),
                        to_cell * now.cell * forget * (1 - forget),
                        to_cell * enter * (1 - new.square()),
                        to_hidden * shown * leave * (1 - leave),
                    ],
                    dim=-1,
                    out=gates,
                )
                to_cell = to_cell * forget
                entered = torch.mm(gates, recurrent.t())
                to_reads, to_hidden = entered[:, :-size], entered[:, -size:]
            else:
                torch.mul(to_hidden, 1 - now.hidden.square(), out=gates)
                to_reads, to_hidden = torch.mm(gates, recurrent.t()), torch.zeros_like(to_hidden)
        flat = to_raw.flatten(0, 1)
        to_recurrent = torch.cat([one.entered for one in kept]).t() @ to_inputs.flatten(0, 1)
        to_weight = torch.cat([one.hidden for one in kept]).t() @ flat
        starts = (to_memory, to_reads, to_hidden, to_cell, to_writing, to_reading)
        return to_inputs, to_recurrent, to_weight, flat.sum(dim=0), *starts, None
