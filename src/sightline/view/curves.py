"""How training went, as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sightline.view.pictures import save

# Blue and orange of Okabe and Ito: told apart by every kind of colour vision, and dashes tell them apart in grey.
TRAINED, VALIDATED = "#0072B2", "#D55E00"
NOT_SCORES = {"step", "epoch", "seconds", "loss", "tokens_per_second", "learning_rate", "perplexity", "valid_loss"}


def draw_curves(metrics: Sequence[Mapping[str, Any]], path: Path, unit: str = "nats a token") -> Path | None:
    """The score, and the losses, against steps. ``metrics`` are the lines of a run's metrics.jsonl."""
    lines = [line for line in metrics if "epoch" in line and "seconds" in line]
    if not lines:
        return None
    figure = Figure(figsize=(7.0, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    # An epoch may be validated twice (a limit reached inside it, then a resume): steps tell such points apart.
    steps = np.array([line["step"] for line in lines], dtype=float)
    _draw_score(left, steps, lines)
    _draw_losses(right, steps, lines, unit)
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


def _draw_score(axes: Axes, steps: np.ndarray, lines: Sequence[Mapping[str, Any]]) -> None:
    name = next((key for key in lines[0] if key not in NOT_SCORES), None)
    if name is None:
        axes.set_axis_off()
        return
    values = np.array([line.get(name, np.nan) for line in lines], dtype=float)
    axes.plot(steps, values, color=VALIDATED, marker="." if len(lines) < 40 else None)
    if np.isfinite(values).any():
        best = int(np.nanargmax(values))
        axes.plot(steps[best], values[best], "o", color=VALIDATED, markerfacecolor="white")
        axes.annotate(
            f"{values[best]:.2f}", (steps[best], values[best]), xytext=(0, -12), textcoords="offset points", ha="center"
        )
    axes.set_title(f"{name.replace('_', ' ')} on validation data", fontsize=10)


def _draw_losses(axes: Axes, steps: np.ndarray, lines: Sequence[Mapping[str, Any]], unit: str) -> None:
    trained = np.array([line.get("loss", np.nan) for line in lines], dtype=float)
    perplexity = np.array([line.get("perplexity", np.nan) for line in lines], dtype=float)
    validated = np.array([line.get("valid_loss", np.nan) for line in lines], dtype=float)
    if np.isfinite(trained).any():
        smoothed = " (smoothed targets)" if np.isfinite(perplexity).any() else ""
        axes.plot(steps, trained, color=TRAINED, linestyle="--", label=f"training loss{smoothed}")
    if np.isfinite(perplexity).any():
        axes.plot(steps, np.log(perplexity), color=VALIDATED, label="validation, log perplexity")
    elif np.isfinite(validated).any():
        axes.plot(steps, validated, color=VALIDATED, label="validation loss")
    if axes.lines:
        axes.legend(loc="best", frameon=False, fontsize=9)  # said, or a slow machine is warned of it
    axes.set_title(unit, fontsize=10)
