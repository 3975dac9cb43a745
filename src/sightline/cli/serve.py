"""`sightline serve`: runs as a server, until it is told to stop."""

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from sightline.cli.common import load_run, set_up
from sightline.errors import MachineError, UserError
from sightline.serve import Limits, check_installed, serve
from sightline.serve.worker import MODEL_THREAD
from sightline.tasks.run import Run

TOKEN = "SIGHTLINE_TOKEN"


def serve_command(
    runs: Sequence[Path],
    host: str,
    port: int,
    token: str | None,
    allow_hosts: tuple[str, ...],
    without_token: bool,
    limits: Limits,
    threads: int | None,
) -> None:
    """Load the runs, say where they are served, and serve them."""
    if not runs:
        raise UserError("name the run folder to serve")
    check_installed()
    token = token if token is not None else os.environ.get(TOKEN) or None
    set_up(threads)
    # In a thread that ends: one that has computed keeps helpers of its own, and with more of them than processors the
    # model's thread would put its helpers to sleep at every product, which takes twice as long.
    with ThreadPoolExecutor(1) as loading:
        served = loading.submit(named, runs).result()

    def ready(address: str) -> None:
        print(f"Serving {', '.join(served)} at {address}")
        print(f"The API: {address}/docs. {'A token is wanted.' if token else 'No token is wanted.'} Ctrl-C stops.")
        sys.stdout.flush()

    try:
        serve(
            served,
            host=host,
            port=port,
            token=token,
            allow_hosts=allow_hosts,
            limits=limits,
            without_token=without_token,
            ready=ready,
        )
    except MachineError as error:
        if all(thread.name != MODEL_THREAD for thread in threading.enumerate()):
            raise
        # A model that is still at work cannot be ended from outside, and would break off the interpreter's own end.
        print(f"sightline: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(error.exit_code)
    print("sightline: stopped; every request was answered", file=sys.stderr)


def named(runs: Sequence[Path]) -> dict[str, Run]:
    """The runs by names that say nothing of where on the disk they are: their folders', with numbers at need.

    The models go by these names too, so that no answer and no error shows a path.
    """
    found: dict[str, Run] = {}
    for path in runs:
        whole = path.resolve()
        name = f"{whole.parent.parent.name} {whole.name}" if whole.parent.name == "checkpoints" else whole.name
        name = name.encode("ascii", "replace").decode() if not name.isprintable() else name or "run"
        number, unique = 1, name
        while unique in found:
            number += 1
            unique = f"{name} ({number})"
        found[unique] = replace(load_run(path), name=unique)
    return found
