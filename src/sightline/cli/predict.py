"""`sightline predict`: one line for each item, in order; bad items keep their line and are named."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.cli.common import load_run, set_up, spelling
from sightline.cli.lines import BLOCK, Lines, blocks_of, named_files, say_bad, write_predictions
from sightline.data.tables import read_as
from sightline.errors import UserError
from sightline.files import check_writable, is_no_folder
from sightline.tasks.run import Run


def predict_command(
    run: Path,
    input: str | None,
    text: Sequence[str],
    files: Mapping[str, Sequence[Path]],
    out: Path | None,
    format: str,
    threads: int | None,
    encoding: str | None = None,
    table: str | None = None,
    engine: str | None = None,
    ensemble: Sequence[Path] = (),
    **given: Any,
) -> None:
    """Predict for the items that the options name; options that do not apply to the run are refused."""
    set_up(threads)
    read_as(encoding)
    lines, as_json = Lines(input, text), format == "jsonl"
    lines.refuse(encoding=encoding, table=table)
    options = {name: value for name, value in given.items() if value is not None and value is not False}
    loaded = _loaded(run, ensemble, engine, threads).about_table(table)
    of_files = _check_format(loaded, format, out)
    folder = out if loaded.output.writes_files or of_files else None
    if folder is not None and is_no_folder(folder):
        raise UserError(f"--out is {folder}, which is a file; name a folder")
    if folder is None and out is not None and out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    with spelling(given):
        chosen = loaded.output.options(options)
    loaded.output.check_written(chosen, as_json)
    if as_json or of_files:
        chosen = loaded.output.for_json(chosen)
    if folder is not None:
        check_writable(folder)
    writer = LineWriter(loaded, chosen, as_json, folder, format if of_files else None)
    written = None if folder is not None else out
    named = named_files(loaded, files)
    write_predictions(lines, blocks_of(loaded, lines, named, writer.names), writer.lines, written, writer.finish)


def _check_format(run: Run, format: str, out: Path | None) -> bool:
    """Whether a format has a file for each item; refuses one that the run does not have."""
    if format in ("text", "jsonl"):
        return False
    if format not in run.output.formats:
        there = ", ".join(("text", "jsonl", *run.output.formats))
        raise UserError(f"--format {format} is not for {run.name}, a run of {run.task.name}; there is {there}")
    if out is None:
        raise UserError(f"--format {format} writes a file for each of the {run.input.noun}; name a folder with --out")
    return True


def _loaded(run: Path, ensemble: Sequence[Path], engine: Any, threads: int | None) -> Run:
    """The run, several as an ensemble, or one on another engine: the one that an exported folder was made for."""
    from sightline.export.predicting import engine_of, load_engine

    if engine is None:
        engine = engine_of(run)
    if engine not in (None, "sightline"):
        if ensemble:
            raise UserError("--ensemble needs Sightline's own engine; leave out --engine")
        return load_engine(run, engine, threads)
    loaded = load_run(run)
    return loaded.output.ensemble([loaded, *map(load_run, ensemble)]) if ensemble else loaded


class LineWriter:
    """Writes predictions as lines; collects the items that could not be read."""

    def __init__(self, run: Run, options: Any, as_json: bool, files: Path | None, format: str | None = None) -> None:
        self.run, self.options, self.as_json, self.files, self.format = run, options, as_json, files, format
        self.bad: dict[str, str] = {}
        self.good = self.cut = 0
        self.names: set[str] = set()

    def lines(self, items: list[Any], block: int) -> Iterator[str]:
        """The lines of a block of items, which has this number."""
        run, output = self.run, self.run.output
        options, bad = output.block_options(self.options, block), dict[int, str]()
        output.warn(items, block * BLOCK + 1, options)
        self.cut += run.input.count_cut(items)
        for row, (x, raw) in enumerate(zip(items, run.raw(items, options=options, bad=bad), strict=True)):
            if row in bad:
                self.bad[run.input.label(x)] = bad[row]
                yield run.input.bad_line(x, bad[row], self.as_json)
                continue
            prediction = output.decide(x, raw, options)
            self.good += 1
            if self.files is not None and self.format is not None:
                output.write_format(self.format, run, x, prediction, self.files, self.names)
            elif self.files is not None:
                output.write_files(run, x, prediction, self.files, self.names)
            if self.as_json:
                yield json.dumps(output.to_json(x, prediction), ensure_ascii=False)
            else:
                yield output.line(x, prediction)
            if (remark := output.remark(x, prediction)) is not None:
                print(f"sightline: {remark}", file=sys.stderr)

    def finish(self) -> None:
        """Name the items that could not be read, and say how many were cut; fail if none could be read."""
        if self.cut:
            print(f"sightline: {self.run.input.cut_line(self.cut, self.good)}", file=sys.stderr)
        say_bad(self.bad, self.run.input.noun)
        if self.bad and not self.good:
            raise UserError(f"none of the {self.run.input.noun} could be read")
