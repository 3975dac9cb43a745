"""What outputs share that make sequences of a series: batches of made data, errors, answers, explanations."""

from abc import abstractmethod
from pathlib import Path
from typing import cast

from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.inputs.files import FileItem, HeldNumbers, StoredFile
from sightline.inputs.series import SeriesPart
from sightline.nn.series import SeriesBatch
from sightline.outputs.base import Output, SomeOutput
from sightline.outputs.made_batches import MadeBatches
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.prepare import Prepared
from sightline.tasks.run import Run
from sightline.tasks.task import Options, Pred, Raw, Y


class SeriesOutput(Output[FileItem, Y, SeriesPart, SeriesBatch, Raw, Pred, Options]):
    """A sequence out of a series. Targets in a training batch are arrays of one axis."""

    calibrates = False
    explains_without = frozenset({"output"})

    def batches(self, prepared: Prepared[FileItem, Y], config: TaskConfig) -> object:
        """Of made data, new sequences each time."""
        return MadeBatches(prepared, config) if config.made else super().batches(prepared, config)

    def check_comparable(self, first: SomeOutput, name: str) -> None:
        if first.noun != self.noun:
            raise UserError(f"{name} gives {self.noun}, the first run gives {first.noun}: not comparable")

    def error_row(self, evaluation: Evaluation[FileItem, Y, Raw, Pred], number: int) -> dict[str, object]:
        """The worst are named with their scores; their numbers would fill the screen."""
        x = evaluation.examples[number].x
        scores = {name: round(one.of_each()[number], 2) for name, one in evaluation.statistics.items()}
        return {evaluation.run.input.noun.removesuffix("s"): evaluation.run.input.label(x), **scores}

    def served(self, x: FileItem, prediction: Pred) -> object:
        return {name: value for name, value in self.to_json(x, prediction).items() if name != "item"}

    def explain(self, run: Run, x: FileItem, options: ExplainOptions) -> Explanation:
        if options.output is not None:
            raise UserError(f"{run.name} is a run of {run.task.name}, and output is a text; leave it out")
        (parts,) = run.encode([x])
        return self.explained(run, x, cast("list[SeriesPart]", parts), options)

    @abstractmethod
    def explained(self, run: Run, x: FileItem, parts: list[SeriesPart], options: ExplainOptions) -> Explanation:
        """The maps of what was made of the first part of an item."""


def file_name(x: FileItem) -> str:
    """The file of an item, or the row that holds its numbers, where it has one."""
    return x.file if isinstance(x, StoredFile | HeldNumbers) else str(x) if isinstance(x, str | Path) else ""
