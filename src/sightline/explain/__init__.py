"""What a model attended to, as plain data, and the evidence for and against it."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.explain.capture import AttentionMap, Trace, cut, uniform
    from sightline.explain.explanation import Belief, Explanation, Highlights
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "explain.capture": "AttentionMap Trace cut uniform",
            "explain.explanation": "Belief Explanation Highlights",
        },
    )

__all__ = ["AttentionMap", "Belief", "Explanation", "Highlights", "Trace", "cut", "uniform"]
