"""Begin with an earlier run from text to text, or with the encoder of a pre-training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from sightline.errors import UserError
from sightline.tasks.registry import task_of
from sightline.tasks.run import Run
from sightline.tasks.starting import EncoderStart, text_tasks, translating
from sightline.tasks.task import Task, Variant, imported
from sightline.tasks.warm_start import SameTask
from sightline.text.tokenise import Tokeniser


class TranslationStart(SameTask):
    """The vocabularies and weights of an earlier run; of a pre-training, the encoder's, with its vocabulary on both
    sides."""

    def __init__(self, path: Path, task: Task, variant: Variant) -> None:
        self.path, self.variant = path, variant
        self.encoder: EncoderStart | None = None
        if any(one.stored in text_tasks() for one in task_of(path).variants):
            self.encoder = EncoderStart.read(path)
            return
        self.run = Run.load(path)
        if self.run.variant.output != variant.output:
            raise UserError(
                f"{path} is a run of the task {self.run.task.name!r}; a run of {task.name} begins with one from text "
                "to text, or with a pre-trained encoder"
            )

    @property
    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """Of sources and of targets."""
        if self.encoder is not None:
            return self.encoder.source, self.encoder.target
        return self.run.input.tokeniser, self.run.output.tokeniser  # type: ignore[attr-defined]

    def config(self) -> Any:
        """That of the earlier run with smaller steps; of a pre-training, a Transformer of the encoder's shape."""
        if self.encoder is None:
            return super().config()
        fields, rate = self.variant.fields["tiny"], self.variant.rates["transformer"]["tiny"] / 2
        config = imported(self.variant.config)(
            model=translating(self.encoder.encoder.config),
            tokeniser=self.encoder.tokeniser,
            batch_tokens=fields["batch_tokens"],
        )
        training = replace(config.training, learning_rate=rate, warmup=fields["training.warmup"])
        return replace(config, training=training)

    def check(self, config: Any) -> None:
        """Another vocabulary would give the tensors other words."""
        if self.encoder is not None:
            self.encoder.start.check_vocabulary(config.tokeniser)

    def put_into(self, model: nn.Module, output: Any) -> None:
        if self.encoder is not None:
            self.encoder.put_into(model)
        else:
            super().put_into(model, output)
