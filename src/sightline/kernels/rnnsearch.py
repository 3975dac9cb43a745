"""The loop of RNNsearch (Bahdanau et al. 2015) over the words of a target, with its gradient written out.

At each word the previous state attends to the annotations by additive attention, and a GRU is updated with the word and
the context. In autograd, every step adds its share to gradients as large as all annotations and all weights. Here the
steps keep what the weights need, and each gradient is one product over all words. The hidden layer of the score,
``tanh(W s + U h)``, is the largest tensor: the backward pass computes it again instead of keeping it, which takes no
longer. For training on a processor; `RecurrentAttentionDecoder` is what it must equal, and a test holds it to that.
Gain: 1.9 (`benchmarks/kernel_gains.py`).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled
from sightline.kernels.ragged import gru_gradients, tanh_
from sightline.kernels.softmax import softmax, softmax_gradient

if TYPE_CHECKING:
    from sightline.attention import Composed, Memory
    from sightline.nn.rnn import Cell


class AlignedTarget(NamedTuple):
    """All words of a target, word after word: the first state and the one after each word, what each read, and the
    weights with which it read."""

    states: Float[Tensor, "t1 b h"]
    contexts: Float[Tensor, "t b c"]
    weights: Float[Tensor, "t b s"]


def supported(cell: "Cell", state: Float[Tensor, "b h"], memory: "Memory") -> bool:
    """Whether gradients may be needed, and every row of the batch has something to attend to."""
    if not torch.is_grad_enabled() or not enabled() or cell.kind != "gru":
        return False
    if memory.keys.device.type != "cpu" or memory.keys.dtype not in (torch.float32, torch.float64):
        return False
    return len(memory.keys) == len(state) and (memory.mask is None or bool(memory.mask.any(dim=-1).all()))


def reference(
    attention: "Composed", cell: "Cell", inner_input: nn.Linear, projected: Tensor, state: Tensor, memory: "Memory"
) -> AlignedTarget:
    states, contexts, weights = [state], [], []
    for word in projected:
        read = attention(states[-1].unsqueeze(1), memory, need_weights=True)
        contexts.append(read.context.squeeze(1))
        weights.append(read.weights.squeeze(1))
        states += cell(word + inner_input(contexts[-1]), (states[-1],))
    return AlignedTarget(torch.stack(states), torch.stack(contexts), torch.stack(weights))


def fast(
    attention: "Composed", cell: "Cell", inner_input: nn.Linear, projected: Tensor, state: Tensor, memory: "Memory"
) -> AlignedTarget:
    """From what the words give to the gates `t b g`, the first state `b h` and the memory; the score is additive."""
    score: Any = attention.score
    query, vector = score.query, score.vector
    # tanh x = 2 σ(2x) − 1, and a softmax does not see the 1: the 2s go into the weights, and two passes over the hidden
    # layer are saved. One product gives the query and the state's part of the cell, of its candidate first.
    weight, bias = (part.roll(cell.size, dims=0) for part in (cell.recurrent.weight, cell.recurrent.bias))
    from_state = torch.cat([2 * query.weight.t(), weight])
    bias = torch.cat([2 * query.bias.flatten(), bias])
    return AlignedTarget(
        *_Alignment.apply(
            projected,
            state,
            (2 * memory.keys).contiguous(),
            memory.values,
            memory.mask,
            from_state,
            bias,
            2 * vector,
            inner_input.weight,
        )
    )


def _hidden(query: Float[Tensor, "b a"], keys: Float[Tensor, "b s a"], out: Tensor) -> Float[Tensor, "b s a"]:
    return torch.add(query.unsqueeze(1), keys, out=out).sigmoid_()


class _Alignment(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Float[Tensor, "t b g"],
        state: Float[Tensor, "b h"],
        keys: Float[Tensor, "b s a"],
        values: Float[Tensor, "b s c"],
        mask: Bool[Tensor, "b s"] | None,
        from_state: Float[Tensor, "ag h"],
        bias: Float[Tensor, " ag"],
        vector: Float[Tensor, " a"],
        from_context: Float[Tensor, "g c"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        (words, rows, _), h, (_, s, a) = projected.shape, state.shape[-1], keys.shape
        states, gates = state.new_empty(words + 1, rows, h), torch.empty_like(projected)
        givens = state.new_empty(words, rows, len(from_state))  # the query, then the state's part of the cell
        contexts, weights = state.new_empty(words, rows, values.shape[-1]), state.new_empty(words, rows, s)
        hidden = torch.empty_like(keys)
        hides = None if mask is None else torch.zeros_like(weights[0]).masked_fill_(~mask, torch.finfo(keys.dtype).min)
        states[0] = state
        for t in range(words):
            given, gate, state = givens[t], gates[t], states[t]
            torch.addmm(bias, state, from_state.t(), out=given)
            scores = torch.mv(_hidden(given[:, :a], keys, hidden).view(-1, a), vector).view(rows, s)
            weights[t] = softmax(scores if hides is None else scores.add_(hides))
            torch.bmm(weights[t].unsqueeze(1), values, out=contexts[t].unsqueeze(1))
            torch.addmm(projected[t], contexts[t], from_context.t(), out=gate)
            both, candidate = gate.split((2 * h, h), dim=-1)
            both.add_(given[:, a + h :]).sigmoid_()
            tanh_(candidate.addcmul_(both[:, :h], given[:, a : a + h]))
            torch.lerp(candidate, state, both[:, h:], out=states[t + 1])
        ctx.save_for_backward(keys, values, from_state, vector, from_context, states, gates, givens, contexts, weights)
        return states, contexts, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        keys, values, from_state, vector, from_context, states, gates, givens, contexts, weights = ctx.saved_tensors
        # Where nothing was made of an output, its gradient is None.
        given_states, given_contexts, from_weights = upstream
        d_states = torch.zeros_like(states) if given_states is None else given_states
        from_above = torch.zeros_like(contexts) if given_contexts is None else given_contexts
        words, h, a = len(contexts), states.shape[-1], keys.shape[-1]
        # As in `gru_gradients`, behind those of the query: what comes from the state, and what comes from the input.
        d_all, d_contexts = givens.new_empty(*givens.shape[:2], a + 4 * h), torch.empty_like(contexts)
        d_givens, d_gates = d_all[..., : a + 3 * h], d_all[..., a + h :]
        d_keys, d_vector, hidden = torch.zeros_like(keys), torch.zeros_like(vector), torch.empty_like(keys)
        d_state = d_states[words]
        for t in reversed(range(words)):
            given, d_given = givens[t], d_givens[t]
            both, candidate = gates[t].split((2 * h, h), dim=-1)
            gru_gradients(d_state, states[t], both, candidate, given[:, a : a + h], d_all[t, :, a:])
            d_context = torch.addmm(from_above[t], d_gates[t], from_context, out=d_contexts[t])
            d_weights = torch.bmm(d_context.unsqueeze(1), values.transpose(1, 2)).squeeze(1)
            if from_weights is not None:
                d_weights = d_weights.add_(from_weights[t])
            d_scores = softmax_gradient(d_weights, weights[t])
            _hidden(given[:, :a], keys, hidden)
            d_vector.addmv_(hidden.view(-1, a).t(), d_scores.view(-1))
            slope = torch.addcmul(hidden, hidden, hidden, value=-1, out=hidden)  # σ' = σ − σ²
            # The vector of the score is multiplied in once, after the sums.
            torch.mul(torch.bmm(d_scores.unsqueeze(1), slope).squeeze(1), vector, out=d_given[:, :a])
            d_keys.addcmul_(slope, d_scores.unsqueeze(-1))
            d_state = torch.mul(d_state, both[:, h:]).add_(d_states[t]).addmm_(d_given, from_state)
        all_gates, all_givens = d_gates.flatten(0, 1), d_givens.flatten(0, 1)
        return (
            d_gates,
            d_state,
            d_keys.mul_(vector),
            torch.bmm(weights.permute(1, 2, 0), d_contexts.transpose(0, 1)),
            None,
            all_givens.t() @ states[:words].flatten(0, 1),
            all_givens.sum(dim=0),
            d_vector,
            all_gates.t() @ contexts.flatten(0, 1),
        )
