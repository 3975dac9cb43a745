"""The command that takes a run to other engines: export."""

from pathlib import Path
from typing import Literal

import tyro


def export(
    run: tyro.conf.Positional[Path],
    to: Literal["ctranslate2", "onnx", "huggingface"],
    out: Path,
    int8: tyro.conf.FlagCreatePairsOff[bool] = False,
    data: str | None = None,
    columns: tuple[str, ...] | None = None,
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False,
    json: bool = False,
    threads: int | None = None,
) -> None:
    """Write a run in the format of another engine, compare it with the run, and say how close it is.

    ctranslate2 is the fastest on a processor and runs Transformers; onnx runs them and the recurrent models, wherever
    there is an onnxruntime; huggingface is a folder that transformers loads (a Pegasus, a Marian, or the encoder of a
    run that classifies, tags, answers or was pre-trained). An export that does not say what the run says is not kept.

    Args:
        run: The run folder, or one of its checkpoints (RUN/checkpoints/step-N).
        to: The engine.
        out: The folder to write; it is there when it is whole.
        int8: Weights in 8 bits: smaller and faster, and not quite the same; what that costs is said.
        data: Pairs (of a run that does not translate, texts) to compare on; left out, the run's validation data, and
            where it has none, texts made of its vocabulary.
        columns: The names of the columns of --data.
        overwrite: Replace an earlier export.
        json: Print JSON instead of sentences.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.exporting import export_command

    export_command(run, to, out, int8, data, columns, overwrite, json, threads)
