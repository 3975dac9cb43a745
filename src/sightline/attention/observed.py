"""Whether somebody watches a module: then the ordinary modules run, and no fast path."""

from torch import nn
from torch.nn.modules import module as of_all_modules

from sightline.attention.tap import active_taps
from sightline.kernels import is_traced, switched_on

# PyTorch has no public name for the hooks that are registered for all modules (`register_module_forward_hook`, …).
_GLOBAL_HOOKS = tuple(
    getattr(of_all_modules, f"_global_{kind}_hooks") for kind in ("forward", "forward_pre", "backward", "backward_pre")
)


def is_observed(module: nn.Module) -> bool:
    """True where a fast path would hide something that runs inside ``module`` from its user.

    That is: an open tap; a forward, forward-pre, backward or backward-pre hook on the module, on any module inside it
    or on all modules; a `forward` that was replaced on an instance; a compiler that is tracing.
    """
    return is_traced() or bool(active_taps()) or any(_GLOBAL_HOOKS) or _is_hooked(module)


def may_bypass(module: nn.Module) -> bool:
    """Whether a fast path may compute what ``module`` computes without calling the modules inside it."""
    return switched_on() and not is_observed(module)


def _is_hooked(module: nn.Module) -> bool:
    # `module.modules()` would take several times as long, and this runs once for every call of a fast path.
    if (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
    ):
        return True
    for child in module._modules.values():  # noqa: SIM110 - `any` would take half as long again
        if child is not None and _is_hooked(child):
            return True
    return False
