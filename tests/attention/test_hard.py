"""Hard attention: the estimators against exact gradients, the normaliser against what it promises.

The small problem: five annotations, one query whose entries are the scores themselves (the keys are unit vectors), an
output head over eight answers. Every row of a batch has scores and a head of its own: one gradient a sample.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from sightline.attention import (
    Baseline,
    ComposedConfig,
    DotConfig,
    GeneralConfig,
    HardConfig,
    LocalConfig,
    LocationAwareConfig,
    MultiHeadConfig,
    expected_log_likelihood,
    marginal_log_likelihood,
    reinforce_loss,
    select,
)
from sightline.attention.hard import gumbel_noise

SAMPLES = 100_000
SCORES = torch.tensor([0.5, -0.5, 1.0, 0.0, -1.0], dtype=torch.float64)
_generator = torch.Generator().manual_seed(4)
ANNOTATIONS = torch.randn(5, 3, generator=_generator, dtype=torch.float64)
HEAD = torch.randn(8, 3, generator=_generator, dtype=torch.float64)


def log_likelihood(context, head):
    """log p(y | what was read), where the right answer is the first of eight."""
    return torch.log_softmax(context @ head.mT, dim=-1)[..., 0]


def linear_reward(context, head):  # not a likelihood, but a reward without curvature
    return (context @ head.mT)[..., 0]


def attend(config, scores, values=None, mask=None, training=True):
    """Hard attention over five annotations with exactly these scores, `batch 5`."""
    keys = torch.eye(5, dtype=scores.dtype).expand(len(scores), 5, 5)
    values = keys if values is None else values.expand(len(scores), *values.shape)
    attention = ComposedConfig(DotConfig(), config).build(5, 5, values.shape[-1]).train(training)
    return attention(scores.unsqueeze(1), attention.remember(keys, values, mask), need_weights=True)


def sampled_gradients(config, baseline=Baseline(), reward=log_likelihood):  # noqa: B008 (it is frozen)
    """One estimate a sample of the gradient of E[reward], for the scores and for the head; and the rewards."""
    scores = SCORES.expand(SAMPLES, -1).clone().requires_grad_()
    head = HEAD.expand(SAMPLES, -1, -1).clone().requires_grad_()
    read = attend(config, scores, ANNOTATIONS)
    rewards = reward(read.context, head).squeeze(-1)
    credit = 1.0 if config.estimator == "reinforce" else 0.0  # straight-through has its gradient already
    loss = reinforce_loss(rewards, read.log_prob, read.entropy, baseline, reward_weight=credit)
    return *(-SAMPLES * gradient for gradient in torch.autograd.grad(loss, (scores, head))), rewards.detach()


def exact_gradients(reward=log_likelihood):
    scores, head = SCORES.clone().requires_grad_(), HEAD.clone().requires_grad_()
    expected = expected_log_likelihood(scores.unsqueeze(0), reward(ANNOTATIONS, head).unsqueeze(0))
    return torch.autograd.grad(expected.sum(), (scores, head))


def standard_error(samples):
    return samples.std(dim=0) / len(samples) ** 0.5


def bias_and_variance(estimates, exact):
    """The distance of the mean from the truth as a share of the truth's length; the variance over all coordinates."""
    return float((estimates.mean(dim=0) - exact).norm() / exact.norm()), float(estimates.var(dim=0).sum())


@pytest.mark.parametrize("baseline", [Baseline(), Baseline(-3.0)], ids=["no baseline", "baseline"])
def test_reinforce_is_unbiased(baseline):
    *estimates, _ = sampled_gradients(HardConfig(), baseline)
    for estimate, exact in zip(estimates, exact_gradients(), strict=True):
        error = standard_error(estimate)
        # A gradient lost in the noise would prove nothing.
        assert (exact.abs() / error).max() > 20
        assert ((estimate.mean(dim=0) - exact).abs() < 3 * error).all()


def test_moving_average_converges_and_lowers_variance():
    plain, _, rewards = sampled_gradients(HardConfig())
    baseline = Baseline()
    for batch in rewards.split(1000):
        baseline = baseline.update(batch)
    expected = float(SCORES.softmax(dim=-1) @ log_likelihood(ANNOTATIONS, HEAD))
    # A moving average with decay d over batches of n has the variance of one reward · (1 − d) / (1 + d) / n.
    assert abs(baseline.value - expected) < 3 * float(rewards.std()) * (0.1 / 1.9 / 1000) ** 0.5
    calmer, *_ = sampled_gradients(HardConfig(), baseline)
    assert plain.var(dim=0).sum() > 6 * calmer.var(dim=0).sum()


def test_baseline_update_is_the_papers_formula():
    rewards = torch.tensor([1.0, 3.0], requires_grad=True)
    assert Baseline(5.0, decay=0.75).update(rewards) == Baseline(0.75 * 5.0 + 0.25 * 2.0, decay=0.75)


@pytest.mark.parametrize("masked", [False, True])
def test_entropy_term_has_the_gradient_of_the_entropy(masked):
    scores = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[0, 1:3], mask[1] = not masked, not masked
    read = attend(HardConfig(), scores, mask=mask)
    nothing = torch.zeros(4, dtype=torch.float64)
    reinforce_loss(nothing, read.log_prob, read.entropy, Baseline(), entropy_weight=0.5).backward()
    found = (scores.detach(), mask, read.entropy[:, 0].detach(), scores.grad)
    for row, allowed, entropy, gradient in zip(*(tensor.numpy() for tensor in found), strict=True):
        p = np.where(allowed, np.exp(row), 0)
        p /= p.sum() or 1  # a row with nothing to look at has no entropy
        log_p = np.log(np.where(allowed, p, 1))
        h = -(p * log_p).sum()
        np.testing.assert_allclose(entropy, h, rtol=1e-12)
        np.testing.assert_allclose(gradient, -0.5 / 4 * -p * (log_p + h), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
def test_sample_is_exactly_one_hot(estimator, dtype):
    weights = attend(HardConfig(estimator), torch.randn(10_000, 5, dtype=dtype)).weights
    assert ((weights == 0) | (weights == 1)).all()
    assert (weights.sum(dim=-1) == 1).all()


@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
@pytest.mark.parametrize("temperature", [0.25, 2.0])
def test_samples_follow_the_softmax(estimator, temperature):
    """Whatever the temperature: it belongs to the way back only."""
    read = attend(HardConfig(estimator, temperature), SCORES.expand(SAMPLES, 5))
    expected = SAMPLES * torch.softmax(SCORES, dim=-1)
    counts = (read.weights[:, 0] != 0).double().sum(dim=0)
    assert ((counts - expected) ** 2 / expected).sum() < 18.47  # chi-square, 4 degrees of freedom: one in a thousand
    torch.testing.assert_close(read.log_prob[:, 0], SCORES.log_softmax(dim=-1)[read.weights[:, 0].argmax(dim=-1)])


def test_straight_through_gradient_is_that_of_the_gumbel_softmax():
    scores = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(6, 1, 5, dtype=torch.float64)
    torch.manual_seed(1)
    read = attend(HardConfig("straight_through", 0.7), scores)
    torch.manual_seed(1)
    log_probs = torch.log_softmax(scores, dim=-1)
    soft = torch.softmax((log_probs + gumbel_noise(log_probs.unsqueeze(1))[:, 0]) / 0.7, dim=-1)
    expected = torch.autograd.grad((soft * upstream[:, 0]).sum(), scores)
    torch.testing.assert_close(torch.autograd.grad((read.context * upstream).sum(), scores), expected)


def test_straight_through_trades_bias_for_variance(record_property):
    (exact, exact_head), (exact_linear, _) = exact_gradients(), exact_gradients(linear_reward)
    measured, linear = {}, {}
    for temperature in (0.25, 0.5, 1.0, 2.0):
        estimates, for_head, _ = sampled_gradients(HardConfig("straight_through", temperature))
        # The head sees a plain sample, so its gradient has no bias.
        assert ((for_head.mean(dim=0) - exact_head).abs() < 4 * standard_error(for_head)).all()
        measured[temperature] = bias_and_variance(estimates, exact)
        straight, *_ = sampled_gradients(HardConfig("straight_through", temperature), reward=linear_reward)
        linear[temperature] = bias_and_variance(straight, exact_linear)
    record_property("bias and variance by temperature", {"log-likelihood": measured, "linear reward": linear})
    for found in (measured, linear):
        biases, variances = zip(*found.values(), strict=True)
        assert np.isfinite([biases, variances]).all()
        # Variance falls with temperature on every problem; bias rises on most of them, and on this one.
        assert all(colder > 2 * hotter for colder, hotter in pairwise(variances))
        assert all(colder + 0.03 < hotter for colder, hotter in pairwise(biases))
    # The Gumbel-softmax tends to the sample as it cools, so without curvature the bias goes to zero; with it, not.
    assert linear[0.25][0] < 0.03
    assert measured[0.25][0] > 0.1


@pytest.mark.parametrize("masked", [False, True])
def test_oracles_match_brute_force(masked):
    scores, likelihoods = torch.randn(6, 5, dtype=torch.float64), -4 * torch.rand(6, 5, dtype=torch.float64)
    mask = torch.rand(6, 5) < 0.6 if masked else torch.ones(6, 5, dtype=torch.bool)
    if masked:
        mask[0], mask[1] = False, torch.arange(5) == 2
        likelihoods[~mask] = torch.nan  # what a hidden annotation would have said must not matter
    expected, marginal = np.zeros(6), np.zeros(6)  # what a row with nothing to look at gives
    for row, allowed in enumerate(mask):
        s, log_p = scores[row, allowed].numpy(), likelihoods[row, allowed].numpy()
        if len(s):
            expected[row] = (np.exp(s) * log_p).sum() / np.exp(s).sum()
            marginal[row] = np.log((np.exp(s) * np.exp(log_p)).sum() / np.exp(s).sum())
    given = (scores, likelihoods, mask if masked else None)
    bound, exact = expected_log_likelihood(*given), marginal_log_likelihood(*given)
    np.testing.assert_allclose(bound.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(exact.numpy(), marginal, rtol=1e-12)
    assert (bound <= exact + 1e-12).all()  # Jensen
    assert (bound < exact)[mask.sum(dim=-1) > 1].all()


@pytest.mark.parametrize("oracle", [expected_log_likelihood, marginal_log_likelihood])
def test_oracles_have_finite_gradients_under_a_mask(oracle):
    scores, likelihoods = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True, False, True, False, False], [False] * 5])
    for gradient in torch.autograd.grad(oracle(scores, likelihoods, mask).sum(), (scores, likelihoods)):
        assert (gradient[~mask] == 0).all()
        assert (gradient[mask] != 0).all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("oracle", [expected_log_likelihood, marginal_log_likelihood])
def test_oracles_take_a_row_without_a_batch(oracle):
    scores, likelihoods = torch.randn(5), torch.randn(5)
    torch.testing.assert_close(oracle(scores, likelihoods), oracle(scores[None], likelihoods[None])[0])


@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
def test_training_samples_and_evaluation_takes_the_best(estimator):
    scores = torch.randn(50, 5)
    assert not torch.equal(*(attend(HardConfig(estimator), scores).weights for _ in range(2)))
    log_probs = torch.log_softmax(scores, dim=-1)
    for _ in range(10):
        read = attend(HardConfig(estimator, soft_share=0.5), scores, training=False)  # reading softly is for training
        assert torch.equal(read.weights[:, 0], torch.eye(5)[scores.argmax(dim=-1)])
        torch.testing.assert_close(read.log_prob[:, 0], log_probs.amax(dim=-1))
        torch.testing.assert_close(read.entropy[:, 0], -(log_probs.exp() * log_probs).sum(dim=-1))


@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
def test_hidden_keys_are_never_sampled(estimator):
    mask = torch.tensor([[False, True, False, True, True], [False] * 5]).repeat_interleave(10_000, dim=0)
    scores = torch.tensor([9.0, 0.0, 5.0, 1.0, 0.0]).expand(20_000, 5)  # the hidden ones are the best by far
    read = attend(HardConfig(estimator), scores, mask=mask)
    assert (read.weights[:, 0][~mask] == 0).all()
    assert (read.weights[:10_000, 0].sum(dim=0)[[1, 3, 4]] > 1000).all()
    assert (read.log_prob[10_000:] == 0).all()  # nothing to look at: nothing was chosen
    assert (read.entropy[10_000:] == 0).all()
    assert (read.context[10_000:] == 0).all()


@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
def test_soft_share_reads_softly(estimator):
    scores = torch.randn(200, 5)
    soft = torch.softmax(scores, dim=-1).unsqueeze(1)
    read = attend(HardConfig(estimator, soft_share=1.0), scores)
    torch.testing.assert_close(read.weights, soft)
    assert (read.log_prob == 0).all()
    read = attend(HardConfig(estimator, soft_share=0.5), scores)
    softly = torch.isclose(read.weights, soft).all(dim=-1)
    sharply = ((read.weights == 0) | (read.weights == 1)).all(dim=-1)
    assert (softly ^ sharply).all()
    assert abs(int(softly.sum()) - 100) < 3 * 50**0.5
    assert ((read.log_prob == 0) == softly).all()  # a choice is credited, and only a choice


@pytest.mark.parametrize("heads", [0, 2])
def test_a_row_is_read_softly_at_all_its_looks_or_at_none(heads):
    """The share is of rows, drawn when they begin: in prediction every look is hard, so whole rows must be in training.

    Eight looks a row, in two calls; between them the rows change places, as beams do.
    """
    config = ComposedConfig(GeneralConfig(), HardConfig(soft_share=0.5))
    config = MultiHeadConfig(heads=heads, inner=config) if heads else config
    attention = config.build(4).train()
    keys, query = torch.randn(300, 6, 4), torch.randn(300, 8, 4)
    memory = attention.remember(keys)
    first = attention(query[:, :5], memory, need_weights=True)
    rows = torch.randperm(300)
    second = attention(query[rows, 5:], select(memory, rows), select(first.carry, rows), need_weights=True)
    weights = torch.cat([first.weights, second.weights[rows.argsort()]], dim=-2)
    sharp = ((weights == 0) | (weights == 1)).all(dim=-1).flatten(1)  # looks of a row, and heads
    assert (sharp.all(dim=1) | ~sharp.any(dim=1)).all()
    assert 100 < int(sharp.all(dim=1).sum()) < 200
    again = attention(query, memory, need_weights=True)  # nothing is kept: another passage has its own draw
    assert not torch.equal(((again.weights == 0) | (again.weights == 1)).all(dim=-1).flatten(1), sharp)
    assert attention.eval().begin(memory).soft is None


def test_soft_rows_have_the_gradient_of_softmax():
    scores = torch.randn(40, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(40, 1, 5, dtype=torch.float64)
    read = attend(HardConfig(soft_share=0.5), scores)
    (found,) = torch.autograd.grad((read.weights * upstream).sum(), scores)
    (expected,) = torch.autograd.grad((torch.softmax(scores, dim=-1) * upstream[:, 0]).sum(), scores)
    soft = ((read.weights != 0) & (read.weights != 1)).any(dim=-1)[:, 0]
    assert soft.any()
    assert not soft.all()
    torch.testing.assert_close(found[soft], expected[soft])
    assert (found[~soft] == 0).all()


def test_a_mechanism_that_weighs_in_a_way_of_its_own_has_no_soft_share():
    for config in (
        LocationAwareConfig(normaliser=HardConfig(soft_share=0.5)),
        LocalConfig(normaliser=HardConfig(soft_share=0.5)),
    ):
        with pytest.raises(ValueError, match=r"soft_share is 0.5; Loc\w+ weighs in a way of its own"):
            config.build(4)


def test_surrogate_gradient_for_a_fixed_sample():
    """Same seed, same sample: then the loss is a plain function of the scores, which autograd must differentiate.

    Values and head are held fixed: the reward depends on them, and the loss must not follow the reward.
    """
    attention = ComposedConfig(GeneralConfig(), HardConfig()).build(4, 3, 2).double().train()
    values, head = torch.randn(2, 6, 2, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    options = {"reward_weight": 0.7, "entropy_weight": 0.3}

    def surrogate(query, keys, _):
        torch.manual_seed(3)
        read = attention(query, attention.remember(keys, values, mask))
        rewards = log_likelihood(read.context, head).sum(dim=-1)
        return reinforce_loss(rewards, read.log_prob, read.entropy, Baseline(-1.0), **options)

    query, keys = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 6, 3, dtype=torch.float64)
    # The weight is changed in place by gradcheck: named among the inputs, it need not be passed on.
    assert gradcheck(surrogate, (query.requires_grad_(), keys.requires_grad_(), attention.score.key.weight))


@pytest.mark.parametrize(
    ("config", "reward_weight", "learns"),
    [(HardConfig(), 1.0, True), (HardConfig("straight_through"), 0.0, True), (HardConfig(), 0.0, False)],
    ids=["reinforce", "straight_through", "no credit, no learning"],
)
def test_learns_where_to_look(config, reward_weight, learns):
    """Six annotations, each with one of four labels, one of them marked: say the label of the marked one."""
    attention, head = ComposedConfig(GeneralConfig(), config).build(1, 5, 4), torch.nn.Linear(4, 4)
    torch.nn.init.zeros_(attention.score.key.weight)  # at first, every annotation looks as good as any other
    optimiser = torch.optim.Adam([*attention.parameters(), *head.parameters()], lr=0.05)

    def look(batch):
        labels, marked = torch.randint(4, (batch, 6)), torch.randint(6, (batch, 1))
        values, marks = torch.eye(4)[labels], torch.eye(6)[marked].mT
        memory = attention.remember(torch.cat([values, marks], dim=-1), values)
        read = attention(torch.ones(batch, 1, 1), memory, need_weights=True)
        log_probs = torch.log_softmax(head(read.context[:, 0]), dim=-1)
        right_place = (read.weights[:, 0].argmax(dim=-1) == marked[:, 0]).float().mean()
        return read, log_probs.gather(1, labels.gather(1, marked))[:, 0], right_place

    baseline = Baseline()
    for _ in range(150):
        read, rewards, _ = look(64)
        optimiser.zero_grad()
        reinforce_loss(rewards, read.log_prob, read.entropy, baseline, reward_weight=reward_weight).backward()
        optimiser.step()
        baseline = baseline.update(rewards)
    attention.eval()
    *_, right_place = look(1000)
    assert right_place > 0.9 if learns else right_place < 0.4
