"""Export a run: in the format of another engine, compared with the run, and left only where both say the same."""

from pathlib import Path

from sightline.errors import UserError
from sightline.export.engine import Format, engine_for
from sightline.export.exporting import (
    Exported,
    compare,
    cut_otherwise,
    examples_for,
    refuse,
    size_of,
    translating,
    whole_folder,
    write_about,
    write_export,
)
from sightline.export.exporting_encoders import export_encoder_run
from sightline.tasks.run import Run
from sightline.training.folder import MODEL


def export_run(
    run: Path,
    to: Format,
    out: Path,
    *,
    int8: bool = False,
    data: str | None = None,
    columns: tuple[str, ...] | None = None,
    overwrite: bool = False,
    threads: int = 1,
) -> Exported:
    """Write a run in another engine's format, and compare. An export that differs leaves nothing behind."""
    if int8 and to == "huggingface":
        raise UserError("int8 is for ctranslate2 and onnx; transformers makes its own of a folder when it loads it")
    loaded = Run.load(run)
    if to == "huggingface" and hasattr(loaded.input, "reader"):
        return export_encoder_run(loaded, run, out, data, columns, overwrite)
    examples, tried = examples_for(run, data, columns, translating(loaded).source)
    with whole_folder(out, overwrite) as folder:
        described = write_export(loaded, to, folder, int8)
        closeness = compare(loaded, engine_for(to, folder, threads), examples)
        cut = cut_otherwise(loaded, folder, examples) if to == "huggingface" else None
        refuse(closeness.problem(int8) or cut, run, to)
        exported = Exported(out, to, int8, described, tried, closeness, size_of(folder), (run / MODEL).stat().st_size)
        write_about(folder, exported)
    return exported
