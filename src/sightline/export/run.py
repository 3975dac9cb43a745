"""Export a run in the format of another engine. The export is compared with the run, and kept only if both agree."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline.data.plain import plain_cells
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.export.encoders import export_encoder
from sightline.export.engine import Format, engine_for, library
from sightline.export.writing import (
    CLOSE,
    SENTENCES,
    Closeness,
    Exported,
    check_free,
    compare,
    examples_for,
    keep,
    made_up,
    other_tokens,
    translating,
    valid_rows,
    whole_folder,
    write_export,
)
from sightline.interop.huggingface import load as load_huggingface
from sightline.models.encoder import Encoder
from sightline.models.text_to_labels import Texts
from sightline.tasks.run import Run
from sightline.text.encoding import TextEncoder


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
    """Write a run in another engine's format, and compare. An export that differs is removed."""
    if int8 and to == "huggingface":
        raise UserError("int8 is for ctranslate2 and onnx; transformers quantises a folder itself when it loads it")
    trained = Run.load(run)
    if to == "huggingface" and hasattr(trained.input, "reader"):
        return _export_encoder(trained, run, out, data, columns, overwrite)
    examples, tried = examples_for(run, data, columns, translating(trained).source)
    with whole_folder(out, overwrite) as folder:
        described = write_export(trained, to, folder, int8)
        closeness = compare(trained, engine_for(to, folder, threads), examples)
        problem = closeness.problem(int8)
        if problem is None and to == "huggingface":
            problem = other_tokens(trained, folder, examples)
        return keep(folder, run, Exported(out, to, int8, described, tried, closeness), problem)


def _export_encoder(
    trained: Run, run: Path, out: Path, data: str | None, columns: tuple[str, ...] | None, overwrite: bool
) -> Exported:
    """The encoder of a run that classifies, tags, answers or was pre-trained, compared by its states of real texts."""
    library("transformers")
    check_free(out, overwrite)
    encoder = getattr(trained.model, "encoder", None) or getattr(trained.model, "model", None)
    if not isinstance(encoder, Encoder):
        kind = trained.config.model.kind
        raise UserError(f"the model of {run} is of the kind {kind}, which transformers does not have; it has encoder")
    reader: TextEncoder = trained.input.reader  # type: ignore[attr-defined]
    texts, tried = _texts(run, data, columns, reader)
    with whole_folder(out, overwrite) as folder:
        kind = export_encoder(encoder, reader.tokeniser, folder)  # type: ignore[arg-type]
        closeness = _compare(encoder, reader, folder, texts)
        problem = None if closeness.largest <= CLOSE else f"its encoder states differ by up to {closeness.largest:.2g}"
        if closeness.same < closeness.sentences:
            problem = f"{closeness.sentences - closeness.same:,} texts are tokenised differently"
        exported = Exported(out, "huggingface", False, f"a {kind} encoder", tried, closeness)
        return keep(folder, run, exported, problem)


def _texts(run: Path, data: str | None, columns: tuple[str, ...] | None, reader: TextEncoder) -> tuple[list[str], str]:
    if data is not None:
        good = (row.values[0] for row in plain_cells(Source(data, columns), ()) if row.problem is None)
        return list(islice(good, SENTENCES)), data
    rows = valid_rows(run, lambda row: isinstance(row, list) and bool(row))
    # The first field is a text, or the words of one.
    texts = [row[0] if isinstance(row[0], str) else " ".join(map(str, row[0])) for row in rows]
    return (texts, "its validation data") if texts else (made_up(reader.tokeniser), "texts made of its vocabulary")  # type: ignore[arg-type]


@torch.inference_mode()
def _compare(encoder: Encoder, reader: TextEncoder, folder: Path, texts: Sequence[str]) -> Closeness:
    """Tokens and encoder states, one text at a time: nothing is padded."""
    import transformers

    tokeniser = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model: Any = load_huggingface(folder).model
    longest, same, largest, total, count = encoder.config.max_length, 0, 0.0, 0.0, 0
    one_text = TextEncoder(reader.tokeniser, reader.specials)
    for text in texts:
        (ours,) = one_text.read([text]).rows
        theirs = tokeniser(text)["input_ids"]
        same += ours == theirs
        words = torch.tensor([ours[:longest]])
        expected = encoder.annotate(Texts(words))
        states = model(input_ids=words, attention_mask=torch.ones_like(words)).last_hidden_state
        differences = np.nan_to_num((states - expected).abs().numpy(), nan=np.inf)
        largest, total = max(largest, float(differences.max())), total + float(differences.sum())
        count += differences.size
    return Closeness(len(texts), same, largest, total / max(count, 1))
