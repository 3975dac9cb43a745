"""The passes of a program over its table as a GIF: one frame for each, and the answer at the end."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text

from sightline.asked import AskedTable
from sightline.records import Record, Tokens
from sightline.view.film import DOTS, MARGIN, Scene, Words, put_line, put_title, put_written, scene_frames, write_gif
from sightline.view.fonts import widths
from sightline.view.highlight import flow, height_of, sheet, write
from sightline.view.layout import TEXT_WIDTH, ink, line_of, size_for, title_lines
from sightline.view.table_excerpt import excerpt_rows
from sightline.view.tables import TablePanel, chosen_of, fitted
from sightline.view.words import shown

MOST_ROWS = 16
SOFT = "#555555"


@dataclass
class _TableScene(Scene):
    """The question with the words of the current pass, the program up to there, and the table behind the pass."""

    question: Words
    sentences: list[Text]
    panel: TablePanel

    def paint(self, step: int | None) -> None:
        for place, (box, text) in enumerate(self.question):
            weight = 0.0 if step is None else float(self.weights[step, place])
            paper, colour = ink(weight, self.most)
            box.set_facecolor(paper if weight > 0.02 * self.most else "none")
            text.set_color(colour)
        last = len(self.weights) - 1
        for place, text in enumerate(self.sentences):
            text.set_visible(place == (last + 1 if step is None else step))
        self.panel.paint(last if step is None else step, last=step is None)


def table_gif(
    table: AskedTable,
    answer: str,
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    seconds: float = 1.6,
) -> Path:
    """One frame for each pass: the words that it attended to, the program up to it, the rows selected behind it."""
    weights = np.array([one.word_weights for one in table.passes], dtype=np.float32).reshape(-1, len(table.words))
    record = Record("question", 0, 0, Tokens(table.pass_names), Tokens(table.words), weights)

    def scene(end: float) -> Scene:
        return _scene(table, answer, weights, title, width, end)

    return write_gif(scene_frames(record, None, path, scene, None, "the answer"), path, seconds)


def _scene(
    table: AskedTable, answer: str, weights: np.ndarray, title: str | None, width: float, most: float
) -> _TableScene:
    size = size_for(width)
    line = line_of(size)
    room = width - 2 * MARGIN
    names = [shown(text, 60) for text in table.pass_names]
    question = flow([shown(word) for word in table.words], room, size + 1)
    written = flow(names, room, size)
    lines = [f"{one.sentence} ({chosen_of(table, one)})" for one in table.passes] + [f"answer: {answer}"]
    wrapped = [title_lines(text, size, room)[:3] for text in lines]
    layout = fitted(table, excerpt_rows(table, MOST_ROWS), room, size)
    ends = [one.left + one.width for one in (*question, *written)]
    ends += [layout.width, *widths([text for one in wrapped for text in one], size)]
    room = min(room, max(ends) + 0.02)
    width = room + 2 * MARGIN
    above = 1.9 * line if title else MARGIN
    asked = above + 1.5 * line
    program = asked + height_of(question) + 0.6 * line
    top = program + height_of(written) + 0.9 * line
    below = top + 1.25 * line * max(map(len, wrapped)) + 0.2 * line
    figure = Figure(figsize=(width, below + layout.height + MARGIN), dpi=DOTS)
    put_title(figure, title, size + 1, room, line)
    caption = put_line(figure, above + 0.6 * line, "", size, SOFT)
    page = sheet(figure, MARGIN, asked, room, height_of(question) + 0.02)
    words = [write(page, one, size + 1) for one in question]
    sentences = []
    for text in wrapped:
        sentences.append(put_line(figure, top, "\n".join(text), size))
        sentences[-1].set(va="top", linespacing=1.15)
    own = sheet(figure, MARGIN, below, room, layout.height + 0.02)
    panel = TablePanel(own, table, layout, 0.0, 0.01, size)
    return _TableScene(
        figure, caption, put_written(figure, written, program, width, size), weights, most, words,
        sentences, panel,
    )  # fmt: skip
