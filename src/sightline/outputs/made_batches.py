"""Training batches of made data (`sightline.synthetic.made`): new sequences each time, drawn by seed, epoch and number.

The rows that are stored are a sample: input and output are fitted to them, and some of them are the validation data. An
epoch has as many sequences as there are rows. The sequences of a batch have one length, so that none is padded.
"""

from typing import Any, NamedTuple, cast

import numpy as np

from sightline.inputs.series import SeriesWindow
from sightline.inputs.vectors import VectorsInput
from sightline.synthetic.made import PREFIX, MadeData
from sightline.tasks.prepare import SomePrepared


class Drawn(NamedTuple):
    """The number of a batch, and its epoch. ``longest``: its sequences are as long as they can be."""

    epoch: int
    number: int
    rows: int
    longest: bool = False

    def __len__(self) -> int:
        return self.rows


class MadeBatches:
    """Batches of ``batch_rows`` sequences."""

    def __init__(self, prepared: SomePrepared, config: Any) -> None:
        self.input, self.output = cast("VectorsInput", prepared.input), prepared.output
        self.made, self.seed, self.rows = MadeData.read(f"{PREFIX}{config.made}"), config.seed, config.batch_rows
        self.count = -(-len(prepared.corpus) // self.rows)

    def epoch(self, number: int) -> list[Drawn]:
        return [Drawn(number, batch, self.rows) for batch in range(self.count)]

    def longest(self) -> Drawn:
        """A batch that takes as much memory as any."""
        return Drawn(0, 0, self.rows, longest=True)

    def batch(self, handle: Drawn) -> tuple[object, object]:
        draws = np.random.default_rng([self.seed, 1, handle.epoch, handle.number])
        made = self.made.longest() if handle.longest else self.made
        x, y = made.draw(draws, handle.rows)
        batch = self.input.collate([SeriesWindow(frames) for frames in self.input.kept(x)])
        return batch, self.output.collate([np.asarray(one).reshape(-1) for one in y], batch)
