"""Hand-written fast paths of numerical code.

Every file has the same three functions: `fast`; `reference`, which `fast` must equal; and `supported`, which tells
whether `fast` can take these arguments. Every file states its gain, measured by `python benchmarks/kernel_gains.py`.

Kernels stand before `attention` and `nn` in the order of imports, because both call them. A kernel that reads the
weights of a module imports its type for type checkers only: whether a module is of the plain kind that a kernel
computes, the module itself tells (`MultiHead.is_plain`). So there is no cycle, and nothing needs to be registered.

``SIGHTLINE_KERNELS=off`` in the environment, or `disable`, takes the references everywhere.
"""

import os

_SWITCH = "SIGHTLINE_KERNELS"
_on = os.environ.get(_SWITCH, "on") != "off"


def switched_on() -> bool:
    return _on


def enabled() -> bool:
    """Whether kernels may run: they are switched on, and no compiler is tracing."""
    return _on and not is_traced()


def disable() -> None:
    """Take the references from now on, here and in processes that are started later."""
    global _on
    _on, os.environ[_SWITCH] = False, "off"


def is_traced() -> bool:
    """Whether `torch.compile`, `torch.export` or `torch.jit.trace` is recording what runs."""
    import torch  # here: the command line imports this package to print its help

    return torch.compiler.is_compiling() or torch.jit.is_tracing()
