"""Labels of images: training batches, stored rows, and explanations by attention and by hiding places."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.data.labelled import Label
from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import believe
from sightline.explain.evidence.measures import leave_one_out
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief, Explanation, Stack
from sightline.files import RECORDS, read_text
from sightline.inputs.base import Input
from sightline.inputs.files import StoredFile
from sightline.inputs.image import AT_ONCE, Image, ImageInput, ImagePart, ImageSubject, of_images
from sightline.models.image_to_labels import ImageToLabels
from sightline.outputs.encoder_maps import top_for
from sightline.outputs.label_baselines import ImageBaselines
from sightline.outputs.label_scores import LabelPrediction
from sightline.outputs.labels import LabelsOutput, Logits
from sightline.outputs.labels_explain import LabelExplained
from sightline.records import Grid, Record, Tokens
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import path_name
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.prepare import Prepared, Setting, SomePrepared
from sightline.tasks.run import Run
from sightline.tasks.task import Example

AVERAGED = 512  # images whose mean place is computed
EARLIER = "images.jsonl"  # where runs of earlier versions kept what they were trained on and validated with
LOOKED, HIDING = "label", "hiding"
TITLE, INSIDE = "From the label to the image", "Inside the image"
COST = "What hiding each place costs the label"


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


class ImageLabelsOutput(LabelsOutput[Image, ImagePart, Tensor]):
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

    def explain(self, run: Run, x: Image, options: ExplainOptions) -> Explanation:
        """Everything there is to show about the label of an image; ``options.output`` is another label to explain."""
        model = run.model
        assert isinstance(model, ImageToLabels)
        (parts,) = run.encode([x])
        source = cast("Tensor", run.input.collate(parts)).clone().to(run.device)  # gradients may go through a clone
        (raw,) = run.raw([x], parts=[parts])
        explained = LabelExplained.of(run, self.decide(x, cast("Logits", raw)), options.output)
        grid = Grid(model.places.height, model.places.width)
        top = options.top or top_for(model, len(grid))
        with torch.no_grad(), evaluating(model), capture(model, top=top) as trace:
            model.scores(source)
        records, stacks = _records(model, trace, explained.row, grid)
        if not records and not options.measure:
            raise UserError(
                f"{run.name} has no attention: it reads the mean of all places. What hiding each of them costs can be "
                "measured"
            )
        notes, belief = list[str](), None
        if run.config.labels == "several":
            notes.append("all labels are given from one reading of the image, so the map is the same for each of them")
        if top is not None:
            notes.append(f"of each row inside the image only the {top} largest weights were kept")
        if options.measure:
            looked = [one for one in records if one.name == LOOKED]
            costs, belief, note = _measured(explained, source, looked)
            records.append(Record(HIDING, 0, 0, explained.row, grid, costs[None].astype(np.float32)))
            stacks.insert(1 if looked else 0, Stack(COST, "pool", (HIDING,)))
            notes.append(note)
        explanation = explained.explanation("", records, stacks, notes=tuple(notes), belief=belief)
        return replace(explanation, **run.input.shown(x))

    def line(self, x: Image, prediction: LabelPrediction) -> str:
        return f"{path_name(self.input.label(x))}\t{super().line(x, prediction)}"


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


# -- explanations: the attention of the label to places, and the cost of hiding each place


def _records(model: ImageToLabels, trace: Trace, row: Tokens, grid: Grid) -> tuple[list[Record], list[Stack]]:
    records: list[Record] = []
    stacks: list[Stack] = []
    inside = [name for name in trace.names if not model.attends_to_source(name)]
    for name in trace.names:
        if model.attends_to_source(name):  # the mean of all queries and heads
            weights = np.mean([one.matrix() for one in trace[name].records(columns=grid)], axis=(0, 1))
            records.append(Record(LOOKED, 0, 0, row, grid, weights[None].astype(np.float32)))
            stacks.append(Stack(TITLE, "pool", (LOOKED,)))
    for name in inside:
        records += [replace(one, scores=None) for one in trace[name].records(rows=grid, columns=grid)]
    if inside:
        stacks.append(Stack(INSIDE, "self", tuple(inside)))
    return records, stacks


def _measured(
    explained: LabelExplained, source: Tensor, looked: Sequence[Record]
) -> tuple[np.ndarray, Belief | None, str]:
    """The share of each place in the cost of hiding, whether to believe the map, and a note on what was measured."""
    model, output = explained.run.model, explained.run.output
    assert isinstance(model, ImageToLabels)
    assert isinstance(output, LabelsOutput)
    label, labels = explained.label, output.labels
    index = labels.index(label) if label else 0
    subject = ImageLabelSubject(model, source, index, kind=labels.kind, temperature=output.temperature)
    shares = np.clip(leave_one_out(subject, [0])[0], 0, None)
    shares = shares / shares.sum() if shares.sum() else shares
    what = "how far the number changes" if labels.kind == "number" else f"how likely the model finds {label!r}"
    note = f"what was measured is {what} when a place is made to look as places do on average"
    if not looked:
        return shares, None, note
    belief = believe(subject, list(looked), about="what reads the image", names=("pooling",), special=())
    return shares, of_images(belief), note


class ImageLabelSubject(ImageSubject):
    """A model from images to labels, one image, and a label by its number.

    A hidden place gets the mean of the places of the training data; the mean of the image itself would show a little of
    what is hidden. Of a number, a cost is how far it moves, up or down alike.
    """

    model: ImageToLabels
    row_name = "label"

    def __init__(
        self, model: ImageToLabels, source: Tensor, label: int, *, kind: str = "one", temperature: float = 1.0
    ) -> None:
        super().__init__(model, source)
        self.label, self.kind, self.temperature = label, kind, temperature
        with evaluating(model), torch.no_grad():
            self.number = float(model.scores(source.to(self.device))[0]) if kind == "number" else 0.0

    @property
    def rows(self) -> int:
        return 1

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._seen(keep) as seen:
            scores = self.model.scores(self._copies(copies))
        return self._measured(scores, keep).unsqueeze(1), seen[0]

    def _measured(self, scores: Tensor, keep: Tensor | None) -> Float[Tensor, " n"]:
        if self.kind == "number":  # a gradient cannot be taken of a distance that is 0
            return scores if keep is None else -(scores - self.number).abs()
        logits = scores.double() / self.temperature
        if self.kind == "several":
            return F.logsigmoid(logits[:, self.label])
        return torch.log_softmax(logits, dim=-1)[:, self.label]

    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        return self.model.blank.to(places.dtype)
