"""The encoder: a stack of self-attention layers over a text (Vaswani et al. 2017; Devlin et al. 2019, BERT).

The layers are those of the translating Transformer, so that what one has learnt serves the other. The configuration
also says what BERT, RoBERTa, DistilBERT and MiniLM are, whose weights `sightline.interop.pretrained` puts in.

What people get wrong: BERT normalises the sum of its three embeddings, before dropout, and nothing after the last
layer; its pooler reads the first token only; RoBERTa counts positions from 2.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention import PoolingConfig
from sightline.attention.checks import check_least, check_share
from sightline.attention.observed import may_bypass
from sightline.kernels.unpadded import Unpadded, encode_unpadded, supported
from sightline.models.text_to_labels import TextModel, TextModelConfig, Texts
from sightline.models.transformer import Transformer
from sightline.nn.annotating import TokenEmbedding, sinusoids
from sightline.nn.dropout import Dropout
from sightline.nn.transformer import Activation, EncoderLayer, LayerShape
from sightline.vocabulary import OURS, Specials


class PooledEncoder(TextModel):
    """Embeds tokens and pools their annotations; a subclass says what encodes them. Its ``config`` has the fields of
    `EncoderConfig` that are about embeddings and pooling.

    A subclass calls `add_embeddings`, adds its layers, and calls `add_pooling`: weights are drawn in this order.
    """

    def __init__(self, config: Any, specials: Specials = OURS) -> None:
        super().__init__(config.size, specials)
        self.config, self.dropout_rate = config, config.dropout

    def add_embeddings(self, words: int) -> None:
        config = self.config
        self.embedding = _embedding(config, words, self.specials.padding)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.first_position + config.max_length, config.size) if learned else None
        self.parts = nn.Embedding(config.parts, config.size) if config.parts else None
        self.embedding_norm = _norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def add_pooling(self) -> None:
        config = self.config
        self.pool = PoolingConfig().build(config.size) if config.pooling == "attention" else None
        self.pooler = nn.Linear(config.size, config.size) if config.pooler else None
        for table in (self.positions, self.parts):
            if table is not None:
                nn.init.normal_(table.weight, std=0.02)

    @property
    def longest(self) -> int | None:
        """The most tokens of a text, where there is a limit."""
        return self.config.max_length if self.config.positions == "learned" else None

    @property
    @abstractmethod
    def last_attention(self) -> str:
        """The name of the last self-attention, as `capture` gives it; * stands for what is not known before."""

    def pooled(self, annotations: Float[Tensor, "b s d"], texts: Texts) -> Float[Tensor, "b d"]:
        """One vector for each text, from its annotations."""
        if self.config.pooling == "first":
            return self._finish(annotations[:, 0])
        real = self.real(texts)
        if self.pool is not None:
            return self._finish(self.pool(annotations, mask=real).context.squeeze(-2))
        total = (annotations * real.unsqueeze(-1)).sum(dim=1)
        return self._finish(total / real.sum(dim=1, keepdim=True).clamp(min=1))

    def _finish(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return x if self.pooler is None else torch.tanh(self.pooler(x))

    def _check(self, texts: Texts) -> None:
        if self.longest is not None and texts.words.shape[1] > self.longest:
            raise ValueError(
                f"a text of {texts.words.shape[1]:,} tokens; this encoder has positions for {self.longest:,}: cut it"
            )

    def _embed(
        self, words: Int[Tensor, "*n"], places: Int[Tensor, "*n"], parts: Int[Tensor, "*n"] | None, width: int
    ) -> Float[Tensor, "*n d"]:
        x = self.embedding(words)
        if self.positions is not None:
            x = x + self.positions(places + self.config.first_position)
        elif self.config.positions == "sinusoid":
            x = x + sinusoids(0, width, x.shape[-1], x)[places]
        if self.parts is not None:
            # A model with one kind of part (RoBERTa) makes no difference between the texts of a pair.
            x = x + (self.parts.weight[0] if parts is None else self.parts(parts.clamp(max=self.config.parts - 1)))
        return self.dropout(self.embedding_norm(x))


class Encoder(PooledEncoder):
    """Embed, attend, pool."""

    config: "EncoderConfig"

    def __init__(self, config: "EncoderConfig", words: int, specials: Specials = OURS) -> None:
        super().__init__(config, specials)
        self.add_embeddings(words)
        shape = LayerShape(
            config.size,
            config.heads,
            config.feed_forward,
            config.dropout,
            config.norm,
            config.activation,
            config.positions == "rotary",
            config.attention_dropout,
            config.epsilon,
        )
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(config.layers))
        self.norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.add_pooling()
        for parameter in self.layers.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    @property
    def last_attention(self) -> str:
        return f"layers.{len(self.layers) - 1}.attention"

    def annotate(self, texts: Texts) -> Float[Tensor, "b s d"]:
        self._check(texts)
        if self._plain():
            return self._padded(texts)
        unpadded = Unpadded.of(self.real(texts))
        return unpadded.spread(self._encode(texts, unpadded, first=False))

    def features(self, texts: Texts) -> Float[Tensor, "b d"]:
        if self.config.pooling == "first" and self.layers and not self._plain():
            self._check(texts)
            unpadded = Unpadded.of(self.real(texts))
            # The last layer's vectors of the other tokens are not needed.
            return self._finish(unpadded.spread_texts(self._encode(texts, unpadded, first=True)))
        return self.pooled(self.annotate(texts), texts)

    def layer_depths(self) -> dict[str, int]:
        """How many steps each parameter stands below the output: 0 for what pools, more the further down.

        For learning rates that are smaller further down, where what was learnt before is most general.
        """
        top = len(self.layers)
        depths = {}
        for name, _ in self.named_parameters():
            first, _, rest = name.partition(".")
            if first == "layers":
                depths[name] = top - int(rest.partition(".")[0])
            else:
                depths[name] = top + 1 if first in ("embedding", "positions", "parts", "embedding_norm") else 0
        return depths

    def _plain(self) -> bool:
        """Whether to call the layers as they are, with padding: where one is watched, and on graphics cards."""
        can = all(isinstance(layer, EncoderLayer) and supported(layer) for layer in self.layers)
        return not can or not may_bypass(self)

    def _padded(self, texts: Texts) -> Float[Tensor, "b s d"]:
        real = self.real(texts)
        places = torch.arange(texts.words.shape[1], device=texts.words.device).expand_as(texts.words)
        x = self._embed(texts.words, places, texts.parts, texts.words.shape[1])
        for layer in self.layers:
            x = layer(x, real)
        return self.norm(x) * real.unsqueeze(-1)

    def _encode(self, texts: Texts, unpadded: Unpadded, first: bool) -> Float[Tensor, "n d"]:
        parts = None if texts.parts is None or self.parts is None else unpadded.take(texts.parts)
        width = texts.words.shape[1]
        x = self._embed(unpadded.take(texts.words), unpadded.places % max(width, 1), parts, width)
        for number, layer in enumerate(self.layers, start=1):
            last = first and number == len(self.layers)
            x = encode_unpadded(layer, x, unpadded, last)  # type: ignore[arg-type]
        return self.norm(x)


def _embedding(config: "EncoderConfig", words: int, padding: int) -> nn.Embedding:
    if config.scaled:
        return TokenEmbedding(words, config.size, padding)
    table = nn.Embedding(words, config.size, padding_idx=padding)
    nn.init.normal_(table.weight, std=0.02 if config.embedding_norm else config.size**-0.5)
    with torch.no_grad():
        table.weight[padding].zero_()
    return table


def _norm(config: "EncoderConfig") -> nn.LayerNorm:
    return nn.LayerNorm(config.size, eps=config.epsilon)


@dataclass(frozen=True)
class EncoderConfig(TextModelConfig):
    """The defaults are small, and such that a translating Transformer can begin with the weights.

    ``positions`` may be ``learned``: then there are ``max_length`` of them, in a table that begins ``first_position``
    rows further down. ``parts`` is how many texts the model tells apart (2 for pairs, as BERT does; 0: it does not).
    ``embedding_norm`` normalises what goes into the first layer; ``scaled`` multiplies word vectors by √size.
    ``pooling`` makes one vector of a text: read with attention, the first token's, or the mean; ``pooler`` puts a dense
    layer and a tanh behind that. ``epsilon`` is that of the normalisations.
    """

    size: int = 128
    heads: int = 4
    feed_forward: int = 512
    layers: int = 4
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoid", "rotary", "learned"] = "sinusoid"
    max_length: int = 512
    first_position: int = 0
    activation: Activation = "gelu"
    parts: int = 0
    embedding_norm: bool = False
    scaled: bool = True
    pooling: Literal["attention", "first", "mean"] = "attention"
    pooler: bool = False
    epsilon: float = 1e-5
    kind: ClassVar[str] = "encoder"
    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length"}

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "heads", "feed_forward", "layers", "max_length")
        check_least(self, 0, "parts", "first_position")
        check_share(self, "dropout", "attention_dropout")
        if self.size % self.heads:
            raise ValueError(f"size {self.size} does not divide into {self.heads} heads")
        if self.positions == "sinusoid" and self.size % 2:
            raise ValueError(f"sinusoid positions need an even size, found {self.size}")
        if self.positions == "rotary" and self.size // self.heads % 2:
            raise ValueError(f"rotary positions need heads of an even size, found {self.size // self.heads}")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be above 0")

    def build(self, words: int, specials: Specials = OURS) -> Encoder:
        return Encoder(self, words, specials)


def translator_tensors(encoder: Encoder) -> dict[str, Tensor]:
    """The encoder's tensors by the names that they have in the translating Transformer."""
    renamed: dict[str, Callable[[str], str]] = {
        "embedding": lambda rest: f"source_embedding.{rest}",
        "layers": lambda rest: f"encoder.{rest}",
        "norm": lambda rest: f"encoder_norm.{rest}",
    }
    tensors = {}
    for name, tensor in encoder.state_dict().items():
        first, _, rest = name.partition(".")
        if first in renamed:
            tensors[renamed[first](rest)] = tensor
    return tensors


def start_translator(translator: Transformer, encoder: Encoder) -> list[str]:
    """Put the encoder's weights into a translator's encoder; the names of the tensors that were set.

    A table of words that the translator's two sides share is set for both. Raises ValueError where the two differ.
    """
    ours, theirs = encoder.config, translator.config
    pairs = {
        "size": (ours.size, theirs.size),
        "heads": (ours.heads, theirs.heads),
        "feed_forward": (ours.feed_forward, theirs.feed_forward),
        "layers": (ours.layers, theirs.encoder_layers),
        "norm": (ours.norm, theirs.norm),
        "positions": (ours.positions, theirs.positions),
        "activation": (ours.activation, theirs.activation),
        "parts": (ours.parts, 0),
        "embedding_norm": (ours.embedding_norm, False),
        "scaled": (ours.scaled, True),
        "epsilon": (ours.epsilon, 1e-5),
        "words": (encoder.embedding.num_embeddings, translator.source_embedding.num_embeddings),
        "padding": (encoder.specials.padding, OURS.padding),
    }
    for name, (own, expected) in pairs.items():
        if own != expected:
            raise ValueError(f"the encoder's {name} is {own}, the translator needs {expected}; change one of them")
    tensors = translator_tensors(encoder)
    state = translator.state_dict()
    with torch.no_grad():
        for name, tensor in tensors.items():
            state[name].copy_(tensor)
    return sorted(tensors)
