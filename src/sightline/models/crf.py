"""Sequences of tags: which may follow which, the best allowed sequence, and a linear-chain CRF.

A CRF (Lafferty et al. 2001) scores a whole sequence: the scores of its tags and one for each pair of neighbours. What
people get wrong: the sum over all sequences must leave out padding and the later pieces of words, or the model learns
transitions that no sentence has.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.models.heads import NOTHING, Reduction, TagEach
from sightline.models.text_to_labels import TextModel

OPEN, ENDS, WITHIN = frozenset("BIM"), frozenset("EL"), frozenset("IMEL")


class Allowed(NamedTuple):
    """Which tag may follow which, which may be first and which last."""

    pairs: np.ndarray
    first: np.ndarray
    last: np.ndarray

    def breaks(self, tags: Sequence[int]) -> int:
        """How often a sequence of tags breaks the rules."""
        if not tags:
            return 0
        inner = sum(not self.pairs[one, other] for one, other in pairwise(tags))
        return inner + int(not self.first[tags[0]]) + int(not self.last[tags[-1]])


def allowed_tags(names: Sequence[str]) -> Allowed:
    """The rules of the scheme that the names are of: IOB2, or with marked ends BIOES, BILOU, BMES.

    A tag within a span (I, M, E, L) needs an open span of its kind before it. Where ends are marked, an open span must
    be continued.
    """
    letters, kinds = [name[:1] for name in names], np.array([name[2:] for name in names])
    is_open, within = (np.array([one in some for one in letters]) for some in (OPEN, WITHIN))
    must_go_on = is_open & any(one in ENDS for one in letters)
    goes_on = is_open[:, None] & (kinds[:, None] == kinds)
    return Allowed(np.where(within, goes_on, ~must_go_on[:, None]), ~within, ~must_go_on)


def best_sequence(scores: np.ndarray, allowed: Allowed) -> np.ndarray:
    """The sequence with the highest sum of scores (``words tags``) among those allowed (Viterbi 1967).

    Where none is allowed, such as one word that only a longer span could hold, the best tag of each word.
    """
    banned = np.where(allowed.pairs, 0.0, -np.inf)
    best, before = np.where(allowed.first, scores[0], -np.inf), []
    for row in scores[1:]:
        sums = best[:, None] + banned
        before.append(sums.argmax(axis=0))
        best = sums.max(axis=0) + row
    best = np.where(allowed.last, best, -np.inf)
    if not np.isfinite(best.max()):
        return scores.argmax(axis=1)
    tags = [int(best.argmax())]
    for step in reversed(before):
        tags.append(int(step[tags[-1]]))
    return np.array(tags[::-1])


class CrfTags(TagEach):
    """Tags of words as a sequence: a score for each pair of neighbours is learnt too."""

    def __init__(self, model: TextModel, classes: int, dropout: float | None = None) -> None:
        super().__init__(model, classes, dropout=dropout)
        self.transitions = nn.Parameter(torch.zeros(classes, classes))

    def losses(self, logits: Float[Tensor, "b s c"], gold: Int[Tensor, "b s"], reduction: Reduction) -> Tensor:
        """−log p of the sequence of each sentence; counted are its words."""
        there = gold != NOTHING
        counts = there.sum(dim=1)
        words = int(counts.max()) if len(counts) else 0
        # The words of each sentence to its front: sorting is stable, so they keep their order.
        front = (~there).to(torch.uint8).argsort(dim=1, stable=True)[:, :words]
        logits = logits.gather(1, front.unsqueeze(-1).expand(-1, -1, logits.shape[-1]))
        tags = gold.gather(1, front).clamp_min(0)
        real = torch.arange(words, device=gold.device) < counts.unsqueeze(1)
        own = (logits.gather(2, tags.unsqueeze(-1)).squeeze(-1) * real).sum()
        own = own + (self.transitions[tags[:, :-1], tags[:, 1:]] * real[:, 1:]).sum()
        return self.log_partition(logits, real).sum() - own  # ``reduction`` is sum: no loss of words is a mean

    def log_partition(self, logits: Float[Tensor, "b w c"], real: Tensor) -> Float[Tensor, " b"]:
        """The logarithm of the sum over all sequences of the real words; 0 where there are none."""
        if not logits.shape[1]:
            return logits.new_zeros(len(logits))
        sums = logits[:, 0]
        for place in range(1, logits.shape[1]):
            longer = torch.logsumexp(sums.unsqueeze(2) + self.transitions, dim=1) + logits[:, place]
            sums = torch.where(real[:, place].unsqueeze(1), longer, sums)
        return torch.where(real[:, 0], torch.logsumexp(sums, dim=1), torch.zeros_like(sums[:, 0]))

    def log_marginals(self, logits: Float[Tensor, "w c"]) -> Float[Tensor, "w c"]:
        """The log-probability of each tag of each word, over all sequences of a sentence: forward and backward sums."""
        transitions = self.transitions.to(logits.dtype)
        forward, backward = [logits[0]], [torch.zeros_like(logits[0])]
        for row in logits[1:]:
            forward.append(torch.logsumexp(forward[-1].unsqueeze(1) + transitions, dim=0) + row)
        for row in logits[1:].flip(0):
            backward.append(torch.logsumexp(transitions + (row + backward[-1]).unsqueeze(0), dim=1))
        return torch.log_softmax(torch.stack(forward) + torch.stack(backward[::-1]), dim=-1)
