"""N-grams and the floors: what they count, that they learn what they can and nothing else, and come back from disk."""

import json

import numpy as np
import pytest
import torch

from sightline.baselines import texts as module
from sightline.baselines.linear import Matrix, fit_linear, ratios
from sightline.baselines.texts import FACTS, WEIGHTS, LinearBaselines, fit_baselines
from sightline.data.ngrams import cut_words, find_ngrams, fingerprints, learn_ngrams
from sightline.errors import UserError

pytestmark = pytest.mark.unchecked_shapes

SIGHT, LINE, SIGHT_LINE = 3064059988874, 16548126169699, 1312687355673  # written down once: saved floors depend on them
FILLING = [f"w{number}" for number in range(40)]


def made(count, say, seed=0):
    """Texts of filling words, with what a class says among them."""
    draw = np.random.default_rng(seed)
    gold = draw.integers(len(say), size=count)
    texts = []
    for label in gold:
        words = draw.choice(FILLING, size=6).tolist()
        words.insert(int(draw.integers(6)), say[label])
        texts.append(" ".join(words))
    return texts, gold


def right(scores, gold):
    return float((scores.argmax(axis=1) == gold).mean())


def test_words_are_lower_case_and_signs_and_unspaced_characters_stand_alone():
    assert cut_words("Don't stop,  OK?") == ["don't", "stop", ",", "ok", "?"]
    assert cut_words("酒店 wifi很好。") == ["酒", "店", "wifi", "很", "好", "。"]
    assert cut_words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert cut_words(" ") == []


def ngrams_by_hand(text, longest):
    words = cut_words(text)
    return {tuple(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1)}


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_ngrams_are_those_counted_by_hand(at_once, monkeypatch):
    monkeypatch.setattr("sightline.data.ngrams._WORDS_AT_ONCE", at_once)
    texts = ["a b a b", "", "b a", "c", "a b c d", "b a b c"]
    by_hand = [ngrams_by_hand(text, 3) for text in texts]
    known, rows = learn_ngrams(fingerprints(texts), 3, at_least=1)
    assert len(known) == len(set().union(*by_hand))
    assert rows.lengths.tolist() == [len(one) for one in by_hand]
    kept, fewer = learn_ngrams(fingerprints(texts), 3, at_least=2)
    often = {one for one in set().union(*by_hand) if sum(one in text for text in by_hand) >= 2}
    assert len(kept) == len(often)
    assert fewer.lengths.tolist() == [len(one & often) for one in by_hand]
    found = find_ngrams(fingerprints(texts), kept, 3)
    assert found.columns.tolist() == fewer.columns.tolist()
    assert found.starts.tolist() == fewer.starts.tolist()
    assert len(learn_ngrams(fingerprints(texts), 3, at_least=1, most=2)[0]) == 2
    # two texts share a column exactly where they share an n-gram
    shared = len({*rows.columns[rows.starts[0] : rows.starts[1]]} & {*rows.columns[rows.starts[5] :]})
    assert shared == len(by_hand[0] & by_hand[5])
    chosen = rows.take(np.array([5, 1, 0]))
    assert chosen.columns.tolist() == [*rows.columns[rows.starts[5] :], *rows.columns[: rows.starts[1]]]
    assert chosen.lengths.tolist() == [len(by_hand[place]) for place in (5, 1, 0)]


def test_fingerprints_are_the_same_in_every_process():
    assert learn_ngrams(fingerprints(["sight line"]), 2, at_least=1)[0].tolist() == sorted([SIGHT, LINE, SIGHT_LINE])


def test_the_words_of_a_pair_are_told_apart_and_no_ngram_goes_over_its_middle():
    known, rows = learn_ngrams(fingerprints([("a b", "a b"), "a b"]), 2, at_least=1)
    assert rows.lengths.tolist() == [6, 3]
    assert len(known) == 6


def test_ratios_are_the_logarithms_of_the_paper():
    _, rows = learn_ngrams(fingerprints(["good x", "good y", "bad x", "bad y"]), 1, at_least=1)
    matrix = Matrix(rows, 4)
    found = ratios(matrix, np.array([[True], [True], [False], [False]]))[:, 0]
    # good stands in 2 of one side and 0 of the other, 1 more each; each side sums to 4 + 4
    assert sorted(found.tolist()) == pytest.approx([-np.log(3), 0, 0, np.log(3)], abs=1e-6)


@pytest.mark.parametrize("loss", ["softmax", "logistic", "squares"])
def test_a_fit_is_where_the_slope_is_nothing(loss):
    texts, gold = made(60, ["good", "bad", "so"])
    known, rows = learn_ngrams(fingerprints(texts), 1, at_least=1)
    rarity = np.linspace(1, 2, len(known)).astype(np.float32)
    outputs = {"softmax": 3, "logistic": 3, "squares": 1}[loss]
    one_hot = gold[:, None] == np.arange(3)
    target = {"softmax": gold, "logistic": np.where(one_hot, 1.0, -1.0), "squares": gold[:, None] - 1.0}[loss]
    weights, bias = fit_linear(Matrix(rows, len(known), rarity), rarity[:, None], target, outputs, loss, 2.0)
    dense = np.zeros((60, len(known)))
    for text in range(60):
        dense[text, rows.columns[rows.starts[text] : rows.starts[text + 1]]] = 1
    dense *= rarity
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    w, b = (torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (weights, bias))
    found = torch.tensor(dense) @ w + b
    if loss == "softmax":
        errors = torch.nn.functional.cross_entropy(found, torch.tensor(gold), reduction="sum")
    elif loss == "logistic":
        errors = torch.log1p(torch.exp(-torch.tensor(target) * found)).sum()
    else:
        errors = ((found - torch.tensor(target)) ** 2).sum() / 2
    (2.0 * errors + (w**2).sum() / 2).backward()
    assert float(w.grad.abs().max()) < 0.1
    assert float(b.grad.abs().max()) < 0.1
    assert float(w.detach().abs().max()) > 0.5


def test_both_floors_learn_a_word_and_only_ngrams_learn_an_order():
    texts, gold = made(300, ["good", "bad", "so so"])
    others, wanted = made(200, ["good", "bad", "so so"], seed=1)
    found = fit_baselines(texts, gold, "one", 3).scores(others)
    assert list(found) == ["linear", "nb-svm"]
    assert all(scores.shape == (200, 3) and right(scores, wanted) > 0.97 for scores in found.values())
    texts, gold = made(400, ["yes no", "no yes"])
    others, wanted = made(200, ["yes no", "no yes"], seed=1)
    found = fit_baselines(texts, gold, "one", 2).scores(others)
    assert right(found["linear"], wanted) < 0.65
    assert right(found["nb-svm"], wanted) > 0.97


def test_chance_labels_are_not_learnt():
    texts, _ = made(400, ["good", "bad"])
    gold = np.random.default_rng(5).integers(2, size=400)
    others, _ = made(300, ["good", "bad"], seed=1)
    wanted = np.random.default_rng(6).integers(2, size=300)
    for scores in fit_baselines(texts, gold, "one", 2).scores(others).values():
        assert 0.4 < right(scores, wanted) < 0.6


def test_characters_of_chinese_are_enough():
    texts, gold = made(200, ["很好", "很差"])
    glued = [text.replace(" ", "") for text in texts]
    scores = fit_baselines(glued[:150], gold[:150], "one", 2).scores(glued[150:])
    assert all(right(one, gold[150:]) == 1 for one in scores.values())


def test_several_labels_and_numbers_have_floors_too():
    draw = np.random.default_rng(0)
    gold = draw.random((400, 3)) < 0.4
    texts = [" ".join(["so", *(f"label{one}" for one in range(3) if row[one]), "it"]) for row in gold]
    found = fit_baselines(texts[:300], gold[:300].astype(np.float32), "several", 3).scores(texts[300:])
    assert all(((scores > 0) == gold[300:]).all() for scores in found.values())
    number = gold @ np.array([5.0, -20.0, 1.0]) + 100
    found = fit_baselines(texts[:300], number[:300], "number").scores(texts[300:])
    assert list(found) == ["linear", "ngrams"]
    for scores in found.values():
        assert scores.shape == (100,)
        assert np.abs(scores - number[300:]).mean() < 1.5 < np.abs(number[300:] - number.mean()).mean() / 3


def test_pairs_empty_texts_and_unseen_classes_do_no_harm():
    texts, gold = made(100, ["good", "bad"])
    pairs = [("", text) if place % 2 else (text, "") for place, text in enumerate(texts)]
    scores = fit_baselines(pairs, gold, "one", 4).scores([("", "good"), ("bad", ""), ("", "")])
    assert all(np.isfinite(one).all() and one.shape == (3, 4) for one in scores.values())
    assert all(one[:2].argmax(axis=1).tolist() == [0, 1] for one in scores.values())
    empty = fit_baselines(["", " "], np.array([0, 1]), "one", 2).scores(["", "x"])
    assert all(np.isfinite(one).all() for one in empty.values())
    assert all(one.shape == (0, 2) for one in fit_baselines(texts, gold, "one", 2).scores([]).values())


def test_the_same_seed_gives_the_same_baselines(monkeypatch):
    texts, gold = made(120, ["good", "bad"])
    first = fit_baselines(texts, gold, "one", 2, seed=3)
    second = fit_baselines(texts, gold, "one", 2, seed=3)
    assert all((first.scores(texts)[name] == second.scores(texts)[name]).all() for name in first.floors)
    monkeypatch.setattr(module, "_MOST_CHARACTERS", 2000)
    sampled = fit_baselines(texts, gold, "one", 2)
    assert 20 < sampled.used < 100
    assert sampled.texts == 120


@pytest.mark.parametrize(
    ("gold", "kind", "classes"),
    [([0, 2], "one", 2), ([0, -1], "one", 2), ([0], "one", 2), ([[1.0]], "several", 1), ([1.0, np.nan], "number", 0)],
)
def test_labels_that_do_not_fit_are_refused(gold, kind, classes):
    with pytest.raises(ValueError, match=r"labels|numbers"):
        fit_baselines(["a", "b"], np.array(gold), kind, classes)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("floors")
    texts, gold = made(100, ["good", "bad", "so"])
    floors = fit_baselines(texts, gold, "one", 3)
    assert floors.save(folder) == [WEIGHTS, FACTS]
    return folder, floors, texts


def test_floors_come_back_from_disk(saved):
    folder, floors, texts = saved
    again = LinearBaselines.load(folder)
    assert (again.kind, again.texts, again.used) == ("one", 100, 100)
    assert all((again.scores(texts)[name] == scores).all() for name, scores in floors.scores(texts).items())


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(kind="two"),
        lambda facts: facts.update(floors={}),
        lambda facts: facts.update(floors=[1]),
        lambda facts: facts.pop("used"),
        lambda facts: facts["floors"]["linear"].update(longest=10**9),
        lambda facts: facts["floors"].update(other={"longest": 1, "strength": 1, "own": 1}),
    ],
)
def test_facts_that_do_not_fit_are_refused(saved, tmp_path, change):
    folder, _, _ = saved
    facts = json.loads((folder / FACTS).read_text())
    change(facts)
    (tmp_path / FACTS).write_text(json.dumps(facts))
    (tmp_path / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes())
    with pytest.raises(UserError, match="damaged"):
        LinearBaselines.load(tmp_path)


@pytest.mark.parametrize("wrong", ["order", "shape", "nan", "missing"])
def test_weights_that_do_not_fit_are_refused(saved, tmp_path, wrong):
    from sightline.training.folder import load_tensors, save_tensors

    folder, _, _ = saved
    tensors = load_tensors(folder / WEIGHTS)
    if wrong == "order":
        tensors["linear.ngrams"] = tensors["linear.ngrams"].flip(0)
    elif wrong == "shape":
        tensors["linear.weights"] = tensors["linear.weights"][:-1]
    elif wrong == "nan":
        tensors["linear.bias"] = tensors["linear.bias"] * float("nan")
    else:
        del tensors["nb-svm.bias"]
    save_tensors(tmp_path / WEIGHTS, tensors)
    (tmp_path / FACTS).write_text((folder / FACTS).read_text())
    with pytest.raises(UserError, match="damaged"):
        LinearBaselines.load(tmp_path)
    with pytest.raises(UserError, match="missing"):
        LinearBaselines.load(tmp_path / "nothing")
