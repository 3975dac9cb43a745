"""Predict: one line in, one line out."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sightline.commands.common import load_run, set_up
from sightline.errors import UserError
from sightline.tasks.translator import Translator


def predict_command(
    run: Path,
    input: str | None,  # noqa: A002 - the name of the option
    texts: Sequence[str],
    beam: int,
    length_penalty: float,
    output: str,
    threads: int | None,
) -> None:
    """One prediction a line, in the order of the input; an empty line gives an empty line."""
    set_up(threads)
    if beam < 1:
        raise UserError(f"--beam is {beam}; it must be at least 1")
    if input is not None and texts:
        raise UserError("give --input or --text, not both")
    translator = load_run(run)
    lines = iter(texts) if texts else _lines(input or "-")
    waiting: list[str] = []
    for line in lines:
        waiting.append(line)
        if len(waiting) == 512:  # enough to sort by length, few enough to stream
            _write_predictions(translator, waiting, beam, length_penalty, output)
            waiting = []
    if waiting:
        _write_predictions(translator, waiting, beam, length_penalty, output)


def _write_predictions(translator: Translator, texts: list[str], beam: int, penalty: float, output: str) -> None:
    for text, found in zip(texts, translator.predict(texts, beam=beam, length_penalty=penalty), strict=True):
        if output == "jsonl":
            data = {"source": text, "prediction": found.text, "log_prob": found.log_prob, "score": found.score}
            print(json.dumps(data, ensure_ascii=False))
        else:
            print(found.text.replace("\n", " "))
    sys.stdout.flush()


def _lines(path: str) -> Iterator[str]:
    name = "standard input" if path == "-" else path
    if path != "-" and not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8").rstrip("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise UserError(
                    f"{name}, line {number}: byte {error.start} is 0x{byte:02x}, which is not UTF-8"
                ) from None
