"""`draw`: an explanation as a picture, in the format of the file's ending."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.errors import UserError
from sightline.explain.explanation import Explanation, Highlights, Stack
from sightline.records import Frames, Grid, Record, Tokens
from sightline.view.animation import image_gif, recording_gif, replay_gif
from sightline.view.cells import label_cells
from sightline.view.copied import copied_words, output_called
from sightline.view.highlight import highlight, highlight_text, label_line
from sightline.view.layout import TEXT_WIDTH
from sightline.view.overlay import overlay
from sightline.view.pictures import all_heads, all_layers, heat_map
from sightline.view.table_film import table_gif
from sightline.view.tables import table_picture
from sightline.view.timed import over_recording
from sightline.view.words import mean_record, merge_words, shifted, without_empty

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
    """Draw an attention map: PNG, SVG, PDF, or a GIF that replays it step by step.

    A map of an image's places is drawn over the image, once for each word; cells with labels are tinted, unless
    ``name`` or ``head`` asks for a map. A map of the frames of a recording is drawn below its spectrogram; of a clip,
    the frames are shown that each word attended to most. A table is drawn as it is behind each pass of the program that
    answered, unless ``name`` or ``head`` asks for a map of its choices.

    ``name`` is the attention; by default the last layer of the first cross-attention, or of the first stack. ``head``
    counts from 0; by default the mean of all heads. ``merge`` joins subwords into words. ``shift`` moves the rows of
    the output down; by default by the measured shift of this model. ``layout`` shows all heads of that layer, or all
    layers, instead. ``width`` is in inches (a column of a paper has about 3.4); ``title`` replaces the default one, and
    an empty one removes it.
    """
    marked, cells = explanation.highlights, explanation.cells
    ending = _ending(path, layout, labels=marked is not None or cells is not None)
    plain = name is None and head is None and layout == "alignment" and merge
    if cells is not None and plain:
        options = _options(explanation.output if title is None else title, width)
        return label_cells(cells, path, **_image(explanation), **options)
    if explanation.table is not None and plain:
        draw_table = table_gif if ending == ".gif" else table_picture
        asked = "" if ending == ".gif" else explanation.input  # a film has its words at the top
        options = _options(asked if title is None else title, width)
        return draw_table(explanation.table, explanation.output, path, **options)
    if marked is not None and marked.texts and plain:
        return highlight_text(marked, path, title=title, width=TEXT_WIDTH if width is None else width)
    stack = _stack(explanation, name)
    chosen = stack.names[-1] if name is None else name
    moved = (explanation.shift if shift is None else shift) if stack.kind in ("cross", "causal") else 0

    def titled(text: str) -> dict[str, Any]:
        return _options(_title(text, moved) if title is None else title, width)

    def ready(records: Sequence[Record]) -> list[Record]:
        down = [shifted(record, moved) for record in records]
        return without_empty([merge_words(record) for record in down] if merge else down)

    if layout == "layers":
        every = ready([record for one in stack.names for record in explanation.of(one)])
        return all_layers(every, path, layer_names=stack.layers, unit=stack.unit, **titled(stack.title))
    heads = explanation.of(chosen)
    if layout == "heads":
        named = titled(f"{stack.title}, {stack.layer(chosen) or 'all heads'}")
        return all_heads(ready(heads), path, unit=stack.unit, **named)
    record = mean_record(ready(_one_head(heads, head)))
    of_heads = f"mean of {len(heads)} heads" if head is None else f"head {head + 1} of {len(heads)}"
    parts = [stack.title, stack.layer(chosen), of_heads if len(heads) > 1 else ""]
    shown = titled(", ".join(filter(None, parts)))
    fitting = len(explanation.steps) == len(record.rows) and stack.kind in ("cross", "causal")
    steps = explanation.steps if fitting else None
    under = _under(explanation, record)
    if under and title is None and stack.kind == "pool" and explanation.steps:
        (step,) = explanation.steps[:1]
        shown["title"] = label_line(Highlights(step.written, step.probability, step.likeliest, (), ()))
    own = _own(explanation, stack, heads[0], merge)
    if ending == ".gif":
        film = recording_gif if "recording" in under else image_gif if under else replay_gif
        return film(record=record, steps=steps, path=path, **(under or own), **shown)
    if under:
        return (over_recording if "recording" in under else overlay)(record=record, path=path, **under, **shown)
    each = marked is not None and len(record.rows) > 1  # a row for each sentence
    if stack.kind == "pool" and isinstance(record.columns, Tokens) and not each:
        return highlight(record, path, **shown)
    return heat_map(record, path, most=None, rows_label=output_called(ROWS[stack.kind], own["copies"]), **own, **shown)


def _ending(path: Path, layout: str, labels: bool) -> str:
    """The format of the picture; refuses what cannot be drawn in it."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"{path} should end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if layout not in LAYOUTS:
        raise UserError(f"layout is {layout!r}; it can be alignment, heads or layers")
    if ending == ".gif" and layout != "alignment":
        raise UserError(f"a GIF replays one map; for all {layout} choose .png, .svg or .pdf")
    if ending == ".gif" and labels:
        raise UserError("a GIF replays an output, and a label is one step: choose .png, .svg or .pdf")
    return ending


def _options(title: str, width: float | None) -> dict[str, Any]:
    return {"title": title or None} if width is None else {"title": title or None, "width": width}


def _under(explanation: Explanation, record: Record) -> dict[str, Any]:
    """The image or the recording that a map is drawn over."""
    if isinstance(record.columns, Grid):
        return _image(explanation)
    over_time = isinstance(record.columns, Frames) and isinstance(record.rows, Tokens)
    return {"recording": explanation.recording} if over_time and explanation.recording is not None else {}


def _own(explanation: Explanation, stack: Stack, record: Record, merge: bool) -> dict[str, Any]:
    """What only maps of words have: which words were copied, and the unit of the scale."""
    copies = copied_words(explanation.steps, record, merge) if stack.kind == "cross" else []
    return {"copies": copies, "unit": stack.unit}


def _image(explanation: Explanation) -> dict[str, Any]:
    """The image under a map or under cells, and where they lie over it."""
    if explanation.image is None:
        return {}
    try:
        return {"image": explanation.image.pixels(), "box": explanation.image.box}
    except ValueError as error:
        raise UserError(f"the image of the explanation cannot be drawn: {error}") from None


def _stack(explanation: Explanation, name: str | None) -> Stack:
    """The stack with that attention; without a name, the first of cross-attention, or the first of all."""
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
    chosen = [record for record in heads if record.head == head]
    if not chosen:
        raise UserError(f"head is {head}; {heads[0].name} has {len(heads)}, counted from 0")
    return chosen


def _title(text: str, moved: int) -> str:
    return f"{text} (moved down by {moved})" if moved else text
