"""Tokens to annotations: embeddings, and what is put on top of them by configuration.

Embeddings alone, a feed-forward layer, a convolution, or a recurrent network in both directions; and on top of any of
them a layer of self-attention. Padding is never read, so it changes nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention.checks import check_least, check_share
from sightline.kernels.copying import known_tokens
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import BidirectionalEncoder, longest_first
from sightline.nn.transformer import EncoderLayer, LayerShape
from sightline.vocabulary import Specials

# Tokens to vectors, and where they stand.


QUIET, LOUD = 0.1, 1.0


class TokenEmbedding(nn.Embedding):
    """An embedding that starts with deviation 1/√size and is multiplied by √size on the way in (Vaswani et al. 2017).

    So the same table can serve as the output layer, whose weights want to be small, and as the input, whose vectors
    must not vanish beside the positions added to them.

    ``init_std`` is the standard deviation of the vectors on the way in, before training. Models that learn from
    thousands of labels and not from millions of words begin with `QUIET`: a word seen a few times then says little
    instead of something random. ``unknown_beyond``: a number behind the vocabulary is read as the unknown word.
    """

    def __init__(self, words: int, size: int, padding: int, init_std: float = LOUD) -> None:
        super().__init__(words, size, padding_idx=padding)
        self.unknown_beyond = False
        nn.init.normal_(self.weight, std=init_std / math.sqrt(size))
        with torch.no_grad():
            self.weight[padding].zero_()

    def forward(self, tokens: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        if self.unknown_beyond:
            tokens = known_tokens(tokens, self.num_embeddings)
        return super().forward(tokens) * math.sqrt(self.embedding_dim)


def check_init_std(init_std: float) -> None:
    """Of a configuration: raises ValueError."""
    if not 0 < init_std <= 10:
        raise ValueError(f"init_std is {init_std}; it must be above 0 and at most 10")


def sinusoids(start: int, count: int, size: int, like: Tensor) -> Float[Tensor, "n d"]:
    """Sinusoid positions: ``sin(p / 10000^(2i/d))`` in the first half, the cosines in the second.

    What people get wrong: the paper writes sines and cosines in turn, its code puts them in two halves. A model cannot
    tell, but a checkpoint can; this is the layout of the code, and of most checkpoints.
    """
    if size % 2:
        raise ValueError(f"sinusoid positions need an even size, found {size}")
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=like.device) / size
    positions = torch.arange(start, start + count, dtype=torch.float64, device=like.device)
    angles = positions.unsqueeze(-1) * 10_000.0**-exponents
    return torch.cat([angles.sin(), angles.cos()], dim=-1).to(like.dtype)


AnnotationKind = Literal["embedding", "feed_forward", "cnn", "gru", "lstm"]


@dataclass(frozen=True)
class AnnotationShape:
    """What annotations are made of. ``size`` is an annotation's; embeddings alone have that of the embedding.

    ``widths`` are those of the convolution's filters, which share ``size`` among them (Kim 2014), ``heads`` those of
    the self-attention on top (0: none), ``parts`` the texts that a pair is told apart by (0: not at all), ``init_std``
    is the standard deviation of word vectors before training.
    """

    kind: AnnotationKind
    embedding_size: int
    size: int
    layers: int = 1
    widths: tuple[int, ...] = (3, 4, 5)
    heads: int = 0
    dropout: float = 0.0
    word_dropout: float = 0.0
    parts: int = 0
    init_std: float = QUIET

    def __post_init__(self) -> None:
        check_least(self, 1, "embedding_size", "size", "layers")
        check_share(self, "word_dropout")
        if self.kind in ("gru", "lstm") and self.size % 2:
            raise ValueError(f"size is {self.size}; the two directions of a {self.kind} need an even one")
        check_init_std(self.init_std)
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths is {list(self.widths)}; give one or more, each at least 1")
        if self.kind == "cnn" and self.size < len(self.widths):
            raise ValueError(f"size is {self.size}; {len(self.widths)} widths need at least as much")
        if self.heads < 0 or (self.heads and self.annotation_size % self.heads):
            raise ValueError(f"annotations of size {self.annotation_size} do not divide into {self.heads} heads")

    @property
    def annotation_size(self) -> int:
        return self.embedding_size if self.kind == "embedding" else self.size


class WordDropout(nn.Module):
    """In training, a share of the words becomes unknown: no single word may decide (Iyyer et al. 2015)."""

    def __init__(self, rate: float, specials: Specials) -> None:
        super().__init__()
        self.rate, self.unknown = rate, specials.unknown
        self.kept = tuple(
            one for one in (specials.padding, specials.start, specials.end, specials.mask) if one is not None
        )

    def forward(self, words: Int[Tensor, "*b s"]) -> Int[Tensor, "*b s"]:
        if not self.training or not self.rate:
            return words
        dropped = torch.rand(words.shape, device=words.device) < self.rate
        for special in self.kept:
            dropped &= words != special
        return words.masked_fill(dropped, self.unknown)


class Convolution(nn.Module):
    """Filters of several widths over the words, each annotation having words on both sides. Zeros stand outside."""

    def __init__(self, input_size: int, size: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        sizes = [size // len(widths) + (i < size % len(widths)) for i in range(len(widths))]
        self.filters = nn.ModuleList(
            nn.Conv1d(input_size, filters, width) for filters, width in zip(sizes, widths, strict=True)
        )

    def forward(self, x: Float[Tensor, "b s e"], mask: Bool[Tensor, "b s"] | None) -> Float[Tensor, "b s d"]:
        x = (x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)).transpose(1, 2)
        features = []
        for one in self.filters:
            assert isinstance(one, nn.Conv1d)
            width = one.kernel_size[0]
            features.append(one(F.pad(x, ((width - 1) // 2, width // 2))))
        return F.relu(torch.cat(features, dim=1)).transpose(1, 2)


class WordFeedForward(nn.Module):
    """One layer for each word by itself."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(input_size, size)

    def forward(self, x: Float[Tensor, "b s e"], mask: Bool[Tensor, "b s"] | None) -> Float[Tensor, "b s d"]:
        return F.relu(self.layer(x))


class Annotator(nn.Module):
    """Padded tokens → one vector for each. The vectors of padding are undefined."""

    def __init__(self, shape: AnnotationShape, words: int, specials: Specials) -> None:
        super().__init__()
        self.shape, self.padding = shape, specials.padding
        self.embedding = TokenEmbedding(words, shape.embedding_size, specials.padding, shape.init_std)
        self.parts = nn.Embedding(shape.parts, shape.embedding_size) if shape.parts else None
        self.word_dropout, self.dropout = WordDropout(shape.word_dropout, specials), Dropout(shape.dropout)
        sizes = [shape.embedding_size, *[shape.size] * (shape.layers - 1)]
        self.recurrent: BidirectionalEncoder | None = None
        self.stack = nn.ModuleList()
        if shape.kind == "gru" or shape.kind == "lstm":
            self.recurrent = BidirectionalEncoder(
                shape.kind, shape.embedding_size, shape.size // 2, shape.layers, shape.dropout
            )
        elif shape.kind == "cnn":
            self.stack = nn.ModuleList(Convolution(size, shape.size, shape.widths) for size in sizes)
        elif shape.kind == "feed_forward":
            self.stack = nn.ModuleList(WordFeedForward(size, shape.size) for size in sizes)
        self.self_attention: EncoderLayer | None = None
        if shape.heads:
            size = shape.annotation_size
            self.self_attention = EncoderLayer(LayerShape(size, shape.heads, 2 * size, shape.dropout))

    def forward(self, words: Int[Tensor, "b s"], parts: Int[Tensor, "b s"] | None) -> Float[Tensor, "b s d"]:
        mask = words != self.padding
        if not mask.any():  # nothing but empty texts
            return self.embedding.weight.new_zeros(*words.shape, self.shape.annotation_size)
        x = self.embedding(self.word_dropout(words))
        if self.parts is not None and parts is not None:
            x = x + self.parts(parts)
        x = self.dropout(x)
        if self.recurrent is not None:
            x = self._recur(self.recurrent, x, mask)
        # A batch without padding, such as one long text, needs no mask; a graphics card would have to be waited for.
        padded = None if words.device.type == "cpu" and bool(mask.all()) else mask
        for i, layer in enumerate(self.stack):
            x = layer(self.dropout(x) if i else x, padded)
        return x if self.self_attention is None else self.self_attention(x, padded)

    def _recur(self, encoder: BidirectionalEncoder, x: Float[Tensor, "b s e"], mask: Bool[Tensor, "b s"]) -> Tensor:
        """Without the padding: the longest text first, all words in one list, and back to where they stood."""
        lengths, _, places = longest_first(mask)
        flat = encoder.annotate(x.flatten(0, 1).index_select(0, places), lengths[lengths > 0])
        padded = flat.new_zeros(mask.numel(), flat.shape[-1]).index_copy(0, places, flat)
        return padded.view(*mask.shape, flat.shape[-1])
