"""Search for sequences, and its options."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.decoding.combine import combined
    from sightline.decoding.ctc import PrefixState, best_path, ctc_align, ctc_begin, ctc_posteriors, ctc_step
    from sightline.decoding.options import SearchConfig
    from sightline.decoding.search import Hypothesis, Rules, Sampler, Step, beam_search, ensemble, greedy
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "decoding.combine": "combined",
            "decoding.ctc": "PrefixState best_path ctc_align ctc_begin ctc_posteriors ctc_step",
            "decoding.options": "SearchConfig",
            "decoding.search": "Hypothesis Rules Sampler Step beam_search ensemble greedy",
        },
    )

__all__ = [
    "Hypothesis",
    "PrefixState",
    "Rules",
    "Sampler",
    "SearchConfig",
    "Step",
    "beam_search",
    "best_path",
    "combined",
    "ctc_align",
    "ctc_begin",
    "ctc_posteriors",
    "ctc_step",
    "ensemble",
    "greedy",
]
