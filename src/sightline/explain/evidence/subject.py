"""A model under perturbation: what evidence needs of a model and one input.

A token is hidden by replacing its embedding with the mean embedding of the vocabulary. Deleting it would move every
later token to another position, so that a cost could come from the move. Masking it in the attention alone would leave
it readable in the encoder states of its neighbours, which recurrent and self-attending encoders mix. The mean says
least about which token it was, and it has the norm that an encoder expects, as a zero vector does not. Positions are
added after the embedding and do not change. What people get wrong: the model never saw the mean in training, so a part
of any cost is due to that; every cost is therefore compared with the cost of hiding other tokens.
"""

import math
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
from sightline.vocabulary import END, PADDING, START, UNKNOWN

BATCH_TOKENS = 16_384  # tokens of variants in one batch; long inputs take several batches
GRADIENT_TOKENS = 4_096  # fewer where the graph is kept for the backward pass
LOGITS = 1 << 24  # logits computed at once: 64 MB of float32
MOST_HIDDEN = 256  # variants; of more words, neighbours are hidden together
AT_MOST = math.log(1e6)  # nats: larger changes of a probability are not told apart


@runtime_checkable
class Subject(Protocol):
    """A model, one input and its output. Rows are parts of the output, columns are parts of the input.

    ``hideable`` marks the columns that may be hidden. The others, such as the end of a sentence, are in every input:
    hiding them would measure how the model copes without punctuation, not which token it used. They are hidden neither
    for their weight nor at random, so that both are drawn from the same columns.

    A subject whose costs are not nats has a method ``effect(cost)``: the cost in words. One whose weights are not those
    of attention has a ``weight_name``.
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

    def attends_to_columns(self, name: str) -> bool:
        """Whether the attention of this name, as `capture` gives it, attends from the rows to the columns."""

    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        """The log-probability of every row in n variants of the input, where only the kept columns can be read."""

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        """For each of the rows: the gradient of its log-probability · the embedding, column by column."""


class TokenSubject(ABC):
    """Tokens in: hide them, and compute gradients with respect to them. A subclass says how variants are read.

    ``attentions`` are the names, as `capture` gives them, of those that attend from the rows to the tokens; ``special``
    are the ids of tokens that are never hidden; ``segments`` are the segment ids of a pair.
    """

    row_name, column_name = "row", "token"
    rows = 1
    logits = 1  # of one variant: bounds the batch where they are the largest tensor

    def __init__(
        self,
        model: nn.Module,
        embedding: nn.Embedding,
        tokens: Sequence[int],
        special: Sequence[int],
        attentions: Collection[str] = (),
        segments: Int[Tensor, "1 s"] | None = None,
    ) -> None:
        if not tokens:
            raise UserError("there is nothing to attend to: the input has no tokens")
        self.model, self.embedding, self.attentions = model, embedding, tuple(attentions)
        self.device = embedding.weight.device
        self.tokens = torch.tensor(list(tokens), device=self.device)
        self.segments = None if segments is None else segments.to(self.device)
        self.hideable = np.array([token not in special for token in tokens])
        words = torch.tensor([i for i in range(embedding.num_embeddings) if i not in special], device=self.device)
        with torch.no_grad():
            self.mean = embedding(words).mean(dim=0)

    @property
    def columns(self) -> int:
        return len(self.tokens)

    def attends_to_columns(self, name: str) -> bool:
        return name in self.attentions

    @abstractmethod
    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities `n t`, and the embedded tokens `n s e` that they were computed from."""

    @torch.no_grad()
    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        with evaluating(self.model):
            parts = [
                self.read(self._copies(part), part.to(self.device))[0] for part in keep.split(self._some(BATCH_TOKENS))
            ]
        return torch.cat(parts)

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        products = []
        # cuDNN has no backward pass through a recurrent layer in evaluation mode.
        with evaluating(self.model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for part in torch.tensor(list(rows), device=self.device).split(self._some(GRADIENT_TOKENS)):
                # One copy of the input for each row: the sum over copies keeps the gradients of the rows apart.
                log_probs, embedded = self.read(self._copies(part), None)
                own = log_probs.gather(1, part.unsqueeze(1)).sum()
                (gradient,) = torch.autograd.grad(own, embedded)
                products.append(self._by_column((gradient * embedded.detach()).sum(dim=-1), len(part)))
        return torch.cat(products)

    def _some(self, tokens: int) -> int:
        """How many variants fit into one batch."""
        return max(1, min(tokens // (self.rows + self.columns), 2 * LOGITS // self.logits))

    def _as_embedded(self, keep: Bool[Tensor, "n s"], shape: torch.Size) -> Bool[Tensor, "..."]:
        """What is kept, in the shape in which the model embeds tokens.

        There is no padding: a model that removes it embeds all tokens, one text after the other.
        """
        return keep.reshape(shape)

    def _by_column(self, values: Float[Tensor, "..."], variants: int) -> Float[Tensor, "n s"]:
        """Back from that shape."""
        return values.reshape(variants, self.columns)

    def _copies(self, variants: Tensor) -> Int[Tensor, "n s"]:
        return self.tokens.expand(len(variants), -1)

    def _texts(self, tokens: Int[Tensor, "n s"]) -> Texts:
        return Texts(tokens, None if self.segments is None else self.segments.expand(len(tokens), -1))

    @contextmanager
    def _embedding_seen(self, keep: Bool[Tensor, "n s"] | None) -> Iterator[list[Tensor]]:
        """Inside, the embedding gives the mean for what is not kept; the list collects its outputs.

        Without ``keep`` the outputs are unchanged, and they are the leaves of the gradient.
        """
        thread, seen = threading.get_ident(), []

        def hide(module: nn.Module, inputs: object, embedded: Tensor) -> Tensor | None:
            if threading.get_ident() != thread:  # another thread uses the model: hide nothing there
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
    """A model from text to text, a source, and an output (the model's own or any other).

    Both are token ids as the model reads them: the source with its `END`, the output without `START`.
    """

    row_name, column_name = "written token", "source token"
    model: TextToText

    def __init__(self, model: TextToText, source_ids: Sequence[int], written_ids: Sequence[int]) -> None:
        super().__init__(model, model.source_embedding, source_ids, (PADDING, START, END))
        if not written_ids:
            raise UserError("there is nothing to explain: the output is empty")
        self.written = torch.tensor(list(written_ids), device=self.device)
        self.rows = len(written_ids)

    def attends_to_columns(self, name: str) -> bool:
        return self.model.attends_to_source(name)

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        # Only while the source is encoded: where embeddings are tied, the target uses the same module.
        with self._embedding_seen(keep) as seen:
            state = self.model.begin(tokens)
        start = torch.tensor([START], device=self.device)
        words = torch.cat([start, self.written[:-1]]).expand(len(tokens), -1)
        if self.model.copying is not None:
            looked, _ = self.model.look(words, state)
            # What is hidden cannot be copied either.
            source = tokens if keep is None else tokens.where(keep, UNKNOWN)
            return self.model.log_probs_of(source, looked, self.written.expand(words.shape)), seen[0]
        features, _ = self.model.decode(words, state)
        # In blocks of rows: the logits of all variants are the largest tensor of all.
        targets = self.written.expand(features.shape[:2]).flatten()
        some = max(1, LOGITS // self.model.output.out_features)
        blocks = zip(features.flatten(0, 1).split(some), targets.split(some), strict=True)
        log_probs = [log_probs_of(self.model.output(part), own) for part, own in blocks]
        return torch.cat(log_probs).unflatten(0, features.shape[:2]), seen[0]


class EncodedSubject(TokenSubject):
    """One pass over the tokens gives what is measured."""

    @abstractmethod
    def measure(self, tokens: Int[Tensor, "n s"], perturbed: bool) -> Float[Tensor, "n t"]:
        """The log-probabilities of the rows. Without ``perturbed``, a gradient is taken of them."""

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._embedding_seen(keep) as seen:
            log_probs = self.measure(tokens, keep is not None)
        return log_probs, seen[0]


class PoolSubject(EncodedSubject):
    """A classifier that pools a sequence by attention, one input, and the label that was predicted: one row.

    ``classify`` computes the logits of labels `n l` from tokens `n s`, which it reads through ``embedding``;
    ``attention`` is the pooling's name as `capture` gives it.
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
        super().__init__(model, embedding, tokens, special, (attention,))
        self.label = label
        self.classify = model if classify is None else classify

    def measure(self, tokens: Int[Tensor, "n s"], perturbed: bool) -> Float[Tensor, "n t"]:
        return torch.log_softmax(self.classify(tokens), dim=-1)[:, self.label].unsqueeze(1)


class LabelSubject(EncodedSubject):
    """A classifier, one text (or pair) as the model reads it, and a label by its number: one row.

    The probability is the reported one, after the ``temperature``; with ``several`` labels, that of this label alone.
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
        # Unknown tokens may be hidden: which word it was is lost, but not that there was one.
        special = (specials.padding, specials.start, specials.end)
        tokens, segments = texts.words[0].tolist(), None if texts.parts is None else texts.parts[:1]
        super().__init__(model, embedding_of(model.model), tokens, special, attentions, segments)
        self.label, self.column_name = label, column_name
        self.temperature, self.several = temperature, several
        self.before = self._whole()

    def measure(self, tokens: Int[Tensor, "n s"], perturbed: bool) -> Float[Tensor, "n t"]:
        logits = self.model.scores(self._texts(tokens)).double() / self.temperature
        log_probs = F.logsigmoid(logits) if self.several else torch.log_softmax(logits, dim=-1)
        return log_probs[:, self.label].unsqueeze(1)

    def effect(self, cost: float) -> str:
        return label_effect(self.before, cost)

    def _whole(self) -> float:
        """The probability of the label when nothing is hidden."""
        return float(self.log_probs(torch.ones(1, self.columns, dtype=torch.bool)).exp())

    def _as_embedded(self, keep: Bool[Tensor, "n s"], shape: torch.Size) -> Bool[Tensor, "..."]:
        return keep.flatten()[self._places(len(keep))].view(shape)

    def _by_column(self, values: Float[Tensor, "..."], variants: int) -> Float[Tensor, "n s"]:
        columns = values.new_zeros(variants * self.columns)
        columns[self._places(variants)] = values.flatten()
        return columns.view(variants, self.columns)

    def _places(self, variants: int) -> Int[Tensor, " m"]:
        """Which tokens of the flattened variants are embedded, in the model's order: `HAN` has its own."""
        model = self.model.model
        if isinstance(model, HAN):
            return model.cut(self._texts(self.tokens.expand(variants, -1))).places
        return torch.arange(variants * self.columns, device=self.device)


class NumberSubject(LabelSubject):
    """A model that predicts a number. The distance from the unperturbed number replaces the log-probability.

    So a cost is a change of the number, up or down alike, in the user's own units. That distance has no gradient where
    nothing is hidden; the gradient is that of the number.
    """

    row_name = "number"

    def __init__(self, model: Labeller, texts: Texts, attentions: Collection[str], column_name: str = "token") -> None:
        super().__init__(model, texts, 0, attentions, column_name=column_name)

    def measure(self, tokens: Int[Tensor, "n s"], perturbed: bool) -> Float[Tensor, "n t"]:
        numbers = self.model.scores(self._texts(tokens)).unsqueeze(1)
        return -(numbers - self.before).abs() if perturbed else numbers

    def effect(self, cost: float) -> str:
        return f"the number {self.before:.4g} changes by {cost:.3g}"

    def _whole(self) -> float:
        with evaluating(self.model), torch.no_grad():
            return float(self.model.scores(self._texts(self.tokens.unsqueeze(0))))


class PlacesSubject(EncodedSubject):
    """A model, one text as it reads it, and its predictions at places of the text, a row each: tags, pointers, masks.

    ``measure`` gives the log-probability of each row, ``n rows``, for n variants of the text.
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
        tokens, segments = texts.words[0].tolist(), None if texts.parts is None else texts.parts[:1]
        super().__init__(model, embedding, tokens, special, attentions, segments)
        self.rows, self._measure, self.row_name = rows, measure, row_name

    def measure(self, tokens: Int[Tensor, "n s"], perturbed: bool) -> Float[Tensor, "n t"]:
        return self._measure(self._texts(tokens))


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Without dropout; the training mode is restored afterwards."""
    in_training = [model for model in models if model.training]  # the others need no walk over all of their parts
    for model in in_training:
        model.eval()
    try:
        yield
    finally:
        for model in in_training:
            model.train()


def log_probs_of(logits: Float[Tensor, "... v"], tokens: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The log-probability of one token for each row of logits."""
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(dim=-1)


def embedding_of(model: TextModel) -> nn.Embedding:
    """The token embedding of a text model."""
    embedding = model.annotator.embedding if isinstance(model, Attentive) else model.embedding
    assert isinstance(embedding, nn.Embedding)
    return embedding


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


def label_effect(before: float, cost: float) -> str:
    """What a cost in nats does to the probability of a label."""
    after = min(before * math.exp(min(-cost, AT_MOST)), 1.0)
    return f"the label's probability changes from {_percent(before)} to {_percent(after)} ({cost:z.2f} nats)"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else "less than 0.1%"
