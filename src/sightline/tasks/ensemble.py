"""Several runs as one: at every step, the mean of their probabilities."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

from torch import Tensor, nn

from sightline.decoding.search import Step, mean_of_probs
from sightline.decoding.search import ensemble as mean_step
from sightline.errors import UserError
from sightline.inputs.base import Input, SomeInput
from sightline.models.writer import Loss
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.run import Run, SavedRun, is_bad
from sightline.tasks.task import BadValueError
from sightline.vocabulary import PADDING

Joint = tuple[object, ...]  # what each of the inputs makes


def ensemble(runs: Sequence[Run]) -> Run:
    """A run that predicts and scores with all of them. They may differ in everything except the target vocabulary."""
    if not runs:
        raise UserError("an ensemble needs at least one model")
    first, *others = runs
    for other in others:
        if not first.output.searches or not other.output.searches:
            name = other.name if first.output.searches else first.name
            raise UserError(f"{name} does not write texts; an ensemble is of runs that do")
        if not first.output.tokeniser.same_as(other.output.tokeniser):  # type: ignore[attr-defined]
            raise UserError(
                f"{first.name} and {other.name} write with different vocabularies; models of an ensemble must be "
                f"trained with the same tokeniser, as `sightline train --from {first.name}` does"
            )
    if not others:
        return first
    joint = cast("SomeInput", EnsembleInput([one.input for one in runs], [one.model for one in runs]))
    copying = [one for one in runs if getattr(one.model, "copying", None) is not None]
    if copying:  # words that it copies are unknown ones to the others, and only its output can spell them
        first = replace(first, output=copying[0].output)
        for one in runs:
            one.model.target_embedding.unknown_beyond = True  # type: ignore[union-attr]
    return replace(first, input=joint, model=EnsembleModel([one.model for one in runs]))


class EnsembleInput(Input[object, Joint, Joint]):
    """Each model reads with its own input: a part is a tuple of theirs."""

    def __init__(self, inputs: Sequence[SomeInput], models: Sequence[nn.Module]) -> None:
        super().__init__(inputs[0].config)
        own = set(vars(EnsembleInput))  # items are read and named by the first input
        self.__dict__ |= {name: getattr(inputs[0], name) for name in dir(Input) if not (name in own or name[0] == "_")}
        self.inputs, self.models = inputs, models
        if all(hasattr(one, "attended") for one in inputs):
            self.attended = self._attended

    def read(self, cells: Mapping[str, object]) -> object:
        return self.inputs[0].read(cells)

    def encode(self, xs: Sequence[object]) -> list[Sequence[Joint | BadValueError]]:
        encoded = zip(*(one.encode(xs) for one in self.inputs), strict=True)
        return [self._together(own) for own in encoded]

    @staticmethod
    def _together(parts: Sequence[Sequence[object]]) -> Sequence[Joint | BadValueError]:
        bad = cast("list[BadValueError] | None", next(filter(is_bad, parts), None))
        return bad or ([tuple(own[0] for own in parts)] if all(parts) else [])

    def size(self, part: Joint) -> int:
        return max(one.size(own) for one, own in zip(self.inputs, part, strict=True))

    def collate(self, parts: Sequence[Joint]) -> Joint:
        return tuple(one.collate(own) for one, own in zip(self.inputs, zip(*parts, strict=True), strict=True))

    def save(self, folder: Path) -> NoReturn:
        raise UserError("an ensemble cannot be saved; save its runs")

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> NoReturn:
        raise UserError("an ensemble cannot be loaded; load its runs")

    def _attended(self, model: nn.Module, batch: Joint, xs: Sequence[Any], outputs: Any) -> list[list[Any]]:
        """The attention of the first model that has any to its source."""
        attended: list[list[Any]] = [[] for _ in outputs]
        for one, own, model in zip(self.inputs, batch, self.models, strict=True):
            if not any(attended):
                attended = one.attended(model, own, xs, outputs)  # type: ignore[attr-defined]
        return attended


class EnsembleModel(nn.Module):
    """What search and scores need of a `sightline.models.writer.Writer`; a batch is a tuple of the models' own."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    @property
    def looks(self) -> bool:
        return all(getattr(one, "looks", False) for one in self.models)

    def log_probs(self, batch: Joint, words: Tensor) -> Tensor:
        """The logarithm of the mean probabilities."""
        models: Any = self.models
        return mean_of_probs([one.log_probs(own, words) for one, own in zip(models, batch, strict=True)])

    @property
    def output(self) -> Any:
        return self.models[0].output

    def searching(self, batch: Joint, *coverage: float) -> tuple[Step[Joint], Joint]:
        models: Any = self.models
        begun = (one.searching(own, *coverage) for one, own in zip(models, batch, strict=True))
        steps, states = zip(*begun, strict=True)
        return mean_step(list(steps)), tuple(states)

    def loss(self, batch: Joint, target: Tensor) -> Loss:
        """The loss of the mean probabilities."""
        right = target[:, 1:]
        mean = self.log_probs(batch, target[:, :-1])
        real = right != PADDING
        return Loss(-mean.gather(-1, right.unsqueeze(-1)).squeeze(-1)[real].sum(), int(real.sum()))
