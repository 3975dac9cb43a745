"""Wrong use is one sentence that names the argument, its shape and the shape that was expected."""

import jaxtyping
import pytest
import torch

from runs import translator
from sightline.attention import (
    AddressingConfig,
    AttentionConfig,
    Block,
    Carry,
    Causal,
    ComposedConfig,
    DotConfig,
    FixedConfig,
    HardConfig,
    LocationAwareConfig,
    MultiHeadConfig,
    RotaryConfig,
    ScaledDotConfig,
    T5BucketsConfig,
    Window,
    select,
)
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.models.transformer import TransformerConfig
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser


@pytest.fixture(autouse=True)
def _as_a_user():
    """The shape checks of the tests would speak first; a user does not have them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


KEYS, QUERY = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
BUILDS = {
    "plain": lambda: ComposedConfig().build(8),
    "additive": lambda: AttentionConfig.from_json("additive").build(8),
    "multi-head": lambda: MultiHeadConfig(heads=2).build(8),
    "grouped": lambda: MultiHeadConfig(heads=4, key_heads=2).build(8),
}


@pytest.fixture(params=BUILDS)
def attention(request):
    return BUILDS[request.param]()


WRONG_MEMORIES = {
    "keys of another size": (
        {"keys": torch.randn(2, 5, 7)},
        r"keys has shape \(2, 5, 7\); expected \(\*batch, s, 8\): this mechanism was built with key_size 8",
    ),
    "keys without axes": ({"keys": torch.randn(8)}, r"keys has shape \(8,\); expected \(\*batch, s, 8\)"),
    "integer keys": (
        {"keys": torch.ones(2, 5, 8, dtype=torch.long)},
        r"keys has dtype torch.int64 and shape \(2, 5, 8\); expected a float tensor of shape \(\*batch, s, 8\)",
    ),
    "a list": ({"keys": [[1.0]]}, r"keys is a list; expected a float tensor of shape \(\*batch, s, 8\)"),
    "values of another length": (
        {"values": torch.randn(2, 4, 8)},
        r"values has shape \(2, 4, 8\); expected \(2, 5, 8\): one value for each key",
    ),
    "values of another size": (
        {"values": torch.randn(2, 5, 9)},
        r"values has shape \(2, 5, 9\); expected \(\*batch, s, 8\)",
    ),
    "integer mask": (
        {"mask": torch.ones(2, 5, dtype=torch.long)},
        r"mask has dtype torch.int64 and shape \(2, 5\); expected torch.bool of shape \(2, 5\) where True means 'this "
        r"key exists' \(try mask.bool\(\)\)",
    ),
    "float mask": (
        {"mask": torch.zeros(2, 5)},
        r"mask has dtype torch.float32 and shape \(2, 5\); expected torch.bool of shape \(2, 5\)",
    ),
    "mask of the wrong shape": (
        {"mask": torch.ones(2, 4, dtype=torch.bool)},
        r"mask has shape \(2, 4\); expected \(2, 5\): one entry for each key",
    ),
    "mask with too many axes": (
        {"mask": torch.ones(2, 3, 5, dtype=torch.bool)},
        r"mask has shape \(2, 3, 5\); expected \(2, 5\)",
    ),
    "a mask that is no tensor": ({"mask": [True]}, r"mask is a list; expected a torch.bool tensor of shape \(2, 5\)"),
}


@pytest.mark.parametrize("case", WRONG_MEMORIES)
def test_wrong_memories(attention, case):
    arguments, message = WRONG_MEMORIES[case]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        attention.remember(**{"keys": KEYS, **arguments})
    assert "\n" not in str(caught.value)


WRONG_CALLS = {
    "query of another size": (
        {"query": torch.randn(2, 3, 6)},
        r"query has shape \(2, 3, 6\); expected \(\*batch, t, 8\)",
    ),
    "query of another batch": ({"query": torch.randn(4, 3, 8)}, r"query has shape \(4, 3, 8\); expected \(2, t, 8\)"),
    "query without a batch": ({"query": torch.randn(3, 8)}, r"query has shape \(3, 8\); expected \(2, t, 8\)"),
    "integer allow": (
        {"allow": torch.ones(3, 5, dtype=torch.long)},
        r"allow has dtype torch.int64 and shape \(3, 5\); expected a torch.bool tensor of shape \(t, s\)",
    ),
    "float allow": ({"allow": torch.zeros(3, 5)}, r"allow has dtype torch.float32 and shape \(3, 5\)"),
    "allow of the wrong shape": (
        {"allow": torch.ones(5, 3, dtype=torch.bool)},
        r"allow has shape \(5, 3\); expected \(3, 5\) or \(\*batch, 3, 5\): one row a query of this call",
    ),
    "allow of another batch": ({"allow": torch.ones(3, 3, 5, dtype=torch.bool)}, r"allow has shape"),
    "a rule by name": ({"allow": "causal"}, r"allow is a str; expected Causal\(\), Window\(n\), Block\(n\)"),
    "a carry that is none": ({"carry": 3}, r"carry is a int; expected what begin\(memory\) or the last read gave"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_wrong_calls(attention, case):
    arguments, message = WRONG_CALLS[case]
    memory = attention.remember(KEYS)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        attention(**{"query": QUERY, "memory": memory, **arguments})
    assert "\n" not in str(caught.value)


def test_wrong_extension(attention):
    with pytest.raises(
        ValueError, match=r"keys has shape .*; expected .*: the batch axes of the memory that is extended"
    ):
        attention.extend(attention.remember(KEYS), torch.randn(3, 1, 8))


WRONG_BUILDS = {
    "sizes that differ": (
        lambda: ComposedConfig(DotConfig()).build(8, 6),
        "needs query and key of one size, found query_size 8",
    ),
    "no size": (lambda: ComposedConfig().build(0), "query_size is 0; a size must be at least 1"),
    "heads that do not divide": (
        lambda: MultiHeadConfig(heads=3).build(8),
        "query_size 8 does not divide into 3 heads",
    ),
    "key heads that do not divide": (
        lambda: MultiHeadConfig(heads=4, key_heads=3),
        "key_heads is 3; it must divide heads, 4",
    ),
    "heads in heads": (lambda: MultiHeadConfig(inner=MultiHeadConfig()).build(8), "cannot stand inside multi_head"),
    "no heads": (lambda: MultiHeadConfig(heads=0), "heads is 0; it must be at least 1"),
    "odd rotary": (lambda: ComposedConfig(ScaledDotConfig(RotaryConfig())).build(7), "must be even, found 7"),
    "odd buckets": (lambda: T5BucketsConfig(buckets=7), "buckets is 7; it must be even"),
    "no temperature": (lambda: HardConfig(temperature=0.0), "temperature is 0.0; it must be above 0"),
    "even width": (lambda: LocationAwareConfig(width=4), "width is 4; it must be odd"),
    "no table": (lambda: FixedConfig(queries=0), "both must be at least 1"),
    "a window of less than nothing": (lambda: Window(-1), "n is -1; it must be 0 or more"),
    "a block of nothing": (lambda: Block(0), "n is 0; it must be 1 or more"),
    "top of nothing": (lambda: capture(torch.nn.Linear(1, 1), top=0).__enter__(), "top is 0; it must be at least 1"),
}


@pytest.mark.parametrize("case", WRONG_BUILDS)
def test_wrong_builds(case):
    build, message = WRONG_BUILDS[case]
    with pytest.raises(ValueError, match=message):
        build()


def test_a_carry_without_weights_and_one_of_another_memory():
    attention = LocationAwareConfig().build(8)
    memory = attention.remember(KEYS)
    with pytest.raises(ValueError, match=r"carry has no weights; start from begin\(memory\)"):
        attention(QUERY, memory, Carry())
    longer = attention.begin(attention.remember(torch.randn(2, 9, 8)))
    with pytest.raises(ValueError, match=r"carry.weights has shape \(2, 9\); expected at most 5 keys"):
        attention(QUERY, memory, longer)


def test_a_memory_with_two_contents_cannot_be_written():
    head = AddressingConfig().build(8)
    memory = head.remember(KEYS, KEYS[..., :8] + 1)
    weights, row = torch.rand(2, 1, 5), torch.rand(2, 1, 8)
    head.write(memory, weights, row, row)
    split = AddressingConfig().build(8, 8, 3).remember(KEYS, torch.randn(2, 5, 3))
    with pytest.raises(ValueError, match="a memory that is written has one content for both"):
        head.write(split, weights, row, row)


def test_select_takes_tuples_and_tensors():
    with pytest.raises(TypeError, match="a state is made of tuples, tensors, integers and None, not of dict"):
        select({"keys": KEYS}, torch.tensor([0]))


def test_masks_broadcast():
    """One mask for every row, and one row of it for every query, are fine."""
    attention = MultiHeadConfig(heads=2).build(8)
    mask = torch.tensor([True, True, False, True, False])
    whole = attention(QUERY, attention.remember(KEYS, mask=mask.expand(2, 5))).context
    for given in (mask, mask[None]):
        memory = attention.remember(KEYS, mask=given)
        torch.testing.assert_close(attention(QUERY, memory).context, whole)
        torch.testing.assert_close(
            attention(QUERY[:1], select(memory, torch.tensor([0]))).context, whole[:1], msg="beams select whole rows"
        )
    torch.testing.assert_close(attention(QUERY, attention.remember(KEYS), allow=mask[None]).context, whole)
    torch.testing.assert_close(
        attention(QUERY, attention.remember(KEYS), allow=Causal() & mask[None]).context,
        attention(QUERY, attention.remember(KEYS, mask=mask), allow=Causal()).context,
    )


@pytest.mark.parametrize("texts", ["one text", {"a": 1}, None])
def test_one_text_is_no_list_of_texts(texts):
    tokeniser = train_tokeniser(["one text", "two"], TokeniserConfig(method="characters", vocab_size=400))
    with pytest.raises(UserError, match="a list of texts expected, found"):
        tokeniser.encode(texts)


def test_a_beginning_is_text():
    tokeniser = train_tokeniser(["one text", "two"], TokeniserConfig(method="characters", vocab_size=400))
    model = TransformerConfig(8, 2, 8, 1, 1).build(tokeniser.words, tokeniser.words).eval()
    with pytest.raises(UserError, match="text expected, found None"):
        translator(model, tokeniser, tokeniser).predict(["one", "two"], prefixes=[None, None])
