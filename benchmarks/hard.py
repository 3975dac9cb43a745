"""How good are the gradient estimators of hard attention? ``python benchmarks/hard.py --samples 100000 --write``

Five annotations, one query, an output head that says an answer from the annotation looked at. The exact gradient of
E[log p(y | i)] is a sum over five terms, so bias and variance of every estimator can be measured, not argued about.
"""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
import tyro
from torch import Tensor

from report import write_section
from sightline.attention import Baseline, ComposedConfig, DotConfig, HardConfig, expected_log_likelihood, reinforce_loss

HERE = Path(__file__).parent
ANNOTATIONS, SIZE, ANSWERS = 5, 3, 8
TEMPERATURES = (0.25, 0.5, 1.0, 2.0)
BATCH = 100  # the moving average sees rewards in batches of this size, as in training
SETTLING = 50  # batches before the moving average is measured: 0.9 ** 50 of its start at zero is left, half a percent
PROBLEM = 4  # the seed of one with a middling bias
OTHERS = 20  # random problems of the same kind, so that nobody generalises from one
REINFORCE_COLOUR, GUMBEL_COLOUR = "#0072B2", "#D55E00"  # Okabe and Ito: told apart by every kind of eye
Gradients = tuple[Tensor, ...]  # of the scores and of the head; with a leading axis where there is one a sample


class Problem(NamedTuple):
    """The scores and the head are what is learned; the right answer is the first."""

    scores: Tensor
    annotations: Tensor
    head: Tensor


class Row(NamedTuple):
    """What was measured of one estimator."""

    name: str
    score_z: float  # how many standard errors the mean is off, at the worst coordinate
    head_z: float
    bias: float  # distance of the mean from the exact gradient of the scores, relative to its length
    noise: float  # the distance that an unbiased estimator would show from this many samples
    variance: float  # of one sample, summed over the scores


def make_problem(seed: int) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    annotations = torch.randn(ANNOTATIONS, SIZE, generator=generator, dtype=torch.float64)
    head = torch.randn(ANSWERS, SIZE, generator=generator, dtype=torch.float64)
    return Problem(torch.tensor([0.5, -0.5, 1.0, 0.0, -1.0], dtype=torch.float64), annotations, head)


def log_likelihood(context: Tensor, head: Tensor) -> Tensor:
    return torch.log_softmax(context @ head.transpose(-2, -1), dim=-1)[..., 0]


def exact_gradients(problem: Problem) -> Gradients:
    scores, head = problem.scores.clone().requires_grad_(), problem.head.clone().requires_grad_()
    expected = expected_log_likelihood(scores, log_likelihood(problem.annotations, head))
    return torch.autograd.grad(expected, (scores, head))


def best_baseline(problem: Problem) -> float:
    """The constant that makes the variance smallest: rewards averaged by p_i · |∇log s_i|²."""
    chances = torch.softmax(problem.scores, dim=-1)
    lengths = (torch.eye(ANNOTATIONS, dtype=torch.float64) - chances).square().sum(dim=-1)
    rewards = log_likelihood(problem.annotations, problem.head)
    return float((chances * lengths * rewards).sum() / (chances * lengths).sum())


def sample(problem: Problem, config: HardConfig, count: int, baseline: Baseline) -> tuple[Gradients, Baseline]:
    """One estimate a row: each row of the batch has scores and a head of its own, so each has a gradient of its own."""
    scores = problem.scores.expand(count, 1, -1).clone().requires_grad_()
    head = problem.head.expand(count, -1, -1).clone().requires_grad_()
    attention = ComposedConfig(DotConfig(), config).build(ANNOTATIONS, ANNOTATIONS, SIZE).train()
    # Keys that are unit vectors: the query is then the scores themselves.
    keys = torch.eye(ANNOTATIONS, dtype=torch.float64).expand(count, -1, -1)
    read = attention(scores, attention.remember(keys, problem.annotations.expand(count, -1, -1)))
    reward = log_likelihood(read.context, head).squeeze(-1)
    assert read.log_prob is not None
    assert read.entropy is not None
    credit = 1.0 if config.estimator == "reinforce" else 0.0  # straight-through has its gradient already
    loss = reinforce_loss(reward, read.log_prob, read.entropy, baseline, reward_weight=credit)
    score_grad, head_grad = torch.autograd.grad(loss, (scores, head))
    return (-count * score_grad.squeeze(1), -count * head_grad), baseline.update(reward)


def sample_with_moving_average(problem: Problem, count: int) -> Gradients:
    """Batch after batch, the baseline updated behind each, as a training loop does."""
    baseline, parts = Baseline(), []
    for batch in range(SETTLING + -(-count // BATCH)):
        gradients, baseline = sample(problem, HardConfig(), BATCH, baseline)
        if batch >= SETTLING:
            parts.append(gradients)
    return tuple(torch.cat(tensors)[:count] for tensors in zip(*parts, strict=True))


def measure(name: str, estimates: Gradients, exact: Gradients) -> Row:
    count, length, variance = len(estimates[0]), exact[0].norm(), estimates[0].var(dim=0).sum()
    off = [estimate.mean(dim=0) - truth for estimate, truth in zip(estimates, exact, strict=True)]
    errors = [estimate.std(dim=0) / count**0.5 for estimate in estimates]
    score_z, head_z = (float((o.abs() / error).max()) for o, error in zip(off, errors, strict=True))
    noise = (variance / count).sqrt() / length
    return Row(name, score_z, head_z, float(off[0].norm() / length), float(noise), float(variance))


def measure_reinforce(problem: Problem, samples: int) -> list[Row]:
    exact = exact_gradients(problem)
    estimates = {
        "no baseline": sample(problem, HardConfig(), samples, Baseline())[0],
        "moving average": sample_with_moving_average(problem, samples),
        "best constant": sample(problem, HardConfig(), samples, Baseline(best_baseline(problem)))[0],
    }
    return [measure(f"REINFORCE, {name}", found, exact) for name, found in estimates.items()]


def measure_gumbel(problem: Problem, samples: int) -> list[Row]:
    rows, exact = [], exact_gradients(problem)
    for temperature in TEMPERATURES:
        estimates, _ = sample(problem, HardConfig("straight_through", temperature), samples, Baseline())
        rows.append(measure(f"straight-through Gumbel, temperature {temperature:g}", estimates, exact))
    return rows


def draw(rows: list[Row], others: list[list[Row]], path: Path) -> None:
    plt.switch_backend("Agg")  # a benchmark needs no window
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3})
    plt.rcParams["axes.grid.axis"] = "x"
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6), sharey=True, layout="constrained")
    first_gumbel = len(rows) - len(TEMPERATURES)
    for place, row in enumerate(rows):
        gumbel = place >= first_gumbel
        marker, colour = ("s", GUMBEL_COLOUR) if gumbel else ("o", REINFORCE_COLOUR)
        for same in [other[place - first_gumbel] for other in others if gumbel]:
            left.plot(100 * same.bias, place, "|", color="0.65", markersize=10, zorder=1)
            right.plot(same.variance, place, "|", color="0.65", markersize=10, zorder=1)
        for axes, x, text in ((left, 100 * row.bias, f"{row.bias:.1%}"), (right, row.variance, f"{row.variance:.2g}")):
            axes.plot(x, place, marker, color=colour, markersize=6)
            axes.annotate(text, (x, place - 0.12), (0, 4), textcoords="offset points", ha="center", va="bottom")
    left.plot([], [], "|", color="0.65", markersize=10, label=f"{len(others)} other problems")
    left.legend(loc="upper right", frameon=False, handletextpad=0.2)
    left.set_yticks(range(len(rows)), [row.name.replace(", ", ",\n") for row in rows])
    left.set(xlabel="average is off by\n(% of the true gradient)", xlim=(-12, None), ylim=(len(rows) - 0.6, -0.8))
    right.set(xlabel="variance of one sample\n(log scale; less is better)", xscale="log")
    right.xaxis.set_major_formatter("{x:g}")
    figure.savefig(path, dpi=160)


def describe(rows: list[Row], others: list[list[Row]], samples: int, seed: int) -> str:
    columns = "| {0} | {1:.1f} | {2:.1f} | {3:.1%} | {4:.1%} | {5:.2g} |"
    lines = "\n".join(columns.format(*row) for row in rows)
    biased = sum(all(a.bias < b.bias for a, b in pairwise(other)) for other in others)
    calmer = sum(all(a.variance > b.variance for a, b in pairwise(other)) for other in others)
    return f"""## Hard attention: how good are the gradients?

One query, {ANNOTATIONS} annotations and an output head of {ANSWERS} answers: small enough to compute the exact gradient
of E[log p(y given i)]. Each estimator has {samples:,} samples. *Off by*: distance of their average from the exact
gradient of the scores, relative to its length. *Noise*: the distance that an unbiased estimator would show. *Variance*:
of one sample, summed over the scores. *z*: standard errors of the worst coordinate; up to about 3 is chance.

| estimator | z, scores | z, head | off by | noise | variance |
|---|--:|--:|--:|--:|--:|
{lines}

![Bias and variance of the estimators](hard.png)

On {len(others)} other random problems, the variance of straight-through falls with every step up in temperature in
{calmer} of them, its bias rises with every step in {biased}: a low temperature usually, not always, means less bias.

Reproduce: `python benchmarks/hard.py --samples {samples} --seed {seed} --write`"""


def main(samples: int = 100_000, seed: int = 0, write: bool = False) -> None:
    """Measure every estimator on SAMPLES samples drawn from SEED; with --write, also into RESULTS.md."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    problem = make_problem(PROBLEM)
    rows = measure_reinforce(problem, samples) + measure_gumbel(problem, samples)
    others = [measure_gumbel(make_problem(other), samples) for other in range(OTHERS + 1) if other != PROBLEM]
    print(body := describe(rows, others, samples, seed))
    if write:
        draw(rows, others, HERE / "hard.png")
        write_section("hard", body)


if __name__ == "__main__":
    tyro.cli(main)
