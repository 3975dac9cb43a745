"""Whether to believe a map: hiding, gradients, changed attention, rollout. Start at `believe`."""

from sightline.explain.evidence.agreement import agreement, kendall
from sightline.explain.evidence.heads import attentions, head_costs, uniform_cost
from sightline.explain.evidence.labels import LabelSubject, NumberSubject
from sightline.explain.evidence.panel import believe
from sightline.explain.evidence.removal import Removal, leave_one_out, removal
from sightline.explain.evidence.rollout import rollout, rollout_records
from sightline.explain.evidence.shift import choose_shift, moved
from sightline.explain.evidence.subject import PoolSubject, Subject, TextSubject

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
