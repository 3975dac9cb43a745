"""What the recurrent models share: a recurrent encoder and the one recurrent attention decoder."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.models.text_to_text import PADDING, TextToText, Tying
from sightline.nn.copying import Looked, heads_of
from sightline.nn.decoder import DecoderShape, DecoderState, RecurrentAttentionDecoder
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import BidirectionalEncoder, Encoded, Reading


class RecurrentModel(TextToText):
    """Encode in both directions or in one, start the decoder from the encoder's final states, decode."""

    def __init__(
        self,
        shape: DecoderShape,
        source_words: int,
        target_words: int,
        *,
        encoder_size: int,
        starts_from: Literal["backward", "both"],
        tied: Tying,
        reads: Reading = "both",
        copying: bool = False,
    ) -> None:
        # The size of what is read, and so of the two joined, is known once the attention is built.
        feature_size = None if shape.writes_from == "joined" else shape.size
        super().__init__(source_words, target_words, shape.embedding_size, feature_size, tied)
        self.encoder = BidirectionalEncoder(
            shape.cell, shape.embedding_size, encoder_size, shape.layers, shape.dropout, reads
        )
        self.decoder = RecurrentAttentionDecoder(shape)
        if feature_size is None:
            self.add_output(self.decoder.feature_size, tied != "none")
        attention = self.decoder.attention
        self.looks = attention is not None
        if copying:
            if attention is None:
                raise ValueError(
                    "copying needs attention to copy from; this model has none: use another one, or --no-copy"
                )
            gate_size = attention.context_size + self.decoder.feature_size + shape.embedding_size
            self.add_copying(gate_size, heads_of(attention))
        self.starts_from = starts_from
        summary_size = encoder_size if starts_from == "backward" else self.encoder.annotation_size
        self.start = nn.Linear(summary_size, shape.layers * shape.size)
        self.dropout = Dropout(shape.dropout)

    def begin(self, source: Int[Tensor, "b s"]) -> DecoderState:
        mask = source != PADDING
        encoded = self.encoder(self.dropout(self.source_embedding(source)), mask)
        return self.decoder.begin(self._first_states(encoded), self.dropout(encoded.annotations), mask)

    def _first_states(self, encoded: Encoded) -> Float[Tensor, "l b h"]:
        """``tanh(W ←h₁)`` (Bahdanau's appendix), or of both directions' final states; one for each layer."""
        both = [encoded.backward] if self.starts_from == "backward" else [encoded.forward, encoded.backward]
        started = torch.tanh(self.start(torch.cat(both, dim=-1)))
        return started.unflatten(-1, (len(self.decoder.cells), -1)).transpose(0, 1)

    def look(  # type: ignore[override]
        self, words: Int[Tensor, "b t"], state: DecoderState, covering: bool = False
    ) -> tuple[Looked, DecoderState]:
        embedded = self.dropout(self.target_embedding(words))
        attended, state = self.decoder.look(embedded, state, covering)
        features = self.dropout(attended.features)
        gate_input = torch.cat([attended.contexts, features, embedded], dim=-1)
        return Looked(features, attended.weights, gate_input), state

    def decode(self, words: Int[Tensor, "b t"], state: DecoderState) -> tuple[Float[Tensor, "b t d"], DecoderState]:
        features, state = self.decoder(self.dropout(self.target_embedding(words)), state)
        return self.dropout(features), state
