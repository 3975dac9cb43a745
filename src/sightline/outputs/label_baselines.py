"""The simple models that predicted labels are held against, by what the items are; images have their own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sightline.baselines.texts import FACTS, WEIGHTS, Floors, fit_floors
from sightline.errors import UserError
from sightline.outputs.label_names import Labels
from sightline.tasks.prepare import Prepared, Rows

MOST_ROWS = 100_000  # that baselines are fitted to, drawn from all


class LabelBaselines:
    """Baselines of one kind of items, and how the card calls them."""

    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    one: ClassVar[str] = "A floor"
    missing: ClassVar[str] = ""  # what the card says where there are none
    unknown: ClassVar[str] = ""  # what an evaluation says then
    names: ClassVar[dict[str, str]] = {}  # by which the card calls them

    def __init__(self, input: Any, labels: Labels, config: Any) -> None:
        self.input, self.labels, self.config = input, labels, config

    def fit(self, rows: Rows, folder: Path) -> list[str]:
        """Fit them to training rows, and save them in the run folder; the names of their files."""
        return []

    def files(self, folder: Path) -> list[str]:
        """Those of the files that a run folder has."""
        return []

    def scores(self, folder: Path | None, xs: Sequence[Any], prepared: Prepared | None = None) -> dict[str, np.ndarray]:
        """Of each baseline, logits (margins) or numbers of the items; ``prepared`` is there when training has ended."""
        return {}


class TextBaselines(LabelBaselines):
    """Linear models on words and n-grams (`sightline.baselines.texts`)."""

    title = "Beside the floors"
    about = (
        "Linear models on the same training texts, scored on all validation data. What they reach needs no attention."
    )
    missing = "The floors, linear models on words, were left out or interrupted: what this model adds is not known."
    unknown = "the run was trained without floors (linear models on words): what it adds to them is not known"
    names: ClassVar[dict[str, str]] = {
        "linear": "linear model on words",
        "nb-svm": "NB-SVM on word n-grams",
        "ngrams": "linear on word n-grams",
    }

    def fit(self, rows: Rows, folder: Path) -> list[str]:
        if not self.config.floors:
            return []
        texts, given = [], []
        for x, y in rows.limited(MOST_ROWS, self.config.seed):
            texts.append(x)
            given.append(y)
        labels = self.labels
        floors = fit_floors(texts, labels.gold(given), labels.kind, labels.classes, self.config.seed)
        return replace(floors, texts=rows.count).save(folder)

    def files(self, folder: Path) -> list[str]:
        return [WEIGHTS, FACTS] if (folder / FACTS).exists() else []

    def scores(self, folder: Path | None, xs: Sequence[Any], prepared: Prepared | None = None) -> dict[str, np.ndarray]:
        if folder is None or not self.files(folder):
            return {}
        floors, labels = Floors.load(folder), self.labels
        outputs = {len(floor.bias) for floor in floors.floors.values()}
        fitting = {labels.classes, 1} if labels.kind == "one" and labels.classes == 2 else {labels.classes}
        if floors.kind != labels.kind or not outputs <= fitting:
            raise UserError(f"{folder / FACTS} is damaged: its floors are not those of the run's labels")
        return floors.scores(xs)
