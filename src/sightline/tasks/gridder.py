"""A trained model that labels the cells of images: predict, score, save and load."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from sightline.data.grids import BadImage, Classes, GridFile, Raw, grid_size, read_raw
from sightline.errors import UserError
from sightline.models.grid import GridModel, Grids
from sightline.tasks.grid_data import collate, raw_rows
from sightline.tasks.grid_parts import Answered, in_parts, parts_of
from sightline.tasks.loading import Saved
from sightline.training.folder import MODEL, RunFolder, save_tensors

if TYPE_CHECKING:
    from sightline.explanation import Explanation
    from sightline.tasks.grid import GridConfig
    from sightline.tasks.grid_scores import GridEvaluation

GRID, FACTS = "grid", "grid.json"
BATCH_CELLS = 2400  # predicted at once: four photos of 480 × 320 in cells of 16


@dataclass(frozen=True)
class GridFacts:
    """What a run knows of its data. Of two classes, a cell is marked from ``threshold`` on, a pixel of a marked cell
    from ``pixel_threshold`` on: both were best on validation data."""

    names: tuple[str, ...]
    values: tuple[int, ...]
    counts: tuple[int, ...]
    cell: int
    channels: int
    share: float
    threshold: float = 0.5
    pixel_threshold: float = 0.5
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        Classes(self.names, self.values)
        if len(self.counts) != len(self.names) or not all(type(one) is int and one >= 0 for one in self.counts):
            raise ValueError("there is not one count for each class")
        if type(self.cell) is not int or type(self.channels) is not int or not 1 <= self.channels <= 100_000:
            raise ValueError(f"cell and channels are {self.cell!r} and {self.channels!r}")
        for name in ("share", "threshold", "pixel_threshold"):
            if not (isinstance(getattr(self, name), float) and 0 <= getattr(self, name) <= 1):
                raise ValueError(f"{name} is {getattr(self, name)!r}")

    @property
    def classes(self) -> Classes:
        return Classes(self.names, self.values)

    @classmethod
    def load(cls, folder: RunFolder) -> "GridFacts":
        """Read a run folder's facts, which may be a stranger's."""
        data = folder.read_json(FACTS)
        try:
            known = {field.name for field in fields(cls)}
            given: dict[str, Any] = {name: one for name, one in data.items() if name in known}
            given |= {name: tuple(one) for name, one in given.items() if isinstance(one, list)}
            return cls(**given)
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{folder.path / FACTS} is damaged: {error}") from None


class GridPrediction(NamedTuple):
    """The label of each cell (``r c``) and the probability of each class (``r c k``); the class of each pixel."""

    name: str
    labels: np.ndarray
    chances: np.ndarray
    pixels: np.ndarray | None
    pixel_chances: np.ndarray | None = None  # of being marked; of two classes, from a model that refines
    parts: int = 1  # in how many the image was labelled; of several, no cell knows of what lies beyond its own

    def to_json(self, facts: GridFacts) -> dict[str, Any]:
        """Plain data: names of classes, a list for each row of cells."""
        chances = self.chances[:, :, 1] if len(facts.names) == 2 else self.chances
        return {
            "image": self.name,
            "cell": facts.cell,
            "classes": list(facts.names),
            "labels": self.labels.tolist(),
            "probabilities": np.round(chances.astype(np.float64), 6).tolist(),
            **({"parts": self.parts} if self.parts > 1 else {}),
        }


class Gridder:
    """A model with what its cells and classes mean."""

    def __init__(
        self, model: GridModel, facts: GridFacts, config: "GridConfig", name: str = "the model", run: Path | None = None
    ) -> None:
        self.model, self.facts, self.config, self.name, self.run = model, facts, config, name, run

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def predict(
        self, images: Sequence[str | Path | np.ndarray] | str | Path, *, threshold: float | None = None, **options: Any
    ) -> list[GridPrediction]:
        """A label for each cell of each image: paths, pixels (``h w 3`` of uint8), or features (``h w d``)."""
        some = [images] if isinstance(images, str | Path) else images
        return list(self.stream((self._raw(one, place) for place, one in enumerate(some)), threshold, **options))

    def _raw(self, image: str | Path | np.ndarray, place: int) -> Raw:
        if isinstance(image, np.ndarray):
            found = Raw(f"image {place + 1}", image if image.ndim == 3 else image[:, :, None], None)
            if not found.is_pixels:
                found = found._replace(values=found.values.astype(np.float32))
        else:
            try:
                found = read_raw(Path(image), None, str(image))
            except BadImage as error:
                raise UserError(str(error)) from None
        self.check(found)
        return found

    def check(self, raw: Raw) -> None:
        """That the model can read it."""
        wanted = f"images, {self.facts.channels} colours" if self.facts.cell else f"{self.facts.channels} features"
        if raw.is_pixels != bool(self.facts.cell) or raw.values.shape[2] != self.facts.channels:
            found = "pixels" if raw.is_pixels else "features"
            raise UserError(
                f"{raw.name} has {raw.values.shape[2]} {found} at each place; {self.name} was trained on {wanted}"
            )

    def check_whole(self, raw: Raw) -> None:
        """That it need not go in parts: where its cells looked can be shown then, and labelling it costs little."""
        rows, columns = grid_size(raw.values, self.facts.cell or 1)
        if rows * columns > self.config.most_cells:
            raise UserError(
                f"{raw.name} has {rows * columns:,} cells; at most {self.config.most_cells:,} (most_cells) are looked "
                "at together. Cut out a part of it, or label it with `sightline predict`, which goes in parts"
            )

    def stream(
        self,
        raws: Iterable[Raw],
        threshold: float | None = None,
        batch_cells: int = BATCH_CELLS,
        on_predicted: Callable[[int], None] = lambda count: None,
    ) -> Iterator[GridPrediction]:
        """Predictions in the order of the images, some images at a time; one with more than ``most_cells`` in parts.
        Masks, where there are any, are not looked at."""
        if batch_cells < 1:
            raise UserError(f"batch_cells is {batch_cells}; it must be at least 1")
        if threshold is not None and not 0 <= threshold <= 1:
            raise UserError(f"threshold is {threshold}; it must be at least 0 and at most 1")
        before = self.model.training
        self.model.eval()
        try:
            for some in _batches(raws, self.facts.cell or 1, min(batch_cells, self.config.most_cells)):
                if len(some) == 1:
                    yield self._read_in_parts(some[0], threshold)
                else:
                    chances, refined = self._answer(some)
                    for row, raw in enumerate(some):
                        yield self._read(raw, chances[row], None if refined is None else refined[row], threshold)
                on_predicted(len(some))
        finally:
            self.model.train(before)

    @torch.inference_mode()
    def _answer(self, raws: Sequence[Raw]) -> tuple[np.ndarray, np.ndarray | None]:
        """Probabilities of the cells; where pixels are refined, of two classes the probability of being marked, of
        several the likeliest class: all that is ever asked of them, and little enough to keep of a large photo."""
        grids = collate([raw.values for raw in raws], self.facts.cell)
        cells, pixels = self.model.answer(Grids(*(one.to(self.device) for one in grids)))
        if pixels is not None:
            pixels = pixels[:, 1].exp() if pixels.shape[1] == 2 else pixels.argmax(dim=1).to(torch.uint8)
        return cells.double().exp().cpu().numpy(), None if pixels is None else pixels.cpu().numpy()

    def _read_in_parts(self, raw: Raw, threshold: float | None) -> GridPrediction:
        def answer(one: Raw) -> Answered:
            chances, refined = self._answer([one])
            return chances[0], None if refined is None else refined[0]

        parts = parts_of(raw, self.facts.cell or 1, self.config.most_cells)
        chances, refined = in_parts(raw, self.facts.cell or 1, parts, answer)
        return self._read(raw, chances, refined, threshold)._replace(parts=len(parts))

    def _read(
        self, raw: Raw, chances: np.ndarray, refined: np.ndarray | None, threshold: float | None
    ) -> GridPrediction:
        rows, columns = grid_size(raw.values, self.facts.cell or 1)
        chances = chances[:rows, :columns].astype(np.float32)
        height, width = raw.values.shape[:2]
        refined = None if refined is None else refined[:height, :width]
        marked = refined if len(self.facts.names) == 2 else None
        labels = self.decide(chances, threshold)
        pixels = self.paint(labels, refined, (height, width))
        return GridPrediction(raw.name, labels, chances, pixels, marked)

    def decide(self, chances: np.ndarray, threshold: float | None = None) -> np.ndarray:
        """Labels out of probabilities: of two classes by the threshold, of several the likeliest."""
        if chances.shape[-1] > 2:
            return chances.argmax(axis=-1)
        return (chances[..., 1] >= (self.facts.threshold if threshold is None else threshold)).astype(np.int64)

    def paint(
        self, labels: np.ndarray, refined: np.ndarray | None, size: tuple[int, int], threshold: float | None = None
    ) -> np.ndarray | None:
        """The class of each pixel: that of its cell, or inside cells that are not ground what was refined."""
        cell = self.facts.cell
        if not cell:
            return None
        cells = labels.repeat(cell, axis=0).repeat(cell, axis=1)[: size[0], : size[1]]
        if refined is None:
            return cells.astype(np.uint8)
        if len(self.facts.names) == 2:
            chosen = refined >= (self.facts.pixel_threshold if threshold is None else threshold)
            return ((cells == 1) & chosen).astype(np.uint8)
        return np.where(cells > 0, refined, 0).astype(np.uint8)

    def decided(self, found: GridPrediction) -> GridPrediction:
        """A prediction anew, at the thresholds as they are now."""
        if len(self.facts.names) > 2:
            return found
        labels = self.decide(found.chances)
        pixels = found.pixels
        if pixels is not None:
            pixels = self.paint(labels, found.pixel_chances, (pixels.shape[0], pixels.shape[1]))
        return found._replace(labels=labels, pixels=pixels)

    def evaluate(self, data: str | Path | Iterable[Raw], **options: Any) -> "GridEvaluation":
        """Every score on images with masks: a table, a folder, or the images."""
        from sightline.tasks.grid_scores import evaluate

        if isinstance(data, str | Path):
            data = raw_rows(GridFile(str(data), self.facts.columns), self.config, masks=True)
        return evaluate(self, data, **options)

    def explain(self, image: str | Path | np.ndarray, **options: Any) -> "Explanation":
        """Where each cell looked while it was labelled."""
        from sightline.tasks.grid_explaining import explain_grid

        return explain_grid(self, self._raw(image, 0), **options)

    def with_thresholds(self, threshold: float, pixel_threshold: float) -> None:
        self.facts = replace(self.facts, threshold=threshold, pixel_threshold=pixel_threshold)


def _batches(raws: Iterable[Raw], cell: int, most: int) -> Iterator[list[Raw]]:
    """Images one behind the other, as many as there is room for with their padding."""
    waiting: list[Raw] = []
    rows = columns = 0
    for raw in raws:
        r, c = grid_size(raw.values, cell)
        if waiting and (len(waiting) + 1) * max(rows, r) * max(columns, c) > most:
            yield waiting
            waiting, rows, columns = [], 0, 0
        waiting.append(raw)
        rows, columns = max(rows, r), max(columns, c)
    if waiting:
        yield waiting


def save_gridder(folder: RunFolder, gridder: Gridder, weights: str) -> None:
    """Everything that `load_gridder` needs."""
    save_tensors(folder.path / MODEL, dict(gridder.model.state_dict()))
    folder.write_json(FACTS, asdict(gridder.facts))
    folder.write_config({"task": GRID, "weights": weights, "config": gridder.config.to_json()})


def load_gridder(path: Path) -> tuple[Gridder, dict[str, Any]]:
    """A trained model from its run folder, checked file by file; or as it was at one of the run's checkpoints."""
    from sightline.tasks.grid import GridConfig

    saved = Saved.open(path, GRID)
    facts = GridFacts.load(RunFolder(saved.path))
    with saved.reading():
        config = GridConfig.from_json(saved.about["config"])
    model = saved.model(lambda: config.build(facts.cell, facts.channels, facts.counts, pretrained=False))
    return Gridder(model, facts, config, saved.name, saved.path), saved.about


def class_weights(counts: Sequence[int], how: str) -> list[float] | None:
    """How much a cell of each class counts: alike for all classes together, but no more than 20 times the mean."""
    if how == "none":
        return None
    total, classes = sum(counts), len(counts)
    return [min(20.0, total / (classes * count)) if count else 1.0 for count in counts]


def finite(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) if math.isfinite(value) else 0.0 for name, value in values.items()}
