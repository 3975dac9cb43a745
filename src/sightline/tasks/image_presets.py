"""Sizes of models from images to labels that work, and how a run goes on from another."""

from pathlib import Path

from sightline.errors import UserError
from sightline.models.image_to_labels import ImageToLabelsConfig
from sightline.tasks.image_classifier import TASK
from sightline.tasks.image_classify import ImageClassifyConfig
from sightline.tasks.presets import read_config
from sightline.tasks.sizes import model_of_size, to_go_on, with_rate
from sightline.tasks.table import task_of
from sightline.training.folder import CONFIG, RunFolder

DEFAULT = "attentive"
MODELS: dict[str, dict[str, ImageToLabelsConfig]] = {
    "attentive": {
        "tiny": ImageToLabelsConfig(),
        "small": ImageToLabelsConfig(size=384, layers=1, heads=6),
        "base": ImageToLabelsConfig(size=512, layers=2, heads=8),
    },
}
RATES: dict[str, float] = {"tiny": 1e-3, "small": 7e-4, "base": 4e-4}


def image_classify_preset(model: str | None = None, size: str = "tiny") -> ImageClassifyConfig:
    """The configuration of a model in one of its sizes. A model that is not built in has its defaults only."""
    chosen = model_of_size(MODELS, ImageToLabelsConfig.from_json, model or DEFAULT, size)
    return with_rate(ImageClassifyConfig(model=chosen), RATES[size])


def image_classify_config_to_go_on(run: Path) -> ImageClassifyConfig:
    """For new labels or new data: an earlier run's configuration without its limits, and with smaller steps."""
    if task_of(run) != TASK:
        raise UserError(f"{run} is a run of the task {task_of(run)!r}; what classifies images goes on from its like")
    return to_go_on(read_config(RunFolder.open(run).path / CONFIG, ImageClassifyConfig))
