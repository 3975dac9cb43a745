"""Evaluate: every metric on the pairs."""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sightline.commands.common import load_run, set_up
from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.tasks.translate import METRICS_BY_NAME, checked


def evaluate_command(
    run: Path, files: PairFiles, beam: int, length_penalty: float, as_json: bool, threads: int | None
) -> None:
    """Every metric on the pairs, with how it was computed."""
    set_up(threads)
    translator = load_run(run)
    pairs = list(checked(files, Limits())[0]())
    started = time.perf_counter()
    sources, references = [a for a, _ in pairs], [b for _, b in pairs]
    found = [one.text for one in translator.predict(sources, beam=beam, length_penalty=length_penalty)]
    seconds = time.perf_counter() - started
    scores = {name: metric(found, references) for name, metric in METRICS_BY_NAME.items()}
    perplexity = translator.perplexity(pairs)
    if as_json:
        values = {name: {"value": score.value, "signature": score.signature} for name, score in scores.items()}
        print(json.dumps({"pairs": len(pairs), "perplexity": perplexity, **values}, indent=2))
        return
    table = Table("metric", "score", "how", box=None, padding=(0, 2, 0, 0))
    for name, score in scores.items():
        table.add_row(name.replace("_", " "), f"{score.value:.2f}", score.signature)
    table.add_row("perplexity", f"{perplexity:.3f}", "per target token")
    Console().print(table)
    print(f"{len(pairs):,} pairs, {len(pairs) / seconds:.1f} a second")
