"""Pre-training: say what stood where words were hidden (Devlin et al. 2019, BERT; Liu et al. 2019, RoBERTa).

What people get wrong: the loss is over the hidden places only, so the output layer, the largest product of a small
model, is computed there and nowhere else; and the output shares the table of words with the input, after one dense
layer that keeps the two apart.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.kernels.loss import smoothed_cross_entropy
from sightline.models.encoder import Encoder
from sightline.models.text_to_labels import Texts
from sightline.models.text_to_text import Loss
from sightline.nn.transformer import ACTIVATIONS

LOGITS = 1 << 24  # made at once: 64 MB of float32


class MaskedWords(nn.Module):
    """An encoder that says which words were hidden, and, with ``pairs``, whether one text follows the other."""

    def __init__(self, encoder: Encoder, pairs: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        size = encoder.size
        self.transform = nn.Linear(size, size)
        self.activation = ACTIVATIONS[encoder.config.activation]
        self.normalise = nn.LayerNorm(size, eps=encoder.config.epsilon)
        self.bias = nn.Parameter(torch.zeros(encoder.embedding.num_embeddings))
        self.follow = nn.Linear(size, 2) if pairs else None

    def loss(
        self,
        texts: Texts,
        places: Int[Tensor, " n"],
        gold: Int[Tensor, " n"],
        follows: Bool[Tensor, " b"] | None = None,
    ) -> Loss:
        """Cross-entropy summed over the hidden words; ``places`` are theirs in the flattened batch.

        With pairs the mean over texts of the other question's loss is added to the mean over words.
        """
        annotations = self.encoder.annotate(texts)
        total = smoothed_cross_entropy(self._at(annotations, places), self._table(), self.bias, gold)
        count = len(gold)
        if self.follow is not None and follows is not None:
            scores = self.follow(self.encoder.pooled(annotations, texts))
            total = total + F.cross_entropy(scores, follows.long()) * count
        return Loss(total, count)

    def logits(self, texts: Texts, places: Int[Tensor, " n"]) -> Float[Tensor, "n v"]:
        """What the model would write at these places."""
        return F.linear(self._at(self.encoder.annotate(texts), places), self._table(), self.bias)

    def log_probs(self, texts: Texts, places: Int[Tensor, " n"], words: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The log-probability of one word at each place. Some places at a time: the logits of all of them are large."""
        annotations, some = self.encoder.annotate(texts), max(1, LOGITS // len(self.bias))
        log_probs = []
        for at, gold in zip(places.split(some), words.split(some), strict=True):
            logits = F.linear(self._at(annotations, at), self._table(), self.bias)
            log_probs.append(-F.cross_entropy(logits, gold, reduction="none"))
        return torch.cat(log_probs)

    def _table(self) -> Float[Tensor, "v d"]:
        return self.encoder.embedding.weight

    def _at(self, annotations: Float[Tensor, "b s d"], places: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
        hidden = annotations.flatten(0, 1).index_select(0, places)
        return self.normalise(self.activation(self.transform(hidden)))
