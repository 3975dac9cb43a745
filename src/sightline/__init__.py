"""Sightline trains attention models on your own data and shows what they attend to."""

import logging
from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.api import load, load_huggingface, train
    from sightline.attention.tap import show_attention
    from sightline.explain.capture import capture, cut, uniform
    from sightline.records import Cells, Frames, Grid, Record, Slots, Tokens
    from sightline.tasks.run import Run
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "api": "load load_huggingface train",
            "attention.tap": "show_attention",
            "explain.capture": "capture cut uniform",
            "records": "Cells Frames Grid Record Slots Tokens",
            "tasks.run": "Run",
        },
    )

__version__ = "0.1.0"
logging.getLogger("sightline").addHandler(logging.NullHandler())  # the program decides what is shown

__all__ = ["Cells", "Frames", "Grid", "Record", "Run", "Slots", "Tokens", "__version__", "capture", "cut", "load"]
__all__ += ["load_huggingface", "show_attention", "train", "uniform"]
