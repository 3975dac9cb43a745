"""What evidence needs of a model and one input: what was written, what can be hidden, and what hiding it costs.

A word is hidden by putting the mean embedding of the vocabulary in the place of its own. Deleting it would move every
word behind it to another position, so that a cost could come from the move; masking it in the attention alone would
leave it readable in the annotations of its neighbours, which recurrent and self-attending encoders mix. The mean is
the vector that says least about which word stands there, and it is of the size that an encoder is used to, as a zero
is not. Positions are added behind the embedding and stay as they are. What people get wrong: a model never met the
mean in training, so a part of any cost is surprise; that is why every cost is held against that of hiding others.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.errors import UserError
from sightline.models.attentive import Attentive
from sightline.models.han import HAN
from sightline.models.heads import Labeller
from sightline.models.text_to_labels import TextModel, Texts
from sightline.models.text_to_text import TextToText
from sightline.vocabulary import END, PADDING, START

BATCH_TOKENS = 16_384  # tokens of variants that are in work together; long inputs take several batches
GRADIENT_TOKENS = 4_096  # fewer where the way back is kept as well
LOGITS = 1 << 24  # scores of words made at once: 64 MB of float32


@runtime_checkable
class Subject(Protocol):
    """A model, one input and what it wrote. Rows are what was written, columns what can be read.

    ``hideable`` says which columns may be hidden. The others, such as the end of a sentence, stand in every input:
    hiding them would ask how the model copes without its punctuation, not which word it used. They are never hidden,
    neither for being looked at nor at random, so that both are drawn from the same columns.
    """

    row_name: str  # what a row is called in a sentence
    column_name: str

    @property
    def model(self) -> nn.Module:
        """What `capture` is opened on."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def hideable(self) -> Bool[np.ndarray, " s"]: ...

    def looks_at_columns(self, name: str) -> bool:
        """Whether the attention of this name, as `capture` gives it, looks from the rows at the columns."""

    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        """The log-probability of every row in n variants of the input, where only the kept columns can be read."""

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        """For each of the rows: the gradient of its log-probability · the embedding, column by column."""


class TokenSubject(ABC):
    """Tokens in: hide them, and follow the gradient to them. A subclass says how variants are read."""

    row_name, column_name = "row", "token"

    def __init__(
        self, model: nn.Module, embedding: nn.Embedding, tokens: Sequence[int], special: Sequence[int]
    ) -> None:
        if not tokens:
            raise UserError("there is nothing to look at: the input has no tokens")
        self.model, self.embedding = model, embedding
        self.device = embedding.weight.device
        self.tokens = torch.tensor(list(tokens), device=self.device)
        self.hideable = np.array([token not in special for token in tokens])
        words = torch.tensor([i for i in range(embedding.num_embeddings) if i not in special], device=self.device)
        with torch.no_grad():
            self.mean = embedding(words).mean(dim=0)

    @property
    def columns(self) -> int:
        return len(self.tokens)

    @property
    @abstractmethod
    def rows(self) -> int: ...

    @abstractmethod
    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities `n t`, and the embedded tokens `n s e` that they were made from."""

    @torch.no_grad()
    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        some = max(1, BATCH_TOKENS // (self.rows + self.columns))
        with evaluating(self.model):
            found = [self.read(self._copies(part), part.to(self.device))[0] for part in keep.split(some)]
        return torch.cat(found)

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        some = max(1, GRADIENT_TOKENS // (self.rows + self.columns))
        found = []
        # cuDNN has no way back through a recurrent layer that is not in training.
        with evaluating(self.model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for part in torch.tensor(list(rows), device=self.device).split(some):
                # One copy of the input for each row: the sum over copies has the gradients of all rows apart.
                log_probs, embedded = self.read(self._copies(part), None)
                own = log_probs.gather(1, part.unsqueeze(1)).sum()
                (gradient,) = torch.autograd.grad(own, embedded)
                found.append(self._by_column((gradient * embedded.detach()).sum(dim=-1), len(part)))
        return torch.cat(found)

    def _as_embedded(self, keep: Bool[Tensor, "n s"], shape: torch.Size) -> Bool[Tensor, "..."]:
        """What is kept, in the shape in which the model asks for embeddings."""
        return keep

    def _by_column(self, values: Float[Tensor, "..."], variants: int) -> Float[Tensor, "n s"]:
        """Back from that shape."""
        return values

    def _copies(self, variants: Tensor) -> Int[Tensor, "n s"]:
        return self.tokens.expand(len(variants), -1)

    @contextmanager
    def _embedding_seen(self, keep: Bool[Tensor, "n s"] | None) -> Iterator[list[Tensor]]:
        """Inside, the embedding gives the mean for what is not kept; the list is filled with what it gave.

        Without ``keep`` it gives what it always does, as the leaf that gradients go to.
        """
        thread, seen = threading.get_ident(), []

        def hide(module: nn.Module, inputs: object, embedded: Tensor) -> Tensor | None:
            if threading.get_ident() != thread:  # someone else is using the model: hide nothing from them
                return None
            if keep is None:
                embedded = embedded.detach().requires_grad_()
            else:
                kept = self._as_embedded(keep, embedded.shape[:-1])
                embedded = torch.where(kept.unsqueeze(-1), embedded, self.mean)
            seen.append(embedded)
            return embedded

        handle = self.embedding.register_forward_hook(hide)
        try:
            yield seen
        finally:
            handle.remove()


class TextSubject(TokenSubject):
    """A model from text to text, a source, and what was written (by the model, or by anyone).

    Both as token ids as the model sees them: the source with its `END`, what was written without `START`.
    """

    row_name, column_name = "written token", "source token"
    model: TextToText

    def __init__(self, model: TextToText, source_ids: Sequence[int], written_ids: Sequence[int]) -> None:
        super().__init__(model, model.source_embedding, source_ids, (PADDING, START, END))
        if not written_ids:
            raise UserError("there is nothing to explain: nothing was written")
        self.written = torch.tensor(list(written_ids), device=self.device)

    @property
    def rows(self) -> int:
        return len(self.written)

    def looks_at_columns(self, name: str) -> bool:
        return self.model.looks_at_source(name)

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        # Only while the source is read: where embeddings are tied, the target goes through the same module.
        with self._embedding_seen(keep) as seen:
            state = self.model.begin(tokens)
        start = torch.tensor([START], device=self.device)
        words = torch.cat([start, self.written[:-1]]).expand(len(tokens), -1)
        features, _ = self.model.decode(words, state)
        return self._log_probs(features), seen[0]

    def _log_probs(self, features: Float[Tensor, "n t d"]) -> Float[Tensor, "n t"]:
        """In blocks of rows: the scores of all words for all variants are the largest tensor of all."""
        output = self.model.output
        wanted = self.written.expand(features.shape[:2]).flatten()
        some = max(1, LOGITS // output.out_features)
        found = []
        for part, words in zip(features.flatten(0, 1).split(some), wanted.split(some), strict=True):
            logits = output(part)
            found.append(logits.gather(1, words.unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=-1))
        return torch.cat(found).unflatten(0, features.shape[:2])


class PoolSubject(TokenSubject):
    """A classifier that pools a sequence by attention, one input, and the label that was given: one row.

    ``classify`` makes scores of labels `n l` of tokens `n s`, reading them through ``embedding``; ``attention`` is the
    pooling's name as `capture` gives it; ``special`` are the ids of tokens that are never hidden.
    """

    row_name = "label"

    def __init__(
        self,
        model: nn.Module,
        tokens: Sequence[int],
        label: int,
        *,
        embedding: nn.Embedding,
        attention: str,
        classify: Callable[[Tensor], Tensor] | None = None,
        special: Sequence[int] = (PADDING, START, END),
    ) -> None:
        super().__init__(model, embedding, tokens, special)
        self.label, self.attention = label, attention
        self.classify = model if classify is None else classify

    @property
    def rows(self) -> int:
        return 1

    def looks_at_columns(self, name: str) -> bool:
        return name == self.attention

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._embedding_seen(keep) as seen:
            scores = self.classify(tokens)
        return torch.log_softmax(scores, dim=-1)[:, self.label].unsqueeze(1), seen[0]


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Without dropout, and as before afterwards."""
    in_training = [model for model in models if model.training]  # the others need no walk over all of their parts
    for model in in_training:
        model.eval()
    try:
        yield
    finally:
        for model in in_training:
            model.train()


# Evidence of classifiers: one row, which is the label that was given, or the number.


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


# Evidence of models that say something at places of a text: tags, pointers, hidden words.


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
