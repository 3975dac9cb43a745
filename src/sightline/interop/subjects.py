"""Hugging Face models under perturbation (`sightline.explain.evidence.subject` defines what a subject is).

Tokens are hidden as in every subject: the mean embedding replaces their own. The cost of hiding is measured by the
model's own task: the log-probability of the next token, of the label, of the token under a mask. A model without a head
gives a vector; then the cost is how far the vector of the whole text turns, 1 − cosine.
"""

from collections.abc import Sequence
from inspect import signature

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.explain.evidence.subject import EncodedSubject, PoolSubject, TokenSubject, log_probs_of


class NextSubject(PoolSubject):
    """A causal language model: its one row is the token that follows the whole text."""

    row_name = "next token"

    def __init__(
        self, model: nn.Module, tokens: Sequence[int], following: int, attention: str, special: Sequence[int]
    ) -> None:
        # Only the last logits are computed where the model can do that.
        only_last = "logits_to_keep" in signature(model.forward).parameters
        more = {"logits_to_keep": 1} if only_last else {}

        def classify(tokens: Tensor) -> Tensor:
            mask = torch.ones_like(tokens)
            return model(input_ids=tokens, attention_mask=mask, use_cache=False, return_dict=True, **more).logits[:, -1]

        embedding = model.get_input_embeddings()  # type: ignore[operator]
        super().__init__(
            model, tokens, following, embedding=embedding, attention=attention, classify=classify, special=special
        )
        self.logits = embedding.num_embeddings * (1 if only_last else len(tokens))


class WrittenSubject(TokenSubject):
    """An encoder–decoder, its source, and an output: tokens as the model reads them."""

    row_name, column_name = "written token", "source token"

    def __init__(
        self, model: nn.Module, source: Sequence[int], start: int, written: Sequence[int], cross: Sequence[str],
        special: Sequence[int],
    ) -> None:  # fmt: skip
        self.encoder = model.get_encoder()  # type: ignore[operator]
        super().__init__(model, self.encoder.get_input_embeddings(), source, special, cross)
        self.decoder_input = torch.tensor([start, *written[:-1]], device=self.device)
        self.written, self.rows = torch.tensor(list(written), device=self.device), len(written)
        self.logits = len(written) * self.embedding.num_embeddings

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        mask = torch.ones_like(tokens)
        # Only while the source is encoded: the target may use the same embedding.
        with self._embedding_seen(keep) as seen:
            encoded = self.encoder(input_ids=tokens, attention_mask=mask, return_dict=True)
        words = self.decoder_input.expand(len(tokens), -1)
        logits = self.model(
            encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=words, use_cache=False, return_dict=True
        ).logits
        return log_probs_of(logits, self.written.expand(len(tokens), -1)), seen[0]


class MaskedSubject(TokenSubject):
    """A masked language model: each row is the token at one of the ``places``, predicted with a mask over it."""

    row_name = "masked word"

    def __init__(
        self, model: nn.Module, tokens: Sequence[int], places: Sequence[int], words: Sequence[int], mask: int,
        names: Sequence[str], special: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__(model, model.get_input_embeddings(), tokens, special, names)  # type: ignore[operator]
        self.places, self.words = (torch.tensor(list(some), device=self.device) for some in (places, words))
        self.mask, self.rows = mask, len(places)
        self.logits = len(places) * len(tokens) * self.embedding.num_embeddings

    def masked(self, tokens: Int[Tensor, "n s"]) -> Int[Tensor, "m s"]:
        """One copy of each variant for each row, with that row masked: all rows of the first, then of the second."""
        return self._at_places(tokens, self.mask)

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        # The mask itself is not hidden: what is measured is what the other tokens say about the one under it.
        keep = None if keep is None else self._at_places(keep, True)
        variants = self.masked(tokens)
        with self._embedding_seen(keep) as seen:
            logits = self.model(input_ids=variants, attention_mask=torch.ones_like(variants), return_dict=True).logits
        each = torch.arange(self.rows, device=self.device)
        logits = logits.unflatten(0, (len(tokens), self.rows))[:, each, self.places]
        return log_probs_of(logits, self.words.expand(len(tokens), -1)), seen[0]

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        # Each row has a copy of the input of its own already.
        with torch.enable_grad():
            log_probs, embedded = self.read(self.tokens.unsqueeze(0), None)
            (gradient,) = torch.autograd.grad(log_probs.sum(), embedded)
        return (gradient * embedded.detach()).sum(dim=-1)[list(rows)]

    def _at_places(self, values: Tensor, value: int | bool) -> Tensor:
        copies = values.unsqueeze(1).repeat(1, self.rows, 1)
        copies[:, torch.arange(self.rows, device=self.device), self.places] = value
        return copies.flatten(0, 1)


class VectorSubject(EncodedSubject):
    """An encoder and one text: its one row is the vector of the whole text, the mean over its tokens or the first one.

    The cosine with the unperturbed vector replaces the log-probability, so that a cost is 1 − cosine. The cosine is at
    its maximum where nothing is hidden and has no gradient there; the gradient is that of the vector's length along its
    own direction.
    """

    row_name = "sentence vector"

    def __init__(
        self, model: nn.Module, tokens: Sequence[int], attention: str, special: Sequence[int], first: bool
    ) -> None:
        super().__init__(model, model.get_input_embeddings(), tokens, special, (attention,))  # type: ignore[operator]
        self.first = first
        with torch.no_grad():
            vector = self._vectors(self.tokens.unsqueeze(0))[0]
            self.direction = vector / vector.norm().clamp(min=1e-12)

    def measure(self, tokens: Int[Tensor, "n s"], perturbed: bool) -> Float[Tensor, "n t"]:
        vectors = self._vectors(tokens)
        along = vectors @ self.direction
        if perturbed:
            along = along / vectors.norm(dim=-1).clamp(min=1e-12)
        return along.unsqueeze(1)

    def effect(self, cost: float) -> str:
        return f"the sentence vector turns by {cost:.3f} (1 − cosine: 0 is the same direction, 1 is a right angle)"

    def _vectors(self, tokens: Int[Tensor, "n s"]) -> Float[Tensor, "n d"]:
        encoded = self.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), return_dict=True)
        states = encoded.last_hidden_state
        return states[:, 0] if self.first else states.mean(dim=1)
