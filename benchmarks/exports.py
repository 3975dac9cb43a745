"""A run in other engines: how much they write as it does, their BLEU, and how fast they are beside our own.

    python benchmarks/exports.py --run RUN --data FILE --write
    python benchmarks/exports.py --run RUN --data FILE --threads 2 --rounds 5 --json FILE

RUN is a run of translate, FILE its test pairs (.tsv, .csv, .jsonl). Every engine translates all of them, greedily and
with a beam of 5, in batches of the same tokens; everything is timed in turn, in one process, after one round that does
not count. Texts are cut into tokens and put together within the time.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from report import interleaved, machine, write_section
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.export.engine import engine_for
from sightline.export.predicting import load_engine
from sightline.export.run import export_run
from sightline.export.writing import LONGEST
from sightline.kernels.allocator import keep_memory
from sightline.metrics import bleu, tokenised_bleu
from sightline.outputs.searched import Prediction
from sightline.tasks.run import Run

OURS = "Sightline"
NAMES = {"ctranslate2": "CTranslate2", "onnx": "onnxruntime"}


def exported(run: Path, folder: Path, threads: int) -> tuple[dict[str, Run], dict[str, dict[str, Any]]]:
    """Every engine that takes the run, and what its export said of itself."""
    engines: dict[str, Run] = {}
    said: dict[str, dict[str, Any]] = {}
    for to, name in NAMES.items():
        for int8 in (False, True):
            try:
                out = folder / f"{to}-{int8}"
                found = export_run(run, to, out, int8=int8, threads=threads)  # type: ignore[arg-type]
            except UserError as error:
                print(error)
                continue
            label = f"{name} int8" if int8 else name
            engines[label] = load_engine(out, to, threads)  # type: ignore[arg-type]
            said[label] = found.to_json()
    return engines, said


def measured(run: Run, ours: Run, sources: list[str], references: list[str], beam: int) -> dict[str, float]:
    """How many outputs are ours, and what all of them are worth."""
    exported, own = (cast("list[Prediction]", one.predict(sources, beam=beam)) for one in (run, ours))
    texts = [one.text for one in exported]
    return {
        "same": sum(a.tokens == b.tokens for a, b in zip(exported, own, strict=True)),
        "bleu": bleu(texts, references).value,
        "tokenised_bleu": tokenised_bleu(texts, references).value,
    }


def huggingface(translator: Run, run: Path, folder: Path, sources: list[str]) -> str:
    """Greedy outputs by transformers; it is not timed, nobody takes it for speed."""
    out = folder / "huggingface"
    try:
        described = export_run(run, "huggingface", out).described
    except UserError as error:
        return f"No export for transformers: {error}."
    tokens = [tokens for (tokens,) in cast("list[tuple[list[int]]]", translator.encode(sources))]
    theirs = engine_for("huggingface", out, 1).greedy(tokens, LONGEST)
    own = cast("list[Prediction]", translator.predict(sources, beam=1, max_length=LONGEST))
    same = sum(list(one.tokens) == row for one, row in zip(own, theirs, strict=True))
    return f"With transformers ({described}) {same:,} of {len(sources):,} greedy outputs equal those of the run."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(options.threads)
    rows = [row.values for row in pair_cells(Source(options.data)) if row.problem is None][: options.count]
    sources, references = map(list, zip(*rows, strict=True))
    translator = Run.load(options.run)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engines, said = exported(options.run, folder, options.threads)
        everyone: dict[str, Run] = {OURS: translator, **engines}
        results: dict[str, dict[str, Any]] = {label: {} for label in everyone}
        for beam in (1, 5):
            cases: dict[str, Callable[[], Any]] = {
                label: partial(one.predict, sources, beam=beam) for label, one in everyone.items()
            }
            times = interleaved(cases, options.rounds)
            for label, one in everyone.items():
                found = measured(one, translator, sources, references, beam)
                results[label][f"beam {beam}"] = {**found, "sentences_a_second": _speed(sources, times[label])}
        for label, about in said.items():
            results[label]["megabytes"] = about["size"] / 1e6
        note = huggingface(translator, options.run, folder, sources)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    text = f"Measured on {machine()}.\n\n{table(results, len(sources))}\n\n{note}"
    print(text)
    if options.write:
        again = "Reproduce: `python benchmarks/exports.py --run RUN --data FILE --write`."
        write_section("exports", "\n\n".join(["## Exports", text, again]))


def _speed(sources: list[str], seconds: list[float]) -> float:
    return len(sources) / statistics.median(seconds)


def table(results: dict[str, dict[str, Any]], count: int) -> str:
    """Markdown, a line for each engine."""
    lines = [
        f"| engine | greedy: equal to the run, of {count:,} | tokenised BLEU | sentences/s "
        "| beam 5: equal to the run | tokenised BLEU | sentences/s | MB |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for label, found in results.items():
        cells = []
        for beam in (1, 5):
            one = found[f"beam {beam}"]
            cells += [f"{one['same']:,}", f"{one['tokenised_bleu']:.2f}", f"{one['sentences_a_second']:,.0f}"]
        size = f"{found['megabytes']:.1f}" if "megabytes" in found else ""
        lines.append(f"| {label} | {' | '.join(cells)} | {size} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
