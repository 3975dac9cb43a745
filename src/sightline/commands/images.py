"""What the commands share that read images: which images options name, bad ones, and lines for all of them."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.commands.common import writing
from sightline.commands.evaluation import predicting
from sightline.data.image_tables import read_image_table
from sightline.data.images import ENDINGS
from sightline.errors import UserError
from sightline.explanation import Explanation
from sightline.tasks.image_sources import AT_ONCE
from sightline.training.ranks import Ranks

MOST_NAMED = 20  # bad images on standard error
TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet", ".gz")


def check_image_options(
    task: str, others: Mapping[str, object], metric: str | None, known: Sequence[str], of: str
) -> None:
    """Options of another task are refused, not passed over; ``known`` are the metrics ``of`` this one."""
    for name, value in others.items():
        if value:
            raise UserError(f"{name} is not an option of {task}; leave it out")
    if metric is not None and metric not in known:
        raise UserError(f"--metric {metric} is not one of {of}; it is one of {', '.join(known)}")


def image_paths(images: Sequence[str | Path], path: str | None = None) -> list[Path]:
    """The images that options name: files, folders of them (with those below), and with ``path`` (--input) a folder, an
    image, a table with a column of images, or a text file with a path a line (- is standard input)."""
    if Ranks.is_launched():
        raise UserError("several processes were started, and images are predicted by one; leave the launcher out")
    found = listed(images)
    if path is None:
        return found
    if path != "-" and Path(path).is_dir():
        return found + in_folder(Path(path))
    if path != "-" and not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    suffix = Path(path).suffix.lower()
    if suffix in ENDINGS:
        return [*found, Path(path)]
    if suffix in TABLES:
        for row in read_image_table(path, ()):
            if row.problem is not None:
                raise UserError(f"{row.file}:{row.line}: {row.problem}")
            found.append(row.image)
        return list(dict.fromkeys(found))
    try:
        text = sys.stdin.buffer.read().decode("utf-8") if path == "-" else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is neither an image nor a list of images in UTF-8") from None
    base = Path() if path == "-" else Path(path).parent
    return found + [base / line.strip() for line in text.splitlines() if line.strip()]


def listed(images: Sequence[str | Path], endings: Sequence[str] = ENDINGS) -> list[Path]:
    """Files, and what is in folders."""
    found: list[Path] = []
    for one in map(Path, images):
        found += in_folder(one, endings) if one.is_dir() else [one]
    return found


def in_folder(folder: Path, endings: Sequence[str] = ENDINGS) -> list[Path]:
    return [row.image for row in read_image_table(str(folder), (), endings=endings)]


def free_names(files: Sequence[Path], out: Path, endings: Sequence[str]) -> list[str]:
    """What the results of each image in the folder ``out`` are called, before these endings: as the image, with a
    number behind it where a name is taken.

    An image that is to be read is never written over, wherever it lies.
    """

    def written(name: str) -> set[str]:
        return {str((out / f"{name}{ending}").resolve()).casefold() for ending in endings}

    taken = {str(file.resolve()).casefold() for file in files}
    names = []
    for file in files:
        number, name = 1, file.stem
        while written(name) & taken:
            number += 1
            name = f"{file.stem}-{number}"
        taken |= written(name)
        names.append(name)
    return names


def check_images(paths: Sequence[Path], what: str) -> None:
    """That there are any; ``what`` is done with them."""
    if not paths:
        raise UserError(f"there is no image to {what}: name images or folders with --image, or a list with --input")


def write_lines(
    paths: Sequence[Path], out: Path | None, say: Callable[[Sequence[Path], int, dict[str, str]], Iterable[str]]
) -> None:
    """What is said of each block of images, in order, in a file or on standard output.

    ``say`` gets a block, its number, and what it notes the images in that cannot be read, with the reason.
    """
    bad: dict[str, str] = {}
    with writing(out) as stream:
        with predicting(len(paths)) as advance:
            for number, start in enumerate(range(0, len(paths), AT_ONCE)):
                part = paths[start : start + AT_ONCE]
                for line in say(part, number, bad):
                    print(line, file=stream)
                stream.flush()
                advance(len(part))
        say_unread(bad, paths)  # here: where nothing was read, a file that is there stays as it is


def bad_line(path: Path, reason: str, as_json: bool) -> str:
    """The line of an image that cannot be read: it keeps its place."""
    return json.dumps({"image": str(path), "problem": reason}, ensure_ascii=False) if as_json else f"{one_line(path)}\t"


def one_line(path: str | Path) -> str:
    """A path that keeps to its line, whatever its name."""
    return str(path).replace("\t", " ").replace("\n", " ").replace("\r", " ")


def say_bad(bad: Mapping[str, str]) -> None:
    """Images that could not be read, on standard error."""
    for path, reason in list(bad.items())[:MOST_NAMED]:
        print(f"sightline: {path}: {reason}", file=sys.stderr)
    if len(bad) > MOST_NAMED:
        print(f"sightline: and {len(bad) - MOST_NAMED:,} more images that could not be read", file=sys.stderr)


def say_unread(bad: Mapping[str, str], paths: Sequence[Path]) -> None:
    """The same; that none of the images could be read is an error."""
    say_bad(bad)
    if all(str(path) in bad for path in paths):
        raise UserError("none of the images could be read")


def image_eye(run: Path, explain: Callable[[Path], Explanation]) -> Callable[[Any], Explanation]:
    """What explains an image of a run, for `sightline view`; texts are refused."""

    def look(image: Any) -> Explanation:
        if not isinstance(image, str | Path):
            raise UserError(f"{run} reads images; name one with --image")
        return explain(Path(image))

    return look
