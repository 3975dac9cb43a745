"""`sightline serve`: serve runs until a signal stops the server."""

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.cli.common import load_run, set_up
from sightline.errors import MachineError, UserError
from sightline.serve import MODEL_THREAD, Limits, check_installed, serve
from sightline.tasks.run import Run, by_name

TOKEN = "SIGHTLINE_TOKEN"


def serve_command(
    runs: Sequence[Path],
    host: str,
    port: int,
    token: str | None,
    allow_host: tuple[str, ...],
    without_token: bool,
    threads: int | None,
    **limits: Any,
) -> None:
    """Load the runs, print the address, and serve them."""
    if not runs:
        raise UserError("name the run folder to serve")
    check_installed()
    token = token if token is not None else os.environ.get(TOKEN) or None
    set_up(threads)
    # In a thread that ends: a thread that has computed keeps its OpenMP workers. With more workers than processors,
    # those of the model's thread would sleep at every product, which takes twice as long.
    with ThreadPoolExecutor(1) as loading:
        served = loading.submit(named, runs).result()

    def ready(address: str) -> None:
        print(f"Serving {', '.join(served)} at {address}")
        print(f"The API: {address}/docs. {'A token is required.' if token else 'No token is required.'} Ctrl-C stops.")
        sys.stdout.flush()

    try:
        serve(
            served,
            host=host,
            port=port,
            token=token,
            allow_hosts=allow_host,
            limits=Limits(**{name.removeprefix("max_"): value for name, value in limits.items()}),
            without_token=without_token,
            ready=ready,
        )
    except MachineError as error:
        _end_if_busy(str(error), error.exit_code)
        raise
    _end_if_busy("stopped; every request was answered", 0)
    print("sightline: stopped; every request was answered", file=sys.stderr)


def _end_if_busy(sentence: str, code: int) -> None:
    """End at once if a thread still works: a model that computes cannot be stopped, and would crash the interpreter."""
    threads = [one for one in threading.enumerate() if one is not threading.current_thread()]
    if any(not one.daemon or one.name == MODEL_THREAD for one in threads):
        print(f"sightline: {sentence}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(code)


def named(runs: Sequence[Path]) -> dict[str, Run]:
    """The runs by the names of their folders, which are unique and show no path, neither in answers nor in errors."""
    loaded = []
    for path in runs:
        whole = path.resolve()
        name = f"{whole.parent.parent.name} {whole.name}" if whole.parent.name == "checkpoints" else whole.name
        name = name.encode("ascii", "replace").decode() if not name.isprintable() else name or "run"
        loaded.append(replace(load_run(path), name=name))
    return by_name(loaded)
