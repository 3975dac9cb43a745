"""CTC is right: against every path spelled out, PyTorch's own loss, and a loop over frames as papers write it."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import ctc_loss

from sightline.decoding.combine import combined
from sightline.decoding.ctc import FLOOR, best_path, ctc_align, ctc_begin, ctc_posteriors, ctc_step
from sightline.decoding.options import SearchConfig
from sightline.state import reorder
from sightline.vocabulary import END, PADDING, START, UNKNOWN

pytestmark = pytest.mark.fast

A, B, C = 4, 5, 6
WORDS = 7
NO_LABEL = [UNKNOWN, START, END]


def random_frames(*shape, seed=0, sharpness=2.0):
    """Log-probabilities without any of tokens that have no label."""
    logits = torch.randn(*shape, WORDS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharpness
    logits[..., NO_LABEL] = -math.inf
    return logits.log_softmax(-1)


def collapse(path):
    return tuple(label for label, _ in itertools.groupby(path) if label != PADDING)


@functools.cache
def paths(times):
    return list(itertools.product([PADDING, A, B, C], repeat=times))


def labellings(frames):
    """The probability of every labelling, by every path."""
    totals, probs = {}, frames.exp().tolist()
    for path in paths(len(frames)):
        prob = math.prod(probs[time][label] for time, label in enumerate(path))
        totals[collapse(path)] = totals.get(collapse(path), 0.0) + prob
    return totals


def scored(frames, lengths, labelling):
    """The sum of the steps of one labelling, for every row of a batch; and each step."""
    state = ctc_begin(frames, torch.tensor(lengths))
    steps = []
    for token, following in itertools.pairwise([START, *labelling, END]):
        log_probs, state = ctc_step(torch.full((len(frames),), token), state)
        steps.append(log_probs[:, following])
    return sum(steps), steps


def test_steps_add_up_to_every_labelling_and_prefix_by_enumeration():
    frames = random_frames(1, 4)
    totals = labellings(frames[0])
    for labelling, prob in totals.items():
        total, steps = scored(frames, [4], labelling)
        assert total.exp().item() == pytest.approx(prob, rel=1e-10)
        for length in range(1, len(labelling) + 1):
            begins = sum(other for one, other in totals.items() if one[:length] == labelling[:length])
            assert sum(steps[:length]).exp().item() == pytest.approx(begins, rel=1e-10)


def test_the_next_tokens_and_the_end_share_all_the_probability():
    state = ctc_begin(random_frames(2, 6), torch.tensor([6, 4]))
    for tokens in ([START, START], [A, B], [A, C], [B, B]):
        log_probs, state = ctc_step(torch.tensor(tokens), state)
        torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, dtype=torch.float64))
        assert (log_probs[:, [PADDING, UNKNOWN, START]] == -math.inf).all()


@pytest.mark.parametrize("sharpness", [1.0, 30.0])
def test_the_sum_is_the_loss_of_pytorch_whatever_the_padding(sharpness):
    frames = random_frames(3, 40, seed=1, sharpness=sharpness)
    frames[frames == -math.inf] = -1e9
    lengths = [40, 33, 21]
    frames[1, 33:], frames[2, 21:] = math.nan, 7.0  # whatever stands in padding
    labelling = [A, B, B, C, A, A, C]
    total, _ = scored(frames.nan_to_num(5.0), lengths, labelling)
    loss = ctc_loss(
        frames.nan_to_num(5.0).transpose(0, 1), torch.tensor([labelling] * 3), lengths, [7] * 3, reduction="none"
    )
    torch.testing.assert_close(total, -loss, rtol=1e-9, atol=1e-9)


def by_loop(frames, labelling):
    """The log-probability by the recurrence over frames, one after the other."""
    by_label, by_blank = [-math.inf] * (len(frames) + 1), [0.0]
    add = np.logaddexp
    rows = frames.tolist()
    for row in rows:
        by_blank.append(by_blank[-1] + row[PADDING])
    last = None
    for token in labelling:
        new_label, new_blank = [-math.inf], [-math.inf]
        for time, row in enumerate(rows):
            enters = by_blank[time] if token == last else add(by_label[time], by_blank[time])
            before = new_label[-1]
            new_label.append(add(before, enters) + row[token])
            new_blank.append(add(before, new_blank[-1]) + row[PADDING])
        by_label, by_blank, last = new_label, new_blank, token
    return add(by_label[-1], by_blank[-1])


def test_many_and_very_peaked_frames_stay_exact():
    """Log-probabilities down to -10,000 over 2,000 frames: the sums of a labelling that the frames do not say too."""
    generator = torch.Generator().manual_seed(2)
    frames = random_frames(1, 2000)
    floor = torch.where(torch.rand(frames.shape, generator=generator) < 0.7, -1e4, -3.0).double()
    frames = torch.maximum(frames, floor) * torch.where(frames > floor, 1.0, 1e2)
    frames = frames.clamp(min=-1e4)
    for labelling in ([A], [A, B, B]):
        total, steps = scored(frames, [2000], labelling)
        assert total.item() == pytest.approx(by_loop(frames[0], labelling), rel=1e-12)
        assert all(math.isfinite(one) for one in steps)
    # One label at every frame, and the labelling says another: nothing underflows.
    peaked = torch.full((1, 300, WORDS), -1e4, dtype=torch.float64)
    peaked[..., A] = 0.0
    assert scored(peaked, [300], [B])[0].item() == pytest.approx(by_loop(peaked[0], [B]), rel=1e-12)


def test_tokens_without_frames_are_never_and_the_search_still_ends():
    frames = random_frames(2, 3)
    log_probs, state = ctc_step(torch.tensor([START, START]), ctc_begin(frames, torch.tensor([2, 0])))
    assert (log_probs[0, [A, B, C, END]] > -math.inf).all()
    assert log_probs[1].tolist() == [-math.inf] * END + [0.0] + [-math.inf] * 3  # no frames write nothing
    log_probs, state = ctc_step(torch.tensor([A, A]), state)
    assert (log_probs[0] > -math.inf).nonzero().flatten().tolist() == [END, B, C]  # A again needs a blank between
    assert log_probs[1, END] == 0.0  # a forced token that no frame has
    log_probs, state = ctc_step(torch.tensor([B, UNKNOWN]), state)
    assert (log_probs > -math.inf).nonzero().tolist() == [[0, END], [1, END]]
    log_probs, _ = ctc_step(torch.tensor([UNKNOWN, A]), state)
    assert (log_probs[:, END] == 0.0).all()
    assert not log_probs.isnan().any()
    empty, _ = ctc_step(torch.tensor([START]), ctc_begin(frames[:1, :0], torch.tensor([0])))
    assert empty[0, END] == 0.0


def test_a_label_of_no_probability_is_as_unlikely_as_the_floor():
    frames = torch.full((1, 2, WORDS), -math.inf)
    frames[..., A] = 0.0
    log_probs, _ = ctc_step(torch.tensor([START]), ctc_begin(frames, torch.tensor([2])))
    assert log_probs[0, [A, B, END]].tolist() == pytest.approx([0.0, FLOOR, 2 * FLOOR])


@pytest.mark.parametrize("seed", range(4))
def test_beam_search_gives_the_likeliest_labelling_of_each_row(seed):
    frames, lengths = random_frames(3, 5, seed=seed), [5, 4, 2]
    config = SearchConfig(beam=400, best=3, length_penalty=0.0)
    state = ctc_begin(frames, torch.tensor(lengths))
    hypotheses = config.find(ctc_step, state, lengths, [[]] * 3, torch.Generator())
    for row, length, some in zip(frames, lengths, hypotheses, strict=True):
        totals = labellings(row[:length])
        likeliest = sorted(totals.items(), key=lambda one: -one[1])[:3]
        assert [(tuple(one.tokens), pytest.approx(math.exp(one.log_prob))) for one in some] == likeliest


def test_a_beam_of_one_and_samples_need_no_more_than_the_state():
    frames = random_frames(2, 6)
    for config in (SearchConfig(beam=1), SearchConfig(sample=True, best=4)):
        state = ctc_begin(frames, torch.tensor([6, 2]))
        for row, length, some in zip(
            frames, [6, 2], config.find(ctc_step, state, [6, 2], [[]] * 2, torch.Generator()), strict=True
        ):
            totals = labellings(row[:length])
            for one in some:
                assert totals[tuple(one.tokens)] == pytest.approx(math.exp(one.log_prob))


def test_frames_are_not_copied_for_hypotheses():
    state = ctc_begin(random_frames(2, 6), torch.tensor([6, 2]))
    wide = reorder(state, torch.tensor([0, 0, 0, 1, 1, 1]), None)
    assert wide.frames.part[0] is state.frames.part[0]
    assert len(wide.by_label) == 6
    tokens = torch.tensor([A, B, C] * 2)
    _, wide = ctc_step(torch.full((6,), START), wide)
    log_probs, _ = ctc_step(tokens, wide)
    for place, token in enumerate(tokens):
        _, alone = ctc_step(torch.full((2,), START), state)
        single, _ = ctc_step(torch.full((2,), token), alone)
        torch.testing.assert_close(log_probs[place], single[place // 3])


def test_scorers_are_combined_by_their_weights():
    frames = random_frames(2, 6)
    preferences = torch.randn(WORDS, generator=torch.Generator().manual_seed(3), dtype=torch.float64).log_softmax(-1)

    def constant(tokens, state):
        return preferences.repeat(len(tokens), 1), (state[0] + 1,)

    def never(tokens, state):
        raise AssertionError("a scorer of weight 0 is not asked")

    step = combined([(constant, 0.7), (ctc_step, 0.3), (never, 0.0)])
    state = ((torch.zeros(2),), ctc_begin(frames, torch.tensor([6, 6])), (torch.zeros(2),))
    log_probs, following = step(torch.tensor([START, START]), state)
    alone, _ = ctc_step(torch.tensor([START, START]), state[1])
    torch.testing.assert_close(log_probs, 0.7 * preferences + 0.3 * alone)
    assert following[0][0].tolist() == [1, 1]
    assert following[2][0].tolist() == [0, 0]
    # The best of both, by all labellings.
    config = SearchConfig(beam=400, length_penalty=0.0)
    for row, some in zip(frames, config.find(step, state, [6, 6], [[]] * 2, torch.Generator()), strict=True):
        totals = {
            one: 0.7 * (sum(preferences[token].item() for token in one) + preferences[END].item())
            + 0.3 * math.log(prob)
            for one, prob in labellings(row).items()
        }
        assert tuple(some[0].tokens) == max(totals, key=totals.get)
        assert some[0].log_prob == pytest.approx(max(totals.values()))
    for weights in ([0.0], [1.0, -0.5]):
        with pytest.raises(ValueError, match="weights are"):
            combined([(constant, weight) for weight in weights])


@pytest.mark.parametrize("labelling", [(A,), (A, B), (A, A), (A, B, B), (B, A, B, C), ()])
@pytest.mark.parametrize("seed", range(3))
def test_alignment_and_posteriors_equal_those_of_all_paths(labelling, seed):
    frames = random_frames(6, seed=seed)
    best, most, total = None, -math.inf, 0.0
    posteriors = torch.zeros(len(labelling), 6, dtype=torch.float64)
    for path in paths(6):
        if collapse(path) != labelling:
            continue
        log_prob = sum(frames[time, label].item() for time, label in enumerate(path))
        groups = [(label, list(times)) for label, times in itertools.groupby(range(6), path.__getitem__)]
        spans = [(times[0], times[-1] + 1) for label, times in groups if label != PADDING]
        if log_prob > most:
            best, most = spans, log_prob
        total += math.exp(log_prob)
        for place, (start, end) in enumerate(spans):
            posteriors[place, start:end] += math.exp(log_prob)
    assert ctc_align(frames, labelling) == best
    torch.testing.assert_close(ctc_posteriors(frames, labelling), posteriors / total)


def test_alignment_of_too_few_frames_says_how_many_are_needed():
    for function in (ctc_align, ctc_posteriors):
        with pytest.raises(ValueError, match=r"3 tokens need 4 frames .* there are 3"):
            function(random_frames(3), [A, A, B])


def test_the_best_path_is_merged_and_has_no_blanks():
    labels = torch.tensor([[A, A, PADDING, A, B, B], [C, PADDING, PADDING, B, B, B], [A] * 6])
    frames = torch.nn.functional.one_hot(labels, WORDS).double()
    frames[..., START] = 5.0  # it has no label
    assert best_path(frames, torch.tensor([6, 3, 0])) == [[A, A, B], [C], []]
