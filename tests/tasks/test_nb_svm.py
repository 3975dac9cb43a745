"""NB-SVM as a model of `classify`: it is solved, it says what each word contributes, and every command works on it."""

import json
import random
import shutil

import numpy as np
import pytest
import torch

import sightline
from invoke import run as invoked
from sightline.baselines.texts import fit_ngrams
from sightline.data.ngrams import fingerprints, learn_ngrams
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.models.nb_svm import NBSVM, NBSVMConfig
from sightline.models.text_to_labels import Texts
from sightline.tasks.card import verdict
from sightline.tasks.configs.classify import ClassifyConfig
from sightline.tasks.dry_run import estimate
from sightline.tasks.registry import task_named
from sightline.training.folder import load_tensors, save_tensors

pytestmark = pytest.mark.unchecked_shapes
FILLING = ["the", "film", "was", "a", "story", "of", "two", "men", "in", "one", "town"]
SAYS = {"good": ("fine", "not bad", "lovely"), "bad": ("bad", "not fine", "dull")}


def rows(count, seed=0, says=SAYS):
    draw = random.Random(seed)
    labels = sorted(says)
    some = []
    for number in range(count):
        label = labels[number % len(labels)]
        words = draw.choices(FILLING, k=5)
        words.insert(draw.randint(0, 5), draw.choice(says[label]))
        some.append((" ".join(words), label))
    return some


def trained(data, out, **options):
    return sightline.train(data, out, task="classify", model="nb_svm", progress=False, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nb_svm")


@pytest.fixture(scope="module")
def run(folder):
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows(300)]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    return trained(folder / "data.jsonl", folder / "run")


def read(run, *texts):
    (parts,) = zip(*run.encode(list(texts)), strict=True)
    return run.input.collate(list(parts))


def test_it_learns_what_single_words_do_not_tell(run):
    assert run.evaluate(rows(100, seed=1)).values["macro_f1"] > 95
    labels = [one.label for one in run.predict(["a story not bad in town", "a story not fine in town"])]
    assert labels == ["good", "bad"]
    assert 0.5 < run.predict("lovely").probability <= 1


def test_its_weights_are_those_of_the_baseline(tmp_path):
    given = rows(400)
    run = trained(given, tmp_path / "run", valid=rows(40, seed=2), no_baselines=True)
    texts, labels = zip(*given, strict=True)
    gold = np.array([sorted(SAYS).index(label) for label in labels])
    baseline = fit_ngrams(fingerprints(texts), gold, "one", 2, 3, seed=0)
    logits = np.array(run.raw(list(texts[:50])))
    margins = baseline.outputs(texts[:50])[:, 0]
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], margins, rtol=1e-4, atol=1e-4)


def test_contributions_sum_to_the_scores_and_stand_where_the_words_do(run):
    model = run.model
    texts = read(run, "the film was not bad , not bad")
    contributions = model.contributions(texts)
    scores = model.scores(texts)[0].double().numpy()
    np.testing.assert_allclose(contributions.sum(axis=0) + model.bias.detach().double().numpy(), scores, atol=1e-5)
    assert not contributions[[0, -1]].any()  # the start and the end of the text
    alone = model.contributions(read(run, "bad"))[1]
    twice = model.contributions(read(run, "bad , bad"))
    np.testing.assert_allclose(twice[1] + twice[3], alone, atol=1e-6)  # an n-gram counts once, shared by its places


def test_ngrams_of_a_longer_text_are_added_by_hand():
    model = NBSVM(2, 8, 2)
    model.fingerprints.copy_(torch.tensor([0, 0, 0, 0, 10, 20, 30, 40]) << 40)
    words = [model.fingerprints.numpy().view(np.uint64)[[4, 5]]]
    ngrams, _ = learn_ngrams(words, 2, at_least=1)
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    model.put(ngrams, weights, np.zeros(2, np.float32))
    together = model.scores(Texts(torch.tensor([[2, 4, 5, 3], [2, 4, 6, 5]])))
    apart = model.scores(Texts(torch.tensor([[4], [5]])))
    assert together[0].tolist() == weights.sum(axis=0).tolist()
    assert together[1].tolist() == apart.sum(dim=0).tolist()  # the pair of words is not there
    second = model.scores(Texts(torch.tensor([[4, 5]]), torch.tensor([[1, 1]])))
    assert second.tolist() == [[0.0, 0.0]]  # words of a second text are others


def test_a_run_is_the_same_again_after_loading_resuming_and_training_twice(run, folder):
    again = trained(folder / "data.jsonl", folder / "again")
    first, second = (load_tensors(folder / name / "model.safetensors") for name in ("run", "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    before = run.predict(["a lovely town"])
    assert again.predict(["a lovely town"]) == before
    done = invoked("resume", folder / "again", cwd=folder)
    assert done.returncode == 0, done.stderr
    third = load_tensors(folder / "again" / "model.safetensors")
    assert all(torch.equal(first[name], third[name]) for name in first)
    assert sightline.load(folder / "again").predict(["a lovely town"]) == before
    assert not (folder / "again" / "checkpoints").exists()
    done = invoked("tidy", folder / "again", cwd=folder)
    assert done.returncode == 0
    assert sightline.load(folder / "again").predict(["a lovely town"]) == before


def test_the_card_and_scores_compare_it_with_others_and_not_with_itself(run):
    card = (run.folder / "card.md").read_text()
    assert "A `nb_svm` from text to one label" in card
    assert "linear model on words" in card
    assert "NB-SVM on word n-grams" not in card
    assert "curves.png" not in card
    assert run.evaluate(rows(20, seed=1)).baselines.keys() == {"linear"}


def test_a_baseline_that_won_is_offered():
    own, baselines = {"macro_f1": 50.0}, {"nb-svm": {"macro_f1": 60.0}}
    offers = {"nb-svm": "nb_svm"}
    assert verdict(own, baselines, None, offers).endswith("of the baseline 'nb-svm'; train it with --model nb_svm")
    assert "--model" not in verdict({"macro_f1": 70.0}, baselines, None, offers)


def test_a_run_that_loses_to_it_says_how_to_train_it(folder, run):
    sets = ["--set", "training.steps=1", "model.size=8", "model.embedding_size=8"]
    done = invoked("train", "classify", "--data", "data.jsonl", "--out", "weak", *sets, cwd=folder)
    offer = "NB-SVM on word n-grams'; train it with --model nb_svm"
    assert offer in done.stdout
    assert offer in (folder / "weak" / "card.md").read_text()
    scored = invoked("evaluate", "weak", "--data", "data.jsonl", cwd=folder)
    assert "'nb-svm'; train it with --model nb_svm" in scored.stdout


def test_words_are_highlighted_by_their_contributions(run, tmp_path):
    explanation = run.explain("the film was not bad in one dull town")
    marks = explanation.highlights
    assert marks.unit == "contribution"
    texts = read(run, "the film was not bad in one dull town")
    index = run.output.labels.index(marks.label)
    expected = run.model.contributions(texts)[1:-1, index]
    np.testing.assert_allclose([word.weight for word in marks.words], expected, atol=1e-6)
    assert min(word.weight for word in marks.words) < 0 < max(word.weight for word in marks.words)
    assert [one.key for one in explanation.belief.findings] == ["entropy", "leave_one_out", "removal"]
    assert all("ttention" not in one.sentence for one in explanation.belief.findings)
    assert "contribution" in explanation.notes[0]
    assert Explanation.from_json(json.loads(json.dumps(explanation.to_json()))).highlights == marks
    for name in ("map.png", "map.html", "map.json"):
        assert explanation.save(tmp_path / name).stat().st_size > 500
    other = run.explain("the film was not bad in one dull town", "good" if marks.label == "bad" else "bad")
    np.testing.assert_allclose([word.weight for word in other.highlights.words], -expected, atol=1e-6)
    assert run.explain("zzz").belief is None  # no word that it knows speaks for anything


def test_hiding_a_word_costs_what_the_model_says_without_it(run):
    explanation = run.explain("the film was lovely in one town")
    removal = next(one for one in explanation.belief.findings if one.key == "removal")
    before, without = (
        run.predict(text) for text in ("the film was lovely in one town", "the film was zzz in one town")
    )
    label = explanation.highlights.label
    cost = np.log(before.probabilities[label]) - np.log(without.probabilities[label])
    assert removal.value == pytest.approx(cost, abs=1e-6)


def test_several_labels_pairs_and_chinese(tmp_path):
    says = {"a|b": ("fine dull",), "a": ("fine",), "b": ("dull",)}
    several = trained(rows(300, says=says), tmp_path / "several", labels="several", no_baselines=True)
    assert several.predict("one fine dull town").label == ("a", "b")
    assert several.predict("one fine town").label == ("a",)
    assert several.explain("one fine dull town", "b").highlights.unit == "contribution"
    draw = random.Random(0)
    pairs = [(draw.choice(FILLING), draw.choice(("fine", "dull"))) for _ in range(200)]
    pairs = [(*one, "yes" if one[1] == "fine" else "no") for one in pairs]
    named = [dict(zip(("text", "text2", "label"), one, strict=True)) for one in pairs]
    paired = trained(named, tmp_path / "pairs", no_baselines=True)
    assert paired.predict([("fine", "dull")])[0].label == "no"
    assert {word.part for word in paired.explain(("town", "fine")).highlights.words} == {0, 1}
    chinese = trained(rows(200, says={"good": ("很好",), "bad": ("不好",)}), tmp_path / "chinese", no_baselines=True)
    assert [one.label for one in chinese.predict(["房间很好", "房间不好"])] == ["good", "bad"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": "number"}, "gives labels, not numbers"),
        ({"smoothing": 0.1}, "it has no class_weights, smoothing"),
        ({"class_weights": "balanced"}, "it has no class_weights"),
    ],
)
def test_what_it_does_not_have_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        ClassifyConfig(model=NBSVMConfig(), **options)


def test_other_tasks_dry_runs_and_warm_starts_are_refused_in_one_sentence(folder, run):
    for arguments, said in (
        (("train", "tag", "--data", "data.jsonl", "--model", "nb_svm", "--out", "x"), "has no output for single words"),
        (("train", "classify", "--data", "data.jsonl", "--from", "run", "--out", "x"), "starts from no earlier run"),
        (("export", "run", "--to", "huggingface", "--out", "x"), "nb_svm"),
        (("export", "run", "--to", "onnx", "--out", "x"), "export models from text to text"),
    ):
        done = invoked(*arguments, cwd=folder)
        assert done.returncode != 0
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    task, source = task_named("classify"), Source.of(rows(100))
    with pytest.raises(UserError, match="takes seconds: leave out --dry-run"):
        estimate(task.of(task.variant_for(source)), source, None, ClassifyConfig(model=NBSVMConfig()))


def test_long_training_texts_are_read_whole(tmp_path):
    long = [(f"{'town ' * 600}{text}{' men' * 600}", label) for text, label in rows(60)]
    run = trained(long, tmp_path / "run", no_baselines=True)
    assert run.evaluate(rows(40, seed=3)).values["accuracy"] > 90


@pytest.mark.parametrize("damage", ["order", "numbers", "missing"])
def test_weights_that_cannot_be_ours_are_refused(run, folder, damage, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    tensors = load_tensors(tmp_path / "run" / "model.safetensors")
    if damage == "order":
        tensors["ngrams"] = tensors["ngrams"].flip(0)
    elif damage == "numbers":
        tensors["fingerprints"] = tensors["fingerprints"].float()
    else:
        del tensors["ngrams"]
    save_tensors(tmp_path / "run" / "model.safetensors", tensors)
    with pytest.raises(UserError, match="is damaged"):
        sightline.load(tmp_path / "run")
