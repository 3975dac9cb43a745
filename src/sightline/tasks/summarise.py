"""Summarise: a short text for a long one. It reads and writes as `translate` does, and is held against its source.

The first model is RNNsearch that copies (See et al. 2017): with some thousand texts it learns much faster than the
Transformer (`benchmarks/summaries.py`). Its attention can see its coverage, once `training.coverage_after` is reached.
"""

from dataclasses import replace

from sightline.tasks.task import Sizes
from sightline.tasks.translate import METRICS, MODELS, TRANSLATE, writing

COPYING = ("rnnsearch", "transformer", "luong", "grammar")  # models that copy unless --no-copy is given
COVERING = {"tiny": 256, "small": 512, "base": 1000}  # the hidden layer of RNNsearch's attention, by size


def _copying(name: str) -> Sizes:
    sizes: dict[str, dict[str, object]] = {
        size: {**fields, "copying": name in COPYING} for size, fields in MODELS[name].items()
    }
    if name == "rnnsearch":
        for size, fields in sizes.items():
            fields["attention"] = {"kind": "coverage", "hidden_size": COVERING[size]}
    return sizes


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
            models={name: _copying(name) for name in sorted(MODELS, key=lambda name: name != "rnnsearch")},
        ),
    ),
    metrics=("rougeL", *(one for one in METRICS if one != "rougeL")),
    max_characters=10_000,
)
