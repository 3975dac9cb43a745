"""Sizes that work for pre-training, tagging and answering; and how to go on from others' encoders."""

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from sightline.config import ConfigError
from sightline.errors import UserError
from sightline.layers.embedding import LOUD
from sightline.models.attentive import AttentiveConfig
from sightline.models.encoder import EncoderConfig
from sightline.tasks.classify_presets import CLASSIFY_MODELS, RATES, TUNING_EPOCHS, TUNING_RATE
from sightline.tasks.course import ReadingConfig
from sightline.tasks.presets import Preset, read_config
from sightline.tasks.pretrain import PretrainConfig
from sightline.tasks.span import SpanConfig
from sightline.tasks.starting import PRETRAIN, SPAN, TAG, Start, is_foreign, read_start
from sightline.tasks.table import task_of
from sightline.tasks.tag import TagConfig
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.loop import TrainingConfig

# Layers as the translating Transformer has them: its encoder can begin with the weights.
ENCODERS: dict[str, EncoderConfig] = {
    "tiny": EncoderConfig(),
    "small": EncoderConfig(size=256, heads=4, feed_forward=1024, layers=4),
    "base": EncoderConfig(size=512, heads=8, feed_forward=2048, layers=6),
}
# Every text asks for many words, and labels for one thing: steps may be larger, and many small ones learn faster.
READING_RATES = {"tiny": 3e-3, "small": 1.5e-3, "base": 5e-4}
READING_TOKENS = {"tiny": 2048, "small": 4096, "base": 8192}
Some = TypeVar("Some", bound=ReadingConfig)


def pretrain_preset(model: str | None = None, size: str = "tiny") -> PretrainConfig:
    """The configuration of an encoder in one of its sizes."""
    if model not in (None, "encoder"):
        raise ConfigError(f"pre-training is of an encoder; there is no {model!r} for it")
    config = PretrainConfig(model=ENCODERS[_checked(size)], batch_tokens=READING_TOKENS[size])
    return replace(config, training=replace(config.training, learning_rate=READING_RATES[size]))


def tag_preset(model: str | None = None, size: str = "tiny") -> TagConfig:
    """The configuration of a tagger in one of its sizes."""
    return _sized(TagConfig(model=_model(model or "attentive", size)), size)


def span_preset(model: str | None = None, size: str = "tiny") -> SpanConfig:
    """The configuration of a model that answers, in one of its sizes."""
    return _sized(SpanConfig(model=_model(model or "encoder", size)), size)


def _checked(size: str) -> str:
    if size not in get_args(Preset):
        raise ConfigError(f"preset is {size!r}; it is one of {', '.join(get_args(Preset))}")
    return size


def _model(model: str, size: str) -> Any:
    if model == "encoder":
        return ENCODERS[_checked(size)]
    if model not in CLASSIFY_MODELS:
        raise ConfigError(f"there is no model {model!r} that reads texts word by word; there is attentive and encoder")
    found = CLASSIFY_MODELS[model][_checked(size)]
    # One word decides here, not the sum of many: it is to be told from others from the start.
    return replace(found, deviation=LOUD) if isinstance(found, AttentiveConfig) else found


def _sized(config: Some, size: str) -> Some:
    return replace(config, training=replace(config.training, learning_rate=RATES[size]))


def pretrain_config_to_go_on(start: Path) -> PretrainConfig:
    """For other text: an earlier encoder, with smaller steps."""
    if (again := _same_task(start, PRETRAIN, PretrainConfig)) is not None:
        return again
    found = read_start(start, PRETRAIN)
    if not isinstance(found.model, EncoderConfig):
        raise UserError(f"{start} has a model of the kind {found.model.kind!r}; pre-training is of an encoder")
    config = pretrain_preset(size="base")  # others' encoders are of that size or near it
    training = replace(config.training, learning_rate=config.training.learning_rate / 4)
    return _with_model(replace(config, training=training), found)


def tag_config_to_go_on(start: Path) -> TagConfig:
    """For labels of words: an earlier run's model and vocabulary, or a Hugging Face folder's, to be fine-tuned."""
    return _same_task(start, TAG, TagConfig) or _tuned(TagConfig(), start, TAG)


def span_config_to_go_on(start: Path) -> SpanConfig:
    """For answers: an earlier run's model and vocabulary, or a Hugging Face folder's, to be fine-tuned."""
    return _same_task(start, SPAN, SpanConfig) or _tuned(SpanConfig(), start, SPAN)


def _same_task(start: Path, task: str, kind: type[Some]) -> Some | None:
    """A run of the same task goes on as it was, without its limits and with smaller steps."""
    if is_foreign(start) or task_of(RunFolder.open(start).path) != task:
        return None
    config = read_config(start / CONFIG, kind)
    rate = config.training.learning_rate / 4
    return replace(config, training=replace(config.training, learning_rate=rate, epochs=None, steps=None, minutes=None))


def _tuned(config: Some, start: Path, task: str) -> Some:
    """Steps are small: most of what is known was learnt before."""
    found = read_start(start, task)
    training = TrainingConfig(
        learning_rate=TUNING_RATE if found.tokeniser is None else RATES["tiny"] / 2,
        warmup=1000,  # a tenth of the way at most
        weight_decay=0.01,
        epochs=TUNING_EPOCHS if found.tokeniser is None else None,
        cooldown=1.0,
        patience=5,
        averaged=3,
    )
    return _with_model(replace(config, training=training), found)


def _with_model(config: Some, found: Start) -> Some:
    model = found.model
    learned = isinstance(model, EncoderConfig) and model.positions == "learned"
    changed: dict[str, Any] = {"model": model, "tokeniser": found.tokeniser or config.tokeniser}
    if learned:
        changed["longest"] = min(config.longest, model.longest)  # type: ignore[attr-defined]
        if isinstance(config, PretrainConfig):
            changed["masking"] = replace(config.masking, length=min(config.masking.length, model.longest))  # type: ignore[attr-defined]
    return replace(config, **changed)
