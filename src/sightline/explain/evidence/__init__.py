"""Whether to believe a map: hiding, gradients, changed attention, rollout. Start at `believe`."""

from sightline.explain.evidence.measures import (
    Removal,
    agreement,
    attentions,
    choose_shift,
    head_costs,
    kendall,
    leave_one_out,
    moved,
    removal,
    rollout,
    rollout_records,
    uniform_cost,
)
from sightline.explain.evidence.panel import believe
from sightline.explain.evidence.subject import LabelSubject, NumberSubject, PoolSubject, Subject, TextSubject

__all__ = [
    "LabelSubject",
    "NumberSubject",
    "PoolSubject",
    "Removal",
    "Subject",
    "TextSubject",
    "agreement",
    "attentions",
    "believe",
    "choose_shift",
    "head_costs",
    "kendall",
    "leave_one_out",
    "moved",
    "removal",
    "rollout",
    "rollout_records",
    "uniform_cost",
]
