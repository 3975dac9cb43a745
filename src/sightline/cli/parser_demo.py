"""The command that shows everything at once: demo."""

from pathlib import Path


def demo(
    out: Path = Path("runs/demo"),
    pairs: int = 60_000,
    steps: int = 350,
    minutes: float = 6.0,
    seed: int = 0,
    threads: int | None = None,
) -> None:
    """Train a model that reads dates in 27 languages, score it on unseen days and draw what it looks at.

    Dates as people write them (27 sierpnia 2024, 2028年12月31日, 9 августа 1969) become ISO 8601. The data is made
    here, split by calendar day, and one language is kept out of training. What comes out is an ordinary run folder:
    try `sightline predict runs/demo --text "3. Mai 2021"` afterwards.

    Args:
        out: The run folder; an earlier demo there is made anew.
        pairs: How many dates to train on.
        steps: Training steps.
        minutes: Training stops after this long, even with fewer steps.
        seed: The same seed gives the same data and, with as many threads, the same model.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.demo import run_demo

    run_demo(out, pairs, steps, minutes, seed, threads)
