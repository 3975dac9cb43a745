"""Time and memory of a Neural Turing Machine, and a plain PyTorch loop of the same model beside it.

    python benchmarks/machines_speed.py beside            # lock-step: one step of each in turn
    python benchmarks/machines_speed.py grow --out FOLDER # time and memory against slots and length, as plots

The plain loop is written as most people write it: an LSTMCell, a linear map for each head, and PyTorch's own gradients.
Leave the machine alone meanwhile.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.models.turing import TuringMachineConfig
from sightline.models.vector_writer import TargetShape, VectorsBatch
from sightline.nn.series import SeriesBatch, SeriesShape

BITS = 8


class PlainMachine(nn.Module):
    """Graves et al. 2014 in plain PyTorch: one read and one write head."""

    def __init__(self, slots: int, width: int, size: int) -> None:
        super().__init__()
        self.slots, self.width, self.size = slots, width, size
        self.controller = nn.LSTMCell(BITS + 2 + width, size)
        self.read, self.write = nn.Linear(size, width + 6), nn.Linear(size, 3 * width + 6)
        self.out, self.stop = nn.Linear(size + width, BITS), nn.Linear(size + width, 1)

    def address(self, raw: Tensor, memory: Tensor, last: Tensor) -> Tensor:
        key, rest = raw[:, : self.width], raw[:, self.width :]
        strength, gate, shift, sharp = F.softplus(rest[:, :1]), rest[:, 1:2].sigmoid(), rest[:, 2:5], rest[:, 5:]
        content = F.softmax(strength * F.cosine_similarity(key.unsqueeze(1), memory, dim=-1), dim=-1)
        mixed = gate * content + (1 - gate) * last
        shift = F.softmax(shift, dim=-1)
        turned = sum(shift[:, n : n + 1] * mixed.roll(n - 1, dims=-1) for n in range(3))
        powers = (turned + 1e-16) ** (1 + F.softplus(sharp))
        return powers / powers.sum(dim=-1, keepdim=True)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = len(inputs)
        memory = inputs.new_full((rows, self.slots, self.width), 1e-6)
        hidden = cell = inputs.new_zeros(rows, self.size)
        reads = inputs.new_zeros(rows, self.width)
        reading = writing = F.one_hot(torch.zeros(rows, dtype=torch.long), self.slots).to(inputs.dtype)
        features = []
        for x in inputs.unbind(1):
            hidden, cell = self.controller(torch.cat([x, reads], dim=-1), (hidden, cell))
            raw = self.write(hidden)
            writing = self.address(raw[:, : self.width + 6], memory, writing)
            erase, add = raw[:, self.width + 6 :].chunk(2, dim=-1)
            weights = writing.unsqueeze(-1)
            memory = memory * (1 - weights * erase.sigmoid().unsqueeze(1)) + weights * add.tanh().unsqueeze(1)
            reading = self.address(self.read(hidden), memory, reading)
            reads = (reading.unsqueeze(1) @ memory).squeeze(1)
            features.append(torch.cat([hidden, reads], dim=-1))
        return torch.stack(features, dim=1)

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        made = self(inputs)[:, -target.shape[1] :]
        last = torch.zeros(target.shape[:2])
        last[:, -1] = 1
        bits = F.binary_cross_entropy_with_logits(self.out(made), target, reduction="sum")
        return bits + F.binary_cross_entropy_with_logits(self.stop(made).squeeze(-1), last, reduction="sum")


def episode(rows: int, length: int) -> tuple[Tensor, Tensor]:
    bits = torch.randint(0, 2, (rows, length, BITS)).float()
    x = torch.zeros(rows, length + 1, BITS + 1)
    x[:, :length, :-1], x[:, length, -1] = bits, 1
    return x, bits


def steps(rows: int, length: int, slots: int) -> dict[str, "Step"]:
    """A training step of each, on the same data."""
    x, bits = episode(rows, length)
    config = TuringMachineConfig(answers="after", slots=slots)
    ours = config.build(SeriesShape((BITS + 1,)), TargetShape(BITS, True))
    plain = PlainMachine(slots, config.width, config.size)
    source = SeriesBatch(x, torch.full((rows,), length + 1))
    target = VectorsBatch(bits, torch.full((rows,), length))
    padded = F.pad(x, (0, 1, 0, length))
    padded[:, length + 1 :, -1] = 1
    return {
        "sightline": Step(ours, lambda: ours.loss(source, target).total),
        "plain": Step(plain, lambda: plain.loss(padded, bits)),
    }


class Step:
    """A loss, its gradients, and an update."""

    def __init__(self, model: nn.Module, loss: object) -> None:
        self.loss, self.optimiser = loss, torch.optim.Adam(model.parameters(), 1e-3)

    def __call__(self) -> float:
        began = time.perf_counter()
        self.optimiser.zero_grad()
        self.loss().backward()  # type: ignore[operator]
        self.optimiser.step()
        return time.perf_counter() - began


def beside(repeats: int) -> None:
    """Median of the ratios of the times of both, step by step in turn."""
    torch.set_num_threads(1)
    for rows, length, slots in ((1, 10, 128), (16, 10, 128), (16, 20, 128), (64, 10, 128), (16, 10, 1024)):
        both = steps(rows, length, slots)
        times: dict[str, list[float]] = {name: [] for name in both}
        for number in range(repeats + 2):
            for name in list(both)[:: 1 if number % 2 else -1]:
                seconds = both[name]()
                if number > 1:
                    times[name].append(seconds)
        ratio = statistics.median(a / b for a, b in zip(times["plain"], times["sightline"], strict=True))
        own = 1000 * statistics.median(times["sightline"])
        print(f"{rows:3} rows, length {length:3}, {slots:5} slots: {own:7.1f} ms a step, plain {ratio:.2f} times that")


def one(length: int, slots: int) -> None:
    """Milliseconds of a training step and the most memory of this process, as JSON."""
    import resource

    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = steps(16, length, slots)["sightline"]
    seconds = statistics.median(step() for _ in range(4))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {"length": length, "slots": slots, "milliseconds": 1000 * seconds, "megabytes": (most - before) / 1024}
        )
    )


def grow(out: Path) -> None:
    """Each size in a process of its own."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    sizes = [(10, slots) for slots in (16, 64, 256, 1024, 4096)] + [(n, 128) for n in (5, 10, 20, 40, 80)]
    measured = []
    for length, slots in sizes:
        command = [sys.executable, __file__, "one", "--length", str(length), "--slots", str(slots)]
        measured.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        print(measured[-1], flush=True)
    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots(2, 2)
    for row, (what, some) in enumerate({"slots": measured[:5], "length": measured[5:]}.items()):
        for column, (value, unit) in enumerate((("milliseconds", "ms a step"), ("megabytes", "MB"))):
            panel = axes[row, column]
            panel.loglog([one[what] for one in some], [one[value] for one in some], "o-")
            panel.set(xlabel=what, ylabel=unit)
            panel.set_xticks([one[what] for one in some], [f"{one[what]:,}" for one in some])
            panel.minorticks_off()
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.grid(alpha=0.3)
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "machines.png", dpi=150)
    print(out / "machines.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("beside", "grow", "one"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("build"))
    options = parser.parse_args()
    if options.command == "beside":
        beside(options.repeats)
    elif options.command == "grow":
        grow(options.out)
    else:
        one(options.length, options.slots)


if __name__ == "__main__":
    main()
