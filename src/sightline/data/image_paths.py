"""The images that a command line names: files, folders, and lists of them."""

import sys
from collections.abc import Sequence
from pathlib import Path

from sightline.data.image_tables import read_image_table
from sightline.data.images import ENDINGS
from sightline.errors import UserError
from sightline.files import place_of

TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet", ".gz")


def image_paths(images: Sequence[str | Path], path: str | None = None, endings: Sequence[str] = ENDINGS) -> list[Path]:
    """Files, folders of them (with those below), and with ``path`` (--input) a folder, an image, a table with a column
    of images, or a text file with a path a line (- is standard input). ``endings`` are those of images."""
    found: list[Path] = []
    for one in map(Path, images):
        found += in_folder(one, endings) if one.is_dir() else [one]
    if path is None:
        return found
    if path != "-" and Path(path).is_dir():
        return found + in_folder(Path(path), endings)
    if path != "-" and not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    suffix = Path(path).suffix.lower()
    if suffix in endings:
        return [*found, Path(path)]
    if suffix in TABLES:
        for row in read_image_table(path, ()):
            if row.problem is not None:
                raise UserError(f"{row.file}:{row.line}: {row.problem}")
            found.append(row.values[0])
        return list(dict.fromkeys(found))
    try:
        text = sys.stdin.buffer.read().decode("utf-8") if path == "-" else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is neither an image nor a list of images in UTF-8") from None
    base = Path() if path == "-" else Path(path).parent
    return found + [base / line.strip() for line in text.splitlines() if line.strip()]


def in_folder(folder: Path, endings: Sequence[str] = ENDINGS) -> list[Path]:
    """The images of a folder and of those below it."""
    return [row.values[0] for row in read_image_table(str(folder), (), endings=endings)]


def free_name(file: Path, folder: Path, endings: Sequence[str], taken: set[str]) -> str:
    """What the results of an image are called in a folder, before these endings: as the image, with a number behind it
    where one of them is ``taken`` (`place_of`). They are taken from then on."""
    number, name = 1, file.stem
    while (places := {place_of(folder / f"{name}{ending}") for ending in endings}) & taken:
        number += 1
        name = f"{file.stem}-{number}"
    taken |= places
    return name
