"""The reliability picture: how often a model is right, against how sure it is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sightline.view.charts import LINE_COLOURS
from sightline.view.layout import COLUMN_WIDTH, title_lines
from sightline.view.pictures import save

_BLUE, _ORANGE = LINE_COLOURS[0], LINE_COLOURS[1]
_SIZE = 8.0


@runtime_checkable
class Bin(Protocol):
    """Texts of which the model was about equally sure."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def count(self) -> int: ...
    @property
    def confidence(self) -> float: ...
    @property
    def accuracy(self) -> float: ...


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
    """A bar for each bin: how often the model was right, and the gap to how sure it was; below, how many texts it has.

    ``before`` is the same without the temperature, drawn as a line. Errors are in percent. ``title`` stands above what
    they are.
    """
    return save(reliability_figure(bins, ece, before, ece_before, temperature, title), path)


def reliability_figure(
    bins: Sequence[Bin],
    ece: float,
    before: Sequence[Bin] = (),
    ece_before: float | None = None,
    temperature: float | None = None,
    title: str | None = None,
) -> Figure:
    """The figure behind `reliability`."""
    lines = [*title_lines(title, _SIZE + 1, COLUMN_WIDTH), _errors(ece, ece_before, temperature)]
    figure = Figure(figsize=(COLUMN_WIDTH, 3.7 + 0.16 * len(lines)), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    start = _start([*bins, *before])
    filled = [one for one in bins if one.count]
    upper.plot([0, 1], [0, 1], color="#666666", linewidth=0.8, linestyle="--", zorder=3, label="as sure as right")
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
    # what the colours mean, also where there is no bar of one of them
    upper.bar(2, 0, color=_BLUE, label="right")
    upper.bar(2, 0, color=_ORANGE, alpha=0.35, hatch="////", edgecolor=_ORANGE, linewidth=0, label="gap")
    upper.set(ylim=(0, 1), xlim=(start, 1))
    upper.set_ylabel("share that is right", fontsize=_SIZE)
    lower.bar(
        [(one.low + one.high) / 2 for one in filled],
        [one.count for one in filled],
        [(one.high - one.low) * 0.94 for one in filled],
        color="#666666",
    )
    lower.set_xlabel("how sure the model is of its label", fontsize=_SIZE)
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
    return figure


def _bar(axes: Axes, one: Bin) -> None:
    """What was right, and what lies between that and what was said: above it where the model was too sure."""
    middle, width = (one.low + one.high) / 2, (one.high - one.low) * 0.94
    axes.bar(middle, one.accuracy, width, color=_BLUE, zorder=1)
    low, high = sorted((one.accuracy, one.confidence))
    axes.bar(
        middle, high - low, width, bottom=low, color="none", hatch="////", edgecolor=_ORANGE, linewidth=0, zorder=2
    )
    axes.bar(middle, high - low, width, bottom=low, color=_ORANGE, alpha=0.35, linewidth=0, zorder=2)


def _start(bins: Sequence[Bin]) -> float:
    """Of two classes the one that is given is never less sure than a half: the empty half is not drawn."""
    lowest = min((one.low for one in bins if one.count), default=0.0)
    return lowest if lowest > 0.4 else 0.0


def _errors(ece: float, before: float | None, temperature: float | None) -> str:
    found = f"ECE {ece:.1f} %" if before is None else f"ECE {before:.1f} % before, {ece:.1f} % after"
    return found if temperature is None else f"{found} (temperature {temperature:.2f})"
