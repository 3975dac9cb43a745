"""Whether to believe a map: hiding, gradients, changed attention, rollout. Start at `believe`."""

from sightline.evidence.agreement import agreement, kendall
from sightline.evidence.heads import attentions, head_costs, uniform_cost
from sightline.evidence.labels import LabelSubject, NumberSubject
from sightline.evidence.panel import believe
from sightline.evidence.removal import Removal, leave_one_out, removal
from sightline.evidence.rollout import rollout, rollout_records
from sightline.evidence.shift import choose_shift, moved
from sightline.evidence.subject import PoolSubject, Subject, TextSubject

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
