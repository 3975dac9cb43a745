"""Edges that once were rough: each of these went wrong before it had a test."""

import json

import numpy as np
import pytest
import torch

from sightline import Record, Slots, Tokens, capture, cut, uniform
from sightline.attention import (
    AttentionConfig,
    Baseline,
    Causal,
    Composed,
    ComposedConfig,
    DotConfig,
    GeneralConfig,
    HardConfig,
    LocalConfig,
    LocationAwareConfig,
    MultiHeadConfig,
    RotaryConfig,
    ScaledDotConfig,
    SparsemaxConfig,
    reinforce_loss,
)
from sightline.attention.position import Alibi
from sightline.config import ConfigError, override
from sightline.kernels.softmax import softmax
from sightline.nn.efficientnet import EfficientNetLite0Config
from sightline.nn.image import CNNConfig
from sightline.records import TopK
from sightline.tasks.configs.caption import CaptionConfig


def test_reinforce_credits_each_row_for_all_of_its_heads():
    log_likelihood = torch.randn(4, requires_grad=True)
    log_prob, entropy = torch.randn(4, 3, 2, requires_grad=True), torch.randn(4, 3, 2)
    found = reinforce_loss(log_likelihood, log_prob, entropy, Baseline(0.5), entropy_weight=0.1)
    rewards = log_likelihood.detach() - 0.5
    expected = -(log_likelihood + rewards * log_prob.sum((1, 2)) + 0.1 * entropy.sum((1, 2))).mean()
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match=r"log_prob has shape \(3, 2\); expected \(4, '...'\)"):
        reinforce_loss(log_likelihood, torch.randn(3, 2), torch.randn(3, 2), Baseline())


def test_hard_attention_with_heads_trains_end_to_end():
    attention = MultiHeadConfig(1, inner=ComposedConfig(GeneralConfig(), HardConfig())).build(8)
    x = torch.randn(4, 5, 8)
    read = attention(x, attention.remember(x))
    reinforce_loss(read.context.mean((1, 2)), read.log_prob, read.entropy, Baseline()).backward()
    assert attention.inner.score.key.weight.grad.abs().sum() > 0


def test_two_memories_in_turn_give_two_maps():
    attention = AttentionConfig.from_json("additive").build(6)
    memories = [attention.remember(torch.randn(2, n, 6)) for n in (5, 5)]
    query = torch.randn(2, 3, 6)
    expected = [attention(query, memory, need_weights=True).weights for memory in memories]
    with capture(attention) as trace:
        carries = [None, None]
        for i in range(3):
            for which, memory in enumerate(memories):
                carries[which] = attention(query[:, i : i + 1], memory, carries[which]).carry
    assert len(trace.maps) == 2
    for found, weights in zip(trace.maps, expected, strict=True):
        torch.testing.assert_close(found.weights[:, 0], weights)


@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_a_mask_for_each_head(key_heads):
    attention = MultiHeadConfig(4, key_heads=key_heads).build(8)
    x = torch.randn(2, 5, 8)
    allow = torch.rand(2, 4, 5, 5) < 0.6
    weights = attention(x, attention.remember(x), allow=allow, need_weights=True).weights
    assert (weights.masked_fill(allow, 0.0) == 0).all()
    assert (weights[allow] > 0).all()
    fused = attention(x, attention.remember(x), allow=allow).context
    torch.testing.assert_close(fused, attention(x, attention.remember(x), allow=allow, need_weights=True).context)


def test_a_mask_that_could_mean_two_things_is_refused():
    attention = MultiHeadConfig(4).build(8)
    x = torch.randn(2, 4, 5, 8)
    with pytest.raises(ValueError, match=r"allow has shape \(4, 5, 5\); expected \(t, s\), 2 batch axes and \(t, s\)"):
        attention(x, attention.remember(x), allow=torch.ones(4, 5, 5, dtype=torch.bool))


def test_positions_are_exact_in_half_precision():
    local = LocalConfig("monotonic", 1, score=DotConfig()).build(4).bfloat16()
    x = torch.randn(1, 310, 4).bfloat16()
    weights = local(x, local.remember(x), need_weights=True).weights[0]
    for row in (0, 255, 256, 259, 309):
        assert weights[row].nonzero().flatten().tolist() == [i for i in (row - 1, row, row + 1) if 0 <= i < 310]
    exact = Alibi((8,)).bias(0, 1, 400, torch.empty(0, dtype=torch.float64))
    rounded = Alibi((8,)).bias(0, 1, 400, torch.empty(0, dtype=torch.bfloat16))
    torch.testing.assert_close(rounded, exact.bfloat16())


HOSTILE = {
    "deep": "[" * 100_000,
    "deep and valid": '{"kind":"multi_head","inner":' * 20_000 + '"dot"' + "}" * 20_000,
    "a number without end": '{"kind": "multi_head", "heads": ' + "9" * 5000 + "}",
    "a number too large": '{"kind": "composed", "score": {"kind": "cosine", "strength": ' + "9" * 400 + "}}",
    "no kind": "{}",
    "an empty kind": '{"kind": ""}',
    "a field twice": '{"kind": "multi_head", "heads": 2, "heads": 3}',
    "a long kind": '{"kind": "' + "x" * 1_000_000 + '"}',
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_configurations_are_short_errors(case):
    with pytest.raises(ConfigError) as caught:
        AttentionConfig.loads(HOSTILE[case])
    assert len(str(caught.value)) < 400


def test_fields_can_be_set_by_path():
    config = MultiHeadConfig()
    found = override(config, ["heads=4", "inner.normaliser=sparsemax", "inner.score.relative=rotary"])
    assert found == MultiHeadConfig(4, inner=ComposedConfig(ScaledDotConfig(RotaryConfig()), SparsemaxConfig()))
    for wrong, message in {
        "heads": "sets nothing",
        "haeds=3": "did you mean 'heads'",
        "iner.score=dot": "did you mean 'inner'",
        "heads=many": "expected int, found 'many'",
        "heads.size=3": "there is no 'heads' with fields$",
        "score=dot": "did you mean 'inner.score'",
    }.items():
        with pytest.raises(ConfigError, match=message):
            override(config, [wrong])


def test_fields_of_a_kind_are_set_behind_its_name():
    config = CaptionConfig(encoder=EfficientNetLite0Config())
    assert override(config, ["encoder=cnn", "encoder.size=24", "encoder.blocks=0"]).encoder == CNNConfig(24, blocks=0)
    with pytest.raises(ConfigError, match="encoder: size is 7; it must be at least 8 and at most 16384"):
        override(config, ["encoder=cnn", "encoder.size=7"])
    for given in (
        ["encoder.size=24", "encoder=cnn"],
        ['encoder={"kind": "cnn"}', "encoder.size=24"],
        ["encoder.kind=cnn", "encoder.size=24"],
    ):
        assert override(config, given).encoder == CNNConfig(24), given
    hard = override(config, ["model.attention.normaliser.soft_share=0.25", "model.attention.normaliser=hard"])
    assert hard.model.attention.normaliser.soft_share == 0.25
    with pytest.raises(ConfigError, match=r"tokeniser is no choice between kinds; set one .*: tokeniser\.method=…"):
        override(config, ["tokeniser=words", "tokeniser.vocab_size=400"])
    with pytest.raises(ConfigError, match=r"there is no 'metric' with fields$"):
        override(config, ["metric=bleu1", "metric.size=7"])


def test_a_mechanism_that_weighs_its_own_way_is_asked():
    class Cold(Composed):
        def weigh(self, query, memory, carry, allowed):
            found = super().weigh(query, memory, carry, allowed)
            return found._replace(weights=torch.zeros_like(found.weights))

    built = ComposedConfig().build(8)
    cold = Cold(built.score, built.normaliser, 8, 8, 8)
    x = torch.randn(2, 3, 8)
    assert (cold(x, cold.remember(x)).context == 0).all()

    class Backwards(Causal):
        def visible(self, position, queries, keys, device):
            return ~torch.ones(queries, keys, dtype=torch.bool).tril(-1)

    found = built(x, built.remember(x), allow=Backwards())
    torch.testing.assert_close(found.context, built(x, built.remember(x), allow=torch.ones(3, 3).bool().triu()).context)


def test_uniform_stays_within_a_local_window():
    attention = LocalConfig("monotonic", 1, score=DotConfig()).build(4)
    x = torch.randn(1, 6, 4)
    with capture(attention, change=uniform, scores=True) as trace:
        attention(x, attention.remember(x))
    assert trace.maps[0].weights[0, 0, 3].tolist() == pytest.approx([0, 0, 1 / 3, 1 / 3, 1 / 3, 0])
    assert trace.maps[0].scores[0, 0, 3, 0] == -torch.inf


def test_a_cut_that_never_happens_is_an_error():
    attention = MultiHeadConfig(2).build(8)
    x = torch.randn(1, 3, 8)
    message = "cut: no attention named 'atention' ran; there is attention"
    with pytest.raises(ValueError, match=message), capture(attention, change=cut("atention", 0)):
        attention(x, attention.remember(x))


def test_each_map_can_have_its_own_axes():
    model = torch.nn.ModuleDict({"own": MultiHeadConfig(2).build(8), "cross": MultiHeadConfig(2).build(8)})
    x, source = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    with capture(model) as trace:
        model["own"](x, model["own"].remember(x))
        model["cross"](x, model["cross"].remember(source))
    words, letters = Tokens(("a", "b", "c")), Tokens(tuple("vwxyz"))
    records = trace.records(rows=words, columns={"own": words, "cross": letters})
    assert [record.columns for record in records] == [words, words, letters, letters]


def test_location_aware_parameters_stand_once():
    names = LocationAwareConfig(width=3).build(8).state_dict()
    assert not [name for name in names if name.startswith("additive.")]


def test_nan_scores_stay_nan():
    for name in ("sparsemax", "entmax15", "softmax"):
        attention = AttentionConfig.from_json({"kind": "composed", "score": "dot", "normaliser": name}).build(4)
        keys = torch.randn(1, 3, 4)
        read = attention(torch.full((1, 2, 4), torch.nan), attention.remember(keys), need_weights=True)
        assert read.weights.isnan().all()


WRONG = {
    "place": lambda: LocalConfig(place="nonsense"),
    "estimator": lambda: HardConfig(estimator="nonsense"),
    "temperature": lambda: HardConfig(temperature=float("nan")),
    "base": lambda: RotaryConfig(base=0.0),
    "hidden_size": lambda: LocationAwareConfig(hidden_size=-1),
}


@pytest.mark.parametrize("field", WRONG)
def test_configs_made_in_python_are_checked_too(field):
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=f"{field} is"):
            WRONG[field]()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_records_at_their_limits():
    nothing = Record("x", 0, 0, Slots(0), Slots(3), np.zeros((0, 3), dtype=np.float32))
    again = Record.from_json(json.loads(json.dumps(nothing.to_json())))
    assert again.matrix().shape == (0, 3)
    odd = Record("x", 0, 0, Slots(1), Slots(2), np.array([[np.nan, 0.5]], dtype=np.float32))
    text = json.dumps(odd.to_json(), allow_nan=False)
    np.testing.assert_array_equal(Record.from_json(json.loads(text)).matrix(), odd.matrix())
    with pytest.raises(ValueError, match="places lie between 0 and 9; there are 3"):
        TopK(np.array([[0, 9]]), np.array([[0.5, 0.5]]), 3)
    with pytest.raises(ValueError, match=r"scores has shape \(1, 1\); expected \(1, 2\)"):
        Record("x", 0, 0, Slots(1), Slots(2), np.ones((1, 2)), np.ones((1, 1)))


@pytest.mark.parametrize("content", [1e30, 3e38])
def test_huge_numbers_in_missing_keys_have_no_gradient(content):
    attention = ComposedConfig().build(8)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, -1] = False
    keys = torch.randn(2, 5, 8).masked_fill(~mask.unsqueeze(-1), content).requires_grad_()
    query = torch.randn(2, 3, 8, requires_grad=True)
    attention(query, attention.remember(keys, mask=mask)).context.sum().backward()
    assert keys.grad.isfinite().all()
    assert query.grad.isfinite().all()
    assert (keys.grad[0, -1] == 0).all()


@pytest.mark.parametrize("keys", [1, 3, 15, 16])
def test_the_softmax_of_short_rows_is_the_softmax(keys):
    """So many rows that short ones are filled up."""
    scores = torch.randn(1100, keys, requires_grad=True)
    gradient = torch.randn(1100, keys)
    found, expected = softmax(scores), torch.softmax(scores.double(), dim=-1)
    torch.testing.assert_close(found, expected.float())
    assert torch.equal(found > 0, torch.ones_like(found, dtype=torch.bool))
    (one,) = torch.autograd.grad(found, scores, gradient)
    (other,) = torch.autograd.grad(expected, scores, gradient.double())
    torch.testing.assert_close(one, other)
