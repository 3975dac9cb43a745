"""Interception of attention in models that are not ours: `capture` sees what PyTorch computes.

Three calls compute nearly all attention: `scaled_dot_product_attention` (Hugging Face models by default, and most
hand-written ones), `multi_head_attention_forward` (torch.nn.MultiheadAttention, and so torch.nn.Transformer), and in
eager Hugging Face models a softmax. A `TorchFunctionMode` sees these calls in its own thread only. The module of a call
is read from the Python frames above it: no hook is set and no attribute is changed, so there is nothing to restore
after an error, and other threads keep their fast paths.

The model still uses the result of a fused call. The weights are computed beside it, for the heads that a tap selects,
in blocks of rows if a tap limits them. Only rows whose weights a tap changed are computed again. In training the
weights are those before dropout, which the model draws as usual.

What is not seen: TorchScript, flex attention, kernels from other packages (FlashAttention's own), `torch.func.vmap`,
and softmax as a module of its own. A compiled model is compiled again inside the block, around these calls. With a
`change`, gradient checkpointing does not work. torch.nn.TransformerEncoder leaves its fast path inside the block, which
gives other numbers at positions of padding.
"""

import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sightline.attention import Attention
from sightline.attention.tap import Look, active_taps, new_passage, requested_heads, rows_at_once, show

# Models mask by adding −inf, the lowest number, or −10,000: the weight is zero whatever the score.
HIDDEN = -9_999.0
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)
HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")


class _Interception(TorchFunctionMode):
    """Passes every call on, and shows attention to the taps."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and active_taps():
            return _fused(*args, **kwargs)
        if func is F.multi_head_attention_forward and active_taps():
            if _multi_head is None:
                _warn_unseen()
                return func(*args, **kwargs)
            # A mode is off while it handles a call; the calls inside this one must be seen too.
            with self:
                return _multi_head(*args, **kwargs)
        if func in SOFTMAX and active_taps():
            return _eager(func, args, kwargs)
        return func(*args, **kwargs)


_open = threading.local()


@contextmanager
def intercepting() -> Iterator[None]:
    """Let the open taps see foreign attention in this thread. One mode serves all open captures."""
    opened_in = threading.get_ident()
    _open.count = getattr(_open, "count", 0) + 1
    if _open.count == 1:
        _open.mode = _Interception()
        _open.mode.__enter__()
    try:
        yield
    finally:
        if threading.get_ident() == opened_in:  # another thread has no mode of ours to leave
            _open.count -= 1
            if _open.count == 0:
                _open.mode.__exit__(None, None, None)


def may_be_foreign(model: nn.Module) -> bool:
    """Whether the model may have attention that is not ours. Plain layers of PyTorch have none."""
    return any(_is_foreign(type(module)) for module in model.modules())


def _is_foreign(kind: type[nn.Module]) -> bool:
    # Normalisers, scores and encoders of ours all use an `Attention`.
    package = kind.__module__.split(".")
    return package[0] != "sightline" and (package[:3] != ["torch", "nn", "modules"] or kind is nn.MultiheadAttention)


def unguarded(function: Any) -> Callable[..., Any] | None:
    """A copy of a function of PyTorch without its guard, which inside a mode would call the mode again, endlessly.

    None where the guard has another name: such a copy would recurse.
    """
    code = function.__code__
    if "has_torch_function" not in code.co_names:
        return None
    names = {**vars(F), "has_torch_function": lambda tensors: False}
    copy = FunctionType(code, names, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_multi_head = unguarded(F.multi_head_attention_forward)


@cache
def _warn_unseen() -> None:
    warnings.warn(
        f"torch.nn.MultiheadAttention is not captured: PyTorch {torch.__version__} has another guard in "
        "multi_head_attention_forward than the one that Sightline replaces",
        stacklevel=2,
    )


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
    """The fused call, and its weights beside it; rows whose weights were changed are computed with those."""
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    module, _ = _running(sys._getframe())
    if module is None or query.is_nested or query.dim() < 2 or not key.shape[-2]:
        return context
    if enable_gqa and query.dim() < 4:  # heads without a batch axis: which axis is which is not known
        return context
    count = query.shape[-3] if query.dim() > 3 else 1
    numbers = requested_heads(module, count)
    if not numbers:
        return context
    keys, values = key, value
    if not any(tap.changes for tap in active_taps() if tap.sees(module)):
        # Captured weights stay out of the graph: gradient checkpointing counts the tensors that it keeps.
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
        with torch.autocast(query.device.type, enabled=False):  # it would make the weights coarse again
            scores = _scores(query[..., start:stop, :], keys, scale)
            scores, allowed = _masked(scores, _rows(attn_mask, start, stop), start if is_causal else None)
            weights = _softmax(scores)
        axes = 1 if query.dim() > 3 else 0
        look = Look(module, start, scores, weights, allowed, axes, start, total - stop, passage, tuple(numbers))
        changed_weights = show(look)
        if changed_weights is weights:
            continue
        changed = context.clone() if changed is None else changed
        read = F.dropout(changed_weights.to(values.dtype), dropout_p) @ values
        if query.dim() > 3:
            changed[..., torch.tensor(numbers, device=read.device), start:stop, :] = read
        else:
            changed[..., start:stop, :] = read
    return context if changed is None else changed


def _scores(query: Tensor, keys: Tensor, scale: float) -> Tensor:
    """As exact as the kernel, which accumulates half precision in float32."""
    if query.dtype in (torch.float16, torch.bfloat16):
        query, keys = query.float(), keys.float()
    return (query * scale) @ keys.transpose(-2, -1)


def _masked(scores: Tensor, mask: Tensor | None, causal_from: int | None) -> tuple[Tensor, Tensor | None]:
    """Masked scores, and which keys may be attended to (None: all)."""
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
        visible = mask > HIDDEN
        allowed = visible if allowed is None else allowed & visible
    return scores, allowed


def _softmax(scores: Tensor) -> Tensor:
    """A fully masked row gets zeros, as from the kernel."""
    nothing = scores.detach().amax(dim=-1, keepdim=True) == -torch.inf
    if not nothing.any():
        return torch.softmax(scores, dim=-1)
    return torch.softmax(scores.masked_fill(nothing, 0.0), dim=-1).masked_fill(nothing, 0.0)


def _rows(mask: Tensor | None, start: int, stop: int) -> Tensor | None:
    return mask if mask is None or mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., start:stop, :]


def _some_heads(x: Tensor, numbers: Sequence[int], count: int) -> Tensor:
    """The heads of these numbers, of a tensor with one for each head, for each group of heads, or for all."""
    if x.dim() < 3 or x.shape[-3] == 1:
        return x
    group = count // x.shape[-3]
    return x.index_select(-3, torch.tensor([number // group for number in numbers], device=x.device))


def _eager(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A softmax. It is attention if code of Hugging Face or PyTorch computes it of one row for each query and head.

    Other code is left out: a module that shows itself would be seen twice.
    """
    weights = func(*args, **kwargs)
    scores = args[0] if args else kwargs["input"]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if dim not in (-1, scores.dim() - 1) or scores.dim() not in (3, 4):
        return weights
    module, known = _running(sys._getframe())
    heads = None if module is None else _heads_of(module)
    if module is None or heads is None or not known:
        return weights
    shape = scores.shape
    if scores.dim() == 3:  # batch and heads are one axis
        if shape[0] % heads:
            return weights
        shape = torch.Size((shape[0] // heads, heads, *shape[1:]))
    if shape[1] != heads:
        return weights
    numbers = requested_heads(module, heads)
    if not numbers:
        return weights
    parts = [part.reshape(shape) for part in (scores, weights)]
    if len(numbers) < heads:
        parts = [_some_heads(part, numbers, heads) for part in parts]
    passage = new_passage()
    allowed = parts[0] > HIDDEN
    if has_sink(module):
        allowed[..., -1] = False  # the sink takes weight, but it is no key
    shown = show(Look(module, 0, parts[0], parts[1], allowed, 1, 0, 0, passage, tuple(numbers)))
    if shown is parts[1]:
        return weights
    changed = weights.reshape(shape).clone()
    changed[:, torch.tensor(numbers, device=shown.device)] = shown.to(weights.dtype)
    return changed.reshape(weights.shape)


def has_sink(module: nn.Module) -> bool:
    """Whether the last column of its softmax is a learned score of nothing, as in GPT-OSS."""
    return isinstance(getattr(module, "sinks", None), nn.Parameter)


def _heads_of(module: nn.Module) -> int | None:
    """The number of heads in the attributes of a module or of its configuration."""
    for owner in (module, getattr(module, "config", None)):
        for name in HEAD_COUNTS:
            count = getattr(owner, name, None)
            if isinstance(count, int):
                return count
    return None


def _running(frame: FrameType | None) -> tuple[nn.Module | None, bool]:
    """The innermost running module that an open tap sees, or None for our own, which show themselves.

    And whether the running code is of Hugging Face, or PyTorch's own attention.
    """
    taps, known = active_taps(), False
    while frame is not None:
        code = frame.f_code
        package = str(frame.f_globals.get("__name__", "")).split(".")[0]
        known |= package in ("transformers", "transformers_modules") or code is F.multi_head_attention_forward.__code__
        # Locals are read of such frames only: reading keeps a copy of them while the frame lives.
        if code.co_argcount and (code.co_varnames[0] in ("self", "module") or code.co_name == "forward"):
            module = frame.f_locals.get(code.co_varnames[0])
            if isinstance(module, nn.Module) and any(tap.sees(module) for tap in taps):
                return (None if isinstance(module, Attention) else module), known
        frame = frame.f_back
    return None, False
