"""What the presets of several tasks share: a model in one of its sizes, and how a configuration goes on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args

from sightline.config import Config, ConfigError
from sightline.tasks.presets import Preset

M = TypeVar("M", bound=Config)
C = TypeVar("C", bound=Config)


def model_of_size(models: Mapping[str, Mapping[str, M]], plain: Callable[[str], M], name: str, size: str) -> M:
    """A model in one of its sizes. One that is not built in has its defaults only, which ``plain`` makes."""
    if size not in get_args(Preset):
        raise ConfigError(f"preset is {size!r}; it is one of {', '.join(get_args(Preset))}")
    sizes = models.get(name)
    if sizes is None and size != "tiny":
        raise ConfigError(f"the model {name!r} has no presets; set its fields with --set")
    return plain(name) if sizes is None else sizes[size]


def with_rate(config: C, rate: float) -> C:
    """The same with another learning rate."""
    task: Any = config
    return replace(task, training=replace(task.training, learning_rate=rate))


def to_go_on(config: C) -> C:
    """For new data: an earlier run's configuration without its limits, and with smaller steps, as it is trained."""
    task: Any = config
    rate = task.training.learning_rate / 4
    return replace(task, training=replace(task.training, learning_rate=rate, epochs=None, steps=None, minutes=None))
