"""The Universal Transformer (Dehghani et al. 2018) over a text: one layer, repeated until each token halts.

Embeddings, pooling and heads are those of the `encoder`. See `sightline.nn.universal` for what people get wrong.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sightline.attention.checks import check_least, check_share
from sightline.models.encoder import PooledEncoder
from sightline.models.text_to_labels import ReadText, TextModelConfig, Texts, ThinkingTextModel
from sightline.nn.thinking import AdaptiveConfig, Halting, ThinkingConfig, Thought
from sightline.nn.transformer import Activation, LayerShape
from sightline.nn.universal import UniversalEncoder, mean_over_positions
from sightline.vocabulary import OURS, Specials


class Universal(PooledEncoder, ThinkingTextModel):
    """Embed, repeat, pool."""

    config: "UniversalConfig"

    def __init__(self, config: "UniversalConfig", words: int, specials: Specials = OURS) -> None:
        super().__init__(config, specials)
        self.add_embeddings(words)
        self.encoder = UniversalEncoder(config.shape(), config.thinking)
        self.add_pooling()
        self.thinks = isinstance(self.encoder.thinking, Halting)

    @property
    def last_attention(self) -> str:
        return "encoder.layer.attention@*"

    def think(self, texts: Texts) -> Thought:
        """The states of the tokens, their weights and repeats."""
        places = torch.arange(texts.words.shape[1], device=texts.words.device).expand_as(texts.words)
        x = self._embed(texts.words, places, texts.parts, texts.words.shape[1])
        return self.encoder(x, self.real(texts))

    def read(self, texts: Texts) -> ReadText:
        """Of PonderNet, features are the mean of those after each repeat: a prediction is the mean of their logits."""
        thought, real = self.think(texts), self.real(texts)
        (annotations,) = thought.state
        cost, repeats = (mean_over_positions(one, real) for one in (thought.cost, thought.repeats))
        if thought.states is None:
            return ReadText(annotations, self.pooled(annotations, texts), cost, repeats)
        each = tuple(self.pooled(one, texts) for (one,) in thought.states)
        weights: Float[Tensor, "n b"] = mean_over_positions(thought.weights, real)
        features = (torch.stack(each) * weights.unsqueeze(-1)).sum(dim=0)
        return ReadText(annotations, features, cost, repeats, each, weights)

    def layer_depths(self) -> dict[str, int]:
        """How many steps each parameter stands below the output; the repeated layer is one step."""
        below = {"encoder": 1, **dict.fromkeys(("embedding", "parts", "embedding_norm"), 2)}
        return {name: below.get(name.partition(".")[0], 0) for name, _ in self.named_parameters()}


def _thinking() -> ThinkingConfig:
    return AdaptiveConfig(most=6)


@dataclass(frozen=True)
class UniversalConfig(TextModelConfig):
    """``thinking`` is how often the layer is repeated: ``fixed``, ``act`` or ``ponder``, with their own fields.

    The other fields are those of the encoder. Positions are always those of the coordinate embeddings.
    """

    size: int = 128
    heads: int = 4
    feed_forward: int = 512
    thinking: ThinkingConfig = field(default_factory=_thinking)
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    activation: Activation = "gelu"
    parts: int = 0
    pooling: Literal["attention", "first", "mean"] = "attention"
    kind: ClassVar[str] = "universal"
    # What the embeddings and the pooling of the encoder also ask for.
    positions: ClassVar[str] = "coordinates"
    embedding_norm: ClassVar[bool] = False
    scaled: ClassVar[bool] = True
    pooler: ClassVar[bool] = False
    epsilon: ClassVar[float] = 1e-5

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "heads", "feed_forward")
        check_least(self, 0, "parts")
        check_share(self, "dropout", "attention_dropout")
        if self.size % self.heads or self.size % 2:
            raise ValueError(f"size is {self.size}; it must be even and divide into {self.heads} heads")

    def shape(self) -> LayerShape:
        return LayerShape(
            self.size,
            self.heads,
            self.feed_forward,
            self.dropout,
            self.norm,
            self.activation,
            attention_dropout=self.attention_dropout,
            epsilon=self.epsilon,
        )

    def build(self, words: int, specials: Specials = OURS) -> Universal:
        return Universal(self, words, specials)
