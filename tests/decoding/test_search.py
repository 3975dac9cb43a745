"""Search is right: against enumeration of every sequence, by hand-averaged ensembles, and against itself."""

import functools
import itertools
import math
import random

import pytest
import torch

from sightline.decoding import search
from sightline.decoding.search import Rules, Sampler, beam_search, ensemble, greedy

pytestmark = pytest.mark.fast

WORDS, START, END = 5, 5, 6  # words are 0 … 4
SIZE = 4


class TinyModel:
    """A recurrent model with random weights in float64: every prefix has a distribution of its own."""

    def __init__(self, seed, sharpness=1.5):
        generator = torch.Generator().manual_seed(seed)

        def random_matrix(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.embed, self.turn, self.out = (
            random_matrix(WORDS + 2, SIZE),
            random_matrix(SIZE, SIZE),
            random_matrix(SIZE, WORDS + 2) * sharpness,
        )
        self.rows_seen = []

    def begin(self, rows, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(rows, SIZE, generator=generator, dtype=torch.float64), 0)

    def step(self, tokens, state):
        self.rows_seen.append(len(tokens))
        hidden, position = state
        hidden = torch.tanh(hidden @ self.turn + self.embed[tokens])
        return torch.log_softmax(hidden @ self.out, dim=-1), (hidden, position + 1)

    def log_prob(self, hidden, words):
        """By one row and one step at a time."""
        total, state = 0.0, (hidden, 0)
        for token, following in itertools.pairwise([START, *words, END]):
            log_probs, state = self.step(torch.tensor([token]), state)
            total += log_probs[0, following].item()
        return total


@functools.cache
def valid_sequences(min_length, max_length, no_repeat, prefix):
    """Every sequence that the rules allow, spelled out by plain Python."""
    found = []
    for length in range(min_length, max_length + 1):
        for words in itertools.product(range(WORDS), repeat=length):
            if length < len(prefix) or words[: len(prefix)] != prefix:
                continue
            if no_repeat:
                grams = [words[i : i + no_repeat] for i in range(length - no_repeat + 1)]
                fresh = range(max(0, len(prefix) - no_repeat + 1), len(grams))
                if any(grams[i] in grams[:i] for i in fresh):
                    continue
            found.append(words)
    return found


def every_log_prob(model, hidden, max_length):
    """Log-probabilities of every sequence up to a length, prefix by prefix."""
    totals, known = {}, {(): (0.0, hidden)}
    for length in range(max_length + 1):
        prefixes = list(known)
        state = (torch.cat([known[prefix][1] for prefix in prefixes]), length)
        last = torch.tensor([prefix[-1] if prefix else START for prefix in prefixes])
        log_probs, (after, _) = model.step(last, state)
        rows, following = log_probs.tolist(), {}
        for i, prefix in enumerate(prefixes):
            total = known[prefix][0]
            totals[prefix] = total + rows[i][END]
            if length < max_length:
                for word in range(WORDS):
                    following[(*prefix, word)] = (total + rows[i][word], after[i : i + 1])
        known = following
    return totals


def test_the_enumeration_is_right():
    model = TinyModel(3)
    hidden, _ = model.begin(1)
    totals = every_log_prob(model, hidden, 3)
    assert len(totals) == 1 + 5 + 25 + 125
    for words in ((), (4,), (1, 1), (0, 3, 2)):
        assert totals[words] == pytest.approx(model.log_prob(hidden, words), abs=1e-12)


@pytest.mark.parametrize("part", range(10))
def test_a_wide_beam_is_exhaustive(part):
    """A hundred random models each: every length penalty, n-best, prefix, minimum, maximum and no-repeat setting."""
    for seed in range(100 * part, 100 * part + 100):
        draw = random.Random(seed)
        # Length five costs as much as all shorter ones together; a tenth of the models gets it.
        max_length = 5 if seed % 10 == 0 else draw.randint(1, 4)
        min_length = draw.randint(0, max_length)
        no_repeat = draw.choice([0, 0, 1, 2, 3])
        if no_repeat == 1:
            min_length = min(min_length, WORDS)
        penalty = draw.choice([0.0, 0.3, 0.6, 1.0, 1.7, -0.5])
        best = draw.choice([1, 2, 7, 40])
        prefix = tuple(draw.randrange(WORDS) for _ in range(draw.randint(0, min(2, max_length))))
        model = TinyModel(seed)
        state = model.begin(1, seed)
        rules = Rules(START, END, min_length, max_length, no_repeat)
        # Wide enough for every continuation of every prefix, ends included.
        (found,) = beam_search(
            model.step,
            state,
            1,
            rules,
            beam=(WORDS + 1) ** max_length,
            best=best,
            length_penalty=penalty,
            prefixes=[prefix],
        )
        totals = every_log_prob(model, state[0], max_length)
        valid = valid_sequences(min_length, max_length, no_repeat, prefix)
        ranked = sorted(((totals[words] / (len(words) + 1) ** penalty, words) for words in valid), reverse=True)[:best]
        setting = f"model {seed}: {rules}, penalty {penalty}, best {best}, prefix {prefix}"
        assert [tuple(one.tokens) for one in found] == [words for _, words in ranked], setting
        for one, (score, words) in zip(found, ranked, strict=True):
            assert one.score == pytest.approx(score, abs=1e-10), setting
            assert one.log_prob == pytest.approx(totals[words], abs=1e-10), setting


def test_an_ensemble_of_two_averages_probabilities():
    """Best sequence and score against enumeration with probabilities averaged by hand at every step."""
    for seed in range(50):
        models = [TinyModel(seed), TinyModel(seed + 1000)]
        states = tuple(model.begin(1, seed) for model in models)
        rules = Rules(START, END, 0, 3)
        (found,) = beam_search(
            ensemble([model.step for model in models]), states, 1, rules, beam=200, best=5, length_penalty=0.6
        )
        scored = []
        for words in valid_sequences(0, 3, 0, ()):
            total, state = 0.0, list(states)
            for token, following in itertools.pairwise([START, *words, END]):
                probability = 0.0
                for i, model in enumerate(models):
                    log_probs, state[i] = model.step(torch.tensor([token]), state[i])
                    probability += math.exp(log_probs[0, following].item()) / 2
                total += math.log(probability)
            scored.append((total / (len(words) + 1) ** 0.6, list(words)))
        expected = sorted(scored, reverse=True)[:5]
        assert [one.tokens for one in found] == [words for _, words in expected]
        assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-10)


SETTINGS = [
    {},
    {"min_length": 3},
    {"no_repeat": 2},
    {"max_length": 4, "no_repeat": 1},
    {"forbidden": (0, 2)},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_beam_of_one_is_greedy(setting):
    rules = Rules(START, END, **{"max_length": 12, **setting})
    for seed in range(40):
        model = TinyModel(seed)
        prefixes = [[1, 2][: seed % 3]] * 7
        found = beam_search(
            model.step, model.begin(7, seed), 7, rules, beam=1, length_penalty=seed % 3 / 2, prefixes=prefixes
        )
        expected = greedy(model.step, model.begin(7, seed), 7, rules, prefixes=prefixes)
        assert [one.tokens for (one,) in found] == [one.tokens for one in expected]
        for (one,), other in zip(found, expected, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-10)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_batch_gives_what_single_sentences_give(beam, setting):
    """In the order of the input, each with its own prefix and limit."""
    rules = Rules(START, END, **{"max_length": 9, **setting})
    for seed in range(10):
        model = TinyModel(seed, sharpness=3.0)
        hidden, _ = model.begin(6, seed)
        prefixes, limits = [[], [3], [4, 4], [], [1], []], [9, 4, 7, 5, 9, 6]
        options = {"beam": beam, "best": 2, "length_penalty": 0.8}
        whole = beam_search(model.step, (hidden, 0), 6, rules, prefixes=prefixes, limits=limits, **options)
        for i in range(6):
            (alone,) = beam_search(
                model.step,
                (hidden[i : i + 1], 0),
                1,
                rules,
                prefixes=prefixes[i : i + 1],
                limits=limits[i : i + 1],
                **options,
            )
            assert [one.tokens for one in whole[i]] == [one.tokens for one in alone]
            assert all(len(one.tokens) <= max(limits[i], rules.min_length) for one in alone)


def test_the_score_is_what_the_model_says():
    model = TinyModel(11)
    hidden, _ = model.begin(4)
    rules = Rules(START, END, max_length=8)
    for i, hypotheses in enumerate(beam_search(model.step, (hidden, 0), 4, rules, beam=4, best=4)):
        assert hypotheses
        assert [one.score for one in hypotheses] == sorted((one.score for one in hypotheses), reverse=True)
        for one in hypotheses:
            assert one.log_prob == pytest.approx(model.log_prob(hidden[i : i + 1], one.tokens), abs=1e-10)


def test_finished_sentences_leave_the_batch():
    model = TinyModel(5)
    rules = Rules(START, END, max_length=30)
    greedy(model.step, model.begin(64, 5), 64, rules)
    assert model.rows_seen[0] == 64
    assert model.rows_seen == sorted(model.rows_seen, reverse=True)
    assert model.rows_seen[-1] < 64
    model.rows_seen.clear()
    beam_search(model.step, model.begin(64, 5), 64, rules, beam=3)
    assert model.rows_seen[:2] == [64, 192], "one row a sentence at first, then one a hypothesis"
    assert model.rows_seen[-1] < 192


@pytest.mark.parametrize("words", [40, 64, 128, 200, 517])
@pytest.mark.parametrize(("hypotheses", "count"), [(1, 1), (1, 10), (5, 10), (3, 150), (2, 2000)])
def test_the_likeliest_of_groups_are_the_likeliest_of_all(words, hypotheses, count, monkeypatch):
    """Looking into the best groups only finds what looking everywhere finds, also where much is forbidden."""
    generator = torch.Generator().manual_seed(words + count)
    log_probs = torch.randn(7, hypotheses, words, generator=generator, dtype=torch.float64)
    log_probs[2, :, 5:] = search.NEVER
    log_probs[3, :, :-2] = search.NEVER
    before = 3 * torch.randn(7, hypotheses, generator=generator, dtype=torch.float64)
    before[4, 0] = search.NEVER
    monkeypatch.setattr(search, "GROUPED", 1 << 40)
    expected, parents, tokens = search.likeliest(log_probs, before, count)
    monkeypatch.setattr(search, "GROUPED", 0)
    found, other_parents, other_tokens = search.likeliest(log_probs, before, count)
    assert torch.equal(found, expected)
    assert found.shape == (7, min(count, hypotheses * words))
    possible = expected > search.NEVER
    assert torch.equal(other_parents[possible], parents[possible])
    assert torch.equal(other_tokens[possible], tokens[possible])


@pytest.mark.parametrize("beam", [2, 5])
def test_a_model_of_damaged_weights_is_not_searched_for_ever(beam):
    steps = []

    def step(tokens, state):
        steps.append(len(tokens))
        return torch.full((len(tokens), WORDS + 2), math.nan), state

    beam_search(step, (), 3, Rules(START, END, max_length=6), beam=beam)
    assert len(steps) <= 7


def test_no_rows_at_all():
    model, rules = TinyModel(0), Rules(START, END)
    assert greedy(model.step, model.begin(0), 0, rules) == []
    assert beam_search(model.step, model.begin(0), 0, rules) == []


def test_samples_follow_the_distribution():
    model = TinyModel(2)
    hidden, _ = model.begin(1)
    rows = 20_000
    rules = Rules(START, END, max_length=1)
    drawn = greedy(
        model.step,
        (hidden.expand(rows, -1), 0),
        rows,
        rules,
        sampler=Sampler(generator=torch.Generator().manual_seed(1)),
    )
    log_probs, _ = model.step(torch.tensor([START]), (hidden, 0))
    probs = log_probs[0].exp()
    probs[START] = 0
    probs = probs / probs.sum()
    for word in range(WORDS):
        share = sum(one.tokens == [word] for one in drawn) / rows
        error = math.sqrt(probs[word] * (1 - probs[word]) / rows)
        assert abs(share - probs[word].item()) < 4 * error + 1e-9


@pytest.mark.parametrize("sampler", [Sampler(temperature=5e-324), Sampler(temperature=1e-300), Sampler(mass=1e-300)])
def test_the_smallest_settings_draw_the_likeliest(sampler):
    log_probs = torch.log_softmax(torch.randn(6, 9), dim=-1)
    log_probs[:, 3] = search.NEVER
    assert torch.equal(sampler.draw(log_probs), log_probs.argmax(dim=-1))


def test_samplers_cut():
    log_probs = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(2000, 1)
    generator = torch.Generator().manual_seed(0)
    assert set(Sampler(top=1, generator=generator).draw(log_probs).tolist()) == {0}
    assert set(Sampler(top=2, generator=generator).draw(log_probs).tolist()) == {0, 1}
    assert set(Sampler(mass=0.75, generator=generator).draw(log_probs).tolist()) == {0, 1}
    assert set(Sampler(mass=0.01, generator=generator).draw(log_probs).tolist()) == {0}
    cold = Sampler(temperature=0.2, generator=generator).draw(log_probs)
    assert (cold == 0).float().mean() > 0.9


WRONG = {
    "min above max": (lambda: Rules(START, END, 5, 4), "min_length is 5 and max_length 4"),
    "no_repeat": (lambda: Rules(START, END, no_repeat=-1), "no_repeat is -1"),
    "temperature": (lambda: Sampler(temperature=0.0), "temperature is 0"),
    "top": (lambda: Sampler(top=0), "top is 0"),
    "mass": (lambda: Sampler(mass=0.0), "mass is 0.0"),
    "beam": (lambda: beam_search(TinyModel(0).step, None, 1, Rules(START, END), beam=0), "beam is 0"),
    "prefixes": (
        lambda: greedy(TinyModel(0).step, None, 2, Rules(START, END), prefixes=[[1]]),
        "prefixes has 1 entries; expected 2",
    ),
    "limits": (
        lambda: greedy(TinyModel(0).step, None, 2, Rules(START, END), limits=[1]),
        "limits has 1 entries; expected 2",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use(case):
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        call()
