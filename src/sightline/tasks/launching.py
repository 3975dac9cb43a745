"""Training that a launcher may have started in several processes: who prepares, who waits, who goes on."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sightline.tasks.table import Task
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.loop import OtherRank, Outcome
from sightline.training.ranks import Ranks


def train_together(
    task: Task,
    files: Any,
    out: Path,
    config: Any,
    *,
    device: str,
    fresh: dict[str, Any] | None = None,
    on_begin: Callable[[], None] = lambda: None,
    **listeners: Any,
) -> tuple[Any, Outcome] | None:
    """Train in this process and in those that were started with it. What came of it is known to the first one only.

    ``files`` is None for a run that is gone on with; ``fresh`` is what only a new run takes. A run that a launcher
    starts anew after a loss goes on.
    """
    ranks = Ranks.join(device)
    restarted = ranks.is_restart()
    if ranks.is_first and files is not None and (out / CONFIG).exists():
        if not restarted:
            RunFolder.create(out)  # says that there is a run already
        files = None
    if not ranks.is_first:
        ranks.wait()  # the first process prepares the data; then this one finds a run to go on with
        with suppress(OtherRank):
            task.train(None, out, config, device=device)
        ranks.wait()
        return None

    def begin() -> None:
        on_begin()
        ranks.wait()

    options = {} if files is None or fresh is None else fresh
    found = task.train(files, out, config, device=device, on_begin=begin, **listeners, **options)
    ranks.wait()
    return found
