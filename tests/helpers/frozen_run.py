"""What `test_frozen` and other tests share."""

from pathlib import Path

FROZEN = sorted((Path(__file__).parents[1] / "fixtures").glob("run-format-*"))
