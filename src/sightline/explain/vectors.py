"""The vectors of attention: queries, values and contexts."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.attention import Attention, Memory, Read
from sightline.attention.tap import repeat_suffix, suffix_of
from sightline.explain.explanation import Calculation


class Watched:
    """The queries, memories and contexts of every mechanism of a model, call by call, in this thread."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._calls: dict[tuple[int, str], list[tuple[Tensor, Memory, Tensor]]] = defaultdict(list)

    def see(self, module: nn.Module, given: tuple[Any, ...], read: Read) -> None:
        if threading.get_ident() != self._thread:  # other threads may use the model
            return
        query, memory = given[:2]
        self._calls[id(module), repeat_suffix()].append((query.detach(), memory, read.context.detach()))

    def calculations(self, mechanism: nn.Module, name: str, columns: int, kept: int) -> list[Calculation]:
        """One for each head of the first example, with ``kept`` numbers of each vector."""
        calls = self._calls[id(mechanism), suffix_of(name)]
        if not calls:
            return []
        queries = torch.cat([query[0] for query, _, _ in calls], dim=-2)
        contexts = torch.cat([context[0] for _, _, context in calls], dim=-2)
        values = calls[-1][1].values[0].expand(*queries.shape[:-2], -1, -1)
        parts = [_numbers(values[..., :columns, :], kept), _numbers(queries, kept), _numbers(contexts, kept)]
        return [
            Calculation(name, head, value, query, context, size=values.shape[-1])
            for head, (value, query, context) in enumerate(zip(*parts, strict=True))
        ]


@contextmanager
def watch(model: nn.Module) -> Iterator[Watched]:
    """Record the vectors of every mechanism that runs inside the block."""
    watched = Watched()
    hooks = [module.register_forward_hook(watched.see) for module in model.modules() if isinstance(module, Attention)]
    try:
        yield watched
    finally:
        for hook in hooks:
            hook.remove()


def _numbers(vectors: Tensor, kept: int) -> np.ndarray:
    """The first numbers of each vector, by heads."""
    return vectors.reshape(-1, *vectors.shape[-2:])[..., :kept].float().cpu().numpy()
