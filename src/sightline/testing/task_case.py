"""A small run of a task, and how to compare: what the laws of `sightline.testing.task_laws` are given."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sightline.cli.train import preset
from sightline.data.checking import Limits
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.files import write_text
from sightline.tasks.evaluate import examples_for
from sightline.tasks.prepare import table_of
from sightline.tasks.run import Run
from sightline.tasks.task import Example, Task, Variant
from sightline.tasks.train import train_task

STEPS, STOPPED = 4, 3  # of the training; after how many of them it is stopped once
TOLERANCE = 1e-4
LONGEST = 500  # characters of a sentence that says why something cannot be done


class CountedRows:
    """Rows that count how often each of them is read."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows, self.times = rows, [0] * len(rows)

    def __iter__(self) -> Iterator[Any]:
        for number, row in enumerate(self.rows):
            self.times[number] += 1
            yield row


@dataclass
class Case:
    """A task with rows of data, items to predict, a small configuration, and a folder for its runs.

    The run is trained when a law first asks for it, and then shared: laws do not change it.
    """

    task: Task
    rows: list[dict[str, Any]]
    folder: Path
    config: Any
    variant: Variant
    given: Sequence[Any] | None = None
    counted: CountedRows = field(init=False)

    @classmethod
    def of(cls, task: Task, data: Any, folder: Path, items: Sequence[Any] | None = None, config: Any = None) -> "Case":
        source = Source.of(data)
        variant = task.variant_for(source)
        columns = variant.columns or task.columns
        rows = []
        for cells in table_of(source, task.of(variant), columns):
            assert cells.problem is None, f"the data to check with has a bad row: {cells.problem}"
            values = zip(columns, cells.values, strict=False)
            rows.append({column.name: value for column, value in values if value is not None})
        config = preset(variant) if config is None else config
        limits = {"steps": STEPS, "validate_every": 2, "epochs": None, "minutes": None, "patience": 1000}
        config = replace(config, training=replace(config.training, **limits))
        return cls(task, rows, folder, config, variant, items)

    def __post_init__(self) -> None:
        self.counted = CountedRows(self.rows)

    @property
    def limits(self) -> Limits:
        return Limits(self.task.max_characters, 1.0)

    @cached_property
    def run(self) -> Run:
        return self.train(self.counted, "run")

    def train(self, data: Any, name: str, **options: Any) -> Run:
        """A run on this data; None resumes."""
        source = None if data is None else Source.of(data)
        options = {"limits": self.limits, "on_remark": lambda text: None, **options}
        return train_task(self.task, source, self.folder / name, self.config, **options)[0]

    @cached_property
    def examples(self) -> list[Example]:
        return examples_for(self.run, self.rows)[0]

    @cached_property
    def items(self) -> list[Any]:
        """What to predict: what was given, or the first items of the data."""
        return [one.x for one in self.examples[:4]] if self.given is None else list(self.given)

    @cached_property
    def file(self) -> Path:
        """The rows as lines of JSON."""
        return write_lines(self.folder / "rows.jsonl", self.rows)

    def predicted(self, run: Run | None = None, items: Sequence[Any] | None = None) -> list[Any]:
        """Predictions as plain data."""
        run, items = run or self.run, self.items if items is None else items
        xs = [run.input.item(one) for one in items]
        return [plain(run.output.to_json(x, one)) for x, one in zip(xs, run.predict(items), strict=True)]

    def arguments(self) -> tuple[list[str], list[Any]]:
        """Options of a command that name the items, and the items."""
        if self.run.input.reads_files:
            return ["--image", *map(str, self.items)], self.items
        if all(isinstance(one, str) for one in self.items):
            return ["--text", *self.items], self.items
        few = self.rows[:2]
        xs = [self.run.input.read(row) for row in few]
        return ["--input", str(write_lines(self.folder / "items.jsonl", few))], xs


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    return write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows))


def plain(data: Any) -> Any:
    """As JSON gives it back; what JSON cannot hold is an error."""
    return json.loads(json.dumps(data, ensure_ascii=False))


def same(found: Any, expected: Any, what: str, tolerance: float = TOLERANCE) -> None:
    """Equal plain data; numbers to the tolerance."""
    if isinstance(expected, dict) and isinstance(found, dict):
        assert found.keys() == expected.keys(), f"{what} has {sorted(found)}; expected {sorted(expected)}"
        for name, value in expected.items():
            same(found[name], value, f"{what}, {name}", tolerance)
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        assert len(found) == len(expected), f"{what} has {len(found)} entries; expected {len(expected)}"
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            same(one, other, f"{what}, {number}", tolerance)
    elif isinstance(expected, float) and isinstance(found, float | int):
        near = found == expected or abs(found - expected) <= tolerance * max(1.0, abs(expected))
        assert near or (found != found and expected != expected), f"{what} is {found}; expected {expected}"
    else:
        assert found == expected, f"{what} is {found!r}; expected {expected!r}"


def refusal(do: Callable[[], Any], *names: str) -> str | None:
    """The sentence that refuses it, which must hold these names; None if it was done."""
    try:
        do()
    except UserError as error:
        text = str(error)
        assert 0 < len(text) <= LONGEST, f"it is refused by no sentence: {text}"
        assert "\n" not in text, f"it is refused by more than a sentence: {text}"
        for name in names:
            assert name in text, f"the refusal does not name {name}: {text}"
        return text
    return None


def command(which: Callable[[Sequence[str]], None], *arguments: Any) -> str:
    """What a command writes."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    threads = ["--threads", str(torch.get_num_threads())]
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
        which([*map(str, arguments), *threads])
    return stream.buffer.getvalue().decode()
