"""Sizes of captioners that work, and how a run goes on from another."""

from pathlib import Path

from sightline.errors import UserError
from sightline.models.captioning_transformer import CaptioningTransformerConfig
from sightline.models.image_to_text import ImageToTextConfig
from sightline.models.show_attend_tell import ShowAttendTellConfig, soft
from sightline.tasks.caption import CaptionConfig
from sightline.tasks.captioner import CAPTION
from sightline.tasks.presets import read_config
from sightline.tasks.sizes import model_of_size, to_go_on, with_rate
from sightline.tasks.table import task_of
from sightline.training.folder import CONFIG, RunFolder

DEFAULT = "show_attend_tell"
# Of the penalty for uneven looks: with 1, looking at everything alike is worth more than any word.
PENALTY = 0.1
MODELS: dict[str, dict[str, ImageToTextConfig]] = {
    "show_attend_tell": {
        "tiny": ShowAttendTellConfig(embedding_size=256, size=512, attention=soft(256), penalty=PENALTY),
        "small": ShowAttendTellConfig(embedding_size=512, size=1024, attention=soft(512), penalty=PENALTY),
        "base": ShowAttendTellConfig(embedding_size=512, size=1800, attention=soft(1024), penalty=PENALTY),
    },
    "transformer": {
        "tiny": CaptioningTransformerConfig(),
        "small": CaptioningTransformerConfig(size=512, heads=8, feed_forward=1024, decoder_layers=4),
        "base": CaptioningTransformerConfig(size=512, heads=8, feed_forward=2048, encoder_layers=3, decoder_layers=6),
    },
}
RATES: dict[str, float] = {"tiny": 1e-3, "small": 7e-4, "base": 4e-4}


def caption_preset(model: str | None = None, size: str = "tiny") -> CaptionConfig:
    """The configuration of a model in one of its sizes. A model that is not built in has its defaults only."""
    chosen = model_of_size(MODELS, ImageToTextConfig.from_json, model or DEFAULT, size)
    return with_rate(CaptionConfig(model=chosen), RATES[size])


def caption_config_to_go_on(run: Path) -> CaptionConfig:
    """For new data: an earlier run's configuration without its limits, and with smaller steps, as it is trained."""
    if task_of(run) != CAPTION:
        raise UserError(f"{run} is a run of the task {task_of(run)!r}; a captioner goes on from a captioner")
    return to_go_on(read_config(RunFolder.open(run).path / CONFIG, CaptionConfig))
