"""Charts of scores, made with matplotlib from plain numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sightline.metrics.base import goodness
from sightline.metrics.calibration import Bin
from sightline.records import Tokens
from sightline.view.fonts import widths
from sightline.view.layout import (
    COLOURS,
    COLUMN_WIDTH,
    SIZE,
    SMALLEST,
    add_scale,
    inches,
    ink,
    label,
    line_of,
    put_lines,
    room,
    shade,
    stand,
    thin_frame,
    title_lines,
)
from sightline.view.pictures import save

# The colours of Okabe and Ito, without the yellow that is lost on white: distinct for every kind of colour vision.
# Markers distinguish the lines in grey print.
LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def lines_by_length(
    labels: Sequence[str],
    counts: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    path: Path,
    *,
    score: str,
    unit: str = "words",
) -> Path:
    """A line for each name: its score in each bucket of lengths, labelled with the number of pairs."""
    height = 2.6 + 0.2 * len(lines)  # of the chart and of the names above it
    figure = Figure(figsize=(max(3.6, 1.0 * len(labels) + 1.6), height), layout="constrained")
    axes = figure.subplots()
    drawn = [
        axes.plot(
            range(len(labels)),
            list(values),
            color=LINE_COLOURS[place % len(LINE_COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            # where colours repeat, dashes distinguish the lines
            linestyle=("-", "--", ":", "-.")[place // len(LINE_COLOURS) % 4],
            clip_on=False,  # a marker at 0 is whole
        )[0]
        for place, values in enumerate(lines.values())
    ]
    pairs = [f"{label}\n{count:,} pair{'s' if count != 1 else ''}" for label, count in zip(labels, counts, strict=True)]
    axes.set_xticks(range(len(labels)), pairs)
    axes.set_xlim(-0.4, len(labels) - 0.6)
    axes.set_ylim(bottom=0)  # a score of 0 to 100: a truncated axis exaggerates small differences
    axes.set_xlabel(f"length of the source in {unit}")
    axes.set_ylabel(score)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    figure.legend(drawn, [_plain(name) for name in lines], loc="outside upper left", frameon=False, fontsize=9)
    return save(figure, path)


def _plain(name: str) -> str:
    """Escape what is special to matplotlib: a dollar sign, and an underscore at the start of a name."""
    whole = name.encode("utf-8", "replace").decode("utf-8").replace("$", r"\$")
    return f" {whole}" if whole.startswith("_") else whole


# --- Training curves.

# Blue and orange of Okabe and Ito: distinct for every kind of colour vision, and dashes distinguish them in grey.
TRAINED, VALIDATED = "#0072B2", "#D55E00"
NOT_SCORES = {"step", "epoch", "seconds", "loss", "tokens_per_second", "learning_rate", "perplexity", "valid_loss"}


def draw_curves(metrics: Sequence[Mapping[str, object]], path: Path, unit: str = "nats a token") -> Path | None:
    """The score, and the losses, against steps. ``metrics`` are the lines of a run's metrics.jsonl."""
    lines = [line for line in metrics if "epoch" in line and "seconds" in line]
    if not lines:
        return None
    figure = Figure(figsize=(7.0, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    # An epoch may be validated twice (a limit reached inside it, then a resume): steps distinguish such points.
    steps = np.array([line["step"] for line in lines], dtype=float)
    _draw_score(left, steps, lines)
    _draw_losses(right, steps, lines, unit)
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


def _draw_score(axes: Axes, steps: np.ndarray, lines: Sequence[Mapping[str, object]]) -> None:
    name = next((key for key in lines[0] if key not in NOT_SCORES), None)
    if name is None:
        axes.set_axis_off()
        return
    values = np.array([line.get(name, np.nan) for line in lines], dtype=float)
    axes.plot(steps, values, color=VALIDATED, marker="." if len(lines) < 40 else None)
    if np.isfinite(values).any():
        best = int(np.nanargmax(values * goodness(name, 1.0)))
        axes.plot(steps[best], values[best], "o", color=VALIDATED, markerfacecolor="white")
        axes.annotate(
            f"{values[best]:.2f}", (steps[best], values[best]), xytext=(0, -12), textcoords="offset points", ha="center"
        )
    axes.set_title(f"{name.replace('_', ' ')} on validation data", fontsize=10)


def _draw_losses(axes: Axes, steps: np.ndarray, lines: Sequence[Mapping[str, object]], unit: str) -> None:
    names = ("loss", "perplexity", "valid_loss")
    trained, perplexity, validated = (
        np.array([line.get(name, np.nan) for line in lines], dtype=float) for name in names
    )
    if np.isfinite(trained).any():
        smoothed = " (smoothed targets)" if np.isfinite(perplexity).any() else ""
        axes.plot(steps, trained, color=TRAINED, linestyle="--", label=f"training loss{smoothed}")
    if np.isfinite(perplexity).any():
        axes.plot(steps, np.log(perplexity), color=VALIDATED, label="validation, log perplexity")
    elif np.isfinite(validated).any():
        axes.plot(steps, validated, color=VALIDATED, label="validation loss")
    if axes.lines:
        axes.legend(loc="best", frameon=False, fontsize=9)  # given, since matplotlib warns on a slow machine
    axes.set_title(unit, fontsize=10)


# --- The confusion matrix.

MOST = 50  # classes that are shown
_WIDEST = 3.4  # inches of the cells of few classes; with many, a cell is as large as its count needs
_LARGEST_CELL = 0.7
_RIGHT = 0.75  # inches beside the matrix, for its scale


def confusion_matrix(
    matrix: Int[np.ndarray, "gold predicted"], names: Sequence[str], path: Path, *, title: str | None = None
) -> Path:
    """A row for each gold class, a column for each predicted one, in .png, .svg or .pdf.

    Shades are fractions of the row, so that a rare class is as visible as a frequent one; the numbers count texts, and
    0 is not written. A class without texts has a grey row. Of more than 50 classes, those with the most texts are
    shown, and the others together as one.
    """
    if matrix.shape != (len(names), len(names)) or not len(names):
        raise ValueError(f"a matrix of shape {matrix.shape} with {len(names)} names")
    counts, shown_names = _largest(matrix, names)
    classes, axis = len(shown_names), Tokens(tuple(shown_names))
    texts = {count: _short(count) for count in np.unique(counts).tolist() if count}
    size = SIZE if classes <= 20 else SMALLEST
    needed = max([*widths(list(texts.values()), size), 0.0]) + 0.07
    wide = max(min(_WIDEST / classes, _LARGEST_CELL), needed, 1.15 * line_of(size))
    high = max(min(_WIDEST / classes, _LARGEST_CELL * 0.8), 0.6 * wide, 1.15 * line_of(size))
    line = line_of(size)
    left = room(axis, size) + 1.6 * line
    below = (room(axis, size) if stand(axis, size, wide) else line) + 1.7 * line
    lines = title_lines(title, size + 1, left + wide * classes + _RIGHT)
    above = (1.25 * len(lines) + 0.7) * line if lines else 0.05
    figure = Figure(figsize=(left + wide * classes + _RIGHT, above + high * classes + below))
    axes = figure.add_axes(inches(figure, left, below, wide * classes, high * classes))
    shares = _shares(counts)
    image = shade(axes, shares, 1.0, COLOURS)
    for row, column in zip(*np.nonzero(counts), strict=True):
        _, colour = ink(float(shares[row, column]), 1.0)
        axes.text(column, row, texts[int(counts[row, column])], ha="center", va="center", fontsize=size, color=colour)
    label(axes, "x", axis, size)
    label(axes, "y", axis, size)
    axes.set_xlabel("predicted label", fontsize=size)
    axes.set_ylabel("gold label", fontsize=size)
    add_scale(axes, image, 1.0, size, "of the row", percent=True)
    thin_frame(axes)
    put_lines(figure, lines, size + 1)
    return save(figure, path)


def _largest(matrix: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """The classes with the most texts, in their order, then all others as one."""
    if len(names) <= MOST:
        return matrix, list(names)
    texts = matrix.sum(axis=1) + matrix.sum(axis=0)
    kept = np.sort(np.argsort(-texts, kind="stable")[: MOST - 1])
    place = np.full(len(names), MOST - 1)
    place[kept] = np.arange(MOST - 1)
    counts = np.zeros((MOST, MOST), dtype=matrix.dtype)
    np.add.at(counts, (place[:, None], place[None, :]), matrix)
    return counts, [*(names[one] for one in kept.tolist()), f"{len(names) - MOST + 1} others"]


def _shares(counts: np.ndarray) -> Float64[np.ndarray, "gold predicted"]:
    whole = counts.sum(axis=1, keepdims=True)
    return np.where(whole > 0, counts / np.maximum(whole, 1), np.nan)


def _short(count: int) -> str:
    """At most four characters: 9999, 12k, 1.2M."""
    if count < 10_000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.0f}k"
    return f"{count / 1e6:.1f}M" if count < 9_950_000 else f"{count / 1e6:.0f}M"


# --- The reliability diagram: accuracy against confidence.

_BLUE, _ORANGE = LINE_COLOURS[0], LINE_COLOURS[1]
_SIZE = 8.0


def reliability(
    bins: Sequence[Bin],
    path: Path,
    *,
    ece: float,
    before: Sequence[Bin] = (),
    ece_before: float | None = None,
    temperature: float | None = None,
    title: str | None = None,
) -> Path:
    """A bar for each bin: its accuracy, and the gap to its mean confidence; below, its number of texts.

    ``before`` is the same without the temperature, drawn as a line. Calibration errors are in percent, below ``title``.
    """
    lines = [*title_lines(title, _SIZE + 1, COLUMN_WIDTH), _errors(ece, ece_before, temperature)]
    figure = Figure(figsize=(COLUMN_WIDTH, 3.7 + 0.16 * len(lines)), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    start = _start([*bins, *before])
    filled = [one for one in bins if one.count]
    upper.plot([0, 1], [0, 1], color="#666666", linewidth=0.8, linestyle="--", zorder=3, label="calibrated")
    for one in filled:
        _bar(upper, one)
    drawn = sorted((one for one in before if one.count), key=lambda one: one.low)
    if drawn:
        upper.plot(
            [one.confidence for one in drawn],
            [one.accuracy for one in drawn],
            color="black",
            linewidth=0.8,
            marker="o",
            markersize=3,
            zorder=4,
            label="before",
        )
    # entries of the legend, also where a colour has no bar
    upper.bar(2, 0, color=_BLUE, label="accuracy")
    upper.bar(2, 0, color=_ORANGE, alpha=0.35, hatch="////", edgecolor=_ORANGE, linewidth=0, label="gap")
    upper.set(ylim=(0, 1), xlim=(start, 1))
    upper.set_ylabel("accuracy", fontsize=_SIZE)
    lower.bar(
        [(one.low + one.high) / 2 for one in filled],
        [one.count for one in filled],
        [(one.high - one.low) * 0.94 for one in filled],
        color="#666666",
    )
    lower.set_xlabel("confidence: probability of the predicted label", fontsize=_SIZE)
    lower.set_ylabel("texts", fontsize=_SIZE)
    lower.locator_params(axis="y", nbins=3, integer=True)
    lower.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for axes in (upper, lower):
        axes.tick_params(labelsize=_SIZE)
        axes.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels([upper, lower])
    drawings, meanings = upper.get_legend_handles_labels()
    figure.legend(
        drawings,
        meanings,
        loc="outside lower center",
        ncols=len(meanings),
        frameon=False,
        fontsize=_SIZE - 1,
        columnspacing=1.2,
        handlelength=1.6,
    )
    figure.suptitle("\n".join(lines), fontsize=_SIZE + 1, parse_math=False, linespacing=1.15)
    return save(figure, path)


def _bar(axes: Axes, one: Bin) -> None:
    """The accuracy, and the gap to the confidence: above it where the model is overconfident."""
    middle, width = (one.low + one.high) / 2, (one.high - one.low) * 0.94
    axes.bar(middle, one.accuracy, width, color=_BLUE, zorder=1)
    low, high = sorted((one.accuracy, one.confidence))
    axes.bar(
        middle, high - low, width, bottom=low, color="none", hatch="////", edgecolor=_ORANGE, linewidth=0, zorder=2
    )
    axes.bar(middle, high - low, width, bottom=low, color=_ORANGE, alpha=0.35, linewidth=0, zorder=2)


def _start(bins: Sequence[Bin]) -> float:
    """With two classes the predicted one has at least probability ½: the empty half is not drawn."""
    lowest = min((one.low for one in bins if one.count), default=0.0)
    return lowest if lowest > 0.4 else 0.0


def _errors(ece: float, before: float | None, temperature: float | None) -> str:
    errors = f"ECE {ece:.1f} %" if before is None else f"ECE {before:.1f} % before, {ece:.1f} % after"
    return errors if temperature is None else f"{errors} (temperature {temperature:.2f})"
