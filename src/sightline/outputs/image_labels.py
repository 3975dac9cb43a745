"""Labels of images: training batches, stored rows, and how a place is hidden."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.data.labelled import Label
from sightline.errors import UserError
from sightline.files import RECORDS, read_text
from sightline.inputs.base import Input
from sightline.inputs.files import StoredFile
from sightline.inputs.image import AT_ONCE, Image, ImageInput, ImagePart, ImageSubject
from sightline.models.image_to_labels import ImageToLabels
from sightline.outputs.file_labels import FileLabelsOutput, LabelMeasure
from sightline.outputs.label_baselines import ImageBaselines
from sightline.outputs.labels import LabelsOutput, Logits
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.prepare import Prepared, Setting, SomePrepared
from sightline.tasks.run import Run
from sightline.tasks.task import Example

AVERAGED = 512  # images whose mean place is computed
EARLIER = "images.jsonl"  # where runs of earlier versions kept what they were trained on and validated with


ImagesInput = Input[Image, ImagePart, Tensor]
ImageExamples = list[Example[Image, Label]]


class ImageBatches:
    """Images in an order that is drawn for each epoch. A row is written as its complement where it is mirrored."""

    def __init__(self, prepared: SomePrepared, config: TaskConfig) -> None:
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
        batch, turned = cast("Tensor", self.input.collate(parts)), torch.from_numpy(handle < 0)
        if turned.any():
            batch[turned] = batch[turned].flip(2)
        return batch, cast("Tensor", self.output.collate(targets, batch))


class ImageLabelsOutput(FileLabelsOutput[ImagePart, Tensor]):
    """Labels of images."""

    baseline_models = ImageBaselines

    def batches(self, prepared: Prepared[Image, Label], config: TaskConfig) -> ImageBatches:
        return ImageBatches(prepared, config)

    def open(self, input: ImagesInput, setting: Setting) -> object:
        if not (setting.data / EARLIER).exists():
            return super().open(input, setting)
        examples = cast("list[Example[StoredFile, Label]]", self._earlier(input, setting.data / EARLIER)[0])
        return [(np.array([x.row]), np.array([y] if isinstance(y, float) else self.labels.ids(y))) for x, y in examples]

    def open_valid(self, input: ImagesInput, setting: Setting) -> ImageExamples:
        if not (setting.data / EARLIER).exists():
            return super().open_valid(input, setting)
        return self._earlier(input, setting.data / EARLIER)[1]

    def _earlier(self, input: ImagesInput, path: Path) -> tuple[ImageExamples, ImageExamples]:
        """Examples to train on, and to validate with."""
        assert isinstance(input, ImageInput)
        assert input.features is not None
        sides: tuple[ImageExamples, ImageExamples] = ([], [])
        try:
            for line in read_text(path, RECORDS).splitlines():
                name, label, key, row, apart = json.loads(line)
                if type(row) is not int or not 0 <= row < len(input.features):
                    raise ValueError(f"there is no row {row!r}")
                sides[bool(apart)].append(Example(StoredFile(name, int(key, 16), row), self.unpack([label])))
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return sides

    def calibrate(
        self, run: Run, raws: Sequence[Logits], prepared: Prepared[Image, Label]
    ) -> LabelsOutput[Image, ImagePart, Tensor]:
        assert isinstance(run.model, ImageToLabels)
        run.model.blank.copy_(mean_place(run.model, prepared, self.config.seed))
        return super().calibrate(run, raws, prepared)

    def about_data(self, prepared: Prepared[Image, Label]) -> dict[str, object]:
        return {**super().about_data(prepared), "images_per_second": prepared.input.per_second}  # type: ignore[attr-defined]

    def subject(self, run: Run, source: Tensor, measure: LabelMeasure) -> "ImageLabelSubject":
        return ImageLabelSubject(cast("ImageToLabels", run.model), source, measure)


@torch.inference_mode()
def mean_place(model: ImageToLabels, prepared: Prepared[Image, Label], seed: int) -> Tensor:
    """The mean features of a place, over at most some hundred training images."""
    rows = np.random.default_rng(seed).permutation(len(prepared.corpus))[:AVERAGED]
    total = torch.zeros(model.places.size, dtype=torch.double)
    for start in range(0, len(rows), AT_ONCE):
        parts = [prepared.corpus[row][0] for row in rows[start : start + AT_ONCE].tolist()]
        source = cast("Tensor", prepared.input.collate(parts)).to(model.blank.device)
        total += model.see(source).double().mean(dim=1).sum(dim=0).cpu()
    return (total / len(rows)).to(model.blank)


class ImageLabelSubject(ImageSubject):
    """A model from images to labels, one image, and a label of it.

    A hidden place gets the mean of the places of the training data; the mean of the image itself would show a little of
    what is hidden.
    """

    model: ImageToLabels
    row_name = "label"

    def __init__(self, model: ImageToLabels, source: Tensor, measure: LabelMeasure) -> None:
        super().__init__(model, source)
        self.measure = measure

    @property
    def rows(self) -> int:
        return 1

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._seen(keep) as seen:
            scores = self.model.scores(self._copies(copies))
        return self.measure(scores, keep is None).unsqueeze(1), seen[0]

    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        return self.model.blank.to(places.dtype)
