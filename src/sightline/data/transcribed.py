"""The report on recordings (or other series) with their transcripts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sightline.data.checking import Report


@dataclass
class TranscriptReport(Report):
    """``pairs`` are recordings with a transcript."""

    kept: ClassVar[str] = "recordings"
    again: ClassVar[str] = "rows were there before (kept)"
    measured: ClassVar[Mapping[str, str]] = {"characters": "characters"}

    durations: list[float] = field(default_factory=list)  # in seconds, or in frames where these have no length

    def add(self, x: Any, y: str) -> None:
        self.measure(len(y))
        store, shape = getattr(self.input, "store", None), getattr(self.input, "shape", None)
        if store is not None and shape is not None and x.row >= 0:
            self.durations.append(store.length(x.row) * (shape.seconds or 1))

    def more(self) -> list[str]:
        if not self.durations:
            return []
        ordered, total = sorted(self.durations), sum(self.durations)
        middle, most = ordered[len(ordered) // 2], ordered[-1]
        whole = f"{total / 3600:.2f} hours" if total >= 3600 else f"{total / 60:.1f} minutes"
        return [f"seconds: min {ordered[0]:.2f}, median {middle:.2f}, max {most:.2f}; {whole} in all"]

    def to_json(self) -> dict[str, Any]:
        if not self.durations:
            return super().to_json()
        seconds = {"min": min(self.durations), "max": max(self.durations), "sum": sum(self.durations)}
        return {**super().to_json(), "seconds": {name: round(value, 2) for name, value in seconds.items()}}

    def heading(self) -> str:
        return f"{self.pairs:,} {getattr(self.input, 'noun', 'recordings')} of {self.rows:,} rows"
