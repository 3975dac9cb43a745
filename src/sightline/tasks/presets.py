"""Sizes that work: for each model a tiny, a small and a base one, with the learning rate that suits it.

Tiny trains in an hour on two processor cores with some ten thousand pairs; base is the size of the papers and wants a
graphics card and millions of pairs.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from sightline.config import Config, ConfigError
from sightline.errors import UserError
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig, additive
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.text_to_text import TextToTextConfig
from sightline.models.transformer import TransformerConfig
from sightline.tasks.starting import PRETRAIN, EncoderStart, translating
from sightline.tasks.table import task_of
from sightline.tasks.translate import TranslateConfig
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.loop import TrainingConfig

Preset = Literal["tiny", "small", "base"]

MODELS: dict[str, dict[str, TextToTextConfig]] = {
    "transformer": {
        "tiny": TransformerConfig(),
        "small": TransformerConfig(size=256, heads=4, feed_forward=1024, encoder_layers=4, decoder_layers=4),
        "base": TransformerConfig(
            size=512, heads=8, feed_forward=2048, encoder_layers=6, decoder_layers=6, dropout=0.1
        ),
    },
    "rnnsearch": {
        "tiny": RNNSearchConfig(),
        "small": RNNSearchConfig(embedding_size=384, size=512, attention=additive(512)),
        "base": RNNSearchConfig(embedding_size=620, size=1000, attention=additive(1000), dropout=0.2),
    },
    "luong": {
        "tiny": LuongConfig(),
        "small": LuongConfig(embedding_size=512, size=512, encoder_size=512, layers=2),
        "base": LuongConfig(embedding_size=1000, size=1000, encoder_size=1000, layers=4, dropout=0.2),
    },
    "seq2seq": {
        "tiny": Seq2SeqConfig(),
        "small": Seq2SeqConfig(embedding_size=512, size=512, layers=2),
        "base": Seq2SeqConfig(embedding_size=1000, size=1000, layers=4, dropout=0.2),
    },
}

# The Transformer takes far larger steps than a recurrent network of its size; both take smaller ones as they grow.
RATES: dict[str, tuple[float, float]] = {"tiny": (4e-3, 2e-3), "small": (2e-3, 1e-3), "base": (7e-4, 5e-4)}
WARMUP: dict[str, int] = {"tiny": 1000, "small": 2000, "base": 4000}
BATCH_TOKENS: dict[str, int] = {"tiny": 2048, "small": 4096, "base": 8192}


def preset(model: str = "transformer", size: str = "tiny") -> TranslateConfig:
    """The configuration of a model in one of its sizes. A model that is not built in has its defaults only."""
    if size not in get_args(Preset):
        raise ConfigError(f"preset is {size!r}; it is one of {', '.join(get_args(Preset))}")
    sizes = MODELS.get(model)
    if sizes is None and size != "tiny":
        raise ConfigError(f"the model {model!r} has no presets; set its fields with --set")
    chosen = TextToTextConfig.from_json(model) if sizes is None else sizes[size]
    rate = RATES[size][0 if isinstance(chosen, TransformerConfig) else 1]
    training = replace(TrainingConfig(), learning_rate=rate, warmup=WARMUP[size])
    return TranslateConfig(model=chosen, training=training, batch_tokens=BATCH_TOKENS[size])


def read_config(path: Path, kind: type[Config]) -> Any:
    """A task's configuration: a file of its fields, or the config.json of a run."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    try:
        return kind.from_json(data["config"] if isinstance(data, dict) and "config" in data else data)
    except ConfigError as error:
        raise UserError(f"{path}: {error}") from None


def config_to_go_on(run: Path) -> TranslateConfig:
    """For new data: an earlier run's configuration without its limits, and with smaller steps, as it is trained.

    From the run of a pre-training: the Transformer whose encoder has its shape, with its vocabulary.
    """
    if task_of(run) == PRETRAIN:
        start = EncoderStart.read(run)
        shape, batch = translating(start.encoder.config), BATCH_TOKENS["tiny"]
        config = TranslateConfig(model=shape, tokeniser=start.tokeniser, batch_tokens=batch)
        rate, warmup = RATES["tiny"][0] / 2, WARMUP["tiny"]
        return replace(config, training=replace(config.training, learning_rate=rate, warmup=warmup))
    config = read_config(RunFolder.open(run).path / CONFIG, TranslateConfig)
    rate = config.training.learning_rate / 4
    training = replace(config.training, learning_rate=rate, epochs=None, steps=None, minutes=None)
    return replace(config, training=training)
