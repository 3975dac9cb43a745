"""The configuration of `grid`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sightline.data.grids import ClassKind
from sightline.models.grid import GridModel, GridModelConfig, Inputs
from sightline.models.grid_at_once import AtOnceConfig
from sightline.nn.grid import CELLS
from sightline.tasks.configs.base import TaskConfig
from sightline.training.loop import TrainingConfig

GridMetric = Literal["f1", "average_precision", "accuracy", "pixel_f1"]


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=2e-3, warmup=100, weight_decay=0.01, patience=12, averaged=3, cooldown=0.4)


@dataclass(frozen=True)
class GridConfig(TaskConfig):
    """The configuration of a run.

    ``cell``: pixels along a cell. ``share``: the fraction of a cell's pixels that must belong to another class than the
    background for the cell to have that class (0: any pixel). ``classes`` by default: two values in the masks are
    background and marked, more are as many classes. ``metric`` is by default F1 at the best threshold for the
    validation data. ``crop``: cells along the random squares that training cuts out of images (0: whole images);
    ``augment`` rotates and mirrors them and changes their brightness. Features are not augmented. ``batch``: images in
    a batch.
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
    counts: ClassVar[tuple[str, ...]] = ("batch", "most_cells")
    shares: ClassVar[tuple[str, ...]] = ("share", "valid_share")

    def __post_init__(self) -> None:
        if self.cell not in CELLS:
            raise ValueError(f"cell is {self.cell}; it must be one of {', '.join(map(str, CELLS))}")
        super().__post_init__()
        if self.crop < 0:
            raise ValueError(f"crop is {self.crop}; it must be at least 0")

    @property
    def decisive(self) -> GridMetric:
        """The metric that chooses the best checkpoint."""
        return self.metric or "f1"

    def build(self, input: Any, output: Any) -> GridModel:
        facts = output.facts
        weights = class_weights(facts.counts, self.class_weights)
        inputs = Inputs(facts.cell, facts.channels, len(facts.names))
        return self.model.build(inputs, weights, pretrained=input.new)


def class_weights(counts: Sequence[int], kind: str) -> list[float] | None:
    """The weight of a cell of each class: the same total for all classes, but at most 20 times the mean."""
    if kind == "none":
        return None
    total, classes = sum(counts), len(counts)
    return [min(20.0, total / (classes * count)) if count else 1.0 for count in counts]
