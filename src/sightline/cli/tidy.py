"""`sightline tidy RUN`: remove what predictions do not need."""

from pathlib import Path

from sightline.cli.common import load_run
from sightline.training.folder import RunFolder


def tidy_command(run: Path) -> None:
    """Remove checkpoints and data; a run that cannot be loaded is left as it is."""
    loaded = load_run(run)
    removed = RunFolder(run).tidy([loaded.input.keys_file])
    left = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    print(f"{removed / 1e6:,.1f} MB removed, {left / 1e6:,.1f} MB left; {run} predicts as before and cannot be resumed")
    if not loaded.input.keys_file:  # its data itself held the keys
        print("evaluate no longer recognises rows that are in the run's training data")
