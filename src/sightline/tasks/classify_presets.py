"""Sizes of models from text to labels that work, with the learning rate that suits each; and how to go on from others.

Tiny trains in minutes on two processor cores with some ten thousand texts.
"""

from dataclasses import replace
from pathlib import Path

from sightline.models.attentive import AttentiveConfig
from sightline.models.encoder import EncoderConfig
from sightline.models.han import HANConfig
from sightline.models.text_to_labels import TextModelConfig
from sightline.tasks.classifier import HIERARCHICAL, TASK
from sightline.tasks.classify import ClassifyConfig
from sightline.tasks.presets import read_config
from sightline.tasks.sizes import model_of_size, to_go_on, with_rate
from sightline.tasks.starting import is_foreign, read_start
from sightline.tasks.table import task_of
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.loop import TrainingConfig

CLASSIFY_MODELS: dict[str, dict[str, TextModelConfig]] = {
    "attentive": {
        "tiny": AttentiveConfig(),
        "small": AttentiveConfig(embedding_size=200, size=256),
        "base": AttentiveConfig(embedding_size=300, size=512, layers=2),
    },
    HIERARCHICAL: {
        "tiny": HANConfig(),
        "small": HANConfig(),
        "base": HANConfig(),
    },
    "encoder": {
        "tiny": EncoderConfig(layers=2),
        "small": EncoderConfig(size=256, heads=4, feed_forward=1024, layers=4),
        "base": EncoderConfig(size=512, heads=8, feed_forward=2048, layers=6),
    },
}

RATES = {"tiny": 1e-3, "small": 7e-4, "base": 4e-4}
# The largest step of a course that falls with the root and to nothing as well: the mean is a quarter of that, which is
# about what BERT was fine-tuned with.
TUNING_RATE, TUNING_EPOCHS, TUNING_LONGEST = 1e-4, 3, 256


def classify_preset(model: str | None = None, size: str = "tiny") -> ClassifyConfig:
    """The configuration of a model in one of its sizes. A model that is not built in has its defaults only."""
    chosen = model_of_size(CLASSIFY_MODELS, TextModelConfig.from_json, model or "attentive", size)
    return with_rate(ClassifyConfig(model=chosen), RATES[size])


def classify_config_to_go_on(start: Path) -> ClassifyConfig:
    """For new labels or new data: an earlier run's model and vocabulary, or a Hugging Face folder's, to be fine-tuned.

    Steps are small: most of what is known was learnt before.
    """
    if not is_foreign(start) and task_of(RunFolder.open(start).path) == TASK:
        return to_go_on(read_config(start / CONFIG, ClassifyConfig))
    found = read_start(start)
    tuning = TrainingConfig(
        learning_rate=TUNING_RATE if found.tokeniser is None else RATES["tiny"] / 2,
        warmup=1000,  # a tenth of the way at most
        weight_decay=0.01,
        epochs=TUNING_EPOCHS if found.tokeniser is None else None,
        cooldown=1.0,
        patience=5,
        averaged=3,
    )
    longest = min(TUNING_LONGEST, getattr(found.model, "longest", TUNING_LONGEST))
    config = ClassifyConfig(model=found.model, training=tuning, longest=longest)
    return config if found.tokeniser is None else replace(config, tokeniser=found.tokeniser)
