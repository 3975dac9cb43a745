"""What a model that can copy did at each token of its output: wrote it or copied it; and its coverage.

The weights that copy are one distribution over the source: those of the attention, or of several heads each as much as
the model has learnt that it counts (`sightline.nn.copying`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sightline.decoding.options import pad
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Copied, Stack
from sightline.models.text_to_text import TextToText
from sightline.records import Axis, Record
from sightline.vocabulary import START

COPIED, COVERED = "copying", "coverage"


@torch.no_grad()
def copy_maps(
    model: Any, source: torch.Tensor, written: Sequence[int], rows: Axis, columns: Axis
) -> tuple[list[Copied], list[Record], list[Stack]]:
    """For one source and its output with the end: what was copied, and maps of the weights that copy and of the
    coverage. Nothing of a model that cannot copy."""
    copying = model.copying if isinstance(model, TextToText) else None
    if copying is None:
        return [], [], []
    following = torch.tensor([list(written)], device=source.device)
    words = pad([[START, *written[:-1]]]).to(source.device)
    with evaluating(model):
        looked, _ = model.look(words, model.begin(source))
        log_gate, log_copied = copying.shares(looked, following, source)
        log_probs = model.log_probs_of(source, looked, following)
        weights = copying.one_weight(looked.weights)[0]
    shares = (log_copied - log_probs).exp().clamp(max=1)[0].tolist()
    same = source[0].unsqueeze(0) == following[0].unsqueeze(-1)
    places = weights.masked_fill(~same, -1.0).argmax(dim=-1).tolist()
    copies = [
        Copied(gate, share if there else 0.0, place if there else None)
        for gate, share, place, there in zip(
            log_gate.exp()[0].tolist(), shares, places, same.any(dim=-1).tolist(), strict=True
        )
    ]
    matrix = weights.float().cpu().numpy()
    covered = np.cumsum(matrix, axis=0) - matrix
    shown = [(COVERED, "Coverage: the sum of the weights before", covered)]
    if copying.heads is not None:  # else they are those of the attention itself
        shown.insert(0, (COPIED, "The weights that copy, of all heads together", matrix))
    records = [Record(name, 0, 0, rows, columns, np.ascontiguousarray(one)) for name, _, one in shown]
    return copies, records, [Stack(title, "cross", (name,)) for name, title, _ in shown]
