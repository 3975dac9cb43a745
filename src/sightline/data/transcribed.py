"""The report on recordings (or other series) with their transcripts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sightline.data.checking import Report


@dataclass
class TranscriptReport(Report):
    """``pairs`` are recordings with a transcript. Durations are in hundredths of a second, or frames."""

    kept: ClassVar[str] = "recordings"
    again: ClassVar[str] = "rows were there before (kept)"
    measured: ClassVar[Mapping[str, str]] = {"characters": "characters"}

    def add(self, x: Any, y: str) -> None:
        self.measure(len(y))

    def heading(self) -> str:
        return f"{self.pairs:,} {getattr(self.input, 'noun', 'recordings')} of {self.rows:,} rows"
