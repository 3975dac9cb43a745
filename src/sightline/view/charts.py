"""Charts of scores, made with matplotlib from plain numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from sightline.view.pictures import save

# Okabe and Ito's colours, without the yellow that is lost on white: told apart by every kind of colour vision.
# Markers tell the lines apart in grey print.
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
    """A line for each name: its score in each bucket of lengths, under which stands how many pairs it holds."""
    height = 2.6 + 0.2 * len(lines)  # of the chart and of the names above it
    figure = Figure(figsize=(max(3.6, 1.0 * len(labels) + 1.6), height), layout="constrained")
    axes = figure.subplots()
    drawn = [
        axes.plot(
            range(len(labels)),
            list(values),
            color=LINE_COLOURS[place % len(LINE_COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            # after as many lines as there are colours, dashes tell the second round from the first
            linestyle=("-", "--", ":", "-.")[place // len(LINE_COLOURS) % 4],
            clip_on=False,  # a marker at 0 is whole
        )[0]
        for place, values in enumerate(lines.values())
    ]
    pairs = [f"{label}\n{count:,} pair{'s' if count != 1 else ''}" for label, count in zip(labels, counts, strict=True)]
    axes.set_xticks(range(len(labels)), pairs)
    axes.set_xlim(-0.4, len(labels) - 0.6)
    axes.set_ylim(bottom=0)  # a score of 0 to 100: a cut axis makes small differences large
    axes.set_xlabel(f"length of the source in {unit}")
    axes.set_ylabel(score)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    figure.legend(drawn, [_plain(name) for name in lines], loc="outside upper left", frameon=False, fontsize=9)
    return save(figure, path)


def _plain(name: str) -> str:
    """A dollar sign is no formula, and a name that starts with an underscore is not hidden: both are matplotlib's."""
    whole = name.encode("utf-8", "replace").decode("utf-8").replace("$", r"\$")
    return f" {whole}" if whole.startswith("_") else whole
