"""Summarise: a short text for a long one. It reads and writes as `translate` does, and is held against its source."""

from dataclasses import replace

from sightline.tasks.task import Sizes
from sightline.tasks.translate import METRICS, MODELS, TRANSLATE, writing

COPYING = ("transformer", "rnnsearch", "luong", "grammar")  # models that copy unless --no-copy is given


def _copying(name: str) -> Sizes:
    return {size: {**fields, "copying": name in COPYING} for size, fields in MODELS[name].items()}


SUMMARISE = replace(
    TRANSLATE,
    name="summarise",
    help="a short text for a long one",
    variants=(
        replace(
            writing("summarise"),
            input="sightline.inputs.long_text:LongSource",
            output="sightline.outputs.summaries:SummaryOutput",
            config="sightline.tasks.configs.summarise:SummariseConfig",
            models={name: _copying(name) for name in MODELS},
        ),
    ),
    metrics=("rougeL", *(one for one in METRICS if one != "rougeL")),
    max_characters=10_000,
)
