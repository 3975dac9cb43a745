"""Labels of images: how batches are made, what is stored, and what a place looks like on average."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.inputs.base import Input
from sightline.inputs.image import ImageInput, Photo, one_line
from sightline.inputs.image_sources import AT_ONCE
from sightline.models.image_to_labels import ImageToLabels
from sightline.outputs.base import Output
from sightline.outputs.label_names import Labels
from sightline.outputs.labels import LabelPrediction, LabelsOutput
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run
from sightline.tasks.task import Example

AVERAGED = 512  # images that say what a place looks like on average
EARLIER = "images.jsonl"  # where runs of earlier versions kept what they were trained on and validated with


class ImageBatches:
    """Images in an order that is drawn anew in each epoch. A row is written as its complement where it is mirrored."""

    def __init__(self, prepared: Prepared, config: Any) -> None:
        self.input, self.output, self.corpus, self.config = prepared.input, prepared.output, prepared.corpus, config

    def epoch(self, number: int) -> list[np.ndarray]:
        random, most = np.random.default_rng([self.config.seed, number]), self.config.batch_rows
        order = random.permutation(len(self.corpus))
        if self.config.mirrored and not self.config.encoder.frozen:
            order = np.where(random.random(len(order)) < 0.5, ~order, order)
        return [order[start : start + most] for start in range(0, len(order), most)]

    def batch(self, handle: np.ndarray) -> tuple[Tensor, Tensor]:
        rows = np.where(handle < 0, ~handle, handle)
        parts, targets = zip(*(self.corpus[row] for row in rows.tolist()), strict=True)
        batch, turned = self.input.collate(parts), torch.from_numpy(handle < 0)
        if turned.any():
            batch[turned] = batch[turned].flip(2)
        return batch, self.output.collate(targets, batch)


class EarlierCorpus:
    """The training rows of a run of an earlier version."""

    def __init__(self, examples: Sequence[Example], labels: Labels) -> None:
        self.examples, self.labels = examples, labels

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.examples[row]
        return np.array([x.row]), np.array([y] if isinstance(y, float) else self.labels.ids(y))


class ImageLabelsOutput(LabelsOutput):
    """Labels of images."""

    def fit(self, input: Input, rows: Rows, setting: Setting) -> tuple[Input, Output]:
        fitted = input.fit(rows, setting)
        return fitted, type(self)(setting.config, self.fit_labels(rows, setting), fitted)

    def batches(self, prepared: Prepared, config: Any) -> ImageBatches:
        return ImageBatches(prepared, config)

    def open(self, input: Input, setting: Setting) -> Any:
        if not (setting.data / EARLIER).exists():
            return super().open(input, setting)
        return EarlierCorpus(self._earlier(input, setting.data / EARLIER)[0], self.labels)

    def open_valid(self, input: Input, setting: Setting) -> list[Example]:
        if not (setting.data / EARLIER).exists():
            return super().open_valid(input, setting)
        return self._earlier(input, setting.data / EARLIER)[1]

    def _earlier(self, input: Any, path: Path) -> tuple[list[Example], list[Example]]:
        """Examples to train on, and to validate with."""
        assert isinstance(input, ImageInput)
        assert input.features is not None
        sides: tuple[list[Example], list[Example]] = ([], [])
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                name, label, key, row, apart = json.loads(line)
                if type(row) is not int or not 0 <= row < len(input.features):
                    raise ValueError(f"there is no row {row!r}")
                sides[bool(apart)].append(Example(Photo(name, int(key, 16), row), self.unpack([label])))
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return sides

    def calibrate(self, run: Run, raws: Sequence[Any], prepared: Prepared) -> Output:
        assert isinstance(run.model, ImageToLabels)
        run.model.blank.copy_(mean_place(run.model, prepared, self.config.seed))
        return super().calibrate(run, raws, prepared)

    def about_data(self, prepared: Prepared) -> dict[str, Any]:
        return {**super().about_data(prepared), "images_per_second": prepared.input.per_second}  # type: ignore[attr-defined]

    def line(self, x: Any, prediction: LabelPrediction) -> str:
        return f"{one_line(self.input.label(x))}\t{super().line(x, prediction)}"


@torch.inference_mode()
def mean_place(model: ImageToLabels, prepared: Prepared, seed: int) -> Tensor:
    """What a place of the training images looks like on average, of at most some hundred of them."""
    rows = np.random.default_rng(seed).permutation(len(prepared.corpus))[:AVERAGED]
    total = torch.zeros(model.places.size, dtype=torch.double)
    for start in range(0, len(rows), AT_ONCE):
        parts = [prepared.corpus[row][0] for row in rows[start : start + AT_ONCE].tolist()]
        source = prepared.input.collate(parts).to(model.blank.device)
        total += model.see(source).double().mean(dim=1).sum(dim=0).cpu()
    return (total / len(rows)).to(model.blank)
