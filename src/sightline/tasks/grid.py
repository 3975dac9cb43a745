"""From images with masks, or grids of features with labels, to a trained model that labels every cell."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import nn

from sightline.config import Config
from sightline.data.checking import Limits
from sightline.data.grids import ClassKind, GridFile, Raw
from sightline.errors import UserError
from sightline.files import write_text
from sightline.layers.grid import CELLS
from sightline.models.grid import Gold, GridModel, GridModelConfig, Grids, Inputs
from sightline.models.grid_at_once import AtOnceConfig
from sightline.models.text_to_text import Loss
from sightline.tasks.card import ABOUT, CARD, CURVES, Wording, card, describe
from sightline.tasks.checks import check_counts, check_seed, check_shares
from sightline.tasks.course import table_section
from sightline.tasks.grid_data import (
    PreparedGrids,
    Rows,
    collate,
    collate_gold,
    cut_and_turn,
    prepare_grids,
    prepared_before,
)
from sightline.tasks.grid_scores import Scored, fit_thresholds
from sightline.tasks.gridder import FACTS, Gridder, GridFacts, class_weights, finite, load_gridder, save_gridder
from sightline.tasks.running import building, timed_validation, train_by_seed, validated_rows
from sightline.tasks.table import Trial
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import Outcome, TrainingConfig
from sightline.training.scores.cells import DISTANCES
from sightline.view.curves import draw_curves

GridMetric = Literal["f1", "average_precision", "accuracy", "pixel_f1"]


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=2e-3, warmup=100, weight_decay=0.01, patience=12, averaged=3, cooldown=0.4)


@dataclass(frozen=True)
class GridConfig(Config):
    """Everything that decides a run, apart from the data.

    ``cell``: pixels along a cell. ``share``: how much of a cell's pixels must be of other classes than the ground for
    it to be theirs (0: any pixel). ``classes`` left out: two values in the masks are ground and marked, more are as
    many classes. ``metric``: F1 at the threshold that is best on the validation data, unless given. ``crop``: cells
    along the squares that training cuts out of images, anywhere (0: whole images); ``augment`` turns and mirrors them
    and changes their light. Features are taken as they are. ``batch``: images at once.
    """

    model: GridModelConfig = field(default_factory=AtOnceConfig)
    training: TrainingConfig = field(default_factory=_training)
    cell: int = 16
    share: float = 0.0
    classes: ClassKind | None = None
    names: tuple[str, ...] | None = None
    metric: GridMetric | None = None
    class_weights: Literal["none", "balanced"] = "none"
    crop: int = 16
    augment: bool = True
    batch: int = 8
    valid_share: float = 0.15
    validated: int = 500
    most_cells: int = 20_000
    seed: int = 0
    family: ClassVar[str] = "task"

    def __post_init__(self) -> None:
        if self.cell not in CELLS:
            raise ValueError(f"cell is {self.cell}; it must be one of {', '.join(map(str, CELLS))}")
        check_shares(self, "share", "valid_share")
        check_counts(self, "batch", "validated", "most_cells")
        if self.crop < 0:
            raise ValueError(f"crop is {self.crop}; it must be at least 0")
        check_seed(self.seed)

    @property
    def decisive(self) -> GridMetric:
        """The metric that decides which checkpoint is best."""
        return self.metric or "f1"

    def build(self, cell: int, channels: int, counts: tuple[int, ...], *, pretrained: bool) -> GridModel:
        """The model for this data."""
        weights = class_weights(counts, self.class_weights)
        return self.model.build(Inputs(cell, channels, len(counts)), weights, pretrained=pretrained)


class Handle:
    """One batch of an epoch. Its length is how many images it has."""

    def __init__(self, rows: np.ndarray, seed: tuple[int, int, int]) -> None:
        self.rows, self.seed = rows, seed

    def __len__(self) -> int:
        return len(self.rows)


class GridLesson:
    """Batches, loss and score for the training loop."""

    def __init__(self, prepared: PreparedGrids, config: GridConfig) -> None:
        self.prepared, self.config = prepared, config
        rows = validated_rows(len(prepared.valid), config.validated, config.seed)
        self.valid = Rows(prepared.valid.store, prepared.valid.chosen[rows])

    def epoch(self, number: int) -> list[Handle]:
        """Images of like size together: little padding, and the same order for the same number."""
        config, store = self.config, self.prepared.corpus
        draw = np.random.default_rng((config.seed, number))
        order = draw.permutation(len(store))
        if not (config.crop and self.prepared.cell):
            sizes = store.store.sizes[store.chosen[order]].prod(axis=1)
            order = order[np.argsort(sizes, kind="stable")]
        cuts = [order[start : start + config.batch] for start in range(0, len(order), config.batch)]
        found = [Handle(rows, (config.seed, number, place)) for place, rows in enumerate(cuts)]
        return [found[place] for place in draw.permutation(len(found))]

    def batch(self, handle: Handle) -> tuple[Grids, Gold]:
        config, cell = self.config, self.prepared.cell
        draw = np.random.default_rng(handle.seed)
        values, classes = [], []
        for row in handle.rows.tolist():
            example = self.prepared.corpus[row]
            if cell and (config.crop or config.augment):
                side = config.crop * cell
                one, gold = cut_and_turn(example, side, config.augment, draw)
            else:
                one, gold = example.values, example.classes
            values.append(one)
            classes.append(gold)
        grids = collate(values, cell)
        return grids, collate_gold(classes, grids, cell, config.share, len(self.prepared.classes))

    def tokens(self, batch: tuple[Grids, Gold]) -> int:
        """Cells that have a label."""
        return int((batch[1].cells >= 0).sum())

    def loss(self, model: nn.Module, batch: tuple[Grids, Gold]) -> Loss:
        return model.loss(*batch)  # type: ignore[operator]

    def gridder(self, model: nn.Module) -> Gridder:
        prepared, config = self.prepared, self.config
        named = prepared.classes
        facts = GridFacts(
            named.names, named.values, prepared.counts, prepared.cell, prepared.channels, float(config.share)
        )
        return Gridder(model, facts, config)  # type: ignore[arg-type]

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides, the loss, and the other metrics, at the thresholds that are best."""
        scored = fit(self.gridder(model), self.valid)
        values = scored.values()
        pixel = {"pixel_f1": values["pixel_f1_2"]} if "pixel_f1_2" in values else {}
        shown = {name: values[name] for name in ("f1", "average_precision", "accuracy")} | pixel
        first = self.config.decisive
        if first not in shown:
            raise UserError(f"metric is {first}; of features there is {', '.join(shown)}")
        return finite({first: shown[first], "valid_loss": scored.loss()} | shown)


def fit(gridder: Gridder, rows: Rows) -> Scored:
    """Set the thresholds that are best on these images, and score the model there."""
    found, right = [], []
    for row, one in enumerate(gridder.stream(_images(rows))):
        found.append(one)
        right.append(rows[row].classes)
    gridder.with_thresholds(*fit_thresholds(gridder, found, right))
    scored = Scored(gridder)
    for one, classes in zip(found, right, strict=True):
        scored.add(gridder.decided(one), classes)
    return scored


def _images(rows: Rows) -> Iterator[Raw]:
    for row in range(len(rows)):
        example = rows[row]
        yield Raw(example.name, example.values, None)


def train_grid(
    files: GridFile | None,
    out: Path,
    config: GridConfig,
    *,
    valid: GridFile | None = None,
    limits: Limits | None = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Callable[[PreparedGrids, nn.Module], None] = lambda prepared, model: None,
    **listeners: Any,
) -> tuple[Gridder, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None."""
    if files is None:
        before, _ = load_gridder(out)
        folder = RunFolder.open(out)
        prepared = prepared_before(folder.path, config, before.facts.classes)
    else:
        prepared, folder = _prepare_new(files, valid, out, config, limits, start)
    lesson = GridLesson(prepared, config)
    model = build_model(config, prepared, start if files is not None else None, pretrained=files is not None)
    gridder = lesson.gridder(model)
    gridder.name, gridder.run = str(out), out
    gridder.facts = replace(gridder.facts, columns=before.facts.columns if files is None else files.columns)
    if files is not None:
        folder.write_json(ABOUT, describe(prepared, files, valid, start, command))
        save_gridder(folder, gridder, "untrained")
    on_report(prepared, model)
    outcome = train_by_seed(model, lesson, config.training, config.seed, folder, device, listeners)
    scored = fit(gridder, lesson.valid)
    save_gridder(folder, gridder, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    draw_curves(folder.metrics(), folder.path / CURVES, "nats a cell")
    write_text(folder.path / CARD, card(folder, config, model, outcome, _wording(gridder, scored)))
    folder.seal([CONFIG, MODEL, FACTS, METRICS])
    return gridder, outcome


def build_model(config: GridConfig, prepared: PreparedGrids, start: Path | None, pretrained: bool) -> GridModel:
    """A new model by the seed, or one that begins with the weights of an earlier run."""
    with building(config.seed):
        model = config.build(prepared.cell, prepared.channels, prepared.counts, pretrained=pretrained)
    if start is not None:
        earlier, _ = load_gridder(start)
        if earlier.facts.names != prepared.classes.names:
            raise UserError(
                f"{start} knows the classes {', '.join(earlier.facts.names)}, and the data has "
                f"{', '.join(prepared.classes.names)}; begin without --from"
            )
        try:
            model.load_state_dict(earlier.model.state_dict())
        except RuntimeError as error:
            raise UserError(f"{start} does not fit this configuration: {str(error).splitlines()[0]}") from None
    return model


def _prepare_new(
    files: GridFile,
    valid: GridFile | None,
    out: Path,
    config: GridConfig,
    limits: Limits | None,
    start: Path | None,
) -> tuple[PreparedGrids, RunFolder]:
    with RunFolder.creating(out) as folder:
        prepared = prepare_grids(files, valid, config, limits, folder.path)
        build_model(config, prepared, start, pretrained=True)  # what cannot be built is said now
        return prepared, folder


def _wording(gridder: Gridder, scored: Scored) -> Wording:
    """What the card says."""
    facts = gridder.facts
    sections = table_section("Classes", "class", "cells", scored.table())
    if facts.cell:
        refined = gridder.model.pixel_head is not None
        values = scored.values()
        within = ", ".join(f"{values[f'pixel_f1_{distance}']:.1f} within {distance} px" for distance in DISTANCES)
        how = "refined inside the cells that are not ground" if refined else "whole cells"
        sections += ["## Pixels", "", f"F1 of pixels ({how}): {within}.", ""]
    if len(facts.names) == 2:
        sections += [
            f"A cell is marked from a probability of {facts.threshold:.3f} on, a pixel inside it from "
            f"{facts.pixel_threshold:.2f} on: what was best on the validation data.",
            "",
        ]
    return Wording(
        f"that labels cells of {facts.cell} × {facts.cell} pixels" if facts.cell else "that labels cells of features",
        "images",
        "On validation data, at the thresholds that are best there.",
        limits=(
            "It gives every cell one of its classes, also in images of another kind than those it learnt from.",
            "A cell is as fine as its labels are; pixels inside it are a refinement, not a measurement.",
        ),
        sections=tuple(sections),
    )


def grid_trial(
    files: GridFile,
    valid: GridFile | None,
    config: GridConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What training would begin with."""
    prepared = prepare_grids(files, valid, config, limits, folder)
    lesson, model = GridLesson(prepared, config), build_model(config, prepared, start, pretrained=True)
    return Trial(prepared, lesson, model, timed_validation(lesson, model))
