"""`sightline bench`: a run's speed and memory on this machine."""

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sightline.cli.common import set_up
from sightline.cli.output import print_json
from sightline.errors import UserError
from sightline.tasks.bench import Measured, measure, profiled, rate_by_threads, works
from sightline.tasks.run import Run

MEGABYTE = 1 << 20


def bench_command(run: Path, seconds: float, json: bool, threads: int | None) -> None:
    """Measure each kind of work, and print tables."""
    if not seconds > 0:
        raise UserError(f"--seconds is {seconds:g}; it must be above 0")
    set_up(threads)
    todo = works(Run.load(run))
    console = Console(stderr=True)
    hidden = not sys.stderr.isatty()
    progress = track(todo, "measuring", console=console, transient=True, disable=hidden)
    results = [measure(one, seconds) for one in progress]
    by_threads = rate_by_threads(todo[0], seconds / 2)
    results = [profiled(one, measured) for one, measured in zip(todo, results, strict=True)]
    if json:
        data = {
            "run": str(run),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "work": [one.to_json() for one in results],
            **({"training_tokens_per_second_by_threads": by_threads} if todo[0].name == "training" else {}),
        }
        print_json(data)
        return
    console = Console()
    console.print(_rates(results), "", _shares(results), "")
    for threads, rate in by_threads.items():
        console.print(
            f"{todo[0].name} with {threads} thread{'s' if threads > 1 else ''}: {rate:,.0f} {todo[0].unit}/s",
            highlight=False,
        )
    fastest = max(by_threads, key=by_threads.__getitem__)
    if by_threads[fastest] > 1.1 * by_threads[torch.get_num_threads()]:
        console.print(f"train with --threads {fastest}: it is faster here", highlight=False)


def _rates(results: list[Measured]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("work", no_wrap=True)
    for name in ("a second", "slowest – fastest", "peak memory"):
        table.add_column(name, justify="right")
    for one in results:
        memory = "" if one.memory is None else f"{one.memory / MEGABYTE:,.0f} MB"
        table.add_row(one.name, f"{one.rate:,.1f} {one.unit}", f"{one.slowest:,.1f} – {one.fastest:,.1f}", memory)
    return table


def _shares(results: list[Measured]) -> Table:
    """Where the time goes, by kind of work."""
    profiled = [(one, one.profile) for one in results if one.profile is not None]
    table = Table(box=None, pad_edge=False)
    table.add_column("where the time goes", no_wrap=True)
    for one, _ in profiled:
        table.add_column(one.name, justify="right")
    for group in profiled[0][1].shares:
        table.add_row(group, *(f"{100 * profile.shares[group]:.0f} %" for _, profile in profiled))
    table.add_row("times its matrix products alone", *(f"{profile.over_limit:.2f}" for _, profile in profiled))
    return table
