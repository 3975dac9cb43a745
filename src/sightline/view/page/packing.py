"""Explanations as compressed blocks of bytes in base64, one for what is small and one for each map.

A weight is quantised between the smallest and the largest possible weight. The number of steps depends on how many
weights there are: enough for four decimals on a page of sentences, for three on a large one.
Numbers of several bytes are stored plane by plane (all first bytes, then all second bytes), which compresses better.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from sightline.asked import AskedPass, AskedTable
from sightline.explain.explanation import Calculation, Explanation, Highlights, Span, Stack
from sightline.picture import Labelling, Picture
from sightline.recording import Recording
from sightline.records import Axis, Record, TopK
from sightline.view.highlight import excerpt
from sightline.view.table_excerpt import Gap, Part, excerpt_columns, excerpt_rows, gap_text

# Most weights, and the steps that they get. Half a step is the largest error: 0.000008, 0.00012, 0.00024.
STEPS = ((1 << 22, 65535), (1 << 24, 4095))
FEWEST_STEPS = 2047
ROOM = 1 << 19  # scores and numbers of vectors on one page: about 3 MB. The heads that are opened first come first.

MOST_MARKED, LABELS = 3_000, 20  # words of a marked text, and labels beside it
TABLE_ROWS, TABLE_COLUMNS = 60, 30  # of a table: the rest is left out, and counted
OPERATIONS = 4  # the likeliest of a pass


class PageBlocks:
    """The blocks of a page by name, and the remaining room for calculations."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.room = ROOM
        self.blocks: dict[str, str] = {}

    def add(self, *parts: np.ndarray) -> str:
        name = f"block-{len(self.blocks)}"
        self.blocks[name] = compressed(b"".join(planes(part) for part in parts))
        return name


def pack(explanations: Sequence[Explanation], title: str) -> dict[str, str]:
    """Base64 text by the id of its element."""
    weights = sum(_kept(record) for one in explanations for record in one.records)
    blocks = PageBlocks(next((steps for most, steps in STEPS if weights <= most), FEWEST_STEPS))
    about = {
        "title": title,
        "steps": blocks.steps,
        "explanations": [_explanation(one, blocks) for one in explanations],
    }
    # Escapes keep lone surrogates, which a text file cannot hold.
    return {"about": compressed(json.dumps(about, ensure_ascii=True, allow_nan=False).encode()), **blocks.blocks}


def compressed(content: bytes) -> str:
    return b64encode(zlib.compress(content, 6)).decode()


def planes(values: np.ndarray) -> bytes:
    """All first bytes, then all second bytes, and so on: little end first."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).reshape(-1, values.dtype.itemsize).T.tobytes()


def _kept(record: Record) -> int:
    return record.weights.weights.size if isinstance(record.weights, TopK) else record.weights.size


def _explanation(one: Explanation, blocks: PageBlocks) -> dict[str, Any]:
    axes: dict[Axis, int] = {}
    maps = [_map(record, axes, blocks) for record in one.records]
    stacks = one.stacks or tuple(_unsorted(one.records))
    calculations = {(calculation.name, calculation.head): calculation for calculation in one.calculations}
    order = {name: place for stack in stacks for place, name in enumerate(stack.names)}
    # The page opens at the last layer of a stack: its calculations are kept first.
    for place in sorted(range(len(maps)), key=lambda i: (-order.get(one.records[i].name, -1), one.records[i].head)):
        record = one.records[place]
        maps[place]["calculation"] = _calculation(record, calculations.get((record.name, record.head)), blocks)
    marked = {} if one.highlights is None else {"highlights": _highlights(one.highlights)}
    return {
        **{name: getattr(one, name) for name in ("title", "task", "input", "output", "shift", "notes")},
        "axes": [_axis(axis) for axis in axes],
        "maps": maps,
        "stacks": [
            {
                "title": stack.title,
                "kind": stack.kind,
                "layers": [_heads(name, one.records) for name in stack.names],
                **({"named": list(stack.layers)} if stack.layers else {}),
                **({} if stack.unit == "weight" else {"unit": stack.unit}),
            }
            for stack in stacks
        ],
        "steps": [asdict(step) for step in one.steps],
        "alternatives": [asdict(choice) for choice in one.alternatives],
        "belief": None if one.belief is None else _plain(asdict(one.belief)),
        **marked,
        **({} if one.image is None else {"image": _image(one.image, blocks)}),
        **({} if one.recording is None else {"recording": _recording(one.recording, blocks)}),
        **({} if one.cells is None else {"cells": _cells(one.cells, blocks)}),
        **({} if one.table is None else {"table": _table(one.table)}),
    }


def _highlights(highlights: Highlights) -> dict[str, Any]:
    """Passages in pieces: a word with its weight (and that in its sentence), the text between words without."""
    some = excerpt(highlights, MOST_MARKED)
    return _plain(
        {
            "label": highlights.label,
            "probabilities": [[one.text, one.probability] for one in highlights.probabilities[:LABELS]],
            "others": max(len(highlights.probabilities) - LABELS, 0),
            "sentences": bool(highlights.sentences),
            "unit": highlights.unit,
            "note": some.note,
            "passages": [
                {
                    "weight": one.weight,
                    "gap": one.gap,
                    "pieces": [[text] if word is None else _marked(text, word) for text, word in one.pieces()],
                }
                for one in some.passages
            ],
        }
    )


def _image(picture: Picture, blocks: PageBlocks) -> dict[str, Any]:
    about = {name: getattr(picture, name) for name in ("name", "width", "height", "box", "kind")}
    return {**about, "block": blocks.add(np.frombuffer(picture.content, dtype=np.uint8))}


def _recording(recording: Recording, blocks: PageBlocks) -> dict[str, Any]:
    about = {name: getattr(recording, name) for name in ("name", "seconds", "step")}
    sound = None if recording.wav is None else blocks.add(np.frombuffer(recording.wav, dtype=np.uint8))
    return {**about, "shape": recording.values.shape, "block": blocks.add(recording.values), "sound": sound}


def _cells(cells: Labelling, blocks: PageBlocks) -> dict[str, Any]:
    """The labels of all cells and then their probabilities."""
    height, width = cells.labels.shape
    block = blocks.add(cells.labels.astype(np.int32), cells.probabilities.astype(np.float32))
    return {"names": cells.names, "plain": cells.plain, "height": height, "width": width, "block": block}


def _table(table: AskedTable) -> dict[str, Any]:
    """The rows and columns that matter. A row is its number and its cells; what is left out is how much that is."""
    rows, columns = excerpt_rows(table, TABLE_ROWS), excerpt_columns(table, TABLE_COLUMNS)
    kept = [part for part in columns if not isinstance(part, Gap)]

    def row_of(part: Part) -> dict[str, Any]:
        if isinstance(part, Gap):
            return {"gap": part.count}
        return {"number": table.numbers[part] + 1, "cells": [table.rows[part][column] for column in kept]}

    return {
        "header": [{"gap": one.count} if isinstance(one, Gap) else {"text": table.header[one]} for one in columns],
        "rows": [row_of(part) for part in rows],
        "words": table.words,
        "total": table.total,
        "passes": [_pass(table, one, rows, kept) for one in table.passes],
        "printed": [[rows.index(row), kept.index(at)] for row, at in table.cells if row in rows and at in kept],
    }


def _pass(table: AskedTable, one: AskedPass, rows: Sequence[Part], columns: list[int]) -> dict[str, Any]:
    best = np.argsort(-one.operation_probs, kind="stable")[:OPERATIONS]
    return {
        "operation": table.operations[one.operation],
        "on": table.header[one.column] if one.column >= 0 else None,
        "column": columns.index(one.column) if one.column in columns else None,
        "probability": one.probability,
        "operations": [[table.operations[place], float(one.operation_probs[place])] for place in best],
        "columns": [float(one.column_probs[place]) for place in columns],
        "words": [round(float(weight), 5) for weight in one.word_weights],
        "rows": [gap_text(row, one.rows) if isinstance(row, Gap) else float(one.rows[row]) for row in rows],
        "selected": one.rows_selected,
        "sentence": one.sentence,
    }


def _marked(text: str, word: Span) -> list[Any]:
    marked = [word.in_sentence, True] if word.marked else [] if word.in_sentence is None else [word.in_sentence]
    return [text, word.weight, *marked]


def _axis(axis: Axis) -> dict[str, Any]:
    return {"kind": type(axis).__name__, "size": len(axis), **asdict(axis)}


def _heads(name: str, records: Sequence[Record]) -> list[int]:
    places = [place for place, record in enumerate(records) if record.name == name]
    return sorted(places, key=lambda place: records[place].head)


def _unsorted(records: Sequence[Record]) -> list[Stack]:
    """A stack for each attention of records without stacks, because their shapes may differ."""
    return [Stack(name, "cross", (name,)) for name in dict.fromkeys(record.name for record in records)]


def _map(record: Record, axes: dict[Axis, int], blocks: PageBlocks) -> dict[str, Any]:
    kept = record.weights.weights if isinstance(record.weights, TopK) else record.weights
    values = np.nan_to_num(kept.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = min(0.0, float(values.min(initial=0.0))), float(values.max(initial=0.0))
    codes = np.rint((values - low) * (blocks.steps / max(high - low, 1.0))).astype(np.uint16)
    places = [record.weights.places.astype(np.int32)] if isinstance(record.weights, TopK) else []
    return {
        "name": record.name,
        "layer": record.layer,
        "head": record.head,
        "rows": axes.setdefault(record.rows, len(axes)),
        "columns": axes.setdefault(record.columns, len(axes)),
        "low": low,
        "span": max(high - low, 1.0),
        "largest": high,
        "top": kept.shape[1] if places else None,
        "block": blocks.add(codes, *places),
    }


def _calculation(record: Record, calculation: Calculation | None, blocks: PageBlocks) -> dict[str, Any] | None:
    """The scores and vectors behind a map, as long as there is room for them."""
    vectors = [] if calculation is None else [calculation.values, calculation.queries, calculation.contexts]
    if record.scores is not None:
        vectors.append(record.scores)
    size = sum(vector.size for vector in vectors)
    if not vectors:
        return None
    if size > blocks.room:
        return {"left_out": True}
    blocks.room -= size
    return {
        "left_out": False,
        "block": blocks.add(*(vector.astype(np.float32) for vector in vectors)),
        "scores": record.scores is not None,
        "vectors": None if calculation is None else [calculation.values.shape[1], calculation.queries.shape[1]],
        "size": 0 if calculation is None else calculation.size,
    }


def _plain(data: Any) -> Any:
    """JSON has no NaN or infinity; the page shows None as a dash."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return None if isinstance(data, float) and not np.isfinite(data) else data
