"""What to measure on a model that others trained (`sightline.explain.evidence` says what a subject is).

Tokens are hidden as everywhere here: the mean embedding stands in their place. What hiding costs is measured by what
the model was made for: how likely it finds the token it writes next, the label, the word under a mask. A model without
any such head gives a vector; then the cost is how far the vector of the whole text turns, 1 − cosine.
"""

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.explain.evidence import PoolSubject, removal
from sightline.explain.evidence.measures import Removal, head_costs, leave_one_out, uniform_cost
from sightline.explain.evidence.panel import Weights, agreements, spread
from sightline.explain.evidence.subject import TokenSubject
from sightline.explain.explanation import Belief, Finding

LOGITS = 1 << 25  # 128 MB of float32


class _Bounded(TokenSubject):
    """Few enough variants at once that the scores of all words, the largest tensor there is, stay small."""

    scores = 1  # of one variant

    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        some = max(1, LOGITS // self.scores)
        return torch.cat([super(_Bounded, self).log_probs(part) for part in keep.split(some)])

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        some = max(1, LOGITS // self.scores)
        parts = [rows[start : start + some] for start in range(0, len(rows), some)]
        return torch.cat([super(_Bounded, self).gradient_times_input(part) for part in parts])


class NextSubject(_Bounded, PoolSubject):
    """A model that goes on with a text: its one row is the token that follows the whole of it."""

    row_name = "next token"

    def __init__(
        self, model: nn.Module, tokens: Sequence[int], following: int, attention: str, special: Sequence[int]
    ) -> None:
        # Where a model can be asked for the last scores only, it is.
        only_last = "logits_to_keep" in signature(model.forward).parameters
        more = {"logits_to_keep": 1} if only_last else {}

        def classify(tokens: Tensor) -> Tensor:
            mask = torch.ones_like(tokens)
            return model(input_ids=tokens, attention_mask=mask, use_cache=False, return_dict=True, **more).logits[:, -1]

        embedding = model.get_input_embeddings()  # type: ignore[operator]
        PoolSubject.__init__(
            self, model, tokens, following, embedding=embedding, attention=attention, classify=classify, special=special
        )
        self.scores = embedding.num_embeddings * (1 if only_last else len(tokens))


class WrittenSubject(_Bounded):
    """An encoder–decoder, its source, and what was written: tokens as the model sees them."""

    row_name, column_name = "written token", "source token"

    def __init__(
        self, model: nn.Module, source: Sequence[int], start: int, written: Sequence[int], cross: Sequence[str],
        special: Sequence[int],
    ) -> None:  # fmt: skip
        self.encoder = model.get_encoder()  # type: ignore[operator]
        super().__init__(model, self.encoder.get_input_embeddings(), source, special)
        self.written = torch.tensor(list(written), device=self.device)
        self.start, self.cross = start, set(cross)
        self.scores = len(written) * self.embedding.num_embeddings

    @property
    def rows(self) -> int:
        return len(self.written)

    def looks_at_columns(self, name: str) -> bool:
        return name in self.cross

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        mask = torch.ones_like(tokens)
        # Only while the source is read: the target may go through the same embedding.
        with self._embedding_seen(keep) as seen:
            encoded = self.encoder(input_ids=tokens, attention_mask=mask, return_dict=True)
        start = torch.tensor([self.start], device=self.device)
        words = torch.cat([start, self.written[:-1]]).expand(len(tokens), -1)
        logits = self.model(
            encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=words, use_cache=False, return_dict=True
        ).logits
        wanted = self.written.expand(len(tokens), -1).unsqueeze(-1)
        return logits.gather(-1, wanted).squeeze(-1) - logits.logsumexp(dim=-1), seen[0]


class MaskedSubject(_Bounded):
    """A model that fills in masked words: each row is the word at one of the ``places``, read with a mask over it."""

    row_name, column_name = "masked word", "token"

    def __init__(
        self, model: nn.Module, tokens: Sequence[int], places: Sequence[int], words: Sequence[int], mask: int,
        names: Sequence[str], special: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__(model, model.get_input_embeddings(), tokens, special)  # type: ignore[operator]
        self.places, self.words = (torch.tensor(list(some), device=self.device) for some in (places, words))
        self.mask, self.names = mask, set(names)
        self.scores = len(places) * len(tokens) * self.embedding.num_embeddings

    @property
    def rows(self) -> int:
        return len(self.places)

    def looks_at_columns(self, name: str) -> bool:
        return name in self.names

    def masked(self, tokens: Int[Tensor, "n s"]) -> Int[Tensor, "m s"]:
        """One copy of each variant for each row, with that row masked: all rows of the first, then of the second."""
        each = torch.arange(self.rows, device=self.device)
        copies = tokens.unsqueeze(1).repeat(1, self.rows, 1)
        copies[:, each, self.places] = self.mask
        return copies.flatten(0, 1)

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        each = torch.arange(self.rows, device=self.device)
        if keep is not None:
            # The mask itself is not hidden: the question is what the other words say about the one under it.
            keep = keep.unsqueeze(1).repeat(1, self.rows, 1)
            keep[:, each, self.places] = True
            keep = keep.flatten(0, 1)
        variants = self.masked(tokens)
        with self._embedding_seen(keep) as seen:
            logits = self.model(input_ids=variants, attention_mask=torch.ones_like(variants), return_dict=True).logits
        logits = logits.unflatten(0, (len(tokens), self.rows))[:, each, self.places]
        wanted = self.words.expand(len(tokens), -1).unsqueeze(-1)
        return logits.gather(-1, wanted).squeeze(-1) - logits.logsumexp(dim=-1), seen[0]

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        # Each row has a copy of the input to itself already.
        with torch.enable_grad():
            log_probs, embedded = self.read(self.tokens.unsqueeze(0), None)
            (gradient,) = torch.autograd.grad(log_probs.sum(), embedded)
        return (gradient * embedded.detach()).sum(dim=-1)[list(rows)]


class VectorSubject(PoolSubject):
    """An encoder and one text: its one row is the vector of the whole text, the mean over its tokens or the first one.

    In the place of a log-probability stands the cosine with the vector of the whole text, so that a cost is 1 − cosine.
    A gradient cannot be taken of that, which is at its largest where nothing is hidden; it is taken of the vector's
    length along its own direction.
    """

    row_name, column_name = "sentence vector", "token"

    def __init__(
        self, model: nn.Module, tokens: Sequence[int], attention: str, special: Sequence[int], first: bool
    ) -> None:
        embedding = model.get_input_embeddings()  # type: ignore[operator]
        super().__init__(model, tokens, 0, embedding=embedding, attention=attention, special=special)
        self.first = first
        with torch.no_grad():
            vector = self._vectors(self.tokens.unsqueeze(0))[0]
            self.direction = vector / vector.norm().clamp(min=1e-12)

    def _vectors(self, tokens: Int[Tensor, "n s"]) -> Float[Tensor, "n d"]:
        hidden = self.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), return_dict=True)
        states = hidden.last_hidden_state
        return states[:, 0] if self.first else states.mean(dim=1)

    def read(self, tokens: Int[Tensor, "n s"], keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._embedding_seen(keep) as seen:
            vectors = self._vectors(tokens)
        along = vectors @ self.direction
        if keep is not None:
            along = along / vectors.norm(dim=-1).clamp(min=1e-12)
        return along.unsqueeze(1), seen[0]


def believe_vector(subject: VectorSubject, looks: Weights, special: Sequence[int], about: str) -> Belief:
    """As `explain.evidence.believe`, in words about a vector that turns instead of a token that gets less likely."""
    alone = leave_one_out(subject, [0])
    even, *resting = spread(subject, looks, special)
    even = replace(even, sentence=even.sentence.replace("Each sentence vector", "This layer", 1))
    return Belief(
        about=about,
        rows=1,
        findings=(
            even,
            *resting,
            *agreements(subject, looks, [0], alone),
            _turned(removal(subject, looks, [0], alone=alone)),
            _even(uniform_cost(subject, [subject.attention])),
        ),
        heads=head_costs([subject]),
    )


def _turned(found: Removal | None) -> Finding:
    title = "Hiding what was looked at most"
    if found is None:
        text = "There are too few tokens to hide some that were looked at most and others to compare."
        return Finding("removal", title, None, None, text)
    one = found.k == 1
    most = "the token that was looked at most" if one else f"the {found.k} tokens that were looked at most"
    others = "another one, chosen at random," if one else f"{found.k} others, chosen at random,"
    text = (
        f"With {most} hidden, the sentence vector turns by {found.looked_at:.3f}; with {others} hidden, by "
        f"{found.others:.3f}, where 0 is the same direction and 1 a right angle (1 − cosine)."
    )
    return Finding("removal", title, found.looked_at, found.others, text)


def _even(cost: float) -> Finding:
    text = (
        f"Made to look at every token alike in this layer, the sentence vector turns by {cost:.3f} (1 − cosine); near "
        f"0 says that it is much the same wherever the layer looks."
    )
    return Finding("uniform", "Looking at everything alike", cost, 0.0, text)
