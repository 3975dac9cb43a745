"""Which words of an output were copied: a mark beside each row of a map, and a frame around the cell copied from."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from sightline.explain.explanation import Copied, OutputStep
from sightline.records import Axis, Record
from sightline.view.fonts import widths
from sightline.view.layout import INCH, inner_size, line_of, names
from sightline.view.words import places_of_words, shown

Copies = Sequence[Copied | None]  # a row each; empty where the model cannot copy
COPIED_FRAME = "#D55E00"  # the orange of Okabe and Ito, which no shade of the map is
SOFT = "#555555"
COPIED, WRITTEN = "copied", "written"
NOTE = "p: probability to write, not to copy; framed: where a word is copied from"
_GAP = 0.07  # inches between labels and marks
_SMALLEST_FRAME = 0.07  # inches: a frame around a narrow cell is wider than that


def copied_words(steps: Sequence[OutputStep], record: Record, merge: bool = True) -> list[Copied | None]:
    """Of each row of a map over the source, or with ``merge`` of each of its words; empty if the model cannot copy.

    ``gate`` and ``share`` of a word are the means of its tokens; its ``place`` is the one that most of its copied
    tokens come from.
    """
    if len(steps) != len(record.rows) or all(step.copied is None for step in steps):
        return []
    if not merge:
        return [step.copied for step in steps]
    rows, columns = places_of_words(record.rows), places_of_words(record.columns)
    words: list[list[Copied]] = [[] for _ in range(int(rows.max(initial=-1)) + 1)]
    for row, step in zip(rows.tolist(), steps, strict=True):
        words[row] += [] if step.copied is None else [step.copied]
    return [_word(word, columns) for word in words]


def _word(tokens: Sequence[Copied], columns: np.ndarray) -> Copied | None:
    if not tokens:
        return None
    gate, share = (float(np.mean([getattr(one, name) for one in tokens])) for name in ("gate", "share"))
    places = [int(columns[one.place]) for one in tokens if one.place is not None and one.from_source]
    return Copied(gate, share, Counter(places).most_common(1)[0][0] if places else None)


def output_called(name: str | None, copies: Copies) -> str | None:
    """What the rows are called: where some are copied, not all are written."""
    return "output" if copies else name


def from_where(one: Copied | None) -> int | None:
    """The column that a word is copied from; None if it is written."""
    return one.place if one is not None and one.from_source else None


def copied_phrase(one: Copied | None, columns: Axis) -> str:
    """Whether one word was copied, in words."""
    if one is None:
        return ""
    place = from_where(one)
    if place is None:
        return f"{COPIED if one.from_source else WRITTEN}, p {one.gate:.2f}"
    name = (names(columns) or [""] * len(columns))[place]
    return f"copied from {shown(name)} (place {place + 1}), p {one.gate:.2f}"


def marks_room(size: float) -> float:
    """How wide the marks are, in inches."""
    return max(widths([COPIED, WRITTEN], size)) + widths(["0.00"], size)[0] + 2 * _GAP


def put_marks(axes: Axes, copies: Copies, size: float) -> None:
    """Copied or written, with p, between the labels of the rows and the map; and the frames.

    ``marks_room`` is kept free for them. Each is at its row, so that a film can show them one after the other.
    """
    room = marks_room(size)
    axes.tick_params(axis="y", pad=room * INCH)
    labelled = {round(place) for place in axes.get_yticks()}  # where labels are left out, so are marks
    end = widths(["0.00"], size)[0] + _GAP

    def put(row: float, inches: float, text: str, colour: str, up: float = 0.0, weight: str = "normal") -> None:
        axes.annotate(
            text,
            (0.0, row),
            (-inches * INCH, up * INCH),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=size,
            color=colour,
            weight=weight,
            annotation_clip=False,
        )

    put(-0.5, 0.04, "p", SOFT, up=0.6 * line_of(size))
    width, height = inner_size(axes)
    rows, columns = axes.images[0].get_size()
    cell = (width / columns, height / rows)
    for row, one in enumerate(copies):
        if one is None:
            continue
        if row in labelled:
            if one.from_source:
                put(row, end, COPIED, COPIED_FRAME, weight="bold")
            else:
                put(row, end, WRITTEN, SOFT)
            put(row, 0.04, f"{one.gate:.2f}", SOFT)
        place = from_where(one)
        if place is not None:
            wide, high = (max(1.0, _SMALLEST_FRAME / side) for side in cell)
            frame = Rectangle(
                (place - wide / 2, row - high / 2), wide, high, fill=False, edgecolor=COPIED_FRAME, linewidth=1.4
            )
            axes.add_patch(frame).set_clip_on(False)


def put_note(axes: Axes, lines: Sequence[str], size: float, left: float, below: float) -> None:
    """What the marks mean, in the lower left corner: so many inches beside and below the map."""
    axes.annotate(
        "\n".join(lines),
        (0.0, 0.0),
        (-(left - 0.05) * INCH, -below * INCH),
        xycoords="axes fraction",
        textcoords="offset points",
        va="bottom",
        fontsize=size,
        color=SOFT,
        annotation_clip=False,
    )


def show_marks(axes: Axes, last: int) -> None:
    """Only those of the rows up to ``last``."""
    for text in axes.texts:
        text.set_visible(text.xy[1] <= last)  # type: ignore[attr-defined]  # all are annotations
    for frame in axes.patches:
        frame.set_visible(frame.get_y() + frame.get_height() / 2 <= last)  # type: ignore[attr-defined]
