"""Multi-head attention (Vaswani et al. 2017) around any mechanism, with its own parameters for each head."""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention import checks
from sightline.attention.allow import Allow, as_allow
from sightline.attention.checks import check_least
from sightline.attention.compose import Composed, ComposedConfig
from sightline.attention.contract import Attention, AttentionConfig, Carry, Heads, Memory, Read, full_sizes
from sightline.attention.dot import ScaledDot
from sightline.attention.normalisers import Softmax
from sightline.attention.scores import DotProductScore


class MultiHead(Attention):
    """Projects query, keys and values for each head, lets the inner mechanism attend, projects what was read.

    With fewer ``key_heads`` than heads, groups of heads share their keys and values (Ainslie et al. 2023), and the
    memory is that much smaller. Weights, log-probabilities and entropies come back with a head axis: ``*b h t s``.
    """

    def __init__(self, config: "MultiHeadConfig", sizes: tuple[int, int, int]) -> None:
        super().__init__()
        self.query_size, self.key_size, self.value_size = sizes
        head_count, key_heads = config.heads, config.key_heads or config.heads
        size = config.head_size or self.query_size // head_count
        value_head_size = config.value_head_size or size
        self.context_size = config.output_size or self.value_size
        self.key_heads, self.shared = key_heads, head_count // key_heads
        self.project_query = nn.Linear(self.query_size, head_count * size, bias=config.bias)
        self.project_keys = nn.Linear(self.key_size, key_heads * size, bias=config.bias)
        self.project_values = nn.Linear(self.value_size, key_heads * value_head_size, bias=config.bias)
        self.output = nn.Linear(head_count * value_head_size, self.context_size, bias=config.bias)
        inner_heads = (key_heads,) if self.shared == 1 else (key_heads, self.shared)
        self.inner = config.inner.build(size, size, value_head_size, heads=inner_heads)

    def extend(
        self,
        memory: Memory | None,
        keys: Float[Tensor, "*b s k"],
        values: Float[Tensor, "*b s v"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        checks.check_float("keys", keys, "s", self.key_size)
        checks.check_values(keys if values is None else values, keys, self.value_size)
        if mask is not None:
            checks.check_mask(mask, keys)
            mask = mask.reshape(*[1] * (keys.dim() - 1 - mask.dim()), *mask.shape)
            mask = mask.expand(keys.shape[:-1]).reshape(*keys.shape[:-2], *self._key_ones(), keys.shape[-2])
        split_keys = self._split(self.project_keys(keys), shared=1)
        split_values = self._split(self.project_values(keys if values is None else values), shared=1)
        return self.inner.extend(memory, split_keys, split_values, mask)

    def begin(self, memory: Memory) -> Carry:
        return self.inner.begin(memory)

    def forward(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry | None = None,
        *,
        allow: Allow | Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> Read:
        checks.check_float("query", query, "t", self.query_size)
        batch_axes = query.dim() - 2
        expected = memory.values.shape[: memory.values.dim() - 2 - len(self.inner.heads)]
        checks.check_batch("query", query, expected)
        rule = None if allow is None else as_allow(allow).add_head_axes(batch_axes, self.inner.heads)
        read = self.inner(
            self._split(self.project_query(query), shared=self.shared),
            memory,
            carry,
            allow=rule,
            need_weights=need_weights,
        )
        context = read.context.flatten(batch_axes, -3).transpose(-3, -2).flatten(-2)
        return Read(
            self.output(context),
            read.carry,
            *(None if part is None else self._one_head_axis(part, batch_axes) for part in read[2:]),
        )

    def is_softmax_of_dots(self) -> bool:
        """Whether this is softmax over a dot product in every head, and nothing else."""
        if type(self) is not MultiHead or type(self.inner) is not Composed or self.shared != 1:
            return False
        return isinstance(self.inner.score, DotProductScore) and type(self.inner.normaliser) is Softmax

    def is_plain(self) -> bool:
        """Whether it is that of the Transformer to the letter, without positions of its own."""
        if not self.is_softmax_of_dots() or self.project_query.bias is None:
            return False
        score = self.inner.score
        parts = (self.project_query, self.project_keys, self.project_values, self.output)
        if not all(type(part).forward is nn.Linear.forward for part in parts):
            return False
        same_sizes = self.project_keys.weight.shape == self.project_values.weight.shape
        return type(score) is ScaledDot and score.relative is None and same_sizes

    def _key_ones(self) -> list[int]:
        return [1] * len(self.inner.heads)

    def _split(self, x: Float[Tensor, "*b n hd"], shared: int) -> Float[Tensor, "..."]:
        """``*b n (heads size)`` → ``*b heads n size``, with one more axis where heads share keys."""
        x = x.unflatten(-1, (self.key_heads * shared, -1)).transpose(-3, -2)
        return x if self.shared == 1 else x.unflatten(-3, (self.key_heads, shared))

    def _one_head_axis(self, x: Tensor, batch_axes: int) -> Tensor:
        return x if self.shared == 1 else x.flatten(batch_axes, batch_axes + 1)


@dataclass(frozen=True)
class MultiHeadConfig(AttentionConfig):
    """Sizes left out: a head is ``query_size / heads``, the output is ``value_size``."""

    heads: int = 8
    key_heads: int | None = None
    head_size: int | None = None
    value_head_size: int | None = None
    output_size: int | None = None
    bias: bool = True
    inner: AttentionConfig = field(default_factory=ComposedConfig)
    kind: ClassVar[str] = "multi_head"

    def __post_init__(self) -> None:
        check_least(self, 1, "heads", "key_heads", "head_size", "value_head_size", "output_size")
        if self.heads % (self.key_heads or self.heads):
            raise ValueError(f"key_heads is {self.key_heads}; it must divide heads, {self.heads}")

    def build(
        self, query_size: int, key_size: int | None = None, value_size: int | None = None, *, heads: Heads = ()
    ) -> MultiHead:
        query_size, key_size, value_size = full_sizes(query_size, key_size, value_size)
        if heads:
            raise ValueError("multi_head cannot stand inside multi_head: give the outer one more heads instead")
        if self.head_size is None and query_size % self.heads:
            raise ValueError(f"query_size {query_size} does not divide into {self.heads} heads; give a head_size")
        return MultiHead(self, (query_size, key_size, value_size))
