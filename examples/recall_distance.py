"""What does recall over a distance cost: one layer of self-attention against one recurrent layer of the same size?

Above: both layers read random values and then a question, and must answer with the value at a given distance. *Asked*:
only the question gives the distance, so every value must be kept until then. *Marked*: the value is marked when it is
read, so only one value must be kept. Both layers get the same number of training steps on all distances mixed. Dotted:
always answer with the most frequent value. Below: the time of a training step against the length of the sequence.

What to expect, and what not. Self-attention answers at every distance (three of the lines coincide at 1). Distance
alone does not make the GRU forget: a marked value is still available at the far end. The GRU fails if its one state has
to hold every value: within this training it learns to keep only the nearest ones. Self-attention is faster only for
short sequences: its work grows with the square of the length, that of the GRU in proportion.

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
# Colours for colour-blind readers; squares and circles of two sizes, so that coinciding lines are both visible.
LOOKS = {
    "self-attention": {"color": "#0072B2", "marker": "s", "markersize": 7},
    "GRU": {"color": "#D55E00", "marker": "o", "markersize": 5},
}


class Recaller(nn.Module):
    """Embedding, one layer, and the logits of the values at the last position."""

    layer: Attention | nn.GRU

    def __init__(self, name: str, furthest: int) -> None:
        super().__init__()
        # Tokens: values, marked values, and questions ("the marked one" is question 0, "d back" is question d).
        self.embed = nn.Embedding(2 * VALUES + furthest + 1, SIZE)
        if name == "self-attention":  # rotary positions let a query select a key by its distance
            self.layer = MultiHeadConfig(heads=4, inner=ComposedConfig(ScaledDotConfig(RotaryConfig()))).build(SIZE)
        else:
            self.layer = nn.GRU(SIZE, GRU_SIZE, batch_first=True)
        self.output = nn.Linear(SIZE if name == "self-attention" else GRU_SIZE, VALUES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        if isinstance(self.layer, nn.GRU):
            states, _ = self.layer(x)
        else:  # the whole layer with all queries, as in the GRU, though only the last one is read
            states = self.layer(x, self.layer.remember(x), allow=Causal()).context
        return self.output(states[:, -1])


def draw_batch(task: str, distances: Tensor, furthest: int) -> tuple[Tensor, Tensor]:
    """Random values followed by a question, one row for each distance, and the answers."""
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


def recall(name: str, task: str, seeds: range, steps: int, distances: list[int]) -> dict[int, float]:
    """Train on all distances mixed; the accuracy at each of ``distances``, a mean over the seeds."""
    furthest, correct = max(distances), dict.fromkeys(distances, 0)
    for seed in seeds:
        torch.manual_seed(seed)
        model = Recaller(name, furthest)
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            training_step(model, optimiser, *draw_batch(task, torch.randint(1, furthest + 1, (32,)), furthest))
        with torch.inference_mode():
            for distance in distances:
                tokens, answers = draw_batch(task, torch.full((1000,), distance), furthest)
                correct[distance] += int((model(tokens).argmax(dim=-1) == answers).sum())
    return {distance: count / (1000 * len(seeds)) for distance, count in correct.items()}


def step_times(lengths: list[int], repeats: int) -> dict[str, dict[int, float]]:
    """Layer -> length -> median milliseconds of a training step on 8 sequences."""
    models = {name: Recaller(name, furthest=1) for name in LOOKS}
    optimisers = {name: torch.optim.Adam(model.parameters(), lr=3e-3) for name, model in models.items()}
    times: dict[str, dict[int, list[float]]] = {name: {length: [] for length in lengths} for name in LOOKS}
    for length in lengths:
        tokens, answers = torch.randint(VALUES, (8, length)), torch.randint(VALUES, (8,))
        for _ in range(repeats + 1):
            for name, model in models.items():  # alternating, so that a busy machine slows both
                start = time.perf_counter()
                training_step(model, optimisers[name], tokens, answers)
                times[name][length].append(1000 * (time.perf_counter() - start))
    # Without the first one, which warms up.
    return {name: {n: statistics.median(taken[1:]) for n, taken in times[name].items()} for name in LOOKS}


class Measured(NamedTuple):
    """Everything that is drawn."""

    accuracies: dict[tuple[str, str], dict[int, float]]  # (layer, task) -> distance -> accuracy
    by_counting: float  # the accuracy of always naming the most frequent value
    milliseconds: dict[str, dict[int, float]]  # layer -> length -> time of a training step


def print_tables(measured: Measured) -> None:
    print(f"accuracy by distance (guessing gives {1 / VALUES:.2f}, counting {measured.by_counting:.2f})")
    print(f"{'layer':<16}{'task':<8}" + "".join(f"{d:>7}" for d in measured.accuracies["GRU", "asked"]))
    for (name, task), accuracies in measured.accuracies.items():
        print(f"{name:<16}{task:<8}" + "".join(f"{accuracy:7.2f}" for accuracy in accuracies.values()))
    print("\nmilliseconds of a training step by length, one thread")
    print(f"{'layer':<16}" + "".join(f"{n:>8}" for n in measured.milliseconds["GRU"]))
    for name, times in measured.milliseconds.items():
        print(f"{name:<16}" + "".join(f"{milliseconds:8.1f}" for milliseconds in times.values()))


def draw(measured: Measured, out: Path) -> None:
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.4, 5.0), layout="constrained")
        upper, lower = figure.subplots(2, 1)
        for (name, task), accuracies in measured.accuracies.items():
            look = LOOKS[name] if task == "asked" else {**LOOKS[name], "linestyle": "--", "markerfacecolor": "white"}
            upper.plot(list(accuracies), list(accuracies.values()), label=f"{name}, {task}", **look)
        upper.axhline(measured.by_counting, color="black", linestyle=":", linewidth=1)
        upper.text(1, measured.by_counting - 0.03, "most frequent value", va="top")
        upper.set(xlabel="distance (positions)", ylabel="recall (accuracy)", ylim=(0, 1.05))
        for name, times in measured.milliseconds.items():
            lower.plot(list(times), list(times.values()), label=name, **LOOKS[name])
        lower.set(xlabel="length (positions)", ylabel="training step (ms)", yscale="log", ylim=(1, 4000))
        for panel, ticks in ((upper, list(accuracies)), (lower, list(times)[::2])):
            panel.set_xscale("log", base=2)
            panel.set_xticks(ticks, [str(tick) for tick in ticks])
            panel.legend(borderaxespad=0, frameon=False)
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
    torch.set_num_threads(1)  # most of the tensors are too small for several threads
    distances = [1, 2, 4, 8] if quick else [1, 2, 4, 8, 16, 32]
    lengths = [16, 64] if quick else [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    seeds, steps, repeats = (range(seed, seed + 1), 150, 3) if quick else (range(seed, seed + 3), 1000, 5)
    pairs = [(name, task) for name in LOOKS for task in ("asked", "marked")]
    accuracies = {(name, task): recall(name, task, seeds, steps, distances) for name, task in pairs}
    counts = F.one_hot(torch.randint(VALUES, (20_000, max(distances))), VALUES).sum(dim=1)
    by_counting = float(counts.amax(dim=-1).double().mean()) / max(distances)
    measured = Measured(accuracies, by_counting, step_times(lengths, repeats))
    print_tables(measured)
    draw(measured, out)
    print(f"\nwrote {out}")
    return measured


if __name__ == "__main__":
    tyro.cli(main)
