"""Warm start (`--from`): the configuration, the input and output, and the weights of an earlier run.

- `SameTask`: an earlier run of the same task.
- `TextStart`: the text model of an earlier run of any task that reads texts, or of a BERT folder of Hugging Face.
- `PretrainStart`: the same, to continue pre-training.
- `TranslationStart`: an earlier run from text to text, or the encoder of a pre-training.
"""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from sightline.config import ConfigError
from sightline.errors import UserError
from sightline.files import read_json
from sightline.inputs.text import load_reader
from sightline.models.encoder import Encoder, EncoderConfig, start_translator
from sightline.models.text_to_labels import TextModelConfig
from sightline.models.transformer import Transformer, TransformerConfig
from sightline.outputs.label_scores import LABELS, Labels
from sightline.tasks.registry import task_of, tasks
from sightline.tasks.run import Run
from sightline.tasks.task import Task, Variant, imported
from sightline.text.encoding import TextEncoder
from sightline.text.tokeniser import Tokeniser, TokeniserConfig
from sightline.training.folder import CONFIG, MODEL, RunFolder, load_tensors
from sightline.training.loop import TrainingConfig

STARTS = ("sightline.tasks.warm_start:TextStart", "sightline.tasks.warm_start:PretrainStart")  # of text models
READER = "model."  # prefix of the text model's tensors in a model with a head
ENCODER = "encoder."  # the same in a run of pre-training (`sightline.models.masked`)
POOLS = ("pool.", "pooler.")  # pooling may differ: it is learnt with the labels
# The peak of a learning rate that decays to zero. Its mean is a quarter of that, about what BERT was fine-tuned with.
ADDED, COVERAGE = ("copying.",), ".attention.coverage"  # names of tensors that an earlier model need not have
TUNING_RATE, TUNING_EPOCHS = 1e-4, 3


@dataclass(frozen=True)
class Start:
    """A text model's configuration, tensors and reader; of a run with labels, also its head."""

    path: Path
    model: TextModelConfig
    reader: TextEncoder
    tensors: dict[str, Tensor]
    tokeniser: TokeniserConfig | None = None  # None: the vocabulary is that of a Hugging Face folder
    head: dict[str, Tensor] = field(default_factory=dict)
    labels: Labels | None = None

    def check_vocabulary(self, tokeniser: TokeniserConfig) -> None:
        """Refuse another vocabulary: the embeddings would belong to other words."""
        if self.tokeniser is not None and replace(tokeniser, dropout=0.0) != replace(self.tokeniser, dropout=0.0):
            raise UserError(
                f"{self.path} has a vocabulary of {self.reader.tokeniser.words:,} tokens "
                f"({self.tokeniser.method}, {self.tokeniser.vocab_size:,} requested), and a run that starts from it "
                "keeps it; leave out other values of the tokeniser's fields"
            )

    def put_into(self, model: nn.Module, labels: Labels | None = None, prefix: str = READER) -> None:
        """Copy every tensor of the text model, and the head's if both runs have the same labels (or none)."""
        given = {f"{prefix}{name}": tensor for name, tensor in self.tensors.items()}
        if _meaning(self.labels) == _meaning(labels):
            given |= self.head
        own = model.state_dict()
        for name in sorted({name for name in own if name.startswith(prefix)} | set(given)):
            if name not in given or name not in own:
                if name.removeprefix(prefix).startswith(POOLS):
                    given.pop(name, None)
                    continue
                where = str(self.path) if name not in given else "the new model"
                raise self.unfit(f"{where} has no {name}")
            if given[name].shape != own[name].shape:
                raise self.unfit(f"{name} is {_shape(given[name])} there and {_shape(own[name])} here")
        model.load_state_dict({**own, **given})

    def encoder(self) -> Encoder:
        """The pre-trained encoder, for a Transformer that translates."""
        if not isinstance(self.reader.tokeniser, Tokeniser) or self.tokeniser is None:
            raise UserError(
                f"{self.path} has the vocabulary of a Hugging Face folder, which cannot write; pre-train an encoder "
                "with Sightline"
            )
        encoder = self.model.build(self.reader.words, self.reader.specials)
        if not isinstance(encoder, Encoder):
            raise UserError(f"{self.path} has a model of the kind {self.model.kind!r}; expected an encoder")
        try:
            encoder.load_state_dict(self.tensors)
        except RuntimeError as error:
            raise UserError(f"{self.path} is damaged: {str(error).splitlines()[0]}") from None
        return encoder

    def unfit(self, reason: object) -> UserError:
        return UserError(f"{self.path} does not fit this model: {reason}")


def translating(encoder: EncoderConfig) -> TransformerConfig:
    """The Transformer whose encoder can start from the weights of this one."""
    if encoder.norm != "pre" or encoder.positions == "learned" or encoder.parts or not encoder.scaled:
        raise UserError(
            "the pre-trained encoder does not fit a Transformer that translates: it needs norm=pre, positions "
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
    """Whether this is a Hugging Face folder, not a run."""
    try:
        data = read_json(path / CONFIG)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "model_type" in data and "format" not in data


def read_start(path: Path, expected: str = "") -> Start:
    """Read a run folder or a Hugging Face folder. The head is kept only if the run is of the task ``expected``."""
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
        model = TextModelConfig.from_json(about["config"]["model"])
        foreign = about.get("foreign") is True
        tokeniser = None if foreign else TokeniserConfig.from_json(about["config"]["tokeniser"])
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
    """The stored names of tasks whose models read texts: each can start from a run of another."""
    variants = [variant for task in tasks().values() for variant in task.variants]
    return [variant.stored for variant in variants if variant.start in STARTS]


def _foreign(path: Path) -> Start:
    from sightline.interop.pretrained import load_pretrained

    pretrained = load_pretrained(path)
    reader = TextEncoder(pretrained.tokeniser, pretrained.tokeniser.specials, rows=pretrained.words)
    return Start(path, pretrained.config, reader, pretrained.tensors)


def continued(config: Any) -> Any:
    """An earlier run's configuration for new data: without its limits, with a quarter of its learning rate."""
    rate = config.training.learning_rate / 4
    training = replace(config.training, learning_rate=rate, epochs=None, steps=None, minutes=None)
    return replace(config, training=training)


class SameTask:
    """An earlier run of the same task: its vocabulary, encoder and weights are kept."""

    def __init__(self, path: Path, task: Task, variant: Variant) -> None:
        self.path, self.run = path, Run.load(path)
        if self.run.task.name == task.name and self.run.variant.stored != variant.stored:
            own, other = self.run.input.noun, imported(variant.input).noun
            reason = f"{path} reads {own}, and the data is of {other}"
            if own == other:
                reason = f"{path} gives {self.run.output.noun}, and the data has {imported(variant.output).noun}"
            raise UserError(f"{reason}: begin without --from")
        if self.run.variant.stored != variant.stored:
            raise UserError(
                f"{path} is a run of the task {self.run.task.name!r}; a run of {task.name} can only start from "
                f"another run of {task.name}"
            )

    def config(self) -> Any:
        """The configuration of the new run, unless one is given."""
        return continued(self.run.config)

    def put_into(self, model: nn.Module, output: Any) -> None:
        """Copy the weights; those of a head only if both outputs have the same meaning."""
        weights = dict(self.run.model.state_dict())
        head = self.run.output.head_names(output)
        own = model.state_dict()
        weights |= {name: own[name] for name in own if name.startswith(head)}
        for name in {*own} ^ {*weights}:  # a model can begin to copy or to cover, or leave it
            if name.startswith(ADDED) or name.endswith(COVERAGE):
                weights.pop(name, None)
                weights |= {name: own[name]} if name in own else {}
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"the model differs from that of the earlier run: {reason}") from None


class TextStart:
    """A text model with its vocabulary; of a run of the same task with the same labels, also its head."""

    prefix = READER

    def __init__(self, path: Path, task: Task, variant: Variant) -> None:
        self.path, self.variant = path, variant
        self.start: Start = read_start(path, variant.stored)
        if self.start.model.kind == "nb_svm":
            raise UserError(f"{path} is an nb_svm, which starts from no earlier run; give --model nb_svm, not --from")

    @property
    def reader(self) -> TextEncoder:
        return self.start.reader

    def config(self) -> Any:
        """That of a run of the same task, with a smaller learning rate; else the task's own for fine-tuning."""
        kind = imported(self.variant.config)
        about = {} if is_foreign(self.path) else RunFolder(self.path).read_config()
        if about.get("task") == self.variant.stored:
            return continued(kind.from_json(about["config"]))
        return self.with_model(self.tuned(kind()))

    def tuned(self, config: Any) -> Any:
        """The configuration with small learning rates, for fine-tuning."""
        foreign = self.start.tokeniser is None
        training = TrainingConfig(
            learning_rate=TUNING_RATE if foreign else cast("float", self.variant.rates["tiny"]) / 2,
            warmup=1000,  # a tenth of the training at most
            weight_decay=0.01,
            epochs=TUNING_EPOCHS if foreign else None,
            cooldown=1.0,
            patience=5,
            averaged=3,
        )
        max_length = min(config.max_length, config.tuned_longest or config.max_length)
        return replace(config, training=training, max_length=max_length)

    def with_model(self, config: Any) -> Any:
        """The configuration with the earlier model and its vocabulary, limited to the positions it has."""
        model = self.start.model
        changed: dict[str, Any] = {"model": model, "tokeniser": self.start.tokeniser or config.tokeniser}
        if isinstance(model, EncoderConfig) and model.positions == "learned":
            changed["max_length"] = min(config.max_length, model.max_length)
        return replace(config, **changed)

    def check(self, config: Any) -> None:
        """Refuse another vocabulary."""
        self.start.check_vocabulary(config.tokeniser)

    def put_into(self, model: nn.Module, output: Any) -> None:
        """Copy every tensor of the text model, and the head's if the labels are the same."""
        self.start.put_into(model, getattr(output, "labels", None), prefix=self.prefix)


class PretrainStart(TextStart):
    """The encoder of an earlier run, to continue pre-training."""

    prefix = ENCODER

    def tuned(self, config: Any) -> Any:
        """The training of the size `base`, which pre-trained encoders have about."""
        model = self.start.model
        if not isinstance(model, EncoderConfig):
            raise UserError(f"{self.path} has a model of the kind {model.kind!r}; expected an encoder")
        training = replace(config.training, learning_rate=cast("float", self.variant.rates["base"]) / 4)
        return replace(config, training=training, **self.variant.fields["base"])

    def with_model(self, config: Any) -> Any:
        model: Any = self.start.model
        if model.positions == "learned":
            length = min(config.masking.length, model.max_length)
            config = replace(config, masking=replace(config.masking, length=length))
        return super().with_model(config)


class TranslationStart(SameTask):
    """The vocabularies and weights of an earlier run; of a pre-training, its encoder, and its vocabulary for both
    sides."""

    def __init__(self, path: Path, task: Task, variant: Variant) -> None:
        self.path, self.variant = path, variant
        self.start: Start | None = None
        if any(one.stored in text_tasks() for one in task_of(path).variants):
            self.start = read_start(path)
            self.encoder = self.start.encoder()
            return
        self.run = Run.load(path)
        if self.run.variant.start != variant.start:
            raise UserError(
                f"{path} is a run of the task {self.run.task.name!r}; a run of {task.name} can only start from a run "
                "from text to text, or from a pre-trained encoder"
            )

    @property
    def tokenisers(self) -> tuple[Tokeniser, Tokeniser]:
        """Of sources and of targets."""
        if self.start is not None:
            return self.start.reader.tokeniser, self.start.reader.tokeniser  # type: ignore[return-value]
        return self.run.input.tokeniser, self.run.output.tokeniser  # type: ignore[attr-defined]

    def config(self) -> Any:
        """That of the earlier run, with a smaller learning rate; of a pre-training, a Transformer like its encoder."""
        if self.start is None:
            return self._as_own(super().config())
        presets, rate = (
            self.variant.fields["tiny"],
            cast("dict[str, float]", self.variant.rates["transformer"])["tiny"] / 2,
        )
        config = imported(self.variant.config)(
            model=translating(self.encoder.config),
            tokeniser=self.start.tokeniser,
            batch_tokens=presets["batch_tokens"],
        )
        training = replace(config.training, learning_rate=rate, warmup=presets["training.warmup"])
        return replace(config, training=training)

    def _as_own(self, config: Any) -> Any:
        """The configuration of a run of another task (translate, summarise) as one of this task, which decides by its
        own metric."""
        own = imported(self.variant.config)
        if type(config) is own:
            return config
        shared = {one.name for one in fields(own)} & {one.name for one in fields(config)} - {"metric"}
        return own(**{name: getattr(config, name) for name in shared})

    def check(self, config: Any) -> None:
        """Refuse another vocabulary than that of a pre-training."""
        if self.start is not None:
            self.start.check_vocabulary(config.tokeniser)

    def put_into(self, model: nn.Module, output: Any) -> None:
        if self.start is None:
            return super().put_into(model, output)
        if not isinstance(model, Transformer):
            raise UserError(f"{self.path} is a pre-trained encoder: only a transformer can start from it")
        try:
            start_translator(model, self.encoder)
        except ValueError as error:
            raise self.start.unfit(error) from None
