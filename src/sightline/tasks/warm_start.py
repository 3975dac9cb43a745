"""Begin with what an earlier run learnt (`--from`): its configuration, its input and output, its weights."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sightline.config import ConfigError
from sightline.errors import UserError
from sightline.inputs.text import load_reader
from sightline.models.encoder import Encoder, EncoderConfig, start_translator
from sightline.models.text_to_labels import TextModelConfig
from sightline.models.transformer import Transformer, TransformerConfig
from sightline.outputs.label_scores import LABELS, Labels
from sightline.tasks.registry import task_of, tasks
from sightline.tasks.run import Run
from sightline.tasks.task import Task, Variant, imported
from sightline.text.encoding import TextReader
from sightline.text.tokeniser import Tokeniser, TokeniserConfig
from sightline.training.folder import CONFIG, MODEL, RunFolder, load_tensors
from sightline.training.loop import TrainingConfig

# What a run of texts begins with: an earlier run whose model reads texts, whatever its task, or a BERT folder.


STARTS = "sightline.tasks.warm_start:"  # what begins with a text model
READER = "model."  # what the tensors of a head's text model begin with
ENCODER = "encoder."  # the same in a run of pre-training (`sightline.models.masked`)
POOLS = ("pool.", "pooler.")  # how a text becomes one vector may change: that is learnt with the labels


@dataclass(frozen=True)
class Start:
    """A text model's configuration, its tensors, and how it reads; of a run with labels, its head too."""

    path: Path
    model: TextModelConfig
    reader: TextReader
    tensors: dict[str, Tensor]
    tokeniser: TokeniserConfig | None = None  # None: the vocabulary is somebody else's
    head: dict[str, Tensor] = field(default_factory=dict)
    labels: Labels | None = None

    def check_vocabulary(self, wanted: TokeniserConfig) -> None:
        """Another vocabulary would give the tensors other words."""
        if self.tokeniser is not None and replace(wanted, dropout=0.0) != replace(self.tokeniser, dropout=0.0):
            raise UserError(
                f"{self.path} has a vocabulary of {self.reader.tokeniser.words:,} tokens "
                f"({self.tokeniser.method}, {self.tokeniser.words:,} words asked for), and what begins with it keeps "
                "it; leave out the fields of the tokeniser that say something else"
            )

    def put_into(self, model: nn.Module, labels: Labels | None = None, prefix: str = READER) -> None:
        """Copy every tensor of the text model, and the head's where the labels are the same (or nobody has any)."""
        given = {f"{prefix}{name}": tensor for name, tensor in self.tensors.items()}
        if _meaning(self.labels) == _meaning(labels):
            given |= self.head
        own = model.state_dict()
        wanted = {name for name in own if name.startswith(prefix)}
        for name in sorted(wanted | set(given)):
            if name not in given or name not in own:
                if name.removeprefix(prefix).startswith(POOLS):
                    given.pop(name, None)
                    continue
                where = str(self.path) if name not in given else "the new model"
                raise UserError(f"{self.path} is not a start for this model: {where} has no {name}")
            if given[name].shape != own[name].shape:
                raise UserError(
                    f"{self.path} is not a start for this model: {name} is {_shape(given[name])} there and "
                    f"{_shape(own[name])} here"
                )
        model.load_state_dict({**own, **given})


@dataclass(frozen=True)
class EncoderStart:
    """A pre-trained encoder that a translating Transformer begins with; its vocabulary is that of both sides."""

    start: Start
    encoder: Encoder
    source: Tokeniser
    target: Tokeniser
    tokeniser: TokeniserConfig

    @classmethod
    def read(cls, path: Path) -> "EncoderStart":
        """From the run of a pre-training."""
        start = read_start(path)
        tokeniser = start.reader.tokeniser
        if not isinstance(tokeniser, Tokeniser) or start.tokeniser is None:
            raise UserError(f"{path} has the vocabulary of a Hugging Face folder, which cannot write; pre-train anew")
        encoder = start.model.build(start.reader.words, start.reader.specials)
        if not isinstance(encoder, Encoder):
            raise UserError(f"{path} has a model of the kind {start.model.kind!r}; a translator begins with an encoder")
        try:
            encoder.load_state_dict(start.tensors)
        except RuntimeError as error:
            raise UserError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
        return cls(start, encoder, tokeniser, tokeniser, start.tokeniser)

    def put_into(self, model: nn.Module) -> None:
        """Copy every tensor of the encoder and the table of words."""
        if not isinstance(model, Transformer):
            raise UserError(f"{self.start.path} is a pre-trained encoder: only a transformer can begin with it")
        try:
            start_translator(model, self.encoder)
        except ValueError as error:
            raise UserError(f"{self.start.path} is not a start for this model: {error}") from None


def translating(encoder: EncoderConfig) -> TransformerConfig:
    """The Transformer whose encoder can begin with the weights of this one."""
    if encoder.norm != "pre" or encoder.positions == "learned" or encoder.parts or not encoder.scaled:
        raise UserError(
            "the encoder that was pre-trained is not that of a translating Transformer: it needs norm=pre, positions "
            "sinusoid or rotary, parts=0 (so no next_sentence) and scaled=true"
        )
    return TransformerConfig(
        size=encoder.size,
        heads=encoder.heads,
        feed_forward=encoder.feed_forward,
        encoder_layers=encoder.layers,
        decoder_layers=encoder.layers,
        positions="rotary" if encoder.positions == "rotary" else "sinusoid",
        activation=encoder.activation,
    )


def _meaning(labels: Labels | None) -> tuple[str, tuple[str, ...]] | None:
    return None if labels is None else (labels.kind, labels.names)


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "one number"


def is_foreign(path: Path) -> bool:
    """Whether this is a Hugging Face folder and no run."""
    try:
        data = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "model_type" in data and "format" not in data


def read_start(path: Path, expected: str = "") -> Start:
    """From a run folder or a Hugging Face folder. Only a run of the task that is expected has a head to keep."""
    if is_foreign(path):
        return _foreign(path)
    folder = RunFolder.open(path)
    about = folder.read_config()
    task = about.get("task")
    if task not in text_tasks():
        names = ", ".join(text_tasks())
        raise UserError(f"{path} is a run of the task {task!r}; expected one of {names}, or a BERT folder")
    reader = load_reader(path, about)
    try:
        model, tokeniser = text_model_of(about), _tokeniser_of(about)
        tensors = load_tensors(path / MODEL)
    except (ConfigError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    prefix = READER if any(name.startswith(READER) for name in tensors) else ENCODER
    inner = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if task != expected:
        return Start(path, model, reader, inner, tokeniser)
    head = {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)}
    labels = Labels.load(path) if (path / LABELS).exists() else None
    return Start(path, model, reader, inner, tokeniser, head, labels)


def text_tasks() -> list[str]:
    """What run folders call the tasks whose models read texts: those that can begin with one another."""
    variants = [variant for task in tasks().values() for variant in task.variants]
    return [variant.stored for variant in variants if variant.start.startswith(STARTS)]


def text_model_of(about: dict[str, Any]) -> TextModelConfig:
    """The configuration of the text model in a run's config.json."""
    return TextModelConfig.from_json(about["config"]["model"])


def _tokeniser_of(about: dict[str, Any]) -> TokeniserConfig | None:
    return None if about.get("foreign") is True else TokeniserConfig.from_json(about["config"]["tokeniser"])


def _foreign(path: Path) -> Start:
    from sightline.interop.pretrained import load_pretrained

    found = load_pretrained(path)
    reader = TextReader(found.tokeniser, found.tokeniser.specials, rows=found.words)
    return Start(path, found.config, reader, found.tensors)


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


# Begin with an earlier model of texts: a run of any task that reads texts, or a Hugging Face folder.


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


# Begin with an earlier run from text to text, or with the encoder of a pre-training.


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
