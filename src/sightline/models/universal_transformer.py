"""The Universal Transformer (Dehghani et al. 2018) from text to text: one encoder and one decoder layer, repeated.

Tokens of the source halt by themselves (`sightline.nn.thinking`); the decoder repeats its layer ``decoder_repeats``
times for every token. With ``ponder`` the decoder reads the expected state of each source token: to decode the state
after each repeat, as the mean of losses needs, would take as many decoders.

What people get wrong: see `sightline.nn.universal`; and each repeat of the decoder has a past of its own, though all
have the same weights: what it attends to are the words so far as they were at that repeat.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention.checks import check_least, check_share
from sightline.attention.tap import repeat_number
from sightline.models.stacked import TransformerState
from sightline.models.text_to_text import PADDING, Loss, TextToText, TextToTextConfig, Tying, padding_mask
from sightline.models.writer import ThoughtLoss, with_ponder
from sightline.nn.dropout import Dropout
from sightline.nn.thinking import FixedRepeatsConfig, Halting, ThinkingConfig, Thought
from sightline.nn.transformer import Activation, DecoderLayer, LayerShape
from sightline.nn.universal import UniversalEncoder, coordinates, mean_over_positions, spread_weights


class UniversalTransformer(TextToText):
    """Embed, repeat, attend, write."""

    def __init__(self, config: "UniversalTransformerConfig", source_words: int, target_words: int) -> None:
        if config.copying:
            raise ValueError("copying needs one attention to copy from; this model has several: use --no-copy")
        super().__init__(source_words, target_words, config.size, config.size, config.tied)
        self.config = config
        shape = LayerShape(
            config.size, config.heads, config.feed_forward, config.dropout, config.norm, config.activation
        )
        self.encoder = UniversalEncoder(shape, config.thinking)
        self.decoder = DecoderLayer(shape)
        self.decoder_norm = nn.LayerNorm(config.size) if config.norm == "pre" else nn.Identity()
        self.dropout = Dropout(config.dropout)
        spread_weights(self.decoder)

    def think(self, source: Int[Tensor, "b s"]) -> Thought:
        """The states of the source's tokens, their weights and repeats."""
        return self.encoder(self.dropout(self.source_embedding(source)), padding_mask(source))

    def begin(self, source: Int[Tensor, "b s"]) -> TransformerState:
        return self._begin(self.think(source), source)

    def _begin(self, thought: Thought, source: Int[Tensor, "b s"]) -> TransformerState:
        # The source looks the same to all repeats: they have the same weights.
        state = self.decoder.begin(thought.state[0], padding_mask(source))
        return TransformerState((state,) * self.config.decoder_repeats, 0)

    def decode(
        self, words: Int[Tensor, "b t"], state: TransformerState
    ) -> tuple[Float[Tensor, "b t d"], TransformerState]:
        x, states = self.dropout(self.target_embedding(words)), []
        for number, past in enumerate(state.layers, start=1):
            placed = x + coordinates(state.position, words.shape[1], number, x)
            with repeat_number(number):
                x, after = self.decoder(placed, past)
            states.append(after)
        return self.decoder_norm(x), TransformerState(tuple(states), state.position + words.shape[1])

    def loss(  # type: ignore[override]
        self, source: Int[Tensor, "b s"], target: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Loss | ThoughtLoss:
        """In training, what the repeats of the source cost is a part of it: for each target token, the mean over the
        tokens of its source. Elsewhere it is not, for there a loss measures what is written (perplexity)."""
        thought = self.think(source)
        features, _ = self.decode(target[:, :-1], self._begin(thought, source))
        following = target[:, 1:]
        real = following != PADDING
        total, tokens = self.cross_entropy(features, following, real, smoothing), int(real.sum())
        if not (self.training and isinstance(self.encoder.thinking, Halting)):
            return Loss(total, tokens)
        mask = padding_mask(source)
        cost, repeats = (mean_over_positions(one, mask) for one in (thought.cost, thought.repeats))
        return with_ponder(total, tokens, cost, repeats, real.sum(dim=1))

    def attends_to_source(self, name: str) -> bool:
        return name.startswith("decoder.cross")


@dataclass(frozen=True)
class UniversalTransformerConfig(TextToTextConfig):
    """``thinking`` is how often the encoder's layer is repeated: ``fixed``, ``act`` or ``ponder``, with their own
    fields; ``decoder_repeats`` how often that of the decoder is."""

    size: int = 128
    heads: int = 4
    feed_forward: int = 256
    thinking: ThinkingConfig = field(default_factory=lambda: FixedRepeatsConfig(repeats=4))
    decoder_repeats: int = 4
    dropout: float = 0.3
    norm: Literal["pre", "post"] = "pre"
    activation: Activation = "relu"
    tied: Tying = "all"
    kind: ClassVar[str] = "universal_transformer"

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "heads", "feed_forward", "decoder_repeats")
        check_share(self, "dropout")
        if self.size % self.heads or self.size % 2:
            raise ValueError(f"size is {self.size}; it must be even and divide into {self.heads} heads")

    def build(self, source_words: int, target_words: int) -> UniversalTransformer:
        return UniversalTransformer(self, source_words, target_words)
