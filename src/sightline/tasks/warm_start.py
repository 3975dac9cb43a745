"""Begin with what an earlier run learnt (`--from`): its configuration, its input and output, its weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from sightline.errors import UserError
from sightline.tasks.run import Run
from sightline.tasks.task import Task, Variant


def continued(config: Any) -> Any:
    """For new data: an earlier run's configuration without its limits, and with smaller steps, as it is trained."""
    rate = config.training.learning_rate / 4
    training = replace(config.training, learning_rate=rate, epochs=None, steps=None, minutes=None)
    return replace(config, training=training)


class SameTask:
    """An earlier run of the same task: its vocabulary, its encoder and its weights are kept."""

    def __init__(self, path: Path, task: Task, variant: Variant) -> None:
        self.path, self.run = path, Run.load(path)
        if self.run.variant.stored != variant.stored:
            raise UserError(
                f"{path} is a run of the task {self.run.task.name!r}; a run of {task.name} begins with another of "
                f"{task.name}"
            )

    def config(self) -> Any:
        """The configuration of the new run, unless it is given whole."""
        return continued(self.run.config)

    def put_into(self, model: nn.Module, output: Any) -> None:
        """Copy the weights; those of a head only where the outputs mean the same."""
        weights = dict(self.run.model.state_dict())
        head = self.run.output.head_names(output)
        own = model.state_dict()
        weights |= {name: own[name] for name in own if name.startswith(head)}
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"the model is not that of the run to go on from: {reason}") from None
