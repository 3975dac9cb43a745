"""Items to predict or to view: lines of a file or of the command line, or files such as images."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sightline.cli.lines import Lines
from sightline.errors import UserError
from sightline.files import place_of
from sightline.tasks.run import Run
from sightline.training.ranks import Ranks

Block = tuple[list[Any], int]  # items, and how many bytes of the file they are


def blocks_of(run: Run, lines: Lines, files: Sequence[Path], taken: set[str] | None = None) -> Iterator[Block]:
    """The items that a command line names, some at a time; files that are yet to be read are added to ``taken``."""
    if run.input.reads_files:
        paths = _paths(run, lines, files)
        if taken is not None:
            taken |= set(map(place_of, paths))
        step = run.input.at_once
        starts = range(0, len(paths), step)
        return (([run.input.item(path) for path in paths[start : start + step]], 0) for start in starts)
    if files:
        raise UserError(f"{run.name} reads {run.input.noun}, and --image is for runs that read images; leave it out")
    return run.input.joined(lines) if run.input.joins_lines else _parsed(run, lines)


def _paths(run: Run, lines: Lines, files: Sequence[Path]) -> list[Path]:
    noun = run.input.noun
    if lines.texts:
        raise UserError(f"{run.name} reads {noun}, and --text is for runs that read texts; name {noun} with --image")
    if Ranks.is_launched():  # which of them could not be read, and names of files beside them, are known to one process
        raise UserError(f"several processes were started, and {noun} are predicted by one; leave the launcher out")
    return run.input.paths(files, lines.path)


def _parsed(run: Run, lines: Lines) -> Iterator[Block]:
    number = 0
    for block, size in lines.blocks():
        items = []
        for line in block:
            number += 1
            items.append(run.input.parse(line, number, lines.is_json))
        yield items, size


def items_of(run: Run, lines: Lines, files: Sequence[Path], most: int) -> list[Any]:
    """The items to view: at most so many and one more, without empty lines."""
    items: list[Any] = []
    for some, _ in blocks_of(run, lines, files):
        items += [one for one in some if run.input.label(one).strip()]
        if len(items) > most:
            break
    return items
