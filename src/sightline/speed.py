"""How fast something is on this machine, and where its time goes."""

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm", "aten::baddbmm_")
GROUPS = {
    "matrix products": PRODUCTS,
    "recurrent layers": ("aten::gru", "aten::lstm", "aten::mkldnn_rnn"),
    "softmax and exponentials": ("aten::_softmax", "aten::_log_softmax", "aten::exp", "aten::logsumexp", "aten::tanh"),
    "copies": ("aten::copy_", "aten::cat", "aten::index_select", "aten::index", "aten::gather", "aten::stack"),
    "filling": ("aten::fill_", "aten::zero_", "aten::masked_fill"),
    "normalisation": ("aten::native_layer_norm",),
    "optimiser": ("aten::_fused_adam", "aten::_foreach"),
}
REST = "other tensor work"
OUTSIDE = "outside of tensors (Python)"


@dataclass(frozen=True)
class Profile:
    """``seconds`` of one call, the shares of them by kind of work, and ``limit``: its matrix products alone."""

    seconds: float
    shares: dict[str, float]
    limit: float

    @property
    def over_limit(self) -> float:
        """How many times as long as its matrix products alone: 1 cannot be beaten."""
        return self.seconds / self.limit if self.limit else math.inf


def seconds_of(call: Callable[[], object], seconds: float = 2.0, least: int = 3) -> list[float]:
    """The time of each of several calls, for about so long, after one that does not count."""
    call()
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def profile_of(call: Callable[[], object], calls: int = 3) -> Profile:
    """Where the time of a call goes. It is called once more before, so that nothing is made for the first time."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own log is not for users
    plain = statistics.median(seconds_of(call, seconds=0.0, least=calls))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        watched = time.perf_counter() - start
    shares = dict.fromkeys([*GROUPS, REST], 0.0)
    products: dict[tuple[str, str], tuple[int, Sequence[Any]]] = {}
    for event in profiled.key_averages(group_by_input_shape=True):
        shares[_group(event.key)] += event.self_cpu_time_total / 1e6 / watched
        if event.key in PRODUCTS:
            products[event.key, str(event.input_shapes)] = (event.count, event.input_shapes)
    shares[OUTSIDE] = max(0.0, 1 - sum(shares.values()))
    alone = sum(
        (count / calls * _product_seconds(name, shapes) for (name, _), (count, shapes) in products.items()), 0.0
    )
    return Profile(plain, shares, alone)


def _group(name: str) -> str:
    return next((group for group, names in GROUPS.items() if name.startswith(names)), REST)


def _product_seconds(name: str, shapes: Sequence[Any]) -> float:
    """The time of one product of these shapes with nothing around it."""
    first = 0 if name in ("aten::mm", "aten::bmm") else 1  # what is added to comes before the factors
    pair = shapes[first : first + 2]
    if any(0 in shape for shape in pair):
        return 0.0
    left, right = (torch.randn(*shape) for shape in pair)
    return min(seconds_of(lambda: left @ right, seconds=0.0, least=5))
