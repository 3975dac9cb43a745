"""Search for sequences, and its options."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.decoding.options import SearchConfig
    from sightline.decoding.search import Hypothesis, Rules, Sampler, Step, beam_search, ensemble, greedy
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "decoding.options": "SearchConfig",
            "decoding.search": "Hypothesis Rules Sampler Step beam_search ensemble greedy",
        },
    )

__all__ = ["Hypothesis", "Rules", "Sampler", "SearchConfig", "Step", "beam_search", "ensemble", "greedy"]
