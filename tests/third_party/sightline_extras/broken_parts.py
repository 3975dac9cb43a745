"""Inputs and outputs that break one law each: what a third party may get wrong."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sightline_extras.vectors import Batch, Vectors, VectorsInput, VectorsOutput


class FitsItsClass(VectorsInput):
    """Keeps what it fitted on the class: the next run that is trained changes all runs before it."""

    mean = 0.0

    def fit(self, rows: Any, setting: Any) -> VectorsInput:
        type(self).mean = float(np.mean([np.mean(one.x) for one in rows]))
        return super().fit(rows, setting)

    def collate(self, parts: Sequence[np.ndarray]) -> Batch:
        batch = super().collate(parts)
        return batch._replace(vectors=batch.vectors - self.mean)

    def save(self, folder: Any) -> tuple[dict[str, Any], list[str]]:
        return {"width": self.width, "mean": self.mean}, []

    @classmethod
    def load(cls, saved: Any, config: Any) -> VectorsInput:
        cls.mean = saved.about["mean"]
        return super().load(saved, config)


class CentresBatches(VectorsInput):
    """Centres each batch by its own mean: a prediction depends on the others that are made with it."""

    def collate(self, parts: Sequence[np.ndarray]) -> Batch:
        batch = super().collate(parts)
        return batch._replace(vectors=batch.vectors - batch.vectors.mean())


class CountsItsBatches(VectorsOutput):
    """Draws noise for its targets by the number of batches that this process made: resumed, it draws other noise."""

    made = 0

    def collate(self, targets: Sequence[np.ndarray], batch: Batch) -> Any:
        self.made += 1
        draw = np.random.default_rng(self.made)
        return super().collate([one + draw.normal(0, 0.1, len(one)).astype(np.float32) for one in targets], batch)


class ReadsTwice(VectorsInput):
    """Goes back to the data to fit itself, although the rows are there."""

    def fit(self, rows: Any, setting: Any) -> VectorsInput:
        if setting.source.held is not None:
            list(setting.source.held)
        return super().fit(rows, setting)


class BreaksDown(VectorsInput):
    """Takes for granted that a cell holds vectors: a bad row ends the program, unnamed."""

    def read(self, cells: Mapping[str, Any]) -> Vectors:
        value = cells["vectors"]
        return [list(map(float, vector)) for vector in (json.loads(value) if isinstance(value, str) else value)]
