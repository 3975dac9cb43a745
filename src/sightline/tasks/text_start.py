"""Begin with an earlier model of texts: a run of any task that reads texts, or a Hugging Face folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from sightline.errors import UserError
from sightline.models.encoder import EncoderConfig
from sightline.tasks.starting import Start, is_foreign, read_start
from sightline.tasks.task import Task, Variant, imported
from sightline.tasks.warm_start import continued
from sightline.text.texts import TextReader
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.loop import TrainingConfig

# The largest step of a course that falls with the root and to nothing as well: the mean is a quarter of that, which is
# about what BERT was fine-tuned with.
TUNING_RATE, TUNING_EPOCHS = 1e-4, 3


class TextStart:
    """A text model with its vocabulary; of a run of the same task, its head too where the labels are the same."""

    prefix = "model."

    def __init__(self, path: Path, task: Task, variant: Variant) -> None:
        self.path, self.variant = path, variant
        self.start: Start = read_start(path, variant.stored)

    @property
    def reader(self) -> TextReader:
        return self.start.reader

    def config(self) -> Any:
        """That of a run of the same task, with smaller steps; else the task's own with this model, to be fine-tuned."""
        kind = imported(self.variant.config)
        if not is_foreign(self.path):
            folder = RunFolder.open(self.path)
            if folder.read_config().get("task") == self.variant.stored:
                return continued(kind.from_json(json.loads((self.path / CONFIG).read_text("utf-8"))["config"]))
        return self.with_model(self.tuned(kind()))

    def tuned(self, config: Any) -> Any:
        """Steps are small: most of what is known was learnt before."""
        foreign = self.start.tokeniser is None
        training = TrainingConfig(
            learning_rate=TUNING_RATE if foreign else self.variant.rates["tiny"] / 2,
            warmup=1000,  # a tenth of the way at most
            weight_decay=0.01,
            epochs=TUNING_EPOCHS if foreign else None,
            cooldown=1.0,
            patience=5,
            averaged=3,
        )
        longest = min(config.longest, config.tuned_longest or config.longest)
        return replace(config, training=training, longest=longest)

    def with_model(self, config: Any) -> Any:
        """The configuration with the earlier model and its vocabulary; no longer than its positions reach."""
        model = self.start.model
        changed: dict[str, Any] = {"model": model, "tokeniser": self.start.tokeniser or config.tokeniser}
        if isinstance(model, EncoderConfig) and model.positions == "learned":
            changed["longest"] = min(config.longest, model.longest)
        return replace(config, **changed)

    def check(self, config: Any) -> None:
        """Another vocabulary would give the tensors other words."""
        self.start.check_vocabulary(config.tokeniser)

    def put_into(self, model: nn.Module, output: Any) -> None:
        """Copy every tensor of the text model, and the head's where the labels are the same."""
        self.start.put_into(model, getattr(output, "labels", None), prefix=self.prefix)


class PretrainStart(TextStart):
    """The same for pre-training, which is of an encoder."""

    prefix = "encoder."

    def tuned(self, config: Any) -> Any:
        """Others' encoders are of the size `base`, or near it."""
        model = self.start.model
        if not isinstance(model, EncoderConfig):
            raise UserError(f"{self.path} has a model of the kind {model.kind!r}; pre-training is of an encoder")
        training = replace(config.training, learning_rate=self.variant.rates["base"] / 4)
        return replace(config, training=training, **self.variant.fields["base"])

    def with_model(self, config: Any) -> Any:
        model: Any = self.start.model
        if model.positions == "learned":
            length = min(config.masking.length, model.longest)
            config = replace(config, masking=replace(config.masking, length=length))
        return super().with_model(config)
