"""Export: a run in another engine's format, and how close it is."""

import json
from pathlib import Path

import torch

from sightline.cli.common import set_up
from sightline.export.engine import Format
from sightline.export.run import export_run
from sightline.export.writing import Exported, closeness_lines


def export_command(
    run: Path,
    to: Format,
    out: Path,
    int8: bool,
    data: str | None,
    columns: tuple[str, ...] | None,
    overwrite: bool,
    as_json: bool,
    threads: int | None,
) -> None:
    """Write, compare, say."""
    set_up(threads)
    exported = export_run(
        run,
        to,
        out,
        int8=int8,
        data=data,
        columns=columns,
        overwrite=overwrite,
        threads=threads or torch.get_num_threads(),
    )
    if as_json:
        print(json.dumps(exported.to_json(), indent=2, ensure_ascii=False))
        return
    for line in _lines(run, exported):
        print(line)


def _lines(run: Path, exported: Exported) -> list[str]:
    weights = " with 8-bit weights" if exported.int8 else ""
    sizes = f"{exported.size / 1e6:,.1f} MB (the run's weights: {exported.own_size / 1e6:,.1f} MB)"
    lines = [f"{run} is {exported.described}{weights} in {exported.folder}: {sizes}.", *closeness_lines(exported)]
    if exported.format != "huggingface":
        lines.append(f"Use it: sightline predict {exported.folder} --engine {exported.format}")
    elif exported.described.endswith("encoder"):
        lines.append("The head of the run did not go along. How to load it stands in README.md there.")
    else:
        lines.append("How to load it stands in README.md there.")
    return lines
