"""The Transformer's encoder for search: padding is never computed with.

The same as the encoder layers of `sightline.nn.transformer`, and tested equal to them. Sentences of a batch have
different lengths; between attentions their words stand in one list without gaps, so that a long sentence costs the
others nothing.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention import MultiHead
from sightline.kernels.softmax import LANES
from sightline.nn.embedding import Positions, TokenEmbedding
from sightline.nn.plain import FEW, Block, Stack, attend, forward_block, norm_of, own_block, transform
from sightline.nn.transformer import EncoderLayer


class Packed(NamedTuple):
    """The words of a batch without its padding.

    ``places`` says where they stand in it, ``numbers`` which word stands at each of its places, padding having any one
    of them (both None: there is no padding).
    """

    words: Float[Tensor, "n d"]
    places: Int[Tensor, " n"] | None
    numbers: Int[Tensor, " m"] | None
    mask: Bool[Tensor, "b s"]

    def by_heads(self, heads: int, each: int, firsts: list[int], step: int) -> Int[Tensor, " m"]:
        """Which row of `n each` stands at each place of `parts b heads s`; in gaps, any (nobody looks there).

        A word has ``each`` rows. Those of a part begin at its first one, a step for every head.
        """
        device, (rows, width) = self.mask.device, self.mask.shape
        numbers = torch.arange(rows * width, device=device) if self.numbers is None else self.numbers
        first = torch.tensor(firsts, device=device)[:, None, None, None]
        head = torch.arange(heads, device=device)[:, None] * step
        return (numbers.view(rows, 1, width) * each + head + first).flatten()

    def by_words(self, heads: int) -> Int[Tensor, " m"]:
        """The way back: which row of `b heads s` stands at each place of `n heads`."""
        rows, width = self.mask.shape
        places = torch.arange(rows * width, device=self.mask.device) if self.places is None else self.places
        head = torch.arange(heads, device=places.device) * width
        return ((places // width * (heads * width) + places % width).unsqueeze(-1) + head).flatten()

    def hidden(self, heads: int, like: Tensor) -> Float[Tensor, "b h 1 s"] | None:
        """What to add to scores so that padding is not looked at."""
        if self.places is None:
            return None
        found = torch.zeros_like(self.mask, dtype=like.dtype).masked_fill_(~self.mask, torch.finfo(like.dtype).min)
        return found[:, None, None].repeat(1, heads, 1, 1)


class PackedEncoder:
    """The layers of an encoder, for sentences without padding. It holds copies of weights, as they were then."""

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module, embedding: TokenEmbedding, sinusoid: bool) -> None:
        encoders = [layer for layer in layers if isinstance(layer, EncoderLayer)]
        blocks, self.start = Stack.of(block for layer in encoders for block in _blocks(layer))
        self.blocks = [block.for_many() for block in blocks]
        self.heads = [layer.attention.key_heads for layer in encoders if isinstance(layer.attention, MultiHead)]
        self.activations = [layer.feed_forward.activation for layer in encoders]
        self.norm, self.positions = norm_of(norm), Positions(self.start) if sinusoid else None
        self.embedding, self.factor = embedding.weight, math.sqrt(embedding.embedding_dim)

    @torch.no_grad()
    def __call__(self, source: Int[Tensor, "b s"], padding: int) -> Packed:
        """Annotations of the source's words."""
        if len(source) >= FEW and source.shape[1] < LANES and source.device.type == "cpu":
            source = F.pad(source, (0, LANES - source.shape[1]), value=padding)  # no row of scores is a short one
        mask = source != padding
        tokens, places, numbers = source.flatten(), None, None
        if not mask.all():
            places = mask.flatten().nonzero().squeeze(-1)
            numbers = (mask.flatten().cumsum(0) - 1).clamp_(min=0)
            tokens = tokens.index_select(0, places)
        x = F.embedding(tokens, self.embedding).mul_(self.factor)
        packed = Packed(x, places, numbers, mask)
        if self.positions is not None:
            positions, width = self.positions(source.shape[1], x), source.shape[1]
            x.add_(positions[:width].repeat(source.shape[0], 1) if places is None else positions[places % width])
        elif self.start is not None:
            x.add_(self.start)
        moves: dict[int, Moves] = {}  # layers of one number of heads share them
        for heads, activation, own, after in zip(
            self.heads, self.activations, self.blocks[0::2], self.blocks[1::2], strict=True
        ):
            if heads not in moves:
                moves[heads] = Moves.of(packed, heads, x)
            x = own.end(x, moves[heads].attend(own.begin(x)))
            x = transform(after, x, activation)
        return packed._replace(words=x if self.norm is None else self.norm(x))


def _blocks(layer: EncoderLayer) -> tuple[Block, Block]:
    return (
        own_block(layer.around_attention, layer.attention),
        forward_block(layer.around_feed_forward, layer.feed_forward),
    )


class Moves(NamedTuple):
    """Between words and heads, each in one copy: `n heads · d` to `b heads s d`, and back."""

    there: Int[Tensor, " k"]
    back: Int[Tensor, " m"]
    shape: tuple[int, int, int]
    hidden: Float[Tensor, "b h 1 s"] | None

    @classmethod
    def of(cls, packed: Packed, heads: int, like: Tensor) -> "Moves":
        """A word has for each head a query, a key and a value."""
        rows, width = packed.mask.shape
        return cls(
            packed.by_heads(heads, 3 * heads, [0, 1, 2], 3),
            packed.by_words(heads),
            (rows, heads, width),
            packed.hidden(heads, like),
        )

    def attend(self, joined: Float[Tensor, "n j"]) -> Float[Tensor, "n e"]:
        parts = joined.view(-1, joined.shape[1] // (3 * self.shape[1]))
        query, keys, values = parts.index_select(0, self.there).view(3, *self.shape, -1).unbind()
        read = attend(query, keys, values, self.hidden)
        return read.reshape(-1, read.shape[-1]).index_select(0, self.back).view(len(joined), -1)
