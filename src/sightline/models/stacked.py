"""The decoder of a Transformer as a model's half: what translators and captioners of this kind share.

A model that takes this in holds ``decoder``, ``decoder_norm``, ``dropout`` and a ``config`` with ``positions``.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.kernels.dropout import Dropout
from sightline.models.writer import Writer
from sightline.nn.annotating import sinusoids
from sightline.nn.inference import OneTokenDecoder, Weights
from sightline.nn.transformer import DecoderLayerState


class TransformerState(NamedTuple):
    """The decoder's layers, and how many words came before."""

    layers: tuple[DecoderLayerState, ...]
    position: int


class StackedWriter(Writer):
    """Attends to the words so far and to the source, layer by layer; writes."""

    config: Any
    decoder: nn.ModuleList
    decoder_norm: nn.Module
    dropout: Dropout
    _prepared: tuple[Weights, tuple[Any, OneTokenDecoder]] | None = None

    def decode(
        self, words: Int[Tensor, "b t"], state: TransformerState
    ) -> tuple[Float[Tensor, "b t d"], TransformerState]:
        x = self._place(self.target_embedding(words), state.position)
        states = []
        for layer, layer_state in zip(self.decoder, state.layers, strict=True):
            x, after = layer(x, layer_state)
            states.append(after)
        return self.decoder_norm(x), TransformerState(tuple(states), state.position + words.shape[1])

    def train(self, mode: bool = True) -> "StackedWriter":
        """What search keeps of weights is dropped: a fused optimiser changes them without a trace."""
        if mode:
            self._prepared = None
        return super().train(mode)

    def looks_at_source(self, name: str) -> bool:
        return name.startswith("decoder.") and name.endswith(".cross")

    @torch.no_grad()
    def _searching(self) -> tuple[Any, OneTokenDecoder]:
        """What `_prepare` makes: once for weights that do not learn any more, such as those of a loaded run."""
        if self._prepared is not None and self._prepared[0].are_still():
            return self._prepared[1]
        made = self._prepare()
        weights = Weights.of(self)
        self._prepared = None if weights is None else (weights, made)
        return made

    def _prepare(self) -> tuple[Any, OneTokenDecoder]:
        """The encoder, where it has a form for search, and the decoder's step."""
        return None, self._one_token(sinusoid=True)

    def _one_token(self, sinusoid: bool) -> OneTokenDecoder:
        return OneTokenDecoder(self.decoder, self.decoder_norm, self.target_embedding, self.output, sinusoid)

    def _place(self, x: Float[Tensor, "b t d"], start: int) -> Float[Tensor, "b t d"]:
        if self.config.positions == "sinusoid":
            x = x + sinusoids(start, x.shape[1], x.shape[2], x)
        return self.dropout(x)
