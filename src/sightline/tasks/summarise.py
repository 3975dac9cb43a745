"""Summarise: a short text for a long one. It reads and writes as `translate` does, and is held against its source."""

from dataclasses import replace

from sightline.tasks.translate import METRICS, TRANSLATE, writing

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
        ),
    ),
    metrics=("rougeL", *(one for one in METRICS if one != "rougeL")),
    max_characters=10_000,
)
