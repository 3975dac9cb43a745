"""What the workers share: the batches that all tools get, the clock, and what a worker reports."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SIZES = {"size": 128, "heads": 4, "feed_forward": 256, "layers": 4}
RECURRENT_SIZE = 256
DROPOUT, SMOOTHING, CLIP, RATE = 0.3, 0.1, 1.0, 1e-3
BETAS, EPSILON = (0.9, 0.98), 1e-9
LEAST_SECONDS = 5.0  # of a timed decoding


class Timed(NamedTuple):
    """Work that was timed: how much of it, and in what time."""

    seconds: float
    amount: int  # target tokens without padding, or sentences
    more: dict[str, Any]


class Enough(Exception):  # noqa: N818 - nothing went wrong
    """Ends a training loop that is not ours to end otherwise."""


class Clock:
    """For loops that call back at every step: starts after the warm-up, stops after the steps."""

    def __init__(self, warmup: int, steps: int) -> None:
        self.warmup, self.last = warmup, warmup + steps
        self.begun = self.seconds = 0.0

    def done(self, steps: int) -> None:
        """So many steps are done. Raises `Enough` after the last one."""
        if steps == self.warmup:
            self.begun = time.perf_counter()
        elif steps == self.last:
            self.seconds = time.perf_counter() - self.begun
            raise Enough


class Batches:
    """The padded batches on the disk: `material.py` makes them, every tool reads them."""

    def __init__(self, folder: str) -> None:
        path = Path(folder)
        self.about: dict[str, Any] = json.loads((path / "about.json").read_text(encoding="utf-8"))
        self.words: int = self.about["words"]
        self.shapes = np.load(path / "shapes.npy")
        self.sides = [np.load(path / f"{side}.npy", mmap_mode="r") for side in ("source", "target")]
        sizes = self.shapes[:, :1] * self.shapes[:, 1:]
        self.starts = np.concatenate([np.zeros((1, 2), np.int64), sizes.cumsum(axis=0)])

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        rows, *widths = self.shapes[number].tolist()
        source, target = (
            np.array(side[self.starts[number, i] : self.starts[number + 1, i]], np.int64).reshape(rows, widths[i])
            for i, side in enumerate(self.sides)
        )
        return source, target

    def tokens(self, first: int, last: int) -> int:
        """Target tokens without padding and start, as every tool's loss sees them."""
        return sum(int((self[number][1][:, 1:] != 0).sum()) for number in range(first, last))


def time_steps(job: dict[str, Any], step: Callable[[np.ndarray, np.ndarray], Any], batches: Batches) -> Timed:
    """An ordinary loop over the batches; making tensors of them is part of the time."""
    warmup, steps = job["warmup"], job["steps"]
    for number in range(warmup):
        step(*batches[number])
    begun = time.perf_counter()
    for number in range(warmup, warmup + steps):
        step(*batches[number])
    seconds = time.perf_counter() - begun
    return Timed(seconds, batches.tokens(warmup, warmup + steps), {})


def trainable(model: Any) -> int:
    """Parameters that training changes: tables of positions are none."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def sentences(job: dict[str, Any]) -> tuple[list[str], list[list[int]]]:
    """What is to be translated: the text, and its tokens without the end."""
    found = json.loads((Path(job["data"]) / "sentences.json").read_text(encoding="utf-8"))
    texts, tokens = found["texts"], found["tokens"]
    while len(texts) < job["sentences"]:  # a small corpus is gone through again
        texts, tokens = texts + texts, tokens + tokens
    return texts[: job["sentences"]], tokens[: job["sentences"]]


def in_batches(lengths: list[int], rows: int) -> Iterator[list[int]]:
    """Sentences of similar length together, the longest first: the same batches for every tool."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for start in range(0, len(order), rows):
        yield order[start : start + rows]


def time_decoding(job: dict[str, Any], decode: Callable[[list[int]], list[list[int]]]) -> Timed:
    """``decode`` gets the numbers of the sentences of a batch, and gives the tokens of its outputs without the end.

    All sentences are gone through again until it took a while: a second says little on a machine whose speed changes.
    """
    _, tokens = sentences(job)
    chosen = list(in_batches([len(row) for row in tokens], job["batch"]))
    decode(chosen[len(chosen) // 2])  # warm-up
    outputs: dict[int, list[int]] = {}
    times = 0
    begun = time.perf_counter()
    while (seconds := time.perf_counter() - begun) < LEAST_SECONDS:
        for rows in chosen:
            outputs.update(zip(rows, decode(rows), strict=True))
        times += 1
    lengths = [len(output) for output in outputs.values()]
    told = [outputs[i] for i in range(min(64, len(outputs)))]
    return Timed(seconds, times * len(outputs), {"mean_length": sum(lengths) / len(lengths), "outputs": told})
