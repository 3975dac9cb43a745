"""Evidence about a map: hiding, gradients, changed attention, rollout. Start at `believe`."""

from sightline.explain.evidence.measures import choose_shift, leave_one_out, rollout, rollout_records
from sightline.explain.evidence.panel import believe
from sightline.explain.evidence.subject import LabelSubject, NumberSubject, Subject, TextSubject

__all__ = [
    "LabelSubject", "NumberSubject", "Subject", "TextSubject", "believe", "choose_shift", "leave_one_out", "rollout",
    "rollout_records",
]  # fmt: skip
