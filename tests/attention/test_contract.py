"""Every mechanism × normaliser, plain and multi-head, keeps the laws; broken mechanisms do not get through."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from catalogue import everything
from sightline import config as config_module
from sightline.attention import (
    AttentionConfig,
    Composed,
    ComposedConfig,
    MultiHeadConfig,
    PoolingConfig,
    Read,
    RotaryConfig,
    ScaledDotConfig,
    SoftmaxConfig,
    Weighed,
)
from sightline.attention import fused as fused_module
from sightline.attention.allow import visible_keys
from sightline.attention.contract import Carry, Memory, concatenate, full_sizes
from sightline.attention.dot import ScaledDot
from sightline.testing import check_attention, laws

EVERYTHING = everything()


def _marks(name):
    """Shapes are checked with one normaliser: another calls the same functions. `make test-long` has heads with all."""
    several, normaliser = "(" in name, name.rstrip(")").rpartition("/")[2]
    marks = [] if normaliser == "softmax" else [pytest.mark.unchecked_shapes]
    return marks + ([pytest.mark.long] if several and normaliser not in ("softmax", "sparsemax") else [])


NAMES = [pytest.param(name, marks=_marks(name)) for name in EVERYTHING]


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_keeps_every_law(name):
    assert check_attention(EVERYTHING[name]) == list(laws())


@pytest.mark.parametrize("name", [name for name in EVERYTHING if "dot" in name and "softmax" in name])
def test_dot_products_keep_the_laws_on_the_kernel_too(name, monkeypatch):
    """The laws are tried on few keys, which take plain products."""
    monkeypatch.setattr(fused_module, "SHORT", 0)
    assert check_attention(EVERYTHING[name]) == list(laws())


@pytest.mark.parametrize("name", ["general/softmax", "additive/sparsemax", "location_aware/softmax", "local_p/softmax"])
def test_query_key_and_value_may_differ_in_size(name):
    check_attention(EVERYTHING[name], sizes=(6, 4, 5))
    check_attention(MultiHeadConfig(heads=2, inner=EVERYTHING[name], output_size=7), sizes=(6, 4, 5))


@pytest.mark.slow
def test_the_laws_hold_for_other_numbers():
    for seed in range(1, 6):
        check_attention(EVERYTHING["multi_head(scaled_dot/softmax)"], seed=seed)
        check_attention(EVERYTHING["additive/entmax15"], seed=seed)


# Broken mechanisms: each does one thing wrong, and the law that names it must catch it.


class IgnoresPadding(Composed):
    """Forgets the padding mask."""

    def weigh(self, query, memory, carry, allowed):
        return super().weigh(query, memory, carry, None)


class LeavesNaN(Composed):
    """Masks with −inf and nothing else: rows without keys become NaN."""

    def weigh(self, query, memory, carry, allowed):
        scores = self.score(query, memory.keys, carry.position)
        hidden = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
        return Weighed(scores, torch.softmax(hidden, dim=-1), None, None, allowed)


class FlipsTheMask(Composed):
    """Reads True as 'hide'."""

    def weigh(self, query, memory, carry, allowed):
        return super().weigh(query, memory, carry, None if allowed is None else ~allowed)


class KeepsKeysOnItself(Composed):
    """The projected keys live on the module, and whoever remembered last is read by all."""

    def remember(self, keys, values=None, mask=None):
        self.kept = super().remember(keys, values, mask)
        return self.kept

    def attend_block(self, query, memory, carry, allow, need_weights, shown=0, to_come=0):
        return super().attend_block(query, self.kept, carry, allow, need_weights, shown, to_come)


class ForgetsThePosition(Composed):
    """The carry stays at zero: a causal mask from a cache hides everything but the first key."""

    def next_carry(self, carry, weights):
        return Carry(0)


class ExtendsFromTheStart(Composed):
    """Appended keys get the positions of the first ones."""

    def extend(self, memory, keys, values=None, mask=None):
        return concatenate(memory, super().extend(None, keys, values, mask))


class StopsTheGradient(Composed):
    """No gradient through the weights."""

    def weigh(self, query, memory, carry, allowed):
        found = super().weigh(query, memory, carry, allowed)
        # The value of found.weights with twice its gradient.
        return found._replace(weights=2 * found.weights - found.weights.detach())


class HidesFromCapture(Composed):
    """Never shows its weights."""

    def attend_block(self, query, memory, carry, allow, need_weights, shown=0, to_come=0):
        weighed = self.weigh(query, memory, carry, None if memory.mask is None else memory.mask.unsqueeze(-2))
        return Read(
            weighed.weights @ memory.values,
            self.next_carry(carry, weighed.weights),
            weighed.weights if need_weights else None,
        )


class SeesTheFuture(Composed):
    """Looks at all queries of the call at once."""

    def weigh(self, query, memory, carry, allowed):
        return super().weigh(query + query.mean(dim=-2, keepdim=True), memory, carry, allowed)


class SharesOneMask(Composed):
    """Keeps only the first row's mask: rows of a batch cannot be selected."""

    def remember(self, keys, values=None, mask=None):
        memory = super().remember(keys, values, mask)
        return Memory(memory.keys, memory.values, None if memory.mask is None else memory.mask[:1])


class ReturnsRawScores(Composed):
    """Weights that are not what was read with."""

    def attend_block(self, query, memory, carry, allow, need_weights, shown=0, to_come=0):
        read = super().attend_block(query, memory, carry, allow, need_weights, shown, to_come)
        return read if read.weights is None else read._replace(weights=read.weights * 0.5)


class TakesTheMaskForALength(Composed):
    """As if only the last keys could be missing."""

    def extend(self, memory, keys, values=None, mask=None):
        if mask is not None:
            mask = torch.arange(mask.shape[-1]) < mask.sum(dim=-1, keepdim=True)
        return super().extend(memory, keys, values, mask)


class LosesTheMaskOfAnExtension(Composed):
    """Keys appended to a memory without a mask are all taken to exist."""

    def extend(self, memory, keys, values=None, mask=None):
        if memory is not None and memory.mask is None:
            mask = None
        return super().extend(memory, keys, values, mask)


class AllowsByTheFirstRow(Composed):
    """A mask for each row, of which the first is used for all."""

    def weigh(self, query, memory, carry, allowed):
        if allowed is not None and allowed.dim() == 3 and allowed.shape[-2] > 1:
            allowed = allowed[:1].expand_as(allowed)
        return super().weigh(query, memory, carry, allowed)


class MixesBatchAxes(Composed):
    """Right with one batch axis, wrong with two."""

    def weigh(self, query, memory, carry, allowed):
        if query.dim() == 4:
            query = query.roll(1, dims=0)
        return super().weigh(query, memory, carry, allowed)


class ReadsZerosWithoutValues(Composed):
    """Values left out are zeros instead of the keys."""

    def extend(self, memory, keys, values=None, mask=None):
        return super().extend(memory, keys, torch.zeros_like(keys) if values is None else values, mask)


class IgnoresAChange(Composed):
    """Shows its weights and reads with its own."""

    def attend_block(self, query, memory, carry, allow, need_weights, shown=0, to_come=0):
        read = super().attend_block(query, memory, carry, allow, need_weights, shown, to_come)
        allowed = visible_keys(allow, memory.mask, carry.position, query.shape[-2], memory.keys.shape[-2], query.device)
        return read._replace(context=self.weigh(query, memory, carry, allowed).weights @ memory.values)


class FailsWithoutQueries(Composed):
    """Takes the first query for granted."""

    def weigh(self, query, memory, carry, allowed):
        assert query[..., 0, :].dim()
        return super().weigh(query, memory, carry, allowed)


class OnlyDoublePrecision(Composed):
    """Works in float64 alone."""

    def weigh(self, query, memory, carry, allowed):
        return super().weigh(query + torch.zeros(1, dtype=torch.float64), memory, carry, allowed)


class ForgetsItselfInTraining(Composed):
    """All weights are one while training."""

    def weigh(self, query, memory, carry, allowed):
        found = super().weigh(query, memory, carry, allowed)
        return found._replace(weights=torch.ones_like(found.weights)) if self.training else found


class OneOffFromACache(Composed):
    """Several queries at once from a cache stand one place too far."""

    def attend_block(self, query, memory, carry, allow, need_weights, shown=0, to_come=0):
        moved = carry._replace(position=carry.position + (carry.position == 0 and memory.keys.shape[-2] == 3))
        read = super().attend_block(query, memory, moved, allow, need_weights, shown, to_come)
        return read._replace(carry=carry._replace(position=carry.position + query.shape[-2]))


BROKEN = {
    TakesTheMaskForALength: "masked_keys|weights_do_not|training_mode",
    LosesTheMaskOfAnExtension: "extend_with_and_without_a_mask",
    AllowsByTheFirstRow: "allow|nothing_to_attend|masked_keys|padding|one_by_one",
    MixesBatchAxes: "batch_axes",
    ReadsZerosWithoutValues: "values_are_the_keys",
    IgnoresAChange: "change",
    FailsWithoutQueries: "nothing_at_all",
    OnlyDoublePrecision: "other_precisions",
    ForgetsItselfInTraining: "training_mode",
    OneOffFromACache: "chunks_from_a_cache",
    IgnoresPadding: "weights_do_not_change_the_read|masked_keys|padding|training_mode",
    LeavesNaN: "weights_do_not_change|masked_keys|nothing_to_attend",
    FlipsTheMask: "masked_keys|weights_do_not_change|training_mode",
    KeepsKeysOnItself: "nothing_is_kept|batch_axes|nothing_at_all",
    ForgetsThePosition: "shapes",
    ExtendsFromTheStart: "extend",
    StopsTheGradient: "gradients",
    HidesFromCapture: "capture|allow|weights_do_not_change|nothing_to_attend",
    SeesTheFuture: "padding|one_by_one",
    SharesOneMask: "masked_keys|select|weights|batch_axes",
    ReturnsRawScores: "capture|weights",
}


@dataclass(frozen=True)
class BrokenConfig(AttentionConfig):
    """Builds one of the broken mechanisms, by its place in the table."""

    which: int = 0
    kind: ClassVar[str] = "broken"

    def build(self, query_size, key_size=None, value_size=None, *, heads=()):
        sizes = full_sizes(query_size, key_size, value_size)
        score = ScaledDotConfig(RotaryConfig()).build(sizes[0], sizes[1], heads=heads)
        mechanism = list(BROKEN)[self.which](score, SoftmaxConfig().build(), *sizes, heads)
        mechanism.can_fuse = lambda: False  # so that what is broken is what runs
        return mechanism


@dataclass(frozen=True)
class ForgetfulConfig(ComposedConfig):
    """Loses a field on the way through JSON."""

    extra: int = 0
    kind: ClassVar[str] = "forgetful"

    def to_json(self):
        return {key: value for key, value in super().to_json().items() if key != "extra"}


@pytest.fixture
def _kinds_of_this_file(monkeypatch):
    here = {"broken": f"{__name__}:BrokenConfig", "forgetful": f"{__name__}:ForgetfulConfig"}
    table = {**config_module.BUILT_IN["attention"], **here}
    monkeypatch.setitem(config_module.BUILT_IN, "attention", table)


@pytest.mark.usefixtures("_kinds_of_this_file")
@pytest.mark.parametrize("which", range(len(BROKEN)), ids=[mechanism.__name__ for mechanism in BROKEN])
def test_a_broken_mechanism_breaks_a_law(which):
    expected = list(BROKEN.values())[which]
    with pytest.raises(AssertionError, match=f"breaks the law '({expected})"):
        check_attention(BrokenConfig(which))


@pytest.mark.usefixtures("_kinds_of_this_file")
def test_a_config_that_loses_a_field_breaks_a_law():
    with pytest.raises(AssertionError, match="breaks the law 'config'"):
        check_attention(ForgetfulConfig(extra=1))


def test_the_same_mechanism_unbroken_passes():
    """The table above fails for what it breaks and for nothing else."""
    assert isinstance(ScaledDotConfig(RotaryConfig()).build(8, 8), ScaledDot)
    check_attention(ComposedConfig(ScaledDotConfig(RotaryConfig())))


@pytest.mark.parametrize("inner", ["additive", "dot", "location_aware"])
def test_pooling_keeps_the_laws_that_it_can_have(inner):
    """A learned query has no query to check; masks, padding and empty rows are as everywhere."""
    pool = PoolingConfig(queries=2, inner=AttentionConfig.from_json(inner)).build(6).double()
    keys, mask = torch.randn(3, 5, 6, dtype=torch.float64), torch.ones(3, 5, dtype=torch.bool)
    mask[0, 3:] = False
    mask[1] = False
    read = pool(keys, mask=mask, need_weights=True)
    assert read.context.shape == (3, 2, 6)
    assert (read.weights[0, :, 3:] == 0).all()
    assert (read.context[1] == 0).all()
    changed = keys.masked_fill(~mask.unsqueeze(-1), torch.nan)
    torch.testing.assert_close(pool(changed, mask=mask).context, read.context)
    assert PoolingConfig.loads(PoolingConfig(queries=2).dumps()) == PoolingConfig(queries=2)
