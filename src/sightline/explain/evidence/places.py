"""Evidence of models that say something at places of a text: tags, pointers, hidden words."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.explain.evidence.subject import TokenSubject
from sightline.models.text_to_labels import Texts

MOST_HIDDEN = 256  # variants; of more words, neighbours are hidden together


class PlacesSubject(TokenSubject):
    """A model, one text as it reads it, and what it says there, a row each.

    ``measure`` gives the log-probability of each row, ``n rows``, for n variants of the text. ``attentions`` are the
    names, as `capture` gives them, of those that look from the rows at the tokens; ``special`` tokens are never hidden.
    """

    def __init__(
        self,
        model: nn.Module,
        embedding: nn.Embedding,
        texts: Texts,
        rows: int,
        measure: Callable[[Texts], Tensor],
        *,
        attentions: Collection[str] = (),
        special: Sequence[int],
        row_name: str,
    ) -> None:
        super().__init__(model, embedding, texts.words[0].tolist(), special)
        self.parts = None if texts.parts is None else texts.parts[:1].to(self.device)
        self._rows, self.measure, self.attentions, self.row_name = rows, measure, tuple(attentions), row_name

    @property
    def rows(self) -> int:
        return self._rows

    def looks_at_columns(self, name: str) -> bool:
        return name in self.attentions

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._embedding_seen(keep) as seen:
            found = self.measure(Texts(tokens, None if self.parts is None else self.parts.expand(len(tokens), -1)))
        return found, seen[0]

    # There is no padding: a model that takes it out asks for all tokens, one text behind the other.

    def _as_embedded(self, keep: Bool[Tensor, "n s"], shape: torch.Size) -> Bool[Tensor, "..."]:
        return keep.reshape(shape)

    def _by_column(self, values: Float[Tensor, "..."], variants: int) -> Float[Tensor, "n s"]:
        return values.reshape(variants, self.columns)


def lost_without(subject: PlacesSubject, words: Sequence[Sequence[int]]) -> Float[np.ndarray, "t w"]:
    """Which share of its probability each row loses when a word, all of its tokens, is hidden; never below 0."""
    if not words:
        return np.zeros((subject.rows, 0))
    groups = np.array_split(np.arange(len(words)), min(len(words), MOST_HIDDEN))
    keep = torch.ones(len(groups) + 1, subject.columns, dtype=torch.bool)
    for variant, group in enumerate(groups):
        keep[variant, [token for word in group.tolist() for token in words[word]]] = False
    log_probs = subject.log_probs(keep).double().cpu().numpy()
    lost = np.clip(1 - np.exp(np.minimum(log_probs[:-1] - log_probs[-1], 0.0)), 0.0, 1.0)
    return np.repeat(lost, [len(group) for group in groups], axis=0).T
