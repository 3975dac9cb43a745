"""How much of the gradient reaches a distant input, with and without attention?

An LSTM reads a sequence in which one token is marked, and the output must name that token. The output reads either the
last state only (one context vector) or additive attention over all states, with the last state as the query. The
picture shows the norm of the loss gradient with respect to the input embedding at each distance from the end, divided
by the norm of the loss gradient with respect to the logits: the part of an output error that arrives. The division
matters only after training, because a smaller loss makes every gradient smaller.

What to expect, and what not. Without training, the gradient through the last state shrinks to about 0.63 of itself at
each step, since PyTorch initialises the forget gate near one half (a forget bias of 1 would make it about 0.84).
Attention has a short path to every state, so its gradient is flat. Near the end the gradient of attention is smaller,
because all states share it. The gap is not a law: as the LSTM learns to keep the marked token, it shrinks from more
than eleven orders of magnitude to less than two. Attention saves the time until then. Lines are geometric means over
five seeds; bands go from the lowest seed to the highest.

    python examples/gradient_distance.py --out runs/examples/gradient_distance.png
"""

import copy
import itertools
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
import tyro
from matplotlib.figure import Figure
from torch import Tensor, nn

from sightline.attention import AdditiveConfig, ComposedConfig

VALUES, EMBEDDING_SIZE, STATE_SIZE = 8, 16, 32
READERS = {"last state only": False, "attention": True}  # name -> whether it attends
LOOKS = {
    "last state only": ("#D55E00", "--"),
    "attention": ("#0072B2", "-"),
}  # for colour-blind readers too


class Reader(nn.Module):
    """An LSTM whose output reads its last state or attends to all states."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(2 * VALUES, EMBEDDING_SIZE)
        self.encode = nn.LSTM(EMBEDDING_SIZE, STATE_SIZE, batch_first=True)
        self.attention = ComposedConfig(AdditiveConfig()).build(STATE_SIZE) if attends else None
        self.output = nn.Linear(STATE_SIZE, VALUES)

    def forward(self, embedded: Tensor) -> Tensor:
        states, _ = self.encode(embedded)
        last = states[:, -1:]
        if self.attention is None:
            return self.output(last.squeeze(1))
        return self.output(self.attention(last, self.attention.remember(states)).context.squeeze(1))


@dataclass
class Stage:
    """Measurements after some training, by the name of the reader."""

    steps: int
    norms: dict[str, Tensor]  # seeds × distances from the end
    accuracies: dict[str, Tensor]  # one for each seed

    def typical(self, name: str) -> Tensor:
        """The geometric mean over the seeds: the norms differ by orders of magnitude."""
        return self.norms[name].log().mean(dim=0).exp()


def draw_batch(size: int, length: int) -> tuple[Tensor, Tensor]:
    """Random tokens, one of them marked (it has another embedding), and the marked token's value."""
    tokens = torch.randint(VALUES, (size, length))
    rows, marked = torch.arange(size), torch.randint(length, (size,))
    answers = tokens[rows, marked]
    tokens[rows, marked] += VALUES
    return tokens, answers


def train(model: Reader, optimiser: torch.optim.Optimizer, length: int, steps: int) -> None:
    for _ in range(steps):
        tokens, answers = draw_batch(32, length)
        loss = F.cross_entropy(model(model.embed(tokens)), answers)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


def measure(model: Reader, length: int) -> tuple[Tensor, Tensor]:
    """The gradient's norm at each distance, a mean over fresh examples, and the accuracy on them."""
    model = copy.deepcopy(model).double()  # gradients of distant inputs leave the range of float32
    tokens, answers = draw_batch(512, length)
    embedded = model.embed(tokens).detach().requires_grad_()
    logits = model(embedded)
    # A sum, so that the gradient of each example is that of its own loss.
    loss = F.cross_entropy(logits, answers, reduction="sum")
    at_input, at_output = torch.autograd.grad(loss, [embedded, logits])
    shares = at_input.norm(dim=-1) / at_output.norm(dim=-1, keepdim=True)
    return shares.mean(dim=0).flip(0), (logits.argmax(dim=-1) == answers).double().mean()


def measure_stages(seeds: range, length: int, stops: list[int]) -> list[Stage]:
    """Train every reader with every seed and measure at each stop, the numbers of training steps in ``stops``."""
    found: dict[tuple[int, str], list[tuple[Tensor, Tensor]]] = {(stop, name): [] for stop in stops for name in READERS}
    for seed in seeds:
        for name, attends in READERS.items():
            torch.manual_seed(seed)
            model = Reader(attends)
            optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
            for before, stop in itertools.pairwise([0, *stops]):
                train(model, optimiser, length, stop - before)
                found[stop, name].append(measure(model, length))
    return [
        Stage(
            stop,
            {name: torch.stack([norms for norms, _ in found[stop, name]]) for name in READERS},
            {name: torch.stack([accuracy for _, accuracy in found[stop, name]]) for name in READERS},
        )
        for stop in stops
    ]


def print_table(stages: list[Stage], distances: list[int]) -> None:
    print("gradient norm at the input over gradient norm at the output, geometric mean over seeds")
    print(f"{'steps':>6}  {'output reads':<16}{'accuracy':>9}" + "".join(f"{f'd={d}':>9}" for d in distances))
    for stage in stages:
        for name in READERS:
            norms = "".join(f"{stage.typical(name)[distance]:9.0e}" for distance in distances)
            print(f"{stage.steps:6}  {name:<16}{stage.accuracies[name].mean():9.2f}{norms}")


def draw(stages: list[Stage], out: Path) -> None:
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.4, 5.2), layout="constrained")
        panels = figure.subplots(len(stages), 1, sharex=True, sharey=True)
        for stage, panel in zip(stages, panels, strict=True):
            for name, (color, line) in LOOKS.items():
                norms = stage.norms[name]
                label = f"accuracy {stage.accuracies[name].mean():.2f}" if stage.steps else name
                panel.plot(stage.typical(name), line, color=color, label=label)
                lowest, highest = norms.min(dim=0).values, norms.max(dim=0).values
                panel.fill_between(range(norms.shape[1]), lowest, highest, color=color, alpha=0.2, linewidth=0)
            panel.set(yscale="log", ylim=(1e-16, 1), yticks=[1e-15, 1e-10, 1e-5, 1])
            panel.set_title(
                "untrained" if not stage.steps else f"after {stage.steps:,} training steps", loc="left", fontsize=10
            )
            panel.legend(loc="lower left", handlelength=1.8, borderaxespad=0, frameon=False)
        panels[-1].set_xlabel("distance from the end (tokens)")
        figure.supylabel("gradient norm, input / output", fontsize=10)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=300)


def main(out: Path = Path("runs/examples/gradient_distance.png"), seed: int = 0, quick: bool = False) -> list[Stage]:
    """Draw the gradient's norm against distance, with and without attention, before and after training.

    Args:
        out: where the picture goes (PNG).
        seed: the first of five (with --quick: two).
        quick: shorter sequences, hardly any training.
    """
    torch.set_num_threads(1)  # the tensors are too small for several threads
    length, stops, seeds = (32, [0, 20], 2) if quick else (64, [0, 200, 1000], 5)
    stages = measure_stages(range(seed, seed + seeds), length, stops)
    print_table(stages, [distance for distance in (0, 1, 2, 4, 8, 16, 32) if distance < length - 1] + [length - 1])
    draw(stages, out)
    print(f"\nwrote {out}")
    return stages


if __name__ == "__main__":
    tyro.cli(main)
