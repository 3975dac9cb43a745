"""From a file of texts and labels to a trained classifier, in Python: what is learnt, saved and begun with."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import sightline
from classify_samples import bert, ordered, texts
from runs import saved, trained_on
from sightline.errors import UserError
from sightline.inputs.text import TextInput
from sightline.interop.pretrained import load_pretrained
from sightline.models.attentive import AttentiveConfig
from sightline.models.encoder import EncoderConfig
from sightline.models.han import HANConfig
from sightline.nn.lora import LoraConfig
from sightline.outputs.label_scores import Labels, truth_of
from sightline.outputs.labels import LabelsOutput
from sightline.tasks.configs.classify import ClassifyConfig
from sightline.tasks.evaluate import compare
from sightline.tasks.prepare import Prepared
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.text.encoding import TextEncoder
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training.folder import load_tensors
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes

SMALL = AttentiveConfig(embedding_size=16, size=16, dropout=0.0, word_dropout=0.0)


def config(steps=60, model=SMALL, rate=0.02, **options):
    training = TrainingConfig(learning_rate=rate, warmup=5, steps=steps, validate_every=steps, averaged=1)
    words = TokeniserConfig("words", vocab_size=60, lower=True, min_frequency=1)
    return ClassifyConfig(model=model, tokeniser=words, training=training, batch_tokens=600, **options)


def examples(rows):
    return [Example(*row) for row in rows]


def write(path, rows):
    with path.open("w", encoding="utf-8") as file:
        for *texts, label in rows:
            fields = dict(zip(("text", "text2"), texts, strict=False))
            file.write(json.dumps({**fields, "label": label}, ensure_ascii=False) + "\n")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = write(folder / "train.jsonl", ordered(400))
    found = sightline.train(data, folder / "run", task="classify", config=config(120))
    return folder, found


def test_it_learns_what_a_bag_of_words_cannot(trained):
    _, classifier = trained
    rows = ordered(200, seed=9)
    found = classifier.evaluate(examples(rows))
    assert found.values["accuracy"] > 95
    assert found.extra["floors"]["linear"]["accuracy"] < 75
    assert found.extra["confusion"].sum() == 200
    assert {one.name: one.support for one in found.extra["table"]} == {
        name: sum(label == name for _, label in rows) for name in ("no", "yes")
    }


def test_a_run_folder_is_complete_and_loads_as_it_was(trained):
    folder, classifier = trained
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"config.json", "labels.json", "tokenizer.json", "model.safetensors", "card.md"} <= names
    assert {"floors.json", "floors.safetensors", "confusion.png", "reliability.png", "checksums.json"} <= names
    loaded = sightline.load(folder / "run")
    given = ["up ab down", "down up", "", "nothing known " * 30]
    for one, other in zip(classifier.predict(given), loaded.predict(given), strict=True):
        assert one.label == other.label
        assert one.probabilities == pytest.approx(other.probabilities)
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert one.probability == max(one.probabilities.values())
    sealed = json.loads((folder / "run" / "checksums.json").read_text())
    assert {"labels.json", "tokenizer.json", "floors.safetensors"} <= set(sealed)
    card = (folder / "run" / "card.md").read_text()
    assert "NB-SVM on word n-grams" in card
    assert "expected calibration error" in card


def test_temperature_and_threshold_are_kept_and_used(trained, tmp_path):
    folder, _ = trained
    classifier = sightline.load(folder / "run")
    classifier.output.temperature, classifier.output.threshold = 2.5, 0.3
    loaded = sightline.load(saved(classifier, tmp_path / "copy"))
    assert (loaded.output.temperature, loaded.output.threshold) == (2.5, 0.3)
    logits = loaded.raw(["up ab down"])[0] / 2.5
    expected = np.exp(logits) / np.exp(logits).sum()
    found = loaded.predict(["up ab down"])[0].probabilities
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)


def test_the_temperature_is_fitted_to_validation_data(trained):
    _, classifier = trained
    rows = examples(ordered(100, seed=21))
    wrong = [one._replace(y="yes" if one.y == "no" else "no") for one in rows[:30]]
    output = LabelsOutput(classifier.config, classifier.output.labels, classifier.input)
    valid = [*rows[30:], *wrong]
    prepared = Prepared(classifier.input, output, None, valid, classifier.config, classifier.task)
    output = output.calibrate(classifier, classifier.raw([one.x for one in valid]), prepared)
    assert output.temperature > 1.5  # nearly sure, and wrong in three of ten
    calibrated = replace(classifier, output=output)
    sure = [one.probability for one in calibrated.predict([one.x for one in rows])]
    assert 0.6 < np.mean(sure) < 0.8


def test_padding_and_company_change_nothing(trained):
    _, classifier = trained
    given = ["up ab down", "down cd up", "up " * 40 + "down"]
    together = classifier.raw(given)
    alone = np.concatenate([classifier.raw([text]) for text in given])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_texts_of_the_training_data_are_told_apart(trained):
    folder, classifier = trained
    rows = examples([(text + "  ", label) for text, label in ordered(400)[:10]])
    new = examples(ordered(30, seed=77))
    found = classifier.evaluate(rows + new)
    assert found.seen[:10].all()
    kept = [one for one, seen in zip(rows + new, found.seen, strict=True) if not seen]
    assert found.without["accuracy"] == pytest.approx(classifier.evaluate(kept).values["accuracy"])
    (folder / "run" / "data" / "texts.npy").rename(folder / "elsewhere.npy")
    assert classifier.evaluate(rows).seen is None
    (folder / "elsewhere.npy").rename(folder / "run" / "data" / "texts.npy")


def test_labels_that_training_did_not_have_count_as_wrong(trained):
    _, classifier = trained
    rows = examples(ordered(20, seed=5))
    right = classifier.evaluate(rows).values["accuracy"]
    found = classifier.evaluate([*rows, *examples([("up down", "maybe"), ("ab", "never")])])
    assert found.extra["unseen"] == {"maybe": 1, "never": 1}
    assert found.extra["unseen_rows"] == 2
    assert found.values["accuracy"] == pytest.approx(right * 20 / 22)
    assert found.extra["known"]["accuracy"] == pytest.approx(right)
    assert found.to_json()["unseen_labels"]["rows"] == 2


def test_going_on_ends_like_not_stopping(tmp_path):
    data = write(tmp_path / "train.jsonl", ordered(60))
    plan = config(baselines=False)
    plan = replace(plan, training=replace(plan.training, steps=9, validate_every=3, cooldown=0.0))
    whole, _ = trained_on("classify", data, tmp_path / "whole", plan)

    def stop(progress, scores):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained_on("classify", data, tmp_path / "parts", plan, on_scores=stop)
    parts, _ = trained_on("classify", None, tmp_path / "parts", plan)
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], tensor)


def similar(text):
    words = text.split()
    draw = random.Random(text)
    draw.shuffle(words)
    return " ".join(words)


def test_pairs_equal_up_to_order(tmp_path):
    rows = []
    for number, text in enumerate(texts(500, seed=1, length=4)):
        other = similar(text) if number % 2 else similar(texts(1, seed=number + 1000, length=4)[0])
        rows.append((text, other, "same" if sorted(text.split()) == sorted(other.split()) else "other"))
    data = write(tmp_path / "pairs.jsonl", rows)
    plan = config(180, model=replace(SMALL, annotations="embedding", embedding_size=32), rate=0.03, baselines=False)
    classifier = sightline.train(data, tmp_path / "run", task="classify", config=plan)
    assert classifier.output.labels.pairs
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["model"]["pairs"] is True
    found = [one.label for one in classifier.predict([("ab cd ef", "ef ab cd"), ("ab cd ef", "gh ij kl")])]
    assert found == ["same", "other"]
    with pytest.raises(UserError, match="expected a pair of texts"):
        classifier.predict(["ab"])


def test_several_labels(tmp_path):
    rows = [(text, [name for name in ("ab", "cd", "ef") if name in text.split()]) for text in texts(300, seed=2)]
    data = write(tmp_path / "several.jsonl", rows)
    classifier = sightline.train(data, tmp_path / "run", task="classify", labels="several", config=config(120))
    assert classifier.output.labels.names == ("ab", "cd", "ef")
    found = classifier.predict(["ab gh cd", "gh ij", "ef"])
    assert [one.label for one in found] == [("ab", "cd"), (), ("ef",)]
    measured = sightline.load(tmp_path / "run").evaluate(data)
    assert measured.values["micro_f1"] > 97
    assert measured.extra["confusion"] is None
    assert len(measured.extra["table"]) == 3
    assert sightline.load(tmp_path / "run").output.threshold == classifier.output.threshold


def test_numbers(tmp_path):
    rows = [(text, 1000.0 + 10 * text.split().count("ab")) for text in texts(400, seed=3)]
    data = write(tmp_path / "numbers.jsonl", rows)
    classifier = sightline.train(data, tmp_path / "run", task="classify", labels="number", config=config(120))
    assert classifier.predict(["ab ab cd"])[0].label == pytest.approx(1020, abs=3)
    found = classifier.evaluate(data)
    assert found.values["pearson"] > 95
    assert found.values["rmse"] < 3
    assert found.extra["floors"]["linear"]["rmse"] > found.values["rmse"]
    assert found.extra["calibration"] is None


def test_documents_of_any_length(tmp_path):
    rows = [
        (f"{text.capitalize()}. Then {label}. End.", label)
        for text, label in zip(texts(80), ["up", "down"] * 40, strict=True)
    ]
    data = write(tmp_path / "train.jsonl", rows)
    model = HANConfig(embedding_size=16, size=16, dropout=0.0, word_dropout=0.0)
    classifier = sightline.train(
        data, tmp_path / "run", task="classify", config=config(40, model=model, baselines=False)
    )
    long = "Ab cd ef. " * 500 + "Then up. " + "Gh ij. " * 500
    assert np.shape(classifier.raw([long])) == (1, 2)
    assert classifier.predict(["Then down. End."])[0].label == "down"


def test_long_texts_are_cut_where_attention_is_square_and_said(tmp_path):
    rows = [(f"{text} {label}", label) for text, label in zip(texts(60), ["up", "down"] * 30, strict=True)]
    rows[0] = ("ab " * 100 + "up", "up")
    data = write(tmp_path / "train.jsonl", rows)
    model = EncoderConfig(size=16, heads=2, feed_forward=32, layers=1, dropout=0.0)
    said = []
    classifier = sightline.train(
        data, tmp_path / "run", task="classify", config=config(3, model=model, max_length=12, baselines=False),
        on_report=lambda prepared, model: said.extend(prepared.lines()),
    )  # fmt: skip
    assert any(line.startswith("1 texts are longer than 12 tokens") for line in said)
    assert classifier.input.too_long(["ab " * 100_000, "ab"]) == 1
    assert classifier.predict(["ab " * 100_000])[0].label in ("up", "down")
    recurrent = TextInput(config(max_length=12), classifier.input.reader)
    assert recurrent.too_long(["ab " * 100]) == 0


@pytest.mark.parametrize("lora", [False, True])
def test_a_run_begins_with_every_tensor_of_another(tmp_path, lora):
    model = EncoderConfig(size=16, heads=2, feed_forward=32, layers=1, dropout=0.0)
    write(tmp_path / "one.jsonl", ordered(60))
    write(tmp_path / "two.jsonl", [(text, "odd" if len(text.split()) % 2 else "even") for text in texts(60)])
    first = sightline.train(
        tmp_path / "one.jsonl", tmp_path / "one", task="classify", config=config(3, model=model, baselines=False)
    )
    plan = replace(config(2, model=model, rate=0.01, baselines=False), lora=LoraConfig(rank=2) if lora else None)
    before = {}
    second, _ = trained_on(
        "classify", tmp_path / "two.jsonl", tmp_path / "two", plan, start=tmp_path / "one",
        on_report=lambda prepared, model: before.update({k: v.clone() for k, v in model.model.state_dict().items()}),
    )  # fmt: skip
    source = first.model.model.state_dict()
    for name, tensor in source.items():
        place = name if name in before else name.replace(".weight", ".parametrizations.weight.original")
        torch.testing.assert_close(before[place], tensor, rtol=0, atol=0)
    assert (tmp_path / "one" / "tokenizer.json").read_text() == (tmp_path / "two" / "tokenizer.json").read_text()
    after = load_tensors(tmp_path / "two" / "model.safetensors")
    assert set(after) == set(first.model.state_dict())  # merged: nothing of LoRA is left
    moved = {name for name, tensor in source.items() if not torch.equal(after[f"model.{name}"], tensor)}
    if lora:
        adapted = {"project_query.weight", "project_values.weight"}
        assert moved == {n for n in source if n.rpartition("attention.")[2] in adapted or n.startswith("pool")}
    else:
        assert "embedding.weight" in moved
    again = Run.load(tmp_path / "two" / "checkpoints" / "step-2")
    np.testing.assert_allclose(again.raw(["ab cd"]), second.raw(["ab cd"]), atol=1e-5)


def test_a_run_begins_with_a_hugging_face_folder(tmp_path):
    folder = bert(tmp_path / "bert")
    write(tmp_path / "train.jsonl", ordered(40))
    before = {}
    classifier = sightline.train(
        tmp_path / "train.jsonl", tmp_path / "run", task="classify", start=folder, steps=2,
        on_report=lambda prepared, model: before.update({k: v.clone() for k, v in model.model.state_dict().items()}),
    )  # fmt: skip
    theirs = load_pretrained(folder)
    assert set(theirs.tensors) == set(before)
    for name, tensor in theirs.tensors.items():
        torch.testing.assert_close(before[name], tensor, rtol=0, atol=0)
    loaded = sightline.load(tmp_path / "run")
    np.testing.assert_allclose(loaded.raw(["up [SEP] down"]), classifier.raw(["up [SEP] down"]), atol=1e-6)
    assert loaded.config.max_length == 64
    assert loaded.input.too_long(["up " * 100]) == 1
    again = sightline.train(
        tmp_path / "train.jsonl", tmp_path / "next", task="classify", start=tmp_path / "run", steps=1
    )
    assert again.input.reader.specials == theirs.tokeniser.specials


def test_another_vocabulary_or_size_is_refused_by_name(trained, tmp_path):
    folder, _ = trained
    data = folder / "train.jsonl"
    other = replace(config(), tokeniser=TokeniserConfig("words", vocab_size=50, lower=True, min_frequency=1))
    with pytest.raises(UserError, match=r"run has a vocabulary of \d+ tokens \(words, 60"):
        trained_on("classify", data, tmp_path / "a", other, start=folder / "run")
    wide = config(model=replace(SMALL, size=32))
    with pytest.raises(UserError, match=r"does not fit this model: model\.\S+ is .* there and .* here"):
        trained_on("classify", data, tmp_path / "b", wide, start=folder / "run")
    with pytest.raises(UserError, match="name one with --from"):
        trained_on("classify", data, tmp_path / "c", replace(config(), lora=LoraConfig()))
    assert not list(tmp_path.iterdir())


def test_balanced_weights_and_metrics_that_do_not_fit():
    labels = Labels("one", ("a", "b"), (99, 1))
    reader = TextEncoder(train_tokeniser(["a b c"], TokeniserConfig("words", vocab_size=10, min_frequency=1)))
    balanced = replace(config(), class_weights="balanced")
    reading = TextInput(balanced, reader)
    model = balanced.build(reading, LabelsOutput(balanced, labels, reading))
    np.testing.assert_allclose(model.weights.numpy(), [100 / 198, 50.0], rtol=1e-6)
    for wrong in ({"metric": "pearson"}, {"labels": "number", "class_weights": "balanced"}, {"max_length": 2}):
        with pytest.raises(ValueError, match=r"metric|class_weights|max_length"):
            replace(config(), **wrong)


def test_truth_puts_unknown_labels_behind():
    labels = Labels("several", ("a", "b"), (1, 1))
    truth = truth_of(labels, [("a", "z"), (), ("b",)])
    assert truth.names == ("a", "b", "z")
    assert truth.gold.tolist() == [[True, False, True], [False, False, False], [False, True, False]]


def test_comparison_is_paired_and_of_one_kind(trained):
    _, classifier = trained
    rows = examples(ordered(60, seed=8))
    found = compare({"a": classifier, "b": classifier}, rows, samples=50)
    assert found.resampled["accuracy"]["b"].difference == 0
    assert set(found.resampled) == {"accuracy", "macro_f1"}
    with pytest.raises(UserError, match="pearson is no metric of a; there is accuracy, macro_f1"):
        compare({"a": classifier, "b": classifier}, rows, metrics=["pearson"])


def test_runs_of_one_name_are_compared_under_two(trained):
    _, classifier = trained
    found = classifier.compare([classifier, classifier], examples(ordered(20, seed=8)), samples=5)
    names = [classifier.name, f"{classifier.name} (2)", f"{classifier.name} (3)"]
    assert list(found.resampled["accuracy"]) == names


def test_a_generator_loses_no_row(tmp_path):
    rows = ordered(40, seed=3)
    given = ({"text": text, "label": label} for text, label in rows)
    run = sightline.train(given, tmp_path / "run", task="classify", config=config(steps=1))
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["pairs"] + about["valid_pairs"] == len({text for text, _ in rows})
    assert run.variant.stored == "classify"


def test_a_separator_needs_several_labels(tmp_path):
    with pytest.raises(UserError, match="--separator needs --labels several, but --labels is one"):
        sightline.train([("a", "b")], tmp_path / "run", task="classify", labels="one", separator=",")


def test_a_strangers_labels_are_checked(trained, tmp_path):
    import shutil

    folder, _ = trained
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    path = tmp_path / "run" / "labels.json"
    good = json.loads(path.read_text())
    names = ({"names": ["a"]}, {"names": ["a", "a"]}, {"names": [1, 2]}, {"names": "ab"}, {"counts": [1]})
    others = ({"kind": "all"}, {"columns": [1, 2]}, {"columns": 5}, {"separator": 5}, {"pairs": "yes"}, {"mean": []})
    for wrong in (*names, *others):
        path.write_text(json.dumps(good | wrong))
        with pytest.raises(UserError, match="damaged"):
            Run.load(tmp_path / "run")


def test_floors_of_other_labels_are_refused(trained, tmp_path):
    import shutil

    folder, _ = trained
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    path = tmp_path / "run" / "floors.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "several"}))
    classifier = Run.load(tmp_path / "run")
    with pytest.raises(UserError, match=r"floors\.json is damaged: its baselines are not those of the run's labels"):
        classifier.evaluate(examples([("a b", classifier.output.labels.names[0])]))
