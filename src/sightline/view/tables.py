"""A table and the program that answered a question about it: rows, cells and columns shaded pass by pass."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from sightline.asked import AskedPass, AskedTable
from sightline.errors import UserError
from sightline.view.fonts import widths
from sightline.view.highlight import FRAME, flow, height_of, legend, sheet, write
from sightline.view.layout import (
    COLOURS,
    SMALLEST,
    TALLEST,
    TEXT_WIDTH,
    add_title,
    ink,
    largest_of,
    line_of,
    size_for,
    title_lines,
)
from sightline.view.pictures import save
from sightline.view.table_excerpt import Gap, Part, column_importance, excerpt_rows, gap_text, with_gaps
from sightline.view.words import shown

MOST_ROWS, FEWEST_ROWS = 14, 4  # of each pass in a picture
PAD = 0.05  # inches on each side of a cell
WIDEST, NARROWEST = 1.7, 0.8  # inches of a column
GAP_WIDTH = 0.3  # inches where columns are left out
MARK = "▸"  # before a row that is selected: not by colour alone
ROW_SHADE, CROSSED_SHADE, COLUMN_SHADE = 0.2, 0.42, 0.05  # of selected rows, where the column crosses them, elsewhere
SOFT, LINE = "#555555", "#cccccc"
_NUMBER = re.compile(r"[\s$€£¥+\-−–(]*\d[\d.,'\s]*[%)]?")
Box = tuple[Rectangle, Text]


def table_picture(
    table: AskedTable, answer: str, path: Path, *, title: str | None = None, width: float = TEXT_WIDTH
) -> Path:
    """The table once for each pass, as it is behind the pass, with the pass in words beside it."""
    return save(table_figure(table, answer, title, width), path)


def table_figure(table: AskedTable, answer: str, title: str | None, width: float) -> Figure:
    if not table.passes:
        raise UserError("the program has no passes: there is nothing to draw")
    size = size_for(width) - 1
    beside = width >= 5
    most = largest_of(*(one.word_weights for one in table.passes))
    above = 1.8 * line_of(size_for(width) + 1) if title else 0.0
    below = (1.0 if beside else 4.0) * 1.25 * line_of(SMALLEST)
    gap = 0.16

    def in_words(room: float) -> list[_Words]:
        return [_Words(table, number, answer, room - 0.02, size) for number in range(len(table.passes))]

    left = min(2.3, 0.34 * width) if beside else width
    texts = in_words(left)
    free = (TALLEST - above - below) / len(table.passes) - gap - (0.0 if beside else texts[0].height)
    rows = excerpt_rows(table, max(FEWEST_ROWS, min(MOST_ROWS, int(free / row_height(size)) - 1)))
    layout = fitted(table, rows, width - left - 0.15 if beside else width, size)
    if beside:  # a narrow table leaves more room for words
        texts = in_words(max(left, width - layout.width - 0.3))
    heights = [max(one.height, layout.height) if beside else one.height + 0.06 + layout.height for one in texts]
    high = above + sum(heights) + gap * len(texts) + below
    figure = Figure(figsize=(width, high))
    page = sheet(figure, 0.0, 0.0, width, high)
    top, own = above, max(one.width for one in texts)
    for number, (words, height) in enumerate(zip(texts, heights, strict=True)):
        if number:
            page.plot([0, width], [top - gap / 2] * 2, color=LINE, linewidth=0.5)
        words.put(page, top, most)
        at = (min(width - layout.width, own + 0.4), top) if beside else (0.0, top + words.height + 0.06)
        TablePanel(page, table, layout, *at, size).paint(number, last=number == len(texts) - 1)
        top += height + gap
    _explained(page, top, most, layout)
    add_title(figure, title, size_for(width) + 1, width)
    return figure


def _explained(page: Axes, top: float, most: float, layout: "TableLayout") -> None:
    """What shades, marks and frames mean."""
    right = legend(page, 0.0, top, "weight of a word", most, COLOURS, SMALLEST)
    means = f"{MARK} shaded row: selected behind the pass; framed column: chosen, headers by probability"
    texts = [means, "heavy frame: printed" + ("; …3: columns left out" if layout.gaps else "")]
    one = "; ".join(texts)
    if right + 0.2 + widths([one], SMALLEST)[0] <= page.get_xlim()[1]:
        texts = [one]
    elif right + 0.2 + widths([means], SMALLEST)[0] > page.get_xlim()[1]:
        texts = ["", *title_lines(one, SMALLEST, page.get_xlim()[1])]
    for number, text in enumerate(texts):
        left = right + 0.2 if number == 0 else 0.0
        y = top + 0.045 + number * 1.25 * line_of(SMALLEST)
        page.text(left, y, text, fontsize=SMALLEST, va="center_baseline", color=SOFT, parse_math=False)


class _Words:
    """A pass in words: its choice, its sentence, the words of the question, and at the end the answer."""

    def __init__(self, table: AskedTable, number: int, answer: str, width: float, size: float) -> None:
        self.one, self.size, self.line = table.passes[number], size, 1.25 * line_of(size)
        last = number == len(table.passes) - 1
        self.head = cut(f"{number + 1}  {choice_of(table, self.one)}", size, width)
        self.note = cut(chosen_of(table, self.one), size - 1, width)
        self.sentence = title_lines(self.one.sentence, size, width)[:4]
        self.placed = flow([shown(word) for word in table.words], width, size)
        self.answer = title_lines(f"answer: {answer}", size, width)[:3] if last else []
        lines = 2 + len(self.sentence) + len(self.answer)
        sides = widths([self.note], size - 1) + widths([self.head, *self.sentence, *self.answer], size)
        self.width = max([1.1 * max(sides), *(one.left + one.width for one in self.placed)])  # some of it is bold
        self.height = self.line * (lines + 0.6) + height_of(self.placed) + (0.05 if self.answer else 0.0)

    def put(self, page: Axes, top: float, most: float) -> None:
        styles = [(self.head, self.size, "bold", "black"), (self.note, self.size - 1, "normal", SOFT)]
        styles += [(one, self.size, "normal", "black") for one in self.sentence]
        for text, size, weight, colour in styles:
            _put(page, top + 0.75 * self.line, text, size, weight, colour)
            top += self.line
        top += 0.3 * self.line
        for placed, weight in zip(self.placed, self.one.word_weights, strict=True):
            paper, colour = ink(float(weight), most)
            box, _ = write(page, placed, self.size, paper if weight / most > 0.02 else "none", colour)
            box.set_y(top + placed.top)
            page.texts[-1].set_y(top + placed.top + placed.height * 0.72)
        top += height_of(self.placed) + 0.3 * self.line
        for text in self.answer:
            _put(page, top + 0.75 * self.line, text, self.size, "bold", "black")
            top += self.line


def _put(page: Axes, y: float, text: str, size: float, weight: str, colour: str) -> Text:
    return page.text(0.0, y, text, fontsize=size, fontweight=weight, color=colour, va="baseline", parse_math=False)


def choice_of(table: AskedTable, one: AskedPass) -> str:
    """The operation, and the column where it uses one."""
    column = f" · {shown(table.header[one.column], 60)}" if one.column >= 0 else ""
    return f"{table.operations[one.operation]}{column}"


def chosen_of(table: AskedTable, one: AskedPass) -> str:
    """How likely the choice was, and how many rows are selected behind it."""
    return f"probability {one.probability:.2f}; {one.rows_selected:,} of {table.total:,} rows selected"


# --- The table: columns that fit, and cells that are painted for a pass.


@dataclass(frozen=True)
class TableLayout:
    """The rows and columns that are drawn, how wide columns are, and which of them hold numbers; in inches."""

    rows: tuple[Part, ...]
    columns: tuple[Part, ...]
    widths: tuple[float, ...]
    numeric: frozenset[int]
    margin: float
    row: float

    @property
    def width(self) -> float:
        return self.margin + sum(self.widths)

    @property
    def height(self) -> float:
        return self.row * (len(self.rows) + 1)

    @property
    def gaps(self) -> bool:
        return any(isinstance(part, Gap) for part in self.columns)


def row_height(size: float) -> float:
    return 1.3 * line_of(size)


def fitted(table: AskedTable, rows: tuple[Part, ...], width: float, size: float) -> TableLayout:
    """As many columns as fit into a width, the most important first; wide ones are made narrower before."""
    places = [row for row in rows if isinstance(row, int)]
    margin = max(widths([f"{MARK} {table.numbers[row] + 1:,}" for row in places] or [""], size)) + 2 * PAD
    natural = [
        min(max(widths([cell_text(one) for one in (name, *(table.rows[row][at] for row in places))], size)), WIDEST)
        + 2 * PAD
        for at, name in enumerate(table.header)
    ]
    free = width - margin
    order = list(np.argsort(-column_importance(table), kind="stable"))
    kept, room = set[int](), free
    for place in order:
        need = min(natural[place], NARROWEST) + (GAP_WIDTH if len(kept) + 1 < len(order) else 0.0)
        if kept and need > room:
            break
        kept.add(int(place))
        room -= min(natural[place], NARROWEST)
    columns = with_gaps(sorted(kept), range(len(table.header)), len(table.header))
    free -= GAP_WIDTH * sum(isinstance(part, Gap) for part in columns)
    cap = _cap([natural[part] for part in columns if isinstance(part, int)], free)
    wide = tuple(GAP_WIDTH if isinstance(part, Gap) else min(natural[part], cap) for part in columns)
    numeric = frozenset(at for at in kept if _of_numbers([table.rows[row][at] for row in places]))
    return TableLayout(rows, columns, wide, numeric, margin, row_height(size))


def _cap(natural: Sequence[float], free: float) -> float:
    """The widest that columns may be so that all fit."""
    room, left = free, len(natural)
    for one in sorted(natural):
        if one * left > room:
            return max(room / left, 0.2)
        room, left = room - one, left - 1
    return WIDEST + 2 * PAD


def _of_numbers(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    return bool(filled) and sum(bool(_NUMBER.fullmatch(cell.strip())) for cell in filled) > 0.6 * len(filled)


def cell_text(text: str) -> str:
    """A cell as it is drawn; an empty one stays empty."""
    return shown(text, 120) if text.strip() else ""


def cut(text: str, size: float, width: float) -> str:
    """The beginning of a text that fits into a width in inches, with … where something is left out."""
    if not text or widths([text], size)[0] <= width:
        return text
    low, high = 0, len(text)
    while low + 1 < high:
        middle = (low + high) // 2
        fitting = widths([f"{text[:middle].rstrip()}…"], size)[0] <= width
        low, high = (middle, high) if fitting else (low, middle)
    return f"{text[:low].rstrip()}…"


class TablePanel:
    """A table on a page, painted for one pass after the other."""

    def __init__(
        self, page: Axes, table: AskedTable, layout: TableLayout, left: float, top: float, size: float
    ) -> None:
        self.table, self.layout = table, layout
        self.left, self.top = left, top
        edges = left + layout.margin + np.cumsum([0.0, *layout.widths])
        self.spans = list(zip(edges[:-1], layout.widths, strict=True))
        self.size = size
        self.heads, self.cells, self.marks = dict[int, Box](), dict[tuple[int, int], Box](), dict[int, Text]()
        self.gaps = list[tuple[Gap, Text]]()
        self._rules(page)
        for line, part in enumerate(layout.rows, start=1):
            self._row(page, line, part)
        for part, (x, wide) in zip(layout.columns, self.spans, strict=True):
            if isinstance(part, Gap):
                self._text(page, x, wide, 0, f"…{part.count:,}", "center").set_color(SOFT)
            else:
                self.heads[part] = self._cell(page, x, wide, 0, table.header[part], part in layout.numeric)
        self.column = Rectangle((0, top), 0.0, layout.height, fill=False, edgecolor="black", linewidth=1.0, zorder=4)
        self.column.set_clip_on(False)
        page.add_patch(self.column)

    def _rules(self, page: Axes) -> None:
        right = self.left + self.layout.width
        for line in (0, 1, len(self.layout.rows) + 1):
            y = self.top + line * self.layout.row
            page.plot([self.left, right], [y, y], color="black", linewidth=0.4 if line == 1 else 0.8, zorder=3)

    def _row(self, page: Axes, line: int, part: Part) -> None:
        if isinstance(part, Gap):
            wide = self.layout.width - self.layout.margin
            text = self._text(page, self.left + self.layout.margin, wide, line, gap_text(part), "left")
            text.set_color(SOFT)
            self.gaps.append((part, text))
            return
        number = f"{self.table.numbers[part] + 1:,}"
        self.marks[part] = self._text(page, self.left, self.layout.margin, line, number, "right")
        for column, (x, wide) in zip(self.layout.columns, self.spans, strict=True):
            if not isinstance(column, Gap):
                cell = self.table.rows[part][column]
                self.cells[part, column] = self._cell(page, x, wide, line, cell, column in self.layout.numeric)

    def _cell(self, page: Axes, x: float, wide: float, line: int, text: str, right: bool) -> Box:
        box = Rectangle((x, self.top + line * self.layout.row), wide, self.layout.row, linewidth=0.0, zorder=1)
        page.add_patch(box)
        fitting = cut(cell_text(text), self.size, wide - 2 * PAD + 0.01)
        return box, self._text(page, x, wide, line, fitting, "right" if right else "left")

    def _text(self, page: Axes, x: float, wide: float, line: int, text: str, side: str) -> Text:
        at = {"left": x + PAD, "right": x + wide - PAD, "center": x + wide / 2}[side]
        y = self.top + (line + 0.7) * self.layout.row
        return page.text(at, y, text, fontsize=self.size, ha=side, va="baseline", zorder=5, parse_math=False)

    def paint(self, number: int, last: bool) -> None:
        """As it is behind a pass; ``last``: with the printed cells."""
        one = self.table.passes[number]
        printed = set(self.table.cells) if last else set()
        for column, (box, text) in self.heads.items():
            share = float(one.column_probs[column]) if one.column >= 0 else 0.0
            paper, colour = ink(share, 1.0) if share > 0.02 else ("white", "black")
            box.set_facecolor(paper)
            text.set(color=colour, fontweight="normal")
        for (row, column), (box, text) in self.cells.items():
            share, crossed = float(one.rows[row]), column == one.column
            weight = share * (CROSSED_SHADE if crossed else ROW_SHADE) + (1 - share) * COLUMN_SHADE * crossed
            box.set(facecolor=ink(weight, 1.0)[0] if weight else "white", linewidth=0.0, zorder=1)
            if (row, column) in printed:
                box.set(edgecolor=FRAME, linewidth=1.6, zorder=4.5)
            text.set_color("black" if share >= 0.5 or not one.rows_selected else SOFT)
        for row, text in self.marks.items():
            selected = one.rows[row] >= 0.5
            text.set_text(f"{MARK if selected else ''} {self.table.numbers[row] + 1:,}")
            text.set_color("black" if selected else SOFT)
        for gap, text in self.gaps:
            text.set_text(gap_text(gap, one.rows))
        places = [part for part in self.layout.columns if not isinstance(part, Gap)]
        self.column.set_visible(one.column in places)
        if one.column in places:
            x, wide = self.spans[self.layout.columns.index(one.column)]
            self.column.set(x=x, width=wide)
