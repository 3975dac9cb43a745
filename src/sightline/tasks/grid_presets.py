"""Sizes that work for labelling cells, and how to go on from an earlier run."""

from pathlib import Path

from sightline.models.grid import GridModelConfig
from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
from sightline.models.grid_sequential import SequentialConfig
from sightline.tasks.grid import GridConfig
from sightline.tasks.presets import read_config
from sightline.tasks.sizes import model_of_size, to_go_on, with_rate
from sightline.training.folder import CONFIG, RunFolder

GRID_MODELS: dict[str, dict[str, GridModelConfig]] = {
    "at_once": {
        "tiny": AtOnceConfig(),
        "small": AtOnceConfig(width=32, cell_size=192, rnn_size=64, rnn_layers=2, pixel_width=32),
        "base": AtOnceConfig(width=48, cell_size=384, rnn_size=128, rnn_layers=2, pixel_width=48),
    },
    "sequential": {
        "tiny": SequentialConfig(),
        "small": SequentialConfig(width=32, cell_size=192, rnn_size=64, attn_num_hidden=192, pixel_width=32),
        "base": SequentialConfig(width=48, cell_size=384, rnn_size=128, attn_num_hidden=384, pixel_width=48),
    },
    "single": {
        "tiny": SingleConfig(),
        "small": SingleConfig(width=32, cell_size=192, pixel_width=32),
        "base": SingleConfig(width=48, cell_size=384, pixel_width=48),
    },
}
RATES = {"tiny": 2e-3, "small": 1e-3, "base": 5e-4}


def grid_preset(model: str | None = None, size: str = "tiny") -> GridConfig:
    """The configuration of a model in one of its sizes; at_once unless named, which is the fastest."""
    chosen = model_of_size(GRID_MODELS, GridModelConfig.from_json, model or "at_once", size)
    return with_rate(GridConfig(model=chosen), RATES[size])


def grid_config_to_go_on(start: Path) -> GridConfig:
    """For new data: an earlier run as it was, without its limits and with smaller steps."""
    return to_go_on(read_config(RunFolder.open(start).path / CONFIG, GridConfig))
