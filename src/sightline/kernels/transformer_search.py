"""The parts of a Transformer's layers as bare tensors, for search: no modules, no checks, no dropout.

Only for layers whose attention is multi-head scaled dot-product softmax without relative positions
(`StackedWriter.has_plain_layers`). It takes fewer operations than the layers, because weights are rewritten once:
queries are scaled; the bias of keys, which adds the same to all scores of a query, is left out; the bias of values,
which every context contains whole, is added to the output's bias.

Gain: 2.4 for one sentence, 1.9 for a batch (`benchmarks/kernel_gains.py`).
"""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.kernels import enabled
from sightline.kernels.copying import Sources, known_tokens, mixed
from sightline.kernels.products import Product
from sightline.kernels.softmax import LANES, SHORT, softmax
from sightline.state import Shared

if TYPE_CHECKING:
    from sightline.attention import MultiHead
    from sightline.models.stacked import StackedWriter
    from sightline.nn.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual

Sinusoids = Callable[[int, int, int, Tensor], Tensor]  # `sightline.nn.annotating.sinusoids`
IN_PLACE: dict[Callable[..., Tensor], Callable[[Tensor], Tensor]] = {F.relu: torch.relu_}
FEW = 8  # sentences


class Affine(NamedTuple):
    """x W + b, with W as the product wants it."""

    bias: Float[Tensor, " o"]
    weight: Float[Tensor, "i o"]

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        return torch.mm(x, self.weight).add_(self.bias)  # faster than addmm, which first makes a matrix of the bias


class Norm(NamedTuple):
    """A layer normalisation without the module around it."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self)


class FoldedPart(NamedTuple):
    """The feed-forward part, or the ways in and out of an attention, with the normalisation beside them."""

    norm: Norm
    enter: Affine | Product
    leave: Affine
    pre: bool

    def for_many(self) -> "FoldedPart":
        """The same for many rows at a time."""
        assert isinstance(self.enter, Affine)
        return self._replace(enter=Product(self.enter.weight.t(), self.enter.bias, often=True))

    def begin(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        return self.enter(self.norm(x) if self.pre else x)

    def end(self, x: Float[Tensor, "n d"], y: Float[Tensor, "n e"]) -> Float[Tensor, "n d"]:
        """Add the part's output to x, in place."""
        x = x.addmm_(y, self.leave.weight)
        return x.add_(self.leave.bias) if self.pre else self.norm(x)


class FoldedStack(NamedTuple):
    """The parts of all layers, and what must be added to their input.

    Where layers are normalised after their sums, a part does not add its last bias: x contains it already. It is in the
    bias of the normalisation before, and is subtracted again where the part reads x.
    """

    blocks: tuple[FoldedPart, ...]
    start: Float[Tensor, " d"] | None

    @classmethod
    def of(cls, blocks: Iterable[FoldedPart]) -> "FoldedStack":
        stacked = list(blocks)
        if not stacked or stacked[0].pre:
            return cls(tuple(stacked), None)
        carried = [block.leave.bias for block in stacked]
        for i, (norm, enter, leave, pre) in enumerate(stacked):
            assert isinstance(enter, Affine)
            enter = enter._replace(bias=enter.bias - carried[i] @ enter.weight)
            if i + 1 < len(stacked):
                norm = norm._replace(bias=norm.bias + carried[i + 1])
            stacked[i] = FoldedPart(norm, enter, leave, pre)
        return cls(tuple(stacked), carried[0])


def supported(model: "StackedWriter", source: Tensor) -> bool:
    return not model.training and enabled() and model.has_plain_layers()


@torch.no_grad()
def fast(model: "StackedWriter", source: Tensor) -> tuple["OneTokenDecoder", "StepState"]:
    """A step of search, and the state that it begins with."""
    encode, step = model.search_parts()
    return step, step.begin(encode(source), source)


def reference(model: "StackedWriter", source: Tensor) -> tuple[Callable[..., Any], Any]:
    return model.step, model.begin(source)


def scale_of(attention: "MultiHead") -> float:
    """What the products of queries and keys are multiplied by."""
    return attention.inner.score.scale  # type: ignore


def norm_of(norm: nn.Module) -> Norm | None:
    """None for a stack that has no normalisation at its end."""
    return Norm(norm.normalized_shape, norm.weight, norm.bias, norm.eps) if isinstance(norm, nn.LayerNorm) else None


def affine(linear: nn.Linear, scale: float = 1.0) -> Affine:
    """With a contiguous weight: worth its time where a product is repeated."""
    return Affine(linear.bias * scale, (linear.weight * scale).t().contiguous())


def own_block(around: "Residual", attention: "MultiHead") -> FoldedPart:
    """Self-attention: for each head a query, a key and a value, in one product."""
    query, heads, scale = attention.project_query, attention.key_heads, scale_of(attention)
    weights = (query.weight * scale, attention.project_keys.weight, attention.project_values.weight)
    bias = query.bias * scale
    enter = Affine(by_heads(heads, bias, 0 * bias, 0 * bias), by_heads(heads, *weights).t().contiguous())
    return _block(around, enter, _out_of(attention))


def cross_block(around: "Residual", attention: "MultiHead") -> FoldedPart:
    """Attention to the source, whose keys and values are made before."""
    return _block(around, affine(attention.project_query, scale_of(attention)), _out_of(attention))


def forward_block(around: "Residual", feed_forward: "FeedForward") -> FoldedPart:
    return _block(around, affine(feed_forward.widen), affine(feed_forward.narrow))


def keys_and_values(attention: "MultiHead") -> Float[Tensor, "i o"]:
    """What makes `heads · 2 · size` numbers of an input: for each head a key and a value."""
    weights = (attention.project_keys.weight, attention.project_values.weight)
    return by_heads(attention.key_heads, *weights).t().contiguous()


def by_heads(heads: int, *parts: Float[Tensor, "o ..."]) -> Float[Tensor, "p ..."]:
    """Rows of several projections reordered: all rows of a head follow each other."""
    return torch.stack([part.unflatten(0, (heads, -1)) for part in parts], dim=1).flatten(0, 2)


def _out_of(attention: "MultiHead") -> Affine:
    leave = affine(attention.output)
    return leave._replace(bias=leave.bias + attention.project_values.bias @ leave.weight)


def _block(around: "Residual", enter: Affine, leave: Affine) -> FoldedPart:
    norm = norm_of(around.normalise)
    assert norm is not None
    return FoldedPart(norm, enter, leave, around.pre)


def attend(
    query: Float[Tensor, "b h t d"],
    keys: Float[Tensor, "b h s d"],
    values: Float[Tensor, "b h s d"],
    hidden: Float[Tensor, "..."] | None,
) -> Float[Tensor, "b h t d"]:
    """softmax(q kᵀ + hidden) v, by the faster of two ways; what hides keys is `s` or `b h 1 s`.

    With few keys and many sentences plain products are faster than the kernel; for one sentence fewer calls are.
    """
    if len(query) < FEW or keys.shape[-2] > SHORT or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=hidden, scale=1.0)
    together, keys_count, size = query.shape[0] * query.shape[1], keys.shape[-2], keys.shape[-1]
    folded = query.reshape(together, query.shape[-2], size)
    scores = torch.bmm(folded, keys.view(together, keys_count, size).transpose(1, 2))
    if hidden is not None:
        scores.add_(hidden if hidden.dim() == 1 else hidden.view(together, 1, keys_count))
    return torch.bmm(softmax(scores), values.view(together, keys_count, -1)).view(query.shape)


def transform(block: FoldedPart, x: Float[Tensor, "n d"], activation: Callable[[Tensor], Tensor]) -> Tensor:
    """The feed-forward part of a layer."""
    return block.end(x, IN_PLACE.get(activation, activation)(block.begin(x)))


# The Transformer's encoder for search, without computing padding.
#
# Tested equal to the encoder layers of `sightline.nn.transformer`. Between attentions the words of all sentences form
# one list without gaps, so that a long sentence does not slow down the others.


class Packed(NamedTuple):
    """The words of a batch without its padding.

    ``places`` are their indices in the flattened batch, ``numbers`` the word at each index of it, any word for padding
    (both None: there is no padding).
    """

    words: Float[Tensor, "n d"]
    places: Int[Tensor, " n"] | None
    numbers: Int[Tensor, " m"] | None
    mask: Bool[Tensor, "b s"]

    def by_heads(self, heads: int, each: int, firsts: list[int], step: int) -> Int[Tensor, " m"]:
        """Which row of `n each` stands at each place of `parts b heads s`; any row in gaps, which are never read.

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
        """What to add to scores so that padding gets no weight."""
        if self.places is None:
            return None
        added = torch.zeros_like(self.mask, dtype=like.dtype).masked_fill_(~self.mask, torch.finfo(like.dtype).min)
        return added[:, None, None].repeat(1, heads, 1, 1)


class Positions:
    """Sinusoid positions from the first one on, made once and longer when they are needed; plus an ``offset``."""

    def __init__(self, sinusoids: Sinusoids, offset: Float[Tensor, " d"] | None = None) -> None:
        self.sinusoids, self.offset, self.table = sinusoids, offset, torch.empty(0, 0)

    def __call__(self, count: int, like: Float[Tensor, "*b d"]) -> Float[Tensor, "n d"]:
        """At least so many."""
        table = self.table  # read once: another thread may write a shorter one
        if count > table.shape[0]:
            table = self.sinusoids(0, 2 * count + 64, like.shape[-1], like)
            self.table = table = table if self.offset is None else table + self.offset
        return table


class PackedEncoder:
    """The layers of an encoder, for sentences without padding. It holds copies of the weights."""

    def __init__(
        self,
        layers: Iterable["EncoderLayer"],
        norm: nn.Module,
        embedding: nn.Embedding,
        sinusoids: Sinusoids | None,
        padding: int,
    ) -> None:
        encoders = list(layers)
        blocks, self.start = FoldedStack.of(block for layer in encoders for block in _blocks(layer))
        self.blocks = [block.for_many() for block in blocks]
        self.heads = [layer.attention.key_heads for layer in encoders]
        self.activations = [layer.feed_forward.activation for layer in encoders]
        self.norm, self.padding = norm_of(norm), padding
        self.positions = None if sinusoids is None else Positions(sinusoids, self.start)
        self.words, self.embedding, self.factor = embedding, embedding.weight, math.sqrt(embedding.embedding_dim)

    def __call__(self, source: Int[Tensor, "b s"]) -> Packed:
        """Annotations of the source's words."""
        padding = self.padding
        if len(source) >= FEW and source.shape[1] < LANES and source.device.type == "cpu":
            source = F.pad(source, (0, LANES - source.shape[1]), value=padding)  # no row of scores is a short one
        mask = source != padding
        tokens, places, numbers = source.flatten(), None, None
        if reads_unknown(self.words):
            tokens = known_tokens(tokens, len(self.embedding))
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


def _blocks(layer: "EncoderLayer") -> tuple[FoldedPart, FoldedPart]:
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


# The Transformer's decoder, one token at a time: what search spends its time in.
#
# Tested equal to the layers of `sightline.nn.transformer` applied to one token. It is faster because everything that
# does not change from token to token is made once (joined projections, keys in the layout of the products), because
# caches are written in place, and because all hypotheses of a sentence share one source and attend to it in one call.


ROOM = 16  # tokens that caches grow by


class StepState(NamedTuple):
    """Own keys and values of each layer, with spare room; and what the hypotheses of a sentence share.

    ``source`` holds the keys and the values of all layers, `s h n d` each, what is added to scores where a sentence
    is padded, and the words that can be copied.
    """

    own: tuple[tuple[Float[Tensor, "b h room e"], Float[Tensor, "b h room e"]], ...]
    source: Shared
    position: int


def reads_unknown(embedding: nn.Embedding) -> bool:
    """Whether numbers behind the vocabulary are read as the unknown word: words that were copied."""
    return getattr(embedding, "unknown_beyond", False)


class CopyingLayer(NamedTuple):
    """From which layer words are copied, the gate, how much each head counts, and the size of the vocabulary."""

    number: int
    gate: nn.Linear
    heads: Float[Tensor, " h"]
    words: int


class OneTokenDecoder:
    """A step for `decoding.search`: the last token of each hypothesis in, log-probabilities of the next one out.

    It holds joined copies of the weights.
    """

    def __init__(
        self,
        layers: Iterable["DecoderLayer"],
        norm: nn.Module,
        embedding: nn.Embedding,
        output: nn.Linear,
        sinusoids: Sinusoids | None,
        copying: CopyingLayer | None = None,
    ) -> None:
        decoders = list(layers)
        self.copying = copying
        first = decoders[0]
        blocks, self.start = FoldedStack.of(block for layer in decoders for block in _decoder_blocks(layer))
        self.layers = list(zip(blocks[0::3], blocks[1::3], blocks[2::3], strict=True))
        self.activation, self.heads = first.feed_forward.activation, first.attention.key_heads
        self.norm, self.output = norm_of(norm), Product(output.weight, output.bias)
        self.source = Product(torch.cat([keys_and_values(layer.cross) for layer in decoders], dim=1).t(), often=True)
        self.words, self.embedding, self.factor = embedding, embedding.weight, math.sqrt(embedding.embedding_dim)
        self.positions = None if sinusoids is None else Positions(sinusoids, self.start)
        self.unseen = torch.empty(0, 0)

    def begin(self, encoded: Packed, source: Tensor) -> StepState:
        """From the annotations of a batch. The keys and values of all layers come from one product."""
        sources = None
        if self.copying is not None:
            padded = F.pad(source, (0, encoded.mask.shape[1] - source.shape[1]))
            sources = Sources.of(padded, self.copying.words)
        layers, heads, (sentences, width) = len(self.layers), self.heads, encoded.mask.shape
        # Word, layer, head, key or value, feature: to turn all of these, choosing rows is the fastest copy there is.
        joined = self.source(encoded.words)
        each, firsts = 2 * layers * heads, [2 * heads * layer + part for part in (0, 1) for layer in range(layers)]
        rows = joined.view(joined.shape[0] * each, -1).index_select(0, encoded.by_heads(heads, each, firsts, 2))
        keys, values = rows.view(2, layers, sentences, heads, width, -1)
        empty = joined.new_empty(sentences, heads, 0, keys.shape[-1])
        shared = Shared((keys.unbind(), values.unbind(), encoded.hidden(heads, joined), sources))
        return StepState(((empty, empty),) * layers, shared, 0)

    def __call__(self, tokens: Int[Tensor, " b"], state: StepState) -> tuple[Float[Tensor, "b v"], StepState]:
        position = state.position
        if position >= state.own[0][0].shape[-2]:
            state = state._replace(own=tuple((_roomier(keys), _roomier(values)) for keys, values in state.own))
        source_keys, source_values, hidden, sources = state.source.part
        if reads_unknown(self.words):
            tokens = known_tokens(tokens, len(self.embedding))
        x = F.embedding(tokens, self.embedding).mul_(self.factor)
        if (offset := self._offset(position, x)) is not None:
            x = x.add_(offset)
        caches = zip(self.layers, state.own, source_keys, source_values, strict=True)
        weights = None
        for number, ((own, cross, after), cache, keys, values) in enumerate(caches):
            x = self._look_back(own, x, cache, position)
            if self.copying is not None and number == self.copying.number:
                x, weights = self._look_with_weights(cross, x, keys, values, hidden)
            else:
                x = self._look_at_source(cross, x, keys, values, hidden)
            x = transform(after, x, self.activation)
        if self.norm is not None:
            x = self.norm(x)
        log_probs = torch.log_softmax(self.output(x), dim=-1)
        if self.copying is not None and weights is not None:
            log_probs = self._with_copies(log_probs, x, weights, sources)
        return log_probs, state._replace(position=position + 1)

    def _look_with_weights(
        self, block: FoldedPart, x: Float[Tensor, "b d"], keys: Tensor, values: Tensor, hidden: Tensor | None
    ) -> tuple[Tensor, Float[Tensor, "s k n"]]:
        """As `_look_at_source`; also one distribution over the source for each hypothesis."""
        assert self.copying is not None
        rows, (sentences, heads, _, size) = x.shape[0], keys.shape
        query = block.begin(x).view(sentences, rows // sentences, heads, size).transpose(1, 2)
        scores = query @ keys.transpose(-2, -1)
        weights = torch.softmax(scores if hidden is None else scores.add_(hidden), dim=-1)
        x = block.end(x, (weights @ values).transpose(1, 2).reshape(rows, -1))
        return x, torch.einsum("shkn,h->skn", weights, self.copying.heads)

    def _with_copies(
        self,
        log_probs: Float[Tensor, "b v"],
        x: Float[Tensor, "b d"],
        weights: Float[Tensor, "s k n"],
        sources: Sources,
    ) -> Float[Tensor, "b w"]:
        assert self.copying is not None
        of_sentences = weights.shape[:2]
        gate = self.copying.gate(x).view(of_sentences)
        return mixed(log_probs.view(*of_sentences, -1), gate, weights, sources.for_steps()).flatten(0, 1)

    def _look_back(
        self, block: FoldedPart, x: Float[Tensor, "b d"], cache: tuple[Tensor, Tensor], position: int
    ) -> Tensor:
        """A token more in the cache, then self-attention with one query."""
        keys, values = cache
        rows, heads, room, size = keys.shape
        query, key, value = block.begin(x).view(rows, heads, 3, size).unbind(2)
        # Keys and values apart: with values between them, the keys took twice as long to read.
        keys.select(2, position).copy_(key)
        values.select(2, position).copy_(value)
        unseen = None
        if rows < FEW or room > SHORT or x.device.type != "cpu":
            keys, values = keys.narrow(2, 0, position + 1), values.narrow(2, 0, position + 1)
        elif position + 1 < room:
            # Plain products, of all the room there is: a row of scores that fills registers takes less time than a
            # shorter one. What is not written yet is zero, and hidden.
            unseen = self._unseen(position, room, x)
        return block.end(x, attend(query.unsqueeze(2), keys, values, unseen).view(rows, -1))

    def _look_at_source(
        self, block: FoldedPart, x: Float[Tensor, "b d"], keys: Tensor, values: Tensor, hidden: Tensor | None
    ) -> Tensor:
        """All hypotheses of a sentence attend in one call."""
        rows, (sentences, heads, _, size) = x.shape[0], keys.shape
        query = block.begin(x).view(sentences, rows // sentences, heads, size).transpose(1, 2)
        return block.end(x, attend(query, keys, values, hidden).transpose(1, 2).reshape(rows, -1))

    def _offset(self, position: int, like: Tensor) -> Tensor | None:
        """What is added to the embedding: the token's position, and the bias that the stack expects in its input."""
        return self.start if self.positions is None else self.positions(position + 1, like)[position]

    def _unseen(self, position: int, room: int, like: Tensor) -> Float[Tensor, " room"]:
        """To be added to scores: zeros up to a token, and what hides the keys after it."""
        unseen = self.unseen  # read once: another thread may write a smaller one
        if room > len(unseen):
            self.unseen = unseen = like.new_full((room, room), torch.finfo(like.dtype).min).triu_(1)
        return unseen[position, :room]


def _roomier(cache: Float[Tensor, "b h room e"]) -> Float[Tensor, "b h more e"]:
    return F.pad(cache, (0, 0, 0, ROOM))


def _decoder_blocks(layer: "DecoderLayer") -> tuple[FoldedPart, FoldedPart, FoldedPart]:
    return (
        own_block(layer.around_attention, layer.attention),
        cross_block(layer.around_cross, layer.cross),
        forward_block(layer.around_feed_forward, layer.feed_forward),
    )
