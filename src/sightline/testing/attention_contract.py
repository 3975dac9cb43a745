"""The laws of the contract of attention, one function each. `sightline.testing.check_attention` runs them all."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from sightline.attention import Attention, AttentionConfig, Block, Causal, Composed, Memory, Read, Window, select
from sightline.attention.allow import Allow
from sightline.attention.contract import Carry
from sightline.explain.capture import capture

BATCH, QUERIES, KEYS = 3, 4, 6
TOLERANCE = 1e-9  # everything runs in float64


@dataclass
class Case:
    """A mechanism in evaluation mode, and queries, keys and values for it."""

    config: AttentionConfig
    attention: Attention
    query: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor

    @classmethod
    def of(cls, config: AttentionConfig, seed: int = 0, sizes: tuple[int, int, int] = (8, 8, 8)) -> "Case":
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            attention = config.build(*sizes).double().eval()
        # All keys; holes at the front, in the middle and at the end; the last ones missing.
        mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 1, 0], [1, 1, 1, 1, 0, 0]], dtype=torch.bool)
        query_size, key_size, value_size = sizes
        return cls(
            config,
            attention,
            random(BATCH, QUERIES, query_size),
            random(BATCH, KEYS, key_size),
            random(BATCH, KEYS, value_size),
            mask,
        )

    def read(
        self,
        memory: Memory,
        query: Tensor | None = None,
        carry: Carry | None = None,
        allow: Allow | Tensor | None = None,
    ) -> Read:
        query = self.query if query is None else query
        return self.attention(query, memory, carry, need_weights=True, allow=allow)

    def remember(self) -> Memory:
        return self.attention.remember(self.keys, self.values, self.mask)


def same(actual: Tensor | None, expected: Tensor | None, what: str, tolerance: float = TOLERANCE) -> None:
    """Assert equal shapes and, up to the tolerance, equal numbers; NaN is never equal."""
    if actual is None or expected is None:
        assert actual is expected, f"{what}: one is None, the other is not"
        return
    assert actual.shape == expected.shape, f"{what} has shape {tuple(actual.shape)}; expected {tuple(expected.shape)}"
    if actual.numel():
        worst = (actual - expected).abs().max().item()
        assert worst <= tolerance, f"{what} is off by {worst:.3g}"  # false for NaN as well


def same_read(actual: Read, expected: Read, what: str) -> None:
    for part in ("context", "weights", "log_prob", "entropy"):
        same(getattr(actual, part), getattr(expected, part), f"{part} {what}")


def law_shapes(case: Case) -> None:
    """context `*b t v`, weights `*b t s` (with a head axis before t where there are heads), finite everywhere."""
    read = case.read(case.remember())
    expected = (BATCH, QUERIES, case.attention.context_size)
    assert tuple(read.context.shape) == expected, f"context has shape {tuple(read.context.shape)}, not {expected}"
    assert read.weights is not None, "need_weights=True gave no weights"
    shape = tuple(read.weights.shape)
    assert (shape[0], *shape[-2:]) == (BATCH, QUERIES, KEYS), f"weights has shape {shape}"
    for part in (read.context, read.weights):
        assert part.isfinite().all(), "not finite"
    assert case.attention(case.query, case.remember()).weights is None, "weights are returned without need_weights"
    assert read.carry.position == QUERIES, f"the carry is at position {read.carry.position} after {QUERIES} queries"


def law_weights_do_not_change_the_read(case: Case) -> None:
    """With need_weights another path runs; it must read the same context."""
    memory = case.remember()
    for allow in (None, Causal(), Window(1)):
        asked = case.attention(case.query, memory, allow=allow, need_weights=True)
        same(case.attention(case.query, memory, allow=allow).context, asked.context, f"context with allow {allow}")


def law_batch_axes(case: Case) -> None:
    """Any number of leading axes, none of them mixed with another; also none at all."""
    parts = (case.query, case.keys, case.values, case.mask)
    query, keys, values, mask = (torch.stack([part, part.flip(0)]) for part in parts)
    context = case.attention(query, case.attention.remember(keys, values, mask)).context
    expected = case.attention(case.query, case.remember()).context
    same(context, torch.stack([expected, expected.flip(0)]), "context with two batch axes")
    alone = case.attention(query[0, 1], case.attention.remember(keys[0, 1], values[0, 1], mask[0, 1]))
    same(alone.context, expected[1], "context without a batch axis")


def law_values_are_the_keys_unless_given(case: Case) -> None:
    if case.keys.shape == case.values.shape:
        given = case.read(case.attention.remember(case.keys, case.keys, case.mask))
        same_read(case.read(case.attention.remember(case.keys, mask=case.mask)), given, "without values")


def law_nothing_at_all(case: Case) -> None:
    """No queries, no keys, no rows: empty results of the right shape, and zeros where there is nothing to read."""
    memory = case.remember()
    read = case.read(memory, query=case.query[:, :0])
    assert tuple(read.context.shape) == (BATCH, 0, case.attention.context_size), "no queries"
    keyless = case.attention.remember(case.keys[:, :0], case.values[:, :0])
    same(case.read(keyless).context, empty_context(case).expand_as(case.read(memory).context), "context without keys")
    none = torch.tensor([], dtype=torch.long)
    for allow in (None, Causal()):
        rowless = case.attention(case.query[:0], select(memory, none), allow=allow)
        assert tuple(rowless.context.shape) == (0, QUERIES, case.attention.context_size), "no rows"


def law_other_precisions(case: Case) -> None:
    """Float32, bfloat16 and float16 give finite numbers, padding and rows without keys included."""
    mask = case.mask.clone()
    mask[1] = False
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        attention = copy.deepcopy(case.attention).to(dtype)
        query, keys, values = (part.to(dtype) for part in (case.query, case.keys, case.values))
        for need_weights in (False, True):
            read = attention(query, attention.remember(keys, values, mask), allow=Causal(), need_weights=need_weights)
            assert read.context.dtype == dtype, f"context has dtype {read.context.dtype}, not {dtype}"
            assert read.context.isfinite().all(), f"context is not finite in {dtype}"


def law_training_mode(case: Case) -> None:
    """In training too, weights are those of the read: masked keys have none, and none is negative."""
    attention = case.attention.train()
    read = attention(case.query, attention.remember(case.keys, case.values, case.mask), need_weights=True)
    assert read.weights is not None, "need_weights=True gave no weights"
    hidden = ~case.mask.reshape(BATCH, *[1] * (read.weights.dim() - 2), KEYS)
    assert (read.weights.masked_fill(~hidden, 0.0) == 0).all(), "a masked key has weight"
    assert ((read.weights >= 0) & (read.weights <= 1 + TOLERANCE)).all(), "a weight lies outside 0 … 1"
    assert (read.weights.sum(dim=-1) <= 1 + TOLERANCE).all(), "the weights of a row sum to more than 1"


def law_masked_keys_count_for_nothing(case: Case) -> None:
    """Exactly zero weight, and what they hold changes nothing: other numbers, infinity or NaN."""
    read = case.read(case.remember())
    assert read.weights is not None
    hidden = ~case.mask.reshape(BATCH, *[1] * (read.weights.dim() - 2), KEYS)
    assert (read.weights.masked_fill(~hidden, 0.0) == 0).all(), "a masked key has weight"
    missing = ~case.mask.unsqueeze(-1)
    for content in (123.0, torch.inf, torch.nan):
        keys, values = case.keys.masked_fill(missing, content), case.values.masked_fill(missing, content)
        same_read(case.read(case.attention.remember(keys, values, case.mask)), read, f"with masked keys of {content}")


def law_padding(case: Case) -> None:
    """Keys added behind the mask, or queries added behind, change nothing."""
    read = case.read(case.remember())
    memory = case.attention.remember(
        pad(case.keys, (0, 0, 0, 3), value=7.0), pad(case.values, (0, 0, 0, 3), value=7.0), pad(case.mask, (0, 3))
    )
    padded = case.read(memory)
    assert padded.weights is not None
    same_read(padded._replace(weights=padded.weights[..., :KEYS]), read, "with keys padded")
    longer = case.read(case.remember(), query=pad(case.query, (0, 0, 0, 2), value=7.0))
    same(longer.context[:, :QUERIES], read.context, "context with queries padded")


def law_nothing_to_attend(case: Case) -> None:
    """A row without any key, or a query that may see none, reads zeros, and gives gradients without NaN.

    Behind an output projection zeros become a constant, whatever the query, the keys and the values are.
    """
    mask = case.mask.clone()
    mask[1] = False
    keys, query = case.keys.clone().requires_grad_(), case.query.clone().requires_grad_()
    allow = torch.ones(QUERIES, KEYS, dtype=torch.bool)
    allow[2] = False
    empty = empty_context(case)
    for need_weights in (False, True):
        memory = case.attention.remember(keys, case.values, mask)
        read = case.attention(query, memory, allow=allow, need_weights=need_weights)
        assert read.context.isfinite().all(), "context is not finite"
        same(read.context[1], empty.expand_as(read.context[1]), "context of a row without keys")
        same(read.context[:, 2], empty.expand_as(read.context[:, 2]), "context of a query that may see nothing")
        if read.weights is not None:
            assert (read.weights[1] == 0).all(), "weights of a row without keys are not zero"
            assert (read.weights[..., 2, :] == 0).all(), "weights of a query that may see nothing are not zero"
        total = read.context.sum() + sum(part.sum() for part in (read.log_prob, read.entropy) if part is not None)
        tensors = [query, keys, *case.attention.parameters()]
        if total.requires_grad:
            gradients = torch.autograd.grad(total, tensors, allow_unused=True)
            assert all(g is None or g.isfinite().all() for g in gradients), "a gradient is not finite"


def empty_context(case: Case) -> Tensor:
    """What is read where nothing may be attended: zeros, or, behind an output projection, what it makes of zeros."""
    if isinstance(case.attention, Composed):
        return torch.zeros(case.attention.context_size, dtype=case.query.dtype)
    nothing = torch.zeros(1, KEYS, dtype=torch.bool)
    memory = case.attention.remember(case.keys[:1].flip(1), case.values[:1].flip(1), nothing)
    return case.attention(case.query[:1, :1] + 1, memory).context[0, 0].detach()


def law_nothing_is_kept(case: Case) -> None:
    """Two memories used in turn give what each gives alone, and the mechanism is the same object afterwards."""
    before = {name: copy.copy(vars(module)) for name, module in case.attention.named_modules()}
    memories = [case.remember(), case.attention.remember(case.keys.flip(0, 1), case.values.flip(0, 1))]
    alone = [_one_by_one(case, memory) for memory in memories]
    carries = [case.attention.begin(memory) for memory in memories]
    for i in range(QUERIES):
        for which, memory in enumerate(memories):
            read = case.read(memory, query=case.query[:, i : i + 1], carry=carries[which])
            carries[which] = read.carry
            same_read(read, alone[which][i], "with memories interleaved")
    for name, module in case.attention.named_modules():
        kept = {key for key, value in vars(module).items() if before[name].get(key) is not value}
        assert not kept, f"{name or 'the mechanism'} keeps {', '.join(sorted(kept))} on itself"


def _one_by_one(case: Case, memory: Memory, allow: object = None) -> list[Read]:
    carry, reads = case.attention.begin(memory), []
    for i in range(QUERIES):
        row = allow[i : i + 1] if isinstance(allow, Tensor) else allow
        read = case.attention(case.query[:, i : i + 1], memory, carry, allow=row, need_weights=True)
        carry = read.carry
        reads.append(read)
    return reads


def law_one_by_one(case: Case) -> None:
    """One query at a time, passing on the carry, gives what all at once gives, whatever is allowed."""
    memory = case.remember()
    free = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(3)) < 0.7
    for allow in (None, Causal(), Window(1), Block(2), Causal() & Window(2), Causal() & Block(3), free):
        whole = case.attention(case.query, memory, allow=allow, need_weights=True)
        reads = _one_by_one(case, memory, allow)
        same(torch.cat([read.context for read in reads], dim=-2), whole.context, f"context with allow {allow}")
        weights = [read.weights for read in reads if read.weights is not None]
        same(torch.cat(weights, dim=-2), whole.weights, f"weights with allow {allow}")


def law_allow(case: Case) -> None:
    """A rule gives what the bool tensor that spells it out gives; what it hides has no weight."""
    memory = case.remember()
    rows, columns = torch.arange(QUERIES).unsqueeze(-1), torch.arange(KEYS)
    spelled = {
        Causal(): columns <= rows,
        Window(1): (columns - rows).abs() <= 1,
        Block(2): columns // 2 == rows // 2,
    }
    for rule, tensor in spelled.items():
        read = case.read(memory, allow=rule)
        same_read(case.read(memory, allow=tensor), read, f"with {rule} as a tensor")
        assert read.weights is not None
        assert (read.weights.masked_fill(tensor, 0.0) == 0).all(), f"{rule} does not hide"
    own = torch.rand(BATCH, QUERIES, KEYS, generator=torch.Generator().manual_seed(5)) < 0.6
    whole = case.read(memory, allow=own)
    for row in range(BATCH):
        one = torch.tensor([row])
        alone = case.attention(case.query[one], select(memory, one), allow=own[row], need_weights=True)
        same(alone.context, whole.context[one], "context with a tensor for each row")


def law_extend(case: Case) -> None:
    """Keys appended to a memory are as if they had been there from the start; also one by one, decoding causally."""
    whole = case.remember()
    memory = case.attention.remember(case.keys[:, :2], case.values[:, :2], case.mask[:, :2])
    for i in range(2, KEYS):
        piece = slice(i, i + 1)
        memory = case.attention.extend(memory, case.keys[:, piece], case.values[:, piece], case.mask[:, piece])
    same_read(case.read(memory), case.read(whole), "with a memory made by extend")
    expected = case.attention(
        case.query, case.attention.remember(case.keys, case.values), allow=Causal() & Window(2), need_weights=True
    )
    cache, carry = case.attention.remember(case.keys[:, :1], case.values[:, :1]), None
    for i in range(QUERIES):
        if i:
            cache = case.attention.extend(cache, case.keys[:, i : i + 1], case.values[:, i : i + 1])
        read = case.attention(case.query[:, i : i + 1], cache, carry, allow=Causal() & Window(2))
        carry = read.carry
        same(read.context[:, 0], expected.context[:, i], f"context of query {i} from a cache")


def law_extend_with_and_without_a_mask(case: Case) -> None:
    """A mask on one piece only hides nothing of the other."""
    ones = torch.ones_like(case.mask)
    for first, second in ((case.mask, None), (None, case.mask)):
        memory = case.attention.remember(case.keys[:, :3], case.values[:, :3], None if first is None else first[:, :3])
        memory = case.attention.extend(
            memory, case.keys[:, 3:], case.values[:, 3:], None if second is None else second[:, 3:]
        )
        mask = torch.cat(
            [(ones if first is None else first)[:, :3], (ones if second is None else second)[:, 3:]], dim=1
        )
        whole = case.attention.remember(case.keys, case.values, mask)
        same_read(case.read(memory), case.read(whole), "with a mask on one piece")


def law_chunks_from_a_cache(case: Case) -> None:
    """Three queries, then one, from a memory that grows: what all at once give."""
    for rule in (Causal(), Causal() & Window(1), Causal() & Block(3)):
        whole = case.attention(case.query, case.attention.remember(case.keys[:, :4], case.values[:, :4]), allow=rule)
        cache, carry, contexts = case.attention.remember(case.keys[:, :3], case.values[:, :3]), None, []
        for chunk in (slice(0, 3), slice(3, 4)):
            if chunk.start:
                cache = case.attention.extend(cache, case.keys[:, chunk], case.values[:, chunk])
            read = case.attention(case.query[:, chunk], cache, carry, allow=rule)
            carry = read.carry
            contexts.append(read.context)
        same(torch.cat(contexts, dim=1), whole.context, f"context in chunks with {rule}")


def law_select(case: Case) -> None:
    """Rows of the batch reordered, repeated or dropped, in the middle of decoding."""
    memory = case.remember()
    first = case.read(memory, query=case.query[:, :2])
    expected = case.read(memory, query=case.query[:, 2:], carry=first.carry)
    for order in ([2, 0, 1], [1, 1, 0, 2, 1], [2]):
        rows = torch.tensor(order)
        actual = case.read(select(memory, rows), query=case.query[rows, 2:], carry=select(first.carry, rows))
        same(actual.context, expected.context[rows], f"context of rows {order}")


def law_capture(case: Case) -> None:
    """Under `capture` the read is the same, and the weights shown are those of the loss; top-k gives the largest."""
    memory = case.remember()
    read = case.read(memory)
    assert read.weights is not None
    expected = read.weights.reshape(BATCH, -1, QUERIES, KEYS)
    with capture(case.attention) as trace:
        inside = case.attention(case.query, memory)
    same(inside.context, read.context, "context under capture")
    assert len(trace.maps) == 1, f"capture saw {len(trace.maps)} maps; a mechanism calls show() once for each read"
    same(trace.maps[0].weights, expected, "weights under capture")
    with capture(case.attention, top=2) as trace:
        trace.largest = 1  # one row at a time
        inside = case.attention(case.query, memory)
    same(inside.context, read.context, "context under top-k capture")
    same(trace.maps[0].largest[0], expected.topk(2, dim=-1).values, "largest weights")


def law_change(case: Case) -> None:
    """What a change gives is what is read with: with zeros, nothing."""
    with capture(case.attention, change=lambda site, look: torch.zeros_like(look.weights)):
        read = case.attention(case.query, case.remember())
    same(read.context, empty_context(case).expand_as(read.context), "context with all weights changed to zero")


def law_gradients(case: Case) -> None:
    """Float64 gradients, by inputs and parameters, equal finite differences (in evaluation mode)."""
    inputs = [part.detach().clone().requires_grad_() for part in (case.query, case.keys, case.values)]
    parameters = list(case.attention.parameters())

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        query, keys, values = tensors[:3]
        read = case.attention(
            query, case.attention.remember(keys, values, case.mask), allow=Window(3), need_weights=True
        )
        return tuple(p for p in (read.context, read.weights, read.log_prob, read.entropy) if p is not None)

    def differentiable(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(part for part in run(*tensors) if part.requires_grad)

    holds = torch.autograd.gradcheck(
        differentiable, (*inputs, *parameters), fast_mode=True, raise_exception=False, check_undefined_grad=False
    )
    assert holds, "gradients differ from finite differences"


def law_config(case: Case) -> None:
    """A configuration survives JSON, and a mechanism built from it takes the other's parameters."""
    again = AttentionConfig.loads(case.config.dumps())
    assert again == case.config, f"{again} is not {case.config}"
    sizes = (case.attention.query_size, case.attention.key_size, case.attention.value_size)
    rebuilt = again.build(*sizes).double().eval()
    rebuilt.load_state_dict(case.attention.state_dict())
    case_again = Case(again, rebuilt, case.query, case.keys, case.values, case.mask)
    same_read(case_again.read(case_again.remember()), case.read(case.remember()), "after a JSON round trip")
