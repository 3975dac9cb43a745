"""How fast a step could be at best: its matrix products alone, with nothing between them.

One step of ours is watched, every product in it written down with its shapes and strides, and then only the products
are done, on numbers that are there already. Nothing that trains this model can be faster without fewer products.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from ours import task_of
from shared import Timed
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sightline.cli.common import set_up
from sightline.kernels.products import Product

Shape = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides
Factors = tuple[Shape, Shape, bool]  # and whether the right one is a matrix that was packed, by rows
PACKED = "_linear_pointwise"
FACTORS = {"mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1, "baddbmm_": 1}  # where the factors begin


class Products(TorchDispatchMode):
    """Writes down the products."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Factors] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in FACTORS:
            left, right = args[FACTORS[name] : FACTORS[name] + 2]
            self.found.append((_shape(left), _shape(right), False))
        elif name == PACKED:
            sizes = tuple(args[1].shape)
            self.found.append((_shape(args[0]), (sizes, (sizes[1], 1)), True))
        return func(*args, **(kwargs or {}))


def _shape(tensor: Tensor) -> Shape:
    return tuple(tensor.shape), tuple(tensor.stride())


def train(job: dict[str, Any]) -> Timed:
    set_up(job["threads"])
    lesson = task_of(job)
    model = lesson.run.model
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
    for shape in {shape for step in steps for *both, _ in step for shape in both}:
        sizes, strides = shape
        room = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        numbers[shape] = torch.empty(room).uniform_(-1, 1).as_strided(sizes, strides)
    packed = {right: Product(numbers[right]) for step in steps for _, right, is_packed in step if is_packed}
    seconds, operations = 0.0, 0
    for number, step in enumerate(steps):
        work: list[tuple[Tensor, Callable[[Tensor], Tensor]]] = [
            (numbers[left], packed[right] if is_packed else numbers[right].__rmatmul__)
            for left, right, is_packed in step
        ]
        if number == 0:
            for left, multiply in work:  # kernels are made once
                multiply(left)
        begun = time.perf_counter()
        for left, multiply in work:
            multiply(left)
        if number >= warmup:
            seconds += time.perf_counter() - begun
            operations += sum(
                2 * numbers[left].numel() * right[0][0 if is_packed else -1] for left, right, is_packed in step
            )
    return Timed(seconds, tokens, {"gigaflops": operations / seconds / 1e9, "products": len(steps[-1])})
