"""How fast a step could be at best: its matrix products alone, with nothing between them.

One step of ours is watched, every product in it written down with its shapes and strides, and then only the products
are done, on numbers that are there already. Nothing that trains this model can be faster without fewer products.
"""

import time
from typing import Any

import torch
from ours import task_of
from shared import Timed
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sightline.commands.common import set_up

Shape = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides
Product = tuple[Shape, Shape]
FACTORS = {"mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1, "baddbmm_": 1}  # where the factors begin


class Products(TorchDispatchMode):
    """Writes down the products."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in FACTORS:
            left, right = args[FACTORS[name] : FACTORS[name] + 2]
            self.found.append((_shape(left), _shape(right)))
        return func(*args, **(kwargs or {}))


def _shape(tensor: Tensor) -> Shape:
    return tuple(tensor.shape), tuple(tensor.stride())


def train(job: dict[str, Any]) -> Timed:
    set_up(job["threads"])
    lesson, model, _ = task_of(job)
    model.train()
    warmup, last = job["warmup"], job["warmup"] + job["steps"]
    steps, tokens = [], 0
    for number, handle in enumerate(lesson.epoch(0)[:last]):
        batch = lesson.batch(handle)
        with Products() as products:
            lesson.loss(model, batch).total.backward()
        model.zero_grad()
        if number >= warmup:
            tokens += lesson.tokens(batch)
        steps.append(products.found)
    numbers: dict[Shape, Tensor] = {}
    for shape in {shape for step in steps for product in step for shape in product}:
        sizes, strides = shape
        room = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        numbers[shape] = torch.empty(room).uniform_(-1, 1).as_strided(sizes, strides)
    work = [[(numbers[left], numbers[right]) for left, right in step] for step in steps]
    seconds = 0.0
    for number, step in enumerate(work):
        begun = time.perf_counter()
        for left, right in step:
            torch.matmul(left, right)
        if number >= warmup:
            seconds += time.perf_counter() - begun
    operations = sum(2 * left.numel() * right.shape[-1] for step in work[warmup:] for left, right in step)
    return Timed(seconds, tokens, {"gigaflops": operations / seconds / 1e9, "products": len(work[-1])})
