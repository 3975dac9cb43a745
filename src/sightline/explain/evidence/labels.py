"""Evidence of classifiers: one row, which is the label that was given, or the number."""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.explain.evidence.subject import TokenSubject, evaluating
from sightline.models.attentive import Attentive
from sightline.models.han import HAN
from sightline.models.heads import Labeller
from sightline.models.text_to_labels import TextModel, Texts


class LabelSubject(TokenSubject):
    """A classifier, one text (or pair) as the model reads it, and a label by its number.

    ``attentions`` are the names, as `capture` gives them, of those that look from the label at the tokens. The
    probability is the one that users are told, after the ``temperature``; with ``several`` labels, that of this one
    by itself.
    """

    row_name = "label"
    model: Labeller
    before: float  # its probability when nothing is hidden

    def __init__(
        self,
        model: Labeller,
        texts: Texts,
        label: int,
        attentions: Collection[str],
        *,
        temperature: float = 1.0,
        several: bool = False,
        column_name: str = "token",
    ) -> None:
        specials = model.model.specials
        # Unknown words may be hidden: which word it was is not known, that there was one is.
        special = (specials.padding, specials.start, specials.end)
        super().__init__(model, embedding_of(model.model), texts.words[0].tolist(), special)
        self.parts = None if texts.parts is None else texts.parts[:1].to(self.device)
        self.label, self.attentions, self.column_name = label, tuple(attentions), column_name
        self.temperature, self.several = temperature, several
        self.before = self._whole()

    @property
    def rows(self) -> int:
        return 1

    def looks_at_columns(self, name: str) -> bool:
        return name in self.attentions

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._embedding_seen(keep) as seen:
            scores = self.model.scores(self._texts(tokens))
        return self.measured(scores, keep).unsqueeze(1), seen[0]

    def measured(self, scores: Float[Tensor, "..."], keep: Tensor | None) -> Float[Tensor, " n"]:
        """The log-probability of the label."""
        logits = scores.double() / self.temperature
        if self.several:
            return F.logsigmoid(logits[:, self.label])
        return torch.log_softmax(logits, dim=-1)[:, self.label]

    def _whole(self) -> float:
        """How likely the label is when nothing is hidden."""
        return float(self.log_probs(torch.ones(1, self.columns, dtype=torch.bool)).exp())

    def _texts(self, tokens: Int[Tensor, "n s"]) -> Texts:
        return Texts(tokens, None if self.parts is None else self.parts.expand(len(tokens), -1))

    def _as_embedded(self, keep: Bool[Tensor, "n s"], shape: torch.Size) -> Bool[Tensor, "..."]:
        return keep.flatten()[self._places(len(keep))].view(shape)

    def _by_column(self, values: Float[Tensor, "..."], variants: int) -> Float[Tensor, "n s"]:
        found = values.new_zeros(variants * self.columns)
        found[self._places(variants)] = values.flatten()
        return found.view(variants, self.columns)

    def _places(self, variants: int) -> Int[Tensor, " m"]:
        """Which tokens of the flattened variants are embedded, in the order in which the model asks for them.

        There is no padding, so that other models than `HAN` ask for all of them, one text behind the other.
        """
        model = self.model.model
        if isinstance(model, HAN):
            return model.cut(self._texts(self.tokens.expand(variants, -1))).places
        return torch.arange(variants * self.columns, device=self.device)


class NumberSubject(LabelSubject):
    """A model that gives a number. In the place of a log-probability stands how far the number is from what it was.

    So a cost is a change of the number, up or down alike, in the user's own units. A gradient cannot be taken of that,
    which is at its smallest where nothing is hidden; it is taken of the number.
    """

    row_name = "number"

    def __init__(self, model: Labeller, texts: Texts, attentions: Collection[str], column_name: str = "token") -> None:
        self.number = 0.0
        super().__init__(model, texts, 0, attentions, column_name=column_name)
        self.number = self.before

    def measured(self, scores: Float[Tensor, "..."], keep: Tensor | None) -> Float[Tensor, " n"]:
        return scores if keep is None else -(scores - self.number).abs()

    def _whole(self) -> float:
        with evaluating(self.model), torch.no_grad():
            return float(self.model.scores(self._texts(self.tokens.unsqueeze(0))))


def embedding_of(model: TextModel) -> nn.Embedding:
    """Where a text model reads its words."""
    found = model.annotator.embedding if isinstance(model, Attentive) else model.embedding
    assert isinstance(found, nn.Embedding)
    return found
