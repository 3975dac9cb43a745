"""Softmax, 1.5-entmax, sparsemax and hard attention on the same scores: how many annotations does a query read?

The upper picture shows the weights of each normaliser for one row of scores. The lower one divides rows of random
scores by a temperature and counts the weights that are not exactly zero. Softmax never gives a zero, though most of its
weights soon are too small to matter (dashed). Entmax and sparsemax give zeros, more of them at lower temperatures. Hard
attention reads one annotation at every temperature.

    python examples/normalisers.py --out runs/examples/normalisers.png
"""

from pathlib import Path
from typing import NamedTuple

import matplotlib
import torch
import tyro
from matplotlib.figure import Figure
from torch import Tensor

from sightline.attention import Entmax15Config, HardConfig, NormaliserConfig, SoftmaxConfig, SparsemaxConfig

# From the softest to the hardest.
NORMALISERS: dict[str, NormaliserConfig] = {
    "softmax": SoftmaxConfig(),
    "1.5-entmax": Entmax15Config(),
    "sparsemax": SparsemaxConfig(),
    "hard": HardConfig(),
}
SMALL = 0.01  # the weight below which the dashed line counts a softmax weight as too small to matter
LOOKS = {  # colour and marker: colours that colour-blind readers can tell apart, markers for print without colour
    "softmax": ("#0072B2", "o"),
    "1.5-entmax": ("#E69F00", "s"),
    "sparsemax": ("#009E73", "^"),
    "hard": ("#000000", "D"),
}


class Measured(NamedTuple):
    """Everything that is drawn. Weights and counts are by the normaliser's name."""

    scores: Tensor  # of one row
    weights: dict[str, Tensor]
    temperatures: Tensor
    nonzero: dict[str, Tensor]  # mean over random rows, one for each temperature
    softmax_above_small: Tensor


def weigh(normaliser: NormaliserConfig, scores: Tensor) -> Tensor:
    """Weights of rows of scores. In evaluation mode, since hard attention samples while it is trained."""
    return normaliser.build().eval()(scores, None).weights


def measure(seed: int, rows: int, length: int = 32) -> Measured:
    # In float64: at low temperatures softmax weights of float32 underflow to zero, which is rounding, not sparsity.
    scores = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5], dtype=torch.float64)
    weights = {name: weigh(config, scores.unsqueeze(0)).squeeze(0) for name, config in NORMALISERS.items()}

    temperatures = torch.logspace(-1.5, 1.5, 13, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    random_scores = torch.randn(rows, length, generator=generator, dtype=torch.float64)
    # All temperatures at once: they are one more batch axis.
    tempered = random_scores / temperatures[:, None, None]
    nonzero = {name: _mean_count(weigh(config, tempered) > 0) for name, config in NORMALISERS.items()}
    above = _mean_count(weigh(SoftmaxConfig(), tempered) > SMALL)
    return Measured(scores, weights, temperatures, nonzero, above)


def _mean_count(chosen: Tensor) -> Tensor:
    return chosen.sum(dim=-1).double().mean(dim=-1)


def print_tables(measured: Measured) -> None:
    print(f"{'score':>12}" + "".join(f"{name:>12}" for name in NORMALISERS))
    for i, score in enumerate(measured.scores):
        print(f"{score:12.1f}" + "".join(f"{measured.weights[name][i]:12.3f}" for name in NORMALISERS))
    print("\nweights that are not zero, mean over rows of random scores (last: softmax weights above 1 %)")
    print(f"{'temperature':>12}" + "".join(f"{name:>12}" for name in NORMALISERS) + f"{'above 1 %':>12}")
    for i, temperature in enumerate(measured.temperatures):
        counts = [*(measured.nonzero[name][i] for name in NORMALISERS), measured.softmax_above_small[i]]
        print(f"{temperature:12.2f}" + "".join(f"{count:12.2f}" for count in counts))


def draw(measured: Measured, out: Path) -> None:
    with matplotlib.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.4, 4.8), layout="constrained")
        bars, lines = figure.subplots(2, 1, height_ratios=(2, 3))

        width = 0.8 / len(NORMALISERS)
        places = range(len(measured.scores))
        for i, (name, weights) in enumerate(measured.weights.items()):
            shift = (i - (len(NORMALISERS) - 1) / 2) * width
            bars.bar([place + shift for place in places], weights.tolist(), width, color=LOOKS[name][0])
        bars.set_xticks(places, [f"{score:g}".replace("-", "−") for score in measured.scores])
        bars.set(xlabel="score", ylabel="weight", ylim=(0, 1), yticks=[0, 0.5, 1])

        for name, counts in measured.nonzero.items():
            color, marker = LOOKS[name]
            lines.plot(measured.temperatures, counts, color=color, marker=marker, markersize=4, label=name)
        color, label = LOOKS["softmax"][0], f"softmax, > {SMALL:g}"
        lines.plot(measured.temperatures, measured.softmax_above_small, "--", color=color, label=label, zorder=1)
        lines.set_xscale("log")
        lines.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
        lines.set_yscale("log", base=2)
        lines.set_yticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
        lines.set(xlabel="temperature", ylabel="non-zero weights (of 32)")
        # One legend for both pictures, where there is room.
        handles, labels = lines.get_legend_handles_labels()
        bars.legend(handles, labels, loc="upper right", handlelength=1.5, borderaxespad=0, frameon=False)
        figure.align_ylabels()

        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=300)


def main(out: Path = Path("runs/examples/normalisers.png"), seed: int = 0, quick: bool = False) -> Measured:
    """Draw the weights of four normalisers for the same scores.

    Args:
        out: where the picture goes (PNG).
        seed: of the random scores.
        quick: fewer random rows.
    """
    measured = measure(seed, rows=50 if quick else 2000)
    print_tables(measured)
    draw(measured, out)
    print(f"\nwrote {out}")
    return measured


if __name__ == "__main__":
    tyro.cli(main)
