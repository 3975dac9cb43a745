"""The decoder of a Transformer as a model's half: what translators and captioners of this kind share.

A model that takes this in holds ``decoder``, ``decoder_norm``, ``dropout`` and a ``config`` with ``positions``.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention import Read
from sightline.attention.observed import may_bypass
from sightline.decoding.search import Step
from sightline.kernels import transformer_search
from sightline.kernels.transformer_search import CopyingLayer, OneTokenDecoder, Packed, Sinusoids
from sightline.models.writer import Writer
from sightline.nn.annotating import sinusoids
from sightline.nn.dropout import Dropout
from sightline.nn.transformer import DecoderLayer, DecoderLayerState, EncoderLayer


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
    _search_parts: tuple[Callable[[Tensor], Packed], OneTokenDecoder] | None = None

    def decode(
        self, words: Int[Tensor, "b t"], state: TransformerState
    ) -> tuple[Float[Tensor, "b t d"], TransformerState]:
        return self.decode_layers(words, state, {})

    def decode_layers(
        self, words: Int[Tensor, "b t"], state: TransformerState, reads: Mapping[int, list[Read]]
    ) -> tuple[Float[Tensor, "b t d"], TransformerState]:
        """As `decode`; for some layers, what they read of the source is added to a list."""
        x = self._place(self.target_embedding(words), state.position)
        states = []
        for number, (layer, layer_state) in enumerate(zip(self.decoder, state.layers, strict=True)):
            x, after = layer(x, layer_state, reads[number]) if number in reads else layer(x, layer_state)
            states.append(after)
        return self.decoder_norm(x), TransformerState(tuple(states), state.position + words.shape[1])

    def attends_to_source(self, name: str) -> bool:
        return name.startswith("decoder.") and name.endswith(".cross")

    def searching(self, source: Tensor) -> tuple[Step, Any]:
        return (transformer_search.fast if self.searches_fast(source) else transformer_search.reference)(self, source)

    def searches_fast(self, source: Tensor) -> bool:
        """Whether search may take its own step: it can compute these layers, and nobody watches them."""
        return transformer_search.supported(self, source) and may_bypass(self)

    def search_parts(self) -> tuple[Callable[[Tensor], Packed], OneTokenDecoder]:
        """The encoder and the decoder's step, with copies of the weights.

        They are made once for a model whose weights are frozen, such as that of a loaded run, and again for every
        search of any other. Changes by `requires_grad_`, `train`, `to` or `load_state_dict` of this model are noticed;
        after other changes to frozen weights, call ``model.requires_grad_(False)``.
        """
        if self._search_parts is None or any(parameter.requires_grad for parameter in self.parameters()):
            self._search_parts = self.build_search_parts()
        return self._search_parts

    @abstractmethod
    def build_search_parts(self) -> tuple[Callable[[Tensor], Packed], OneTokenDecoder]:
        """What `search_parts` gives, made from the weights as they are now."""

    def has_plain_layers(self) -> bool:
        """Whether all layers that `search_parts` computes are of the kind that it can."""
        layers = self.search_layers()
        return all(isinstance(layer, EncoderLayer | DecoderLayer) and layer.is_plain() for layer in layers)

    def search_layers(self) -> Iterable[nn.Module]:
        return self.decoder

    def train(self, mode: bool = True) -> "StackedWriter":
        self._search_parts = None if mode else self._search_parts
        return super().train(mode)

    def requires_grad_(self, requires_grad: bool = True) -> "StackedWriter":
        self._search_parts = None
        return super().requires_grad_(requires_grad)

    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        self._search_parts = None
        return super().load_state_dict(*arguments, **options)

    def _apply(self, *arguments: Any, **options: Any) -> "StackedWriter":
        self._search_parts = None
        return super()._apply(*arguments, **options)

    def _one_token(self) -> OneTokenDecoder:
        return OneTokenDecoder(
            self.decoder,  # type: ignore[arg-type]
            self.decoder_norm,
            self.target_embedding,
            self.output,
            self._sinusoids(),
            self.copying_layer(),
        )

    def copying_layer(self) -> CopyingLayer | None:
        """What search needs of the layer whose attention copies; None where nothing is copied."""
        return None

    def _sinusoids(self) -> Sinusoids | None:
        return sinusoids if self.config.positions == "sinusoid" else None

    def _place(self, x: Float[Tensor, "b t d"], start: int) -> Float[Tensor, "b t d"]:
        if self.config.positions == "sinusoid":
            x = x + sinusoids(start, x.shape[1], x.shape[2], x)
        return self.dropout(x)
