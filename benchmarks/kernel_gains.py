"""Each kernel against its reference, in lock-step: both in turn, many times, and the median of the ratios.

    python benchmarks/kernel_gains.py                # the table
    python benchmarks/kernel_gains.py --only loss    # one kernel
    python benchmarks/kernel_gains.py --repeats 101  # on a busy machine

A gain of 1.5 means that the reference takes 1.5 times as long. With gradients both passes are timed. Sizes are those of
the preset tiny. The lines are those of the whole file without blanks, comments and docstrings.
"""

import argparse
import ast
import importlib
import pkgutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

import sightline.kernels
from sightline.attention import AdditiveConfig, ComposedConfig
from sightline.decoding.search import Rules, greedy
from sightline.kernels import products, ragged
from sightline.kernels.allocator import keep_memory
from sightline.kernels.copying import Sources
from sightline.models.memory_machine import Controller
from sightline.models.transformer import TransformerConfig
from sightline.models.turing import TuringMachine, TuringMachineConfig
from sightline.models.vector_writer import TargetShape
from sightline.nn.rnn import Cell
from sightline.nn.series import SeriesShape
from sightline.nn.transformer import EncoderLayer, LayerShape
from sightline.vocabulary import END, START

NO_KERNELS = {"allocator"}  # it changes no numbers; `tests/training/test_training.py` holds it to what it promises


class Case(NamedTuple):
    """Arguments of a kernel. ``learns``: the backward pass belongs to it; ``finish`` makes tensors of what it gives."""

    arguments: tuple[Any, ...]
    learns: bool = True
    finish: Callable[[Any], Any] = lambda made: made

    def run(self, kernel: Callable[..., Any]) -> list[Tensor]:
        """What the kernel gives, and the gradients of all arguments that are learnt."""
        tensors = _tensors(self.finish(kernel(*self.arguments)))
        if not self.learns:
            return tensors
        learnt = self.learnt()
        loss = torch.stack([(one * one).sum() for one in tensors if one.requires_grad]).sum()
        return [*tensors, *torch.autograd.grad(loss, learnt, materialize_grads=True)]

    def learnt(self) -> list[Tensor]:
        found: list[Tensor] = []
        for one in self.arguments:
            parts = one.parameters() if isinstance(one, nn.Module) else _tensors(one)
            found += [part for part in parts if part.requires_grad]
        return found


def _tensors(made: Any) -> list[Tensor]:
    if isinstance(made, Tensor):
        return [made]
    return [one for part in made for one in _tensors(part)] if isinstance(made, tuple | list) else []


def _draw(*shape: int, learns: bool = True) -> Tensor:
    return torch.randn(*shape, requires_grad=learns)


def _lengths(rows: int, longest: int) -> Tensor:
    return torch.randint(1, longest + 1, (rows,)).sort(descending=True).values


def cases(size: int, rows: int, words: int, length: int) -> dict[str, dict[str, Case]]:
    """For each kernel the cases by name."""
    torch.manual_seed(0)
    lengths = _lengths(rows, length)
    steps = ragged.Steps.of(lengths)
    listed, mask = int(lengths.sum()), torch.arange(length) < lengths[:, None]
    layers = {kind: kind(size, size, batch_first=True, bidirectional=True) for kind in (nn.GRU, nn.LSTM)}
    attention = ComposedConfig(AdditiveConfig(size)).build(size, size, size)
    cell, context = Cell("gru", size, size), nn.Linear(size, 3 * size, bias=False)
    memory = attention.remember(_draw(rows, length, size, learns=False), mask=mask)
    memory = type(memory)(memory.keys.detach().requires_grad_(), _draw(rows, length, size), mask)
    model = TransformerConfig(size, 4, 2 * size, 4, 4).build(words, words).eval().requires_grad_(False)
    source = torch.randint(4, words, (rows, length)).masked_fill(~mask, 0)
    unknown = source.where(torch.arange(length) % 5 > 0, words + torch.arange(length))
    weights = torch.softmax(torch.randn(rows, length), dim=-1)
    layer = EncoderLayer(LayerShape(size, 4, 2 * size, 0.0))
    products_of = (_draw(rows * length, size, learns=False), _draw(words, size, learns=False))
    return {
        "softmax": {"7 keys": Case((_draw(rows, 4, length, 7),))},
        "dropout": {"": Case((_draw(rows, length, size), _draw(rows, length, size), 0.25))},
        "maxout": {"": Case((_draw(rows, length, 2 * size),))},
        "additive": {"": Case((_draw(rows, length, size), _draw(rows, length, size), _draw(size)))},
        "loss": {
            "smoothed": Case(
                (_draw(listed, size), _draw(words, size), _draw(words), torch.randint(words, (listed,)), 0.1)
            )
        },
        "copying": {
            kind: Case(
                (_draw(rows, words, learns=False).log_softmax(dim=-1), _draw(rows, learns=False), weights, sources),
                learns=False,
            )
            for kind, sources in (("", Sources.of(source, words)), ("unknown words", Sources.of(unknown, words)))
        },
        "products": {"": Case((*products_of, _draw(words, learns=False)), learns=False)},
        "ragged": {kind.__name__: Case((one, _draw(listed, size), steps)) for kind, one in layers.items()},
        "rnnsearch": {"": Case((attention, cell, context, _draw(length, rows, 3 * size), _draw(rows, size), memory))},
        "links": {"": Case((_draw(rows, 128, 128), _draw(rows, 128), _draw(rows, 128)))},
        "turing": {
            kind: Case((_machine(kind, size), _draw(rows, length, 10)), finish=lambda made: made[:, -3:])
            for kind in get_args(Controller)
        },
        "unpadded": {"": Case((layer, _draw(rows, length, size), mask))},
        "transformer_search": {
            "one sentence": Case((model, source[:1, : int(lengths[0])]), False, _search),
            "batch": Case((model, source), False, _search),
        },
    }


def _machine(controller: Controller, size: int) -> TuringMachine:
    config = TuringMachineConfig(answers="after", size=size, slots=size, width=20, controller=controller)
    return config.build(SeriesShape((9,)), TargetShape(8, True))


def _search(begun: tuple[Any, Any]) -> Tensor:
    step, state = begun
    rows = len(state.layers[0].source.values if hasattr(state, "layers") else state.own[0][0])
    hypotheses = greedy(step, state, rows, Rules(START, END, 12, 12))
    return torch.tensor([one.log_prob for one in hypotheses])


def kernels() -> dict[str, Any]:
    """The modules of the folder that hold a kernel, by name."""
    names = {one.name for one in pkgutil.iter_modules(sightline.kernels.__path__)} - NO_KERNELS
    return {name: importlib.import_module(f"sightline.kernels.{name}") for name in sorted(names)}


def _lines(path: Path) -> int:
    """Lines that hold code."""
    tree, held = ast.parse(path.read_text(encoding="utf-8")), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) else node.end_lineno
            held |= set(range(node.lineno, max(node.lineno, last or node.lineno) + 1))
    return len(held)


def gain(case: Case, kernel: Any, repeats: int) -> tuple[float, float]:
    """The time of the reference ÷ that of the fast one, and the latter in milliseconds."""
    fast, reference = kernel.fast, kernel.reference
    if kernel is products:  # packing is done once for many products
        x, *matrix = case.arguments
        fast, case = products.Product(*matrix), Case((x,), False)
        reference = lambda x: products.reference(x, *matrix)  # noqa: E731
    times: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(repeats + 2):
        for is_fast in (True, False) if repeat % 2 else (False, True):
            start = time.perf_counter()
            case.run(fast if is_fast else reference)
            if repeat > 1:
                times[is_fast].append(time.perf_counter() - start)
    ratios = [slow / quick for slow, quick in zip(times[False], times[True], strict=True)]
    return statistics.median(ratios), 1000 * statistics.median(times[True])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one kernel")
    parser.add_argument("--repeats", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()  # as `sightline` does
    modules = kernels()
    print(f"{'kernel':20} {'case':14} {'gain':>6} {'fast, ms':>9} {'lines':>6}")
    for name, named in cases(size=128, rows=32, words=8000, length=24).items():
        if options.only in (None, name):
            for case_name, case in named.items():
                ratio, milliseconds = gain(case, modules[name], options.repeats)
                lines = _lines(Path(modules[name].__file__))
                print(f"{name:20} {case_name:14} {ratio:6.2f} {milliseconds:9.2f} {lines:6}", flush=True)


if __name__ == "__main__":
    main()
