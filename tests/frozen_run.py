"""What `test_frozen` and other tests share."""

from pathlib import Path

FROZEN = sorted((Path(__file__).parent / "fixtures").glob("run-format-*"))
