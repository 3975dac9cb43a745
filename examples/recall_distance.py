"""What does recall cost over a distance: one layer of self-attention against one recurrent layer of the same size?

Above: both layers read random values and then a question, and answer with the value that stood a given distance back.
*Asked*: only the question says how far back, so every value must be kept until then. *Marked*: the value in question is
marked when it passes, so there is one thing to keep. Both layers get the same number of training steps on all distances
mixed. Dotted: the accuracy of always naming the most frequent value, which needs no order. Below: the time of one
training step against the length of the sequence.

What to expect, and what not. Self-attention answers over every distance. The GRU does not forget because of the
distance as such: what was marked, it still knows at the far end. It fails where its one state has to hold every value:
within this training it learns to keep the nearest ones only. And self-attention is faster only while sequences are
short: its work grows with the square of the length, the GRU's in proportion.

    python examples/recall_distance.py --out runs/examples/recall_distance.png
"""

import statistics
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib
import torch
import torch.nn.functional as F
import tyro
from matplotlib.figure import Figure
from torch import Tensor, nn

from sightline.attention import Attention, Causal, ComposedConfig, MultiHeadConfig, RotaryConfig, ScaledDotConfig

VALUES, SIZE = 8, 64
GRU_SIZE = 48  # gives the GRU 16,416 parameters, where self-attention has 16,640
TASKS = ("asked", "marked")
# Colours for colour-blind readers; squares and circles of two sizes, so that lines on top of each other both show.
LOOKS = {
    "self-attention": {"color": "#0072B2", "marker": "s", "markersize": 8},
    "GRU": {"color": "#D55E00", "marker": "o", "markersize": 5},
}


class Recaller(nn.Module):
    """Embedding, one layer, and the logits of the values at the last position."""

    layer: Attention | nn.GRU

    def __init__(self, name: str, furthest: int) -> None:
        super().__init__()
        # Tokens: values, marked values, and questions ("the marked one" is question 0, "d back" is question d).
        self.embed = nn.Embedding(2 * VALUES + furthest + 1, SIZE)
        if name == "self-attention":  # rotary positions let a query look for a key so far back
            self.layer = MultiHeadConfig(heads=4, inner=ComposedConfig(ScaledDotConfig(RotaryConfig()))).build(SIZE)
        else:
            self.layer = nn.GRU(SIZE, GRU_SIZE, batch_first=True)
        self.output = nn.Linear(SIZE if name == "self-attention" else GRU_SIZE, VALUES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        if isinstance(self.layer, nn.GRU):
            states, _ = self.layer(x)
        else:  # the whole layer with all its queries, like the GRU's, though only the last one is read
            states = self.layer(x, self.layer.remember(x), allow=Causal()).context
        return self.output(states[:, -1])


def draw_batch(task: str, distances: Tensor, furthest: int) -> tuple[Tensor, Tensor]:
    """Random values with a question behind them, one row for each distance, and the answers."""
    tokens = torch.randint(VALUES, (len(distances), furthest + 1))
    rows, places = torch.arange(len(distances)), furthest - distances
    answers = tokens[rows, places]
    if task == "marked":
        tokens[rows, places] += VALUES
    tokens[:, -1] = 2 * VALUES + (distances if task == "asked" else 0)
    return tokens, answers


def training_step(model: nn.Module, optimiser: torch.optim.Optimizer, tokens: Tensor, answers: Tensor) -> None:
    loss = F.cross_entropy(model(tokens), answers)
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


class Measured(NamedTuple):
    """Everything that is drawn."""

    distances: list[int]
    accuracies: dict[tuple[str, str], Tensor]  # (layer, task) -> seeds × distances
    most_frequent: float  # accuracy of naming the most frequent value
    lengths: list[int]
    milliseconds: dict[str, list[float]]  # layer -> median time of a training step, one for each length


def recall(name: str, task: str, seed: int, steps: int, distances: list[int]) -> Tensor:
    """Train on all distances mixed; the accuracy at each distance asked for."""
    torch.manual_seed(seed)
    furthest = max(distances)
    model = Recaller(name, furthest)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        mixed = torch.randint(1, furthest + 1, (32,))
        training_step(model, optimiser, *draw_batch(task, mixed, furthest))
    with torch.inference_mode():
        tests = [draw_batch(task, torch.full((1000,), distance), furthest) for distance in distances]
        return torch.stack([(model(x).argmax(dim=-1) == y).double().mean() for x, y in tests])


def step_times(lengths: list[int], repeats: int) -> dict[str, list[float]]:
    """Medians in milliseconds, 8 sequences a step. The layers take turns, so that a busy machine slows both."""
    models = {name: Recaller(name, furthest=1) for name in LOOKS}
    optimisers = {name: torch.optim.Adam(model.parameters(), lr=1e-3) for name, model in models.items()}
    medians: dict[str, list[float]] = {name: [] for name in LOOKS}
    for length in lengths:
        tokens, answers = torch.randint(VALUES, (8, length)), torch.randint(VALUES, (8,))
        times: dict[str, list[float]] = {name: [] for name in LOOKS}
        for _ in range(repeats + 1):
            for name, model in models.items():
                start = time.perf_counter()
                training_step(model, optimisers[name], tokens, answers)
                times[name].append(1000 * (time.perf_counter() - start))
        for name in LOOKS:
            medians[name].append(statistics.median(times[name][1:]))  # the first one warms up
    return medians


def measure(seed: int, quick: bool) -> Measured:
    distances = [1, 2, 4, 8] if quick else [1, 2, 4, 8, 16, 32]
    lengths = [16, 64] if quick else [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    seeds, steps, repeats = (1, 150, 3) if quick else (3, 1000, 5)
    accuracies = {
        (name, task): torch.stack([recall(name, task, seed + i, steps, distances) for i in range(seeds)])
        for name in LOOKS
        for task in TASKS
    }
    draws = torch.randint(VALUES, (20_000, max(distances)))
    most_frequent = (F.one_hot(draws, VALUES).sum(dim=1).amax(dim=-1) / max(distances)).mean().item()
    return Measured(distances, accuracies, most_frequent, lengths, step_times(lengths, repeats))


def print_tables(measured: Measured) -> None:
    print(f"accuracy, mean over seeds (guessing: {1 / VALUES:.2f}, most frequent value: {measured.most_frequent:.2f})")
    print(f"{'layer':<16}{'task':<8}" + "".join(f"{f'd={d}':>7}" for d in measured.distances))
    for (name, task), accuracies in measured.accuracies.items():
        row = "".join(f"{accuracy:7.2f}" for accuracy in accuracies.mean(dim=0))
        print(f"{name:<16}{task:<8}{row}")
    print(
        f"\nmilliseconds of a training step, one thread\n{'length':<16}" + "".join(f"{n:>8}" for n in measured.lengths)
    )
    for name, times in measured.milliseconds.items():
        print(f"{name:<16}" + "".join(f"{milliseconds:8.1f}" for milliseconds in times))


def draw(measured: Measured, out: Path) -> None:
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.4, 5.0), layout="constrained")
        upper, lower = figure.subplots(2, 1)
        for (name, task), accuracies in measured.accuracies.items():
            look = LOOKS[name] if task == "asked" else {**LOOKS[name], "linestyle": "--", "markerfacecolor": "white"}
            upper.plot(measured.distances, accuracies.mean(dim=0), label=f"{name}, {task}", **look)
        upper.axhline(measured.most_frequent, color="black", linestyle=":", linewidth=1, label="most frequent value")
        upper.set_xscale("log", base=2)
        upper.set_xticks(measured.distances, [str(distance) for distance in measured.distances])
        upper.set(xlabel="distance (positions)", ylabel="recall (accuracy)", ylim=(0, 1.05))
        upper.legend(handlelength=2, borderaxespad=0, frameon=False)
        for name, times in measured.milliseconds.items():
            lower.plot(measured.lengths, times, label=name, **LOOKS[name])
        lower.set_xscale("log", base=2)
        lower.set_yscale("log")
        lower.set_xticks(measured.lengths[::2], [str(length) for length in measured.lengths[::2]])
        lower.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
        lower.set(xlabel="length (positions)", ylabel="training step (ms)")
        lower.legend(handlelength=2, borderaxespad=0, frameon=False)
        figure.align_ylabels()
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=300)


def main(out: Path = Path("runs/examples/recall_distance.png"), seed: int = 0, quick: bool = False) -> Measured:
    """Draw recall and step time against distance and length, self-attention against a GRU.

    Args:
        out: where the picture goes (PNG).
        seed: the first of three (with --quick: the only one).
        quick: shorter distances, less training, short sequences only.
    """
    torch.set_num_threads(1)  # most of the tensors are too small to share out
    measured = measure(seed, quick)
    print_tables(measured)
    draw(measured, out)
    print(f"\nwrote {out}")
    return measured


if __name__ == "__main__":
    tyro.cli(main)
