"""`sightline export`: a run in another engine's format, and how close it is."""

from pathlib import Path

import torch

from sightline.cli.common import set_up
from sightline.cli.output import print_json
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
    json: bool,
    threads: int | None,
) -> None:
    """Write the export, compare it with the run, print how close it is."""
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
    if json:
        print_json(exported.to_json())
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
        lines.append("The head of the run is not exported. README.md in the folder says how to load it.")
    else:
        lines.append("README.md in the folder says how to load it.")
    return lines
