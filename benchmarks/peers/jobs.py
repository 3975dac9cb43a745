"""What is measured: every job is one tool doing one piece of work, in a process of its own."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

OURS = "Sightline"
HF, HF_EVERYWHERE = "HF Marian", "HF Marian, dropout everywhere"
TORCH, JOEY, JOEY_OWN = "torch.nn.Transformer", "JoeyNMT", "JoeyNMT, its own batches"
CT2 = "CTranslate2"
LIMIT = "the matrix products of our step alone"

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
VOCABULARIES = (1000, 2000, 4000, 8000, 16000, 32000, 64000)
BEAMS = (1, 2, 5, 10, 20)
BATCH_TOKENS = 4096
WORDS = 8000
FORCED = 15  # tokens of an output whose length is given; every tool takes one step more, for the end
LONGEST = 100  # tokens of an output whose length is not
SECTIONS = ("training", "rnnsearch", "decoding", "growth")


@dataclass(frozen=True)
class Job:
    """One measurement. ``group`` is the table or plot that it belongs to, ``label`` its row or place there."""

    group: str
    label: str
    tool: str
    kind: Literal["train", "decode"]
    data: str
    model: str = "transformer"
    warmup: int = 3
    steps: int = 20
    batch: int = 64
    beam: int = 1
    length: int | None = None
    sentences: int = 0
    at: int = 0  # the place on the axis of a plot of growth

    @property
    def key(self) -> str:
        """What results are kept under. Whatever changes the work changes the key."""
        return "|".join(str(value) for value in asdict(self).values())

    def message(self, **more: Any) -> dict[str, Any]:
        return {**asdict(self), **more}


def plan(sections: tuple[str, ...], steps: int, sentences: int, work: Path) -> list[Job]:
    """All jobs of the chosen sections, in the order of the tables."""
    found: list[Job] = []
    main = str(work / "main")
    if "training" in sections:
        for tool in (OURS, HF, HF_EVERYWHERE, TORCH, JOEY, JOEY_OWN, LIMIT):
            found.append(Job("training", "Transformer", tool, "train", main, steps=steps))
    if "rnnsearch" in sections:
        for tool in (OURS, JOEY, JOEY_OWN, LIMIT):
            found.append(Job("rnnsearch", "rnnsearch", tool, "train", main, model="rnnsearch", steps=steps))
    if "decoding" in sections:
        found += _decoding(sentences, str(work / "decoding"))
    if "growth" in sections:
        found += _growth(max(2, steps // 4), sentences, work)
    return found


def _decoding(sentences: int, data: str) -> list[Job]:
    found = []
    for length in (FORCED, None):
        # What natural lengths are, only trained weights know, and JoeyNMT cannot take ours.
        tools = (OURS, HF, CT2, JOEY) if length else (OURS, HF, CT2)
        for batch, beam in ((64, 5), (64, 1), (1, 1), (1, 5)):
            many = sentences if batch > 1 else max(4, sentences // 8)
            label = f"{f'{length} tokens' if length else 'natural length'}, batch {batch}, {name_of(beam)}"
            for tool in tools:
                found.append(
                    Job("decoding", label, tool, "decode", data, batch=batch, beam=beam, length=length, sentences=many)
                )
    return found


def name_of(beam: int) -> str:
    return "greedy" if beam == 1 else f"beam {beam}"


def _growth(steps: int, sentences: int, work: Path) -> list[Job]:
    found = []
    for axis, places in (("length", LENGTHS), ("vocabulary", VOCABULARIES)):
        for at in places:
            for tool in (OURS, HF):
                data = str(work / f"{axis}-{at}")
                label = f"{axis} {at:,}"
                found.append(Job(axis, label, tool, "train", data, warmup=2, steps=steps, at=at))
    for at in BEAMS:
        for tool in (OURS, HF):
            many = max(64, sentences // 4)
            data = str(work / "decoding")
            found.append(Job("beam", name_of(at), tool, "decode", data, beam=at, length=FORCED, sentences=many, at=at))
    return found
