"""Sightline trains attention models on your own data and shows what they attend to."""

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.api import load, load_huggingface, train
    from sightline.attention.tap import show_attention
    from sightline.explain.capture import capture, cut, uniform
    from sightline.records import Cells, Frames, Grid, Record, Slots, Tokens

__version__ = "0.1.0"
logging.getLogger("sightline").addHandler(logging.NullHandler())  # the program decides what is shown

# Importing sightline imports neither torch nor NumPy: the command line must answer at once.
_LAZY = {
    **dict.fromkeys(("load", "load_huggingface", "train"), "sightline.api"),
    **dict.fromkeys(("capture", "cut", "uniform"), "sightline.explain.capture"),
    "show_attention": "sightline.attention.tap",
    **dict.fromkeys(("Cells", "Frames", "Grid", "Record", "Slots", "Tokens"), "sightline.records"),
}

__all__ = [
    "Cells",
    "Frames",
    "Grid",
    "Record",
    "Slots",
    "Tokens",
    "__version__",
    "capture",
    "cut",
    "load",
    "load_huggingface",
    "show_attention",
    "train",
    "uniform",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'sightline' has no attribute {name!r}")
