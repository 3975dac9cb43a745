"""`draw`: an explanation as a picture, in the format that the file's ending asks for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.errors import UserError
from sightline.explain.explanation import Explanation, Highlights, Stack, Step
from sightline.picture import Labelling, Picture
from sightline.records import Grid, Record, Tokens
from sightline.view.animation import image_gif, replay_gif
from sightline.view.cells import label_cells
from sightline.view.highlight import highlight, highlight_text, label_line
from sightline.view.layout import TEXT_WIDTH
from sightline.view.overlay import overlay
from sightline.view.pictures import all_heads, all_layers, heat_map
from sightline.view.words import mean_record, merge_words, shifted

LAYOUTS = ("alignment", "heads", "layers")
ENDINGS = (".png", ".svg", ".pdf", ".gif")
ROWS = {"cross": "written", "causal": "written", "self": None, "pool": None}


def draw(
    explanation: Explanation,
    path: Path,
    *,
    merge: bool = True,
    name: str | None = None,
    head: int | None = None,
    shift: int | None = None,
    layout: str = "alignment",
    width: float | None = None,
    title: str | None = None,
) -> Path:
    """Draw where the model looked: PNG, SVG, PDF, or a GIF that replays it step by step.

    A map of an image's places is laid over the image, once for each word; cells with labels are tinted, unless
    ``name`` or ``head`` asks for a map.

    Unless ``name`` says which attention, it is the last layer of the one that looks at something else, or of the first
    that there is; unless ``head`` says which head (from 0), it is the mean of all. ``merge`` puts subwords together.
    ``shift`` moves the rows of what is written down; left out, by what was measured for this model. ``layout`` shows
    all heads of that layer, or all layers, instead. ``width`` is in inches (a column of a paper has about 3.4);
    ``title`` replaces the one that says what is shown, and an empty one leaves it out.
    """
    marked, cells = explanation.highlights, explanation.cells
    ending = _ending(path, layout, labels=marked is not None or cells is not None)
    plain = name is None and head is None and layout == "alignment" and merge
    if cells is not None and plain:
        return _cells(explanation, cells, path, explanation.output if title is None else title, width)
    if marked is not None and marked.texts and plain:
        return highlight_text(marked, path, title=title, width=TEXT_WIDTH if width is None else width)
    stack = _stack(explanation, name)
    chosen = stack.names[-1] if name is None else name
    moved = (explanation.shift if shift is None else shift) if stack.kind in ("cross", "causal") else 0

    def how(shown: str) -> dict[str, Any]:
        said = _title(shown, moved) if title is None else title or None
        return {"title": said} if width is None else {"title": said, "width": width}

    def ready(records: Sequence[Record]) -> list[Record]:
        down = [shifted(record, moved) for record in records]
        return [merge_words(record) for record in down] if merge else down

    if layout == "layers":
        every = ready([record for one in stack.names for record in explanation.of(one)])
        return all_layers(every, path, **how(stack.title))
    heads = explanation.of(chosen)
    if layout == "heads":
        return all_heads(ready(heads), path, **how(f"{stack.title}, {_layer(stack, chosen)}"))
    record = mean_record(ready(_one_head(heads, head)))
    shown = how(f"{stack.title}, {_what(stack, chosen, len(heads), head)}")
    fitting = len(explanation.steps) == len(record.rows) and stack.kind in ("cross", "causal")
    steps = explanation.steps if fitting else None
    if explanation.image is not None and isinstance(record.columns, Grid):
        if title is None and stack.kind == "pool" and explanation.steps:
            (step,) = explanation.steps[:1]
            shown["title"] = label_line(Highlights(step.written, step.probability, step.likeliest, (), ()))
        return _over_image(explanation.image, record, steps, path, shown)
    if ending == ".gif":
        return replay_gif(record, steps, path, **shown)
    each = marked is not None and len(record.rows) > 1  # a row for each sentence
    if stack.kind == "pool" and isinstance(record.columns, Tokens) and not each:
        return highlight(record, path, **shown)
    return heat_map(record, path, rows_label=ROWS[stack.kind], most=None, **shown)


def _ending(path: Path, layout: str, labels: bool) -> str:
    """What kind of picture to make; refuses what cannot be drawn as that."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"{path} should end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if layout not in LAYOUTS:
        raise UserError(f"layout is {layout!r}; it can be alignment, heads or layers")
    if ending == ".gif" and layout != "alignment":
        raise UserError(f"a GIF replays one map; for all {layout} choose .png, .svg or .pdf")
    if ending == ".gif" and labels:
        raise UserError("a GIF replays what is written, and a label is one step: choose .png, .svg or .pdf")
    return ending


def _over_image(
    picture: Picture, record: Record, steps: Sequence[Step] | None, path: Path, how: dict[str, Any]
) -> Path:
    pixels = _pixels(picture)
    if path.suffix.lower() == ".gif":
        return image_gif(pixels, record, steps, path, box=picture.box, **how)
    return overlay(pixels, record, path, box=picture.box, **how)


def _cells(explanation: Explanation, cells: Labelling, path: Path, title: str, width: float | None) -> Path:
    how: dict[str, Any] = {"title": title or None} if width is None else {"title": title or None, "width": width}
    if explanation.image is not None:
        how |= {"image": _pixels(explanation.image), "box": explanation.image.box}
    return label_cells(cells, path, **how)


def _pixels(picture: Picture) -> np.ndarray:
    try:
        return picture.pixels()
    except ValueError as error:
        raise UserError(f"the image of the explanation cannot be drawn: {error}") from None


def _stack(explanation: Explanation, name: str | None) -> Stack:
    """The stack with that attention; without a name, the first that looks at something else, or the first of all."""
    if not explanation.stacks:
        raise UserError("there is no attention to draw")
    if name is None:
        return next((one for one in explanation.stacks if one.kind == "cross"), explanation.stacks[0])
    for stack in explanation.stacks:
        if name in stack.names:
            return stack
    known = ", ".join(one for stack in explanation.stacks for one in stack.names)
    raise UserError(f"there is no attention named {name!r}; there is {known}")


def _one_head(heads: Sequence[Record], head: int | None) -> Sequence[Record]:
    if head is None:
        return heads
    found = [record for record in heads if record.head == head]
    if not found:
        raise UserError(f"head is {head}; {heads[0].name} has {len(heads)}, counted from 0")
    return found


def _layer(stack: Stack, name: str) -> str:
    return f"layer {stack.names.index(name) + 1} of {len(stack.names)}" if len(stack.names) > 1 else "all heads"


def _what(stack: Stack, name: str, heads: int, head: int | None) -> str:
    parts = [f"layer {stack.names.index(name) + 1} of {len(stack.names)}"] if len(stack.names) > 1 else []
    if heads > 1:
        parts.append(f"mean of {heads} heads" if head is None else f"head {head + 1} of {heads}")
    return ", ".join(parts)


def _title(text: str, moved: int) -> str:
    text = text.removesuffix(", ")
    return f"{text} (moved down by {moved})" if moved else text
