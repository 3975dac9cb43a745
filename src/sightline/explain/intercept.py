"""A door into attention that others wrote: inside it, `capture` sees what PyTorch is asked to compute.

Three calls make nearly all the attention there is: `scaled_dot_product_attention` (Hugging Face models unless they were
told otherwise, and most hand-written ones), `multi_head_attention_forward` (torch.nn.MultiheadAttention, and so
torch.nn.Transformer), and in eager Hugging Face models a softmax. A `TorchFunctionMode` sees these calls in its own
thread and in no other. Which module a call belongs to is read from the Python frames above it: no hook is set and no
attribute is changed, so there is nothing to put back after an error, and other threads keep their fast paths.

For a fused call the fused result stays what the model reads. The weights are made beside it, for the heads that a tap
wants, in blocks of rows if a tap asks for that. Only rows whose weights a tap changed are read anew. In training the
weights are those before dropout, which the model draws as it always does.

What is not seen: TorchScript, flex attention, kernels from other packages (FlashAttention's own), `torch.func.vmap`,
and softmax as a module of its own. A model that was compiled is compiled once more inside the block, around these
calls. With a `change`, gradient checkpointing does not work. torch.nn.TransformerEncoder leaves its fast path inside
the block, which gives other numbers at places of padding.
"""

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sightline.attention import Attention
from sightline.attention.tap import Look, active_taps, new_passage, rows_at_once, show, wanted_heads

# Models write "hidden" as −inf, as the lowest number, or as −10,000: a weight that is zero whatever the score.
HIDDEN = -9_999.0
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)
HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")


class _Door(TorchFunctionMode):
    """Passes everything on, and shows attention to the taps on the way."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and active_taps():
            return _fused(*args, **kwargs)
        if func is F.multi_head_attention_forward and active_taps():
            # This one mode is off while it handles a call; what this call is made of must be seen too.
            with self:
                return _multi_head(*args, **kwargs)
        if func in SOFTMAX and active_taps():
            return _eager(func, args, kwargs)
        return func(*args, **kwargs)


_open = threading.local()


@contextmanager
def door() -> Iterator[None]:
    """Let the open taps see foreign attention in this thread. One door is enough, however many captures are open."""
    opened_in = threading.get_ident()
    _open.count = getattr(_open, "count", 0) + 1
    if _open.count == 1:
        _open.mode = _Door()
        _open.mode.__enter__()
    try:
        yield
    finally:
        if threading.get_ident() == opened_in:  # elsewhere there is no door of ours to close
            _open.count -= 1
            if _open.count == 0:
                _open.mode.__exit__(None, None, None)


def may_be_foreign(model: nn.Module) -> bool:
    """Whether there may be attention in it that is not ours. Plain layers of PyTorch have none."""
    return any(_is_foreign(type(module)) for module in model.modules())


def _is_foreign(kind: type[nn.Module]) -> bool:
    # A normaliser, a score, an encoder of ours all attend through an `Attention`.
    package = kind.__module__.split(".")
    return package[0] != "sightline" and (package[:3] != ["torch", "nn", "modules"] or kind is nn.MultiheadAttention)


# `multi_head_attention_forward` first asks whether it is overridden, which inside a mode it always is, without end. The
# same code with another answer to that question goes on to its work.
_multi_head = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda tensors: False},
    F.multi_head_attention_forward.__name__,
    F.multi_head_attention_forward.__defaults__,
)
_multi_head.__kwdefaults__ = F.multi_head_attention_forward.__kwdefaults__


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The fused call as it is, and its weights beside it; rows whose weights were changed are read with those."""
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    module, _ = _running(sys._getframe())
    if module is None or query.is_nested or query.dim() < 2 or not key.shape[-2]:
        return context
    if enable_gqa and query.dim() < 4:  # heads without an example before them: which axis is which is not known
        return context
    count = query.shape[-3] if query.dim() > 3 else 1
    numbers = wanted_heads(module, count)
    if not numbers:
        return context
    keys, values = key, value
    if not any(tap.changes for tap in active_taps() if tap.sees(module)):
        # What is only looked at leaves no trace in the graph: checkpointing counts what is kept there.
        query, keys, attn_mask = query.detach(), keys.detach(), None if attn_mask is None else attn_mask.detach()
    if query.dim() > 3 and (len(numbers) < count or enable_gqa):
        query = _some_heads(query, numbers, count)
        keys, values = (_some_heads(part, numbers, count) for part in (keys, values))
        attn_mask = None if attn_mask is None else _some_heads(attn_mask, numbers, count)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    passage, total = new_passage(), query.shape[-2]
    rows = rows_at_once(total, math.prod(query.shape[:-2]) * keys.shape[-2])
    changed: Tensor | None = None
    for start in range(0, total, rows):
        stop = min(start + rows, total)
        with torch.autocast(query.device.type, enabled=False):  # which would make the weights coarse again
            scores = _scores(query[..., start:stop, :], keys, scale)
            scores, allowed = _masked(scores, _rows(attn_mask, start, stop), start if is_causal else None)
            weights = _softmax(scores)
        axes = 1 if query.dim() > 3 else 0
        look = Look(module, start, scores, weights, allowed, axes, start, total - stop, passage, tuple(numbers))
        seen = show(look)
        if seen is weights:
            continue
        changed = context.clone() if changed is None else changed
        read = F.dropout(seen.to(values.dtype), dropout_p) @ values
        if query.dim() > 3:
            changed[..., torch.tensor(numbers, device=read.device), start:stop, :] = read
        else:
            changed[..., start:stop, :] = read
    return context if changed is None else changed


def _scores(query: Tensor, keys: Tensor, scale: float) -> Tensor:
    """As exact as the kernel, which adds up in float32 where numbers are short."""
    short = query.dtype in (torch.float16, torch.bfloat16)
    query, keys = (query.float(), keys.float()) if short else (query, keys)
    return (query * scale) @ keys.transpose(-2, -1)


def _masked(scores: Tensor, mask: Tensor | None, causal_from: int | None) -> tuple[Tensor, Tensor | None]:
    """Scores with the mask in them, and which keys may be attended (None: all)."""
    allowed = None
    if causal_from is not None:
        rows = torch.arange(causal_from, causal_from + scores.shape[-2], device=scores.device)
        allowed = torch.arange(scores.shape[-1], device=scores.device) <= rows[:, None]
        scores = scores.masked_fill(~allowed, -torch.inf)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
        allowed = mask if allowed is None else allowed & mask
    elif mask is not None:
        scores = scores + mask
        seen = mask > HIDDEN
        allowed = seen if allowed is None else allowed & seen
    return scores, allowed


def _softmax(scores: Tensor) -> Tensor:
    """A row that may attend nothing gets zeros, as from the kernel."""
    nothing = scores.detach().amax(dim=-1, keepdim=True) == -torch.inf
    if not nothing.any():
        return torch.softmax(scores, dim=-1)
    return torch.softmax(scores.masked_fill(nothing, 0.0), dim=-1).masked_fill(nothing, 0.0)


def _rows(mask: Tensor | None, start: int, stop: int) -> Tensor | None:
    return mask if mask is None or mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., start:stop, :]


def _some_heads(x: Tensor, numbers: Sequence[int], count: int) -> Tensor:
    """Heads of a tensor that has one for each, one for each group of them, or one for all."""
    if x.dim() < 3 or x.shape[-3] == 1:
        return x
    group = count // x.shape[-3]
    return x.index_select(-3, torch.tensor([number // group for number in numbers], device=x.device))


def _eager(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A softmax. It is attention if Hugging Face's or PyTorch's own code makes it of one row for each query and head.

    Nobody else's: a module that shows itself would be seen twice.
    """
    weights = func(*args, **kwargs)
    scores = args[0] if args else kwargs["input"]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if dim not in (-1, scores.dim() - 1) or scores.dim() not in (3, 4):
        return weights
    module, known = _running(sys._getframe())
    said = None if module is None else _heads_of(module)
    if module is None or said is None or not known:
        return weights
    shape = scores.shape
    if scores.dim() == 3:  # the heads of an example stand behind one another
        if shape[0] % said:
            return weights
        shape = torch.Size((shape[0] // said, said, *shape[1:]))
    if shape[1] != said:
        return weights
    numbers = wanted_heads(module, said)
    if not numbers:
        return weights
    parts = [part.reshape(shape) for part in (scores, weights)]
    if len(numbers) < said:
        parts = [_some_heads(part, numbers, said) for part in parts]
    passage = new_passage()
    seen = show(Look(module, 0, parts[0], parts[1], parts[0] > HIDDEN, 1, 0, 0, passage, tuple(numbers)))
    if seen is parts[1]:
        return weights
    changed = weights.reshape(shape).clone()
    changed[:, torch.tensor(numbers, device=seen.device)] = seen.to(weights.dtype)
    return changed.reshape(weights.shape)


def _heads_of(module: nn.Module) -> int | None:
    """How many heads a module says that it has."""
    for owner in (module, getattr(module, "config", None)):
        for name in HEAD_COUNTS:
            count = getattr(owner, name, None)
            if isinstance(count, int):
                return count
    return None


def _running(frame: FrameType | None) -> tuple[nn.Module | None, bool]:
    """The innermost module running that an open tap sees, or None for our own, which show themselves.

    And whether what it runs is code of Hugging Face, or PyTorch's own attention.
    """
    taps, known = active_taps(), False
    while frame is not None:
        code = frame.f_code
        package = str(frame.f_globals.get("__name__", "")).split(".")[0]
        known = known or package in ("transformers", "transformers_modules") or code is _multi_head.__code__
        # Only such frames are asked for their locals: asking keeps a copy of them while the frame lives.
        if code.co_argcount and (code.co_varnames[0] in ("self", "module") or code.co_name == "forward"):
            found = frame.f_locals.get(code.co_varnames[0])
            if isinstance(found, nn.Module) and any(tap.sees(found) for tap in taps):
                return (None if isinstance(found, Attention) else found), known
        frame = frame.f_back
    return None, False
