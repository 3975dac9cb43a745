"""Data of `speech.py` that is made of corpora: digits put together to strings, and mouths as principal components."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image

COMPONENTS = 64
SIZE = (32, 64)  # of a frame of a mouth


def rows_of(path: Path) -> list[dict[str, str]]:
    header, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = ["\t".join(rows[0]), *("\t".join(str(value) for value in row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def absolute(data: Path, out: Path, columns: dict[str, str]) -> Path:
    """The table with some of its columns under other names, paths whole."""
    folder = data.parent
    rows = []
    for row in rows_of(data):
        named = {new: row[old] for old, new in columns.items()}
        rows.append({name: str(folder / one) if (folder / one).exists() else one for name, one in named.items()})
    return write_table(out, rows)


def spliced(data: Path, name: str, out: Path) -> Path:
    """Strings of digits: the recordings of a row one behind the other, with the silences that it names."""
    table = out / f"{name}.tsv"
    if table.exists():
        return table
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[str, np.ndarray] = {}
    rows = []
    for row in rows_of(data / f"{name}.tsv"):
        gaps, parts = [int(one) for one in row["gaps_ms"].split()], []
        for file, gap in zip(row["audio"].split(), gaps, strict=False):
            if file not in known:
                known[file] = soundfile.read(data / file, dtype="int16")[0]
            parts += [np.zeros(8 * gap, np.int16), known[file]]
        samples = np.concatenate([*parts, np.zeros(8 * gaps[-1], np.int16)])
        path = folder / f"{row['id']}.wav"
        soundfile.write(path, samples, 8000)
        rows.append({"audio": path, "text": row["text"], "length": row["length"]})
    return write_table(table, rows)


def frames_of(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path)).reshape(-1, *SIZE).astype(np.float32)


def mouths(data: Path, out: Path) -> dict[str, Path]:
    """Recordings with their mouths: the pixels' principal components in the training data, an array for each clip."""
    out.mkdir(parents=True, exist_ok=True)
    tables = {name: out / f"{name}.tsv" for name in ("train", "valid", "test")}
    if all(one.exists() for one in tables.values()):
        return tables
    rows = {name: rows_of(data / f"{name}.tsv") for name in tables}
    drawn = np.random.default_rng(0)
    some = [frames_of(data / row["frames"]).reshape(-1, SIZE[0] * SIZE[1]) for row in rows["train"]]
    pixels = np.concatenate([one[drawn.choice(len(one), 12, replace=False)] for one in some])
    mean = pixels.mean(axis=0)
    axes = np.linalg.svd(pixels - mean, full_matrices=False)[2][:COMPONENTS].T
    for name, table in tables.items():
        made = []
        for row in rows[name]:
            path = out / f"{Path(row['frames']).stem}.npy"
            flat = frames_of(data / row["frames"]).reshape(-1, SIZE[0] * SIZE[1])
            np.save(path, ((flat - mean) @ axes / 100).astype(np.float32))
            made.append({"audio": data / row["audio"], "target": path})
        write_table(table, made)
    return tables
