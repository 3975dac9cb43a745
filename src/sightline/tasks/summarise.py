"""Summarise: a short text for a long one; the same input and output as `translate`, scored by ROUGE."""

from dataclasses import replace

from sightline.tasks.translate import METRICS, TRANSLATE, writing

SUMMARISE = replace(
    TRANSLATE,
    name="summarise",
    help="a short text for a long one",
    variants=(writing("summarise"),),
    metrics=("rougeL", *(one for one in METRICS if one != "rougeL")),
    max_characters=10_000,
    overrides=("metric=rougeL",),
)
