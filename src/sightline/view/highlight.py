"""Documents with their words, and their sentences, shaded by the weight they were given."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sightline.errors import UserError
from sightline.explain.explanation import Highlights
from sightline.records import Record, Slots, Tokens
from sightline.view.flow import Placed, flow, height_of, sheet, words_along, write
from sightline.view.fonts import widths
from sightline.view.layout import COLOURS, TEXT_WIDTH, fits, ink, largest_of, line_of, size_for, title_lines
from sightline.view.passages import Passage, Piece, excerpt
from sightline.view.pictures import save
from sightline.view.texts import shown

SENTENCES = "Oranges"  # told from the blue of words by every kind of colour vision
FRAME = "#c2410c"  # around the words of an answer
BAR = 0.14  # inches: the mark of a sentence beside it
MOST_WORDS = 5000
MOST_DRAWN, MOST_PASSAGES = 700, 50  # of a classifier's text: about a page
OTHERS = 4  # labels named beside the one that was given


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

    Several records are sentences, each on lines of its own; ``sentences`` has the weight of each of them as its columns
    and is drawn as a mark beside them. ``row`` says who looked; left out, it is the mean of all rows.
    ``notes`` stand below, ``unit`` says in the legend what a weight is of. ``framed`` says of each word of each
    record whether it stands in a frame.
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
    end = largest_of(*weights) if most is None else most
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
            paper, colour = ink(float(weight), end, colours)
            moved = Placed(one.text, one.left + margin, one.top + top, one.width, one.height)
            box, _ = write(page, moved, size, paper, colour)
            if framed is not None and framed[number][place]:
                box.set(edgecolor=FRAME, linewidth=1.2, zorder=3)
        if marks is not None:
            paper, _ = ink(float(marks[number]), mark_end, SENTENCES)
            page.add_patch(Rectangle((0, top), BAR, height_of(placed), facecolor=paper, edgecolor="#888888", lw=0.4))
        top += height_of(placed) + gap
    behind = _legend(page, 0.0, top + 0.4 * line, unit, end, colours, size - 1)
    if marks is not None:
        _legend(page, behind + 0.3, top + 0.4 * line, "sentence", mark_end, SENTENCES, size - 1)
    for number, note in enumerate(below):
        page.text(0, top + (2.0 + number) * line, note, fontsize=size - 1, color="#555555", parse_math=False)
    return save(figure, path)


def highlight_text(
    highlights: Highlights,
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    notes: Sequence[str] = (),
) -> Path:
    """The text of a classifier as it stands, words shaded by their weight, sentences with a mark beside them.

    Where there are sentences, the shade is a word's weight in its sentence. Of a long text only the passages with the
    most weight are drawn, and a note says so.
    """
    found = excerpt(highlights, MOST_DRAWN, MOST_PASSAGES)
    if not found.passages:
        raise UserError("the text has no words: there is nothing to draw")
    parts = [_words_of(number, one) for number, one in enumerate(found.passages)]
    sentences = None
    if highlights.sentences:
        weights = np.array([[one.weight for one in found.passages]], dtype=np.float32)
        sentences = Record("sentences", 0, 0, Slots(1), Slots(len(parts)), weights)
    said = () if found.note is None else (found.note,)
    framed = [[word is not None and bool(word.marked) for _, word in _drawn(one)] for one in found.passages]
    if title is None:
        title = label_line(highlights)
    return highlight(
        parts,
        path,
        sentences=sentences,
        title=title or None,
        width=width,
        notes=(*said, *notes),
        unit="word, in its sentence" if highlights.sentences else "word",
        framed=framed,
    )


def label_line(highlights: Highlights) -> str:
    """The label with its probability, and the likeliest others."""
    if highlights.probability is None:
        return shown(highlights.label, 40)
    others = [one for one in highlights.probabilities if one.text != highlights.label][:OTHERS]
    said = [(highlights.label, highlights.probability), *((one.text, one.probability) for one in others)]
    return "  ·  ".join(f"{shown(text, 40)} {share:.1%}" for text, share in said)


def _words_of(number: int, passage: Passage) -> Record:
    pieces = _drawn(passage)
    weights = [
        0.0 if word is None else word.weight if passage.weight is None else word.in_sentence for _, word in pieces
    ]
    texts = Tokens(tuple(text for text, _ in pieces))
    return Record(f"passage {number}", 0, 0, Slots(1), texts, np.array([weights], dtype=np.float32))


def _drawn(passage: Passage) -> list[Piece]:
    return [("…", None), *passage.drawn()] if passage.gap else passage.drawn()


def _weights(record: Record, row: int | None) -> np.ndarray:
    matrix = record.matrix()
    if row is not None and not 0 <= row < len(matrix):
        raise UserError(f"row is {row}; the map has {len(matrix)} rows, counted from 0")
    if not len(matrix):
        return np.zeros(len(record.columns))
    return matrix.mean(axis=0) if row is None else matrix[row]


def _legend(page: Axes, left: float, top: float, what: str, most: float, colours: str, size: float) -> float:
    """Which shade is which weight. Returns where it ends."""
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
