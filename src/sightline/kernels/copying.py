"""Probabilities of words that are written or copied, without a pass over the vocabulary for each of the two.

Search makes such a distribution for every hypothesis at every step. A source has a few hundred words and a vocabulary
thousands: here only the words of the source get a second term, in logarithms. Gain: 9.6, and 5.5 where sources have
unknown words (`benchmarks/kernel_gains.py`).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sightline.kernels import enabled
from sightline.vocabulary import UNKNOWN


class Sources(NamedTuple):
    """The numbers of the words of sources, and at which place each of them stands first.

    ``extra`` is how many numbers there are behind the vocabulary.
    """

    ids: Int[Tensor, "*b s"]
    firsts: Int[Tensor, "*b s"]
    extra: int

    @classmethod
    def of(cls, ids: Int[Tensor, "b s"], words: int) -> "Sources":
        """For a vocabulary of so many words."""
        largest = int(ids.max()) if ids.numel() else 0
        return cls(ids, first_places(ids), max(0, largest + 1 - words))

    def for_steps(self) -> "Sources":
        """The same for several steps of each source."""
        return self._replace(ids=self.ids.unsqueeze(-2), firsts=self.firsts.unsqueeze(-2))


def mixed(
    log_probs: Float[Tensor, "*b v"], gate: Float[Tensor, "*b"], weights: Float[Tensor, "*b s"], sources: Sources
) -> Float[Tensor, "*b w"]:
    """``log(p · P_vocab + (1 − p) · copied)``, ``p = σ(gate)``; the words behind the vocabulary stand at the end."""
    needed = torch.is_grad_enabled() and any(one.requires_grad for one in (log_probs, gate, weights))
    return (fast if supported() and not needed else reference)(log_probs, gate, weights, sources)


def reference(log_probs: Tensor, gate: Tensor, weights: Tensor, sources: Sources) -> Tensor:
    p = torch.sigmoid(gate).unsqueeze(-1)
    behind = log_probs.new_zeros(*log_probs.shape[:-1], sources.extra)
    written = torch.cat([p * log_probs.exp(), behind], dim=-1)
    return written.scatter_add(-1, sources.ids.expand(weights.shape), (1 - p) * weights).log()


def fast(log_probs: Tensor, gate: Tensor, weights: Tensor, sources: Sources) -> Tensor:
    """Without a gradient: it writes the same number at every place of a word that stands several times."""
    log_probs = log_probs + F.logsigmoid(gate).unsqueeze(-1)
    if sources.extra:
        log_probs = F.pad(log_probs, (0, sources.extra), value=-torch.inf)
    ids, firsts = (one.expand(weights.shape) for one in sources[:2])
    summed = torch.zeros_like(weights).scatter_add_(-1, firsts, weights).gather(-1, firsts)
    copied = summed.log_().add_(F.logsigmoid(-gate).unsqueeze(-1))
    return log_probs.scatter_(-1, ids, torch.logaddexp(log_probs.gather(-1, ids), copied))


supported = enabled


def first_places(ids: Int[Tensor, "b s"]) -> Int[Tensor, "b s"]:
    """For each place the first one at which the same number stands."""
    numbers, order = ids.sort(dim=-1, stable=True)
    places = torch.arange(ids.shape[-1], device=ids.device).expand_as(ids)
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[..., 1:] = numbers[..., 1:] != numbers[..., :-1]
    groups = torch.where(begins, places, 0).cummax(dim=-1).values
    return torch.empty_like(order).scatter_(-1, order, order.gather(-1, groups))


def known_tokens(tokens: Int[Tensor, "..."], words: int) -> Int[Tensor, "..."]:
    """With the unknown word for numbers behind a vocabulary of so many words (`sightline.text.copying`)."""
    return tokens.where(tokens < words, UNKNOWN)
