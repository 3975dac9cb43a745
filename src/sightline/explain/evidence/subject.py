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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.errors import UserError
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
