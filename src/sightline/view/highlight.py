"""Documents with their words and sentences shaded by their weights."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from sightline.errors import UserError
from sightline.explain.explanation import Choice, Highlights, Span
from sightline.records import Axis, Record, Slots, Tokens
from sightline.view.fonts import widths
from sightline.view.layout import (
    COLOURS,
    INCH,
    TEXT_WIDTH,
    first_number,
    fits,
    inches,
    ink,
    largest_of,
    line_of,
    names,
    size_for,
    title_lines,
)
from sightline.view.pictures import save
from sightline.view.words import right_to_left, shown

# --- The layout of words in lines that are as wide as the picture.

_NO_BLANK_BEFORE = frozenset(".,;:!?)]}»”’…%。，、；：！？）」』")
_NO_BLANK_AFTER = frozenset("([{«“„（「『")
PAD = 0.02  # inches around a word


@dataclass(frozen=True)
class Placed:
    """A word: its text and its place, in inches from the left and the top."""

    text: str
    left: float
    top: float
    width: float
    height: float


def words_along(axis: Axis) -> list[str]:
    """The words along an axis, or numbers where it has none."""
    return names(axis) or [str(place + first_number(axis)) for place in range(len(axis))]


def flow(texts: Sequence[str], width: float, size: float) -> list[Placed]:
    """Lines of words, right to left if most letters are."""
    height = line_of(size) * 1.15
    blank = 0.3 * size / INCH
    backwards = right_to_left("".join(texts))
    placed: list[Placed] = []
    along, top = 0.0, 0.0
    for place, (text, wide) in enumerate(zip(texts, widths(texts, size), strict=True)):
        gap = blank if place and _parted(texts[place - 1], text) else 0.0
        full = wide + 2 * PAD
        if along > 0 and along + gap + full > width:
            along, gap, top = 0.0, 0.0, top + height + 0.03
        left = along + gap
        along = left + full
        placed.append(Placed(text, width - left - full if backwards else left, top, full, height))
    return placed


def height_of(placed: Sequence[Placed]) -> float:
    """The height of some lines of words, in inches."""
    return max((one.top + one.height for one in placed), default=0.0)


def sheet(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """An empty part of a figure, measured in inches from its own top left corner; ``top`` is from the figure's top."""
    whole = float(figure.get_size_inches()[1])
    axes = figure.add_axes(inches(figure, left, whole - top - height, width, height))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    return axes


def write(axes: Axes, one: Placed, size: float, paper: str = "none", colour: str = "black") -> tuple[Rectangle, Text]:
    """A word on a shade."""
    box = Rectangle((one.left, one.top), one.width, one.height, facecolor=paper, edgecolor="none", linewidth=0.6)
    axes.add_patch(box)
    text = axes.text(
        one.left + one.width / 2,
        one.top + one.height * 0.72,
        one.text,
        ha="center",
        va="baseline",
        fontsize=size,
        color=colour,
        parse_math=False,
    )
    return box, text


def _parted(before: str, after: str) -> bool:
    """Whether there is a blank between two words: not before a full stop, and not in Chinese or Japanese."""
    if after[:1] in _NO_BLANK_BEFORE or before[-1:] in _NO_BLANK_AFTER:
        return False
    return not all(
        unicodedata.east_asian_width(side) in "WF" and not unicodedata.name(side, "").startswith("HANGUL")
        for side in (before[-1], after[0])
    )


# --- Excerpts: all of a text, or the passages of a long one with the most weight.
#
# Picture and page draw the same passages. A passage is a sentence where the model weighs sentences, else a whole text,
# else a part of it.

STRETCH = 240  # characters of a passage of a long text without sentences
Piece = tuple[str, Span | None]


@dataclass(frozen=True)
class Passage:
    """A part of a text. ``weight`` is that of a sentence; ``gap``: something before it is left out."""

    text: str
    start: int
    words: tuple[Span, ...]
    weight: float | None = None
    part: int = 0
    gap: bool = False

    def pieces(self) -> list[Piece]:
        """The text in order: words, and what is between them."""
        pieces: list[Piece] = []
        at = 0
        for word in self.words:
            begin = word.start - self.start
            if begin > at:
                pieces.append((self.text[at:begin], None))
            pieces.append((word.text, word))
            at = word.end - self.start
        return [*pieces, (self.text[at:], None)] if at < len(self.text) else pieces

    def drawn(self) -> list[Piece]:
        """The same without blanks and in small parts, after … where something before it is left out."""
        pieces: list[Piece] = [("…", None)] if self.gap else []
        for text, word in self.pieces():
            pieces += [(text, word)] if word is not None else [(one, None) for one in _small(text)]
        return pieces

    @property
    def share(self) -> float:
        """What it is chosen by: its own weight, or the highest weight of its words."""
        return max((abs(word.weight) for word in self.words), default=0.0) if self.weight is None else self.weight


@dataclass(frozen=True)
class Excerpt:
    """Passages in the order of the text, chosen from ``of``."""

    passages: tuple[Passage, ...]
    of: int
    read: int

    @property
    def note(self) -> str | None:
        """A sentence where something is left out."""
        if len(self.passages) == self.of:
            return None
        return (
            f"the text has {self.read:,} words: of its {self.of:,} passages the {len(self.passages):,} with the most "
            f"weight are shown"
        )


def excerpt(highlights: Highlights, most: int, most_passages: int = 200) -> Excerpt:
    """About ``most`` words in at most ``most_passages`` passages; at least one passage."""
    passages = _sentences(highlights) if highlights.sentences else _texts(highlights, most)
    chosen: set[int] = set()
    room = most
    for number in sorted(range(len(passages)), key=lambda i: -passages[i].share):
        room -= len(passages[number].drawn())
        if chosen and (room < 0 or len(chosen) == most_passages):
            break
        chosen.add(number)
    kept = [replace(passages[i], gap=i > 0 and i - 1 not in chosen) for i in sorted(chosen)]
    return Excerpt(tuple(kept), len(passages), highlights.read)


def _sentences(highlights: Highlights) -> list[Passage]:
    own: dict[int | None, list[Span]] = {}
    for word in highlights.words:
        own.setdefault(word.sentence, []).append(word)
    return [
        Passage(one.text, one.start, tuple(own.get(number, ())), one.weight)
        for number, one in enumerate(highlights.sentences)
    ]


def _texts(highlights: Highlights, most: int) -> list[Passage]:
    """Whole texts where they are short enough; else parts of them that begin and end with words of the map."""
    short = highlights.read <= most
    passages = []
    for part, group in groupby(highlights.words, key=lambda word: word.part or 0):
        words, text = list(group), highlights.texts[part]
        if short:
            passages.append(Passage(text, 0, tuple(words), part=part))
            continue
        for some in _stretches(words):
            passages.append(Passage(text[some[0].start : some[-1].end], some[0].start, tuple(some), part=part))
    return passages


def _stretches(words: list[Span]) -> Iterator[list[Span]]:
    some: list[Span] = []
    for word in words:
        if some and word.end - some[0].start > STRETCH:
            yield some
            some = []
        some.append(word)
    if some:
        yield some


def _small(text: str) -> Iterator[str]:
    for word in text.split():
        if any(unicodedata.east_asian_width(character) in "WF" for character in word):
            yield from word
        else:
            yield word


# --- Pictures.

SENTENCES = "Oranges"  # and words against a label: distinct from the blue of words for every kind of colour vision
FRAME = "#c2410c"  # around the words of an answer
BAR = 0.14  # inches: the mark of a sentence beside it
MOST_WORDS = 5000
MOST_DRAWN, MOST_PASSAGES = 700, 50  # of a classifier's text: about a page
OTHERS = 4  # labels named after the predicted one


def highlight(
    words: Record | Sequence[Record],
    path: Path,
    *,
    sentences: Record | None = None,
    row: int | None = None,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
    notes: Sequence[str] = (),
    unit: str = "word",
    framed: Sequence[Sequence[bool]] | None = None,
) -> Path:
    """A document with each word shaded by its weight.

    Several records are sentences, each on lines of its own; ``sentences`` has the weight of each as its columns, drawn
    as a mark beside it. ``row`` is the row of the map; by default the mean of all rows. ``notes`` are written below,
    ``unit`` names the weights in the legend; weights below 0 have a colour of their own. ``framed`` marks words of each
    record with a frame.
    """
    parts = [words] if isinstance(words, Record) else list(words)
    if not parts:
        raise UserError("there is no text to draw")
    if sentences is not None and len(sentences.columns) != len(parts):
        raise UserError(f"there are {len(parts)} sentences but weights for {len(sentences.columns)}")
    count = sum(len(one.columns) for one in parts)
    if count > MOST_WORDS:
        raise UserError(f"a picture of {count:,} words cannot be read; draw at most {MOST_WORDS:,}, or make a page")
    size = size_for(width) + 1
    margin = BAR + 0.08 if sentences is not None else 0.0
    lines = [flow(words_along(one.columns), width - margin - 0.04, size) for one in parts]
    weights = [_weights(one, row) for one in parts]
    end = largest_of(*map(np.abs, weights)) if most is None else most
    line, gap = line_of(size), 0.08
    above = 1.8 * line if title else 0.0
    body = sum(height_of(one) + gap for one in lines)
    below = [one for note in notes for one in title_lines(note, size - 1, width - 0.04)]
    height = above + body + (1.5 + len(below)) * line
    figure = Figure(figsize=(width, height))
    page = sheet(figure, 0.02, 0.0, width - 0.04, height)
    if title:
        page.text(0, line, shown(title, fits(title, size + 1, width)), fontsize=size + 1, parse_math=False)
    marks = None if sentences is None else _weights(sentences, row)
    mark_end = 1.0 if marks is None else largest_of(marks)
    top = above
    for number, (placed, values) in enumerate(zip(lines, weights, strict=True)):
        for place, (one, weight) in enumerate(zip(placed, values, strict=True)):
            paper, colour = ink(abs(float(weight)), end, colours if weight >= 0 else SENTENCES)
            moved = Placed(one.text, one.left + margin, one.top + top, one.width, one.height)
            box, _ = write(page, moved, size, paper, colour)
            if framed is not None and framed[number][place]:
                box.set(edgecolor=FRAME, linewidth=1.2, zorder=3)
        if marks is not None:
            paper, _ = ink(float(marks[number]), mark_end, SENTENCES)
            page.add_patch(Rectangle((0, top), BAR, height_of(placed), facecolor=paper, edgecolor="#888888", lw=0.4))
        top += height_of(placed) + gap
    behind = legend(page, 0.0, top + 0.4 * line, unit, end, colours, size - 1)
    if any((one < 0).any() for one in weights):
        legend(page, behind + 0.3, top + 0.4 * line, "against the label", end, SENTENCES, size - 1)
    if marks is not None:
        legend(page, behind + 0.3, top + 0.4 * line, "sentence", mark_end, SENTENCES, size - 1)
    for number, note in enumerate(below):
        page.text(0, top + (2.0 + number) * line, note, fontsize=size - 1, color="#555555", parse_math=False)
    return save(figure, path)


def highlight_text(highlights: Highlights, path: Path, *, title: str | None = None, width: float = TEXT_WIDTH) -> Path:
    """The text of a classifier, words shaded by their weights, sentences with a mark beside them.

    Where there are sentences, the shade is a word's weight in its sentence. Of a long text only the passages with the
    most weight are drawn, and a note says so.
    """
    chosen = excerpt(highlights, MOST_DRAWN, MOST_PASSAGES)
    if not chosen.passages:
        raise UserError("the text has no words: there is nothing to draw")
    sentences = None
    if highlights.sentences:
        weights = np.array([[one.weight for one in chosen.passages]], dtype=np.float32)
        sentences = Record("sentences", 0, 0, Slots(1), Slots(len(chosen.passages)), weights)
    return highlight(
        [_words_of(number, one) for number, one in enumerate(chosen.passages)],
        path,
        sentences=sentences,
        title=(label_line(highlights) if title is None else title) or None,
        width=width,
        notes=() if chosen.note is None else (chosen.note,),
        unit=_unit(highlights),
        framed=[[word is not None and bool(word.marked) for _, word in one.drawn()] for one in chosen.passages],
    )


def _unit(highlights: Highlights) -> str:
    if highlights.unit == "contribution":
        return "contribution for the label"
    return "word, in its sentence" if highlights.sentences else "word"


def label_line(highlights: Highlights) -> str:
    """The label with its probability, and the likeliest others."""
    if highlights.probability is None:
        return shown(highlights.label, 40)
    others = [one for one in highlights.probabilities if one.text != highlights.label][:OTHERS]
    labels = [Choice(highlights.label, highlights.probability), *others]
    return "  ·  ".join(f"{shown(one.text, 40)} {one.probability:.1%}" for one in labels)


def _words_of(number: int, passage: Passage) -> Record:
    pieces = passage.drawn()
    weights = [
        0.0 if word is None else word.weight if passage.weight is None else word.in_sentence for _, word in pieces
    ]
    texts = Tokens(tuple(text for text, _ in pieces))
    return Record(f"passage {number}", 0, 0, Slots(1), texts, np.array([weights], dtype=np.float32))


def _weights(record: Record, row: int | None) -> np.ndarray:
    matrix = record.matrix()
    if row is not None and not 0 <= row < len(matrix):
        raise UserError(f"row is {row}; the map has {len(matrix)} rows, counted from 0")
    if not len(matrix):
        return np.zeros(len(record.columns))
    return matrix.mean(axis=0) if row is None else matrix[row]


def legend(page: Axes, left: float, top: float, what: str, most: float, colours: str, size: float) -> float:
    """Which shade is which weight. Returns its right end."""
    height, step, gap = 0.09, 0.12, 0.06
    texts = [f"{what}: 0", f"{most:g}"]
    lengths = widths(texts, size)
    start = left + lengths[0] + gap
    for place in range(5):
        paper, _ = ink(most * place / 4, most, colours)
        page.add_patch(
            Rectangle((start + step * place, top), step, height, facecolor=paper, edgecolor="#888888", lw=0.3)
        )
    for text, x in zip(texts, (left, start + 5 * step + gap), strict=True):
        page.text(x, top + height / 2, text, fontsize=size, va="center_baseline")
    return start + 5 * step + gap + lengths[1]
