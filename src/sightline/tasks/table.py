"""Which tasks there are, and what each gives to the commands and to Python. Listing them imports none of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sightline.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from sightline.config import Config
    from sightline.training.loop import Lesson

CONFIG = "config.json"
DEFAULT = "translate"
IMAGES = ("caption", "grid", "classify_images")  # tasks whose runs read images


class Trial(NamedTuple):
    """What a training would begin with, for measuring it; and how long validating takes, found by trying.

    ``rows`` is how many there are in an epoch, where a row is not one of the corpus.
    """

    prepared: Any
    lesson: "Lesson"
    model: "nn.Module"
    validation_seconds: Callable[[], float]
    rows: int | None = None


@dataclass(frozen=True)
class Task:
    """What a task gives.

    ``preset(model, size)`` and ``go_on(start)`` make configurations; ``train(files, out, config, **options)`` gives
    what was trained and how training ended; ``load(run)`` gives it again, with what config.json says. ``counted`` is
    what its loss counts. ``sees_images``: ``train`` takes ``on_images``, which hears how the reading of images goes on.
    """

    name: str
    config: "type[Config]"
    preset: Callable[[str | None, str], Any]
    go_on: Callable[[Path], Any]
    train: Callable[..., tuple[Any, Any]]
    load: Callable[[Path], tuple[Any, dict[str, Any]]]
    trial: Callable[..., Trial]
    counted: str = "tokens"
    rows: str = "pairs"
    sees_images: bool = False


def _translate() -> Task:
    from sightline.tasks.estimate import translate_trial
    from sightline.tasks.presets import config_to_go_on, preset
    from sightline.tasks.translate import TranslateConfig, train_translate
    from sightline.tasks.translator import load_translator

    return Task(
        "translate",
        TranslateConfig,
        lambda model, size: preset(model or "transformer", size),
        config_to_go_on,
        train_translate,
        load_translator,
        translate_trial,
        "target tokens",
    )


def _classify() -> Task:
    from sightline.tasks.classifier import load_classifier
    from sightline.tasks.classify import ClassifyConfig, classify_trial, train_classify
    from sightline.tasks.classify_presets import classify_config_to_go_on, classify_preset

    return Task(
        "classify",
        ClassifyConfig,
        classify_preset,
        classify_config_to_go_on,
        train_classify,
        load_classifier,
        classify_trial,
        "texts",
        "texts",
    )


def _pretrain() -> Task:
    from sightline.tasks.filling import load_pretrain
    from sightline.tasks.pretrain import PretrainConfig, pretrain_trial, train_pretrain
    from sightline.tasks.reading_presets import pretrain_config_to_go_on, pretrain_preset

    return Task(
        "pretrain",
        PretrainConfig,
        pretrain_preset,
        pretrain_config_to_go_on,
        train_pretrain,
        load_pretrain,
        pretrain_trial,
        "hidden words",
        "texts",
    )


def _tag() -> Task:
    from sightline.tasks.reading_presets import tag_config_to_go_on, tag_preset
    from sightline.tasks.tag import TagConfig, tag_trial, train_tag
    from sightline.tasks.tagger import load_tagger

    return Task(
        "tag", TagConfig, tag_preset, tag_config_to_go_on, train_tag, load_tagger, tag_trial, "words", "sentences"
    )


def _span() -> Task:
    from sightline.tasks.answerer import load_answerer
    from sightline.tasks.reading_presets import span_config_to_go_on, span_preset
    from sightline.tasks.span import SpanConfig, span_trial, train_span

    return Task(
        "span",
        SpanConfig,
        span_preset,
        span_config_to_go_on,
        train_span,
        load_answerer,
        span_trial,
        "questions",
        "questions",
    )


def _caption() -> Task:
    from sightline.tasks.caption import CaptionConfig, caption_trial, train_caption
    from sightline.tasks.caption_presets import caption_config_to_go_on, caption_preset
    from sightline.tasks.captioner import load_captioner

    return Task(
        "caption",
        CaptionConfig,
        caption_preset,
        caption_config_to_go_on,
        train_caption,
        load_captioner,
        caption_trial,
        "tokens",
        "captions",
        sees_images=True,
    )


def _grid() -> Task:
    from sightline.tasks.grid import GridConfig, grid_trial, train_grid
    from sightline.tasks.grid_presets import grid_config_to_go_on, grid_preset
    from sightline.tasks.gridder import load_gridder

    return Task(
        "grid",
        GridConfig,
        grid_preset,
        grid_config_to_go_on,
        train_grid,
        load_gridder,
        grid_trial,
        "cells",
        "images",
    )


def _classify_images() -> Task:
    from sightline.tasks.image_classifier import load_image_classifier
    from sightline.tasks.image_classify import ImageClassifyConfig, image_classify_trial, train_image_classify
    from sightline.tasks.image_presets import image_classify_config_to_go_on, image_classify_preset

    return Task(
        "classify_images",
        ImageClassifyConfig,
        image_classify_preset,
        image_classify_config_to_go_on,
        train_image_classify,
        load_image_classifier,
        image_classify_trial,
        "images",
        "images",
        sees_images=True,
    )


TASKS: dict[str, Callable[[], Task]] = {
    "translate": _translate,
    "summarise": _translate,
    "classify": _classify,
    "pretrain": _pretrain,
    "tag": _tag,
    "span": _span,
    "caption": _caption,
    "grid": _grid,
    "classify_images": _classify_images,
}


def task_named(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise UserError(f"there is no task {name!r}; there is {', '.join(TASKS)}")
    return TASKS[name]()


def task_of(run: Path) -> str:
    """The name of the task that a run folder, or one of its checkpoints, says it is of.

    Where none can be read, the first task's: its loader says what is wrong with the folder.
    """
    folder = run.parent.parent if run.parent.name == "checkpoints" and not (run / CONFIG).exists() else run
    try:
        data = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return DEFAULT
    name = data.get("task") if isinstance(data, dict) else None
    return name if isinstance(name, str) and name in TASKS else DEFAULT
