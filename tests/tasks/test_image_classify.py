"""Images to labels: data by content, runs, scores, evidence over the image, commands."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import invoke
from runs import prepared_as, saved, trained_on
from sightline.cli.train import preset
from sightline.data.checking import RowLimits
from sightline.data.labelled import LabelReport
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.inputs.image import ImageInput
from sightline.models.image_to_labels import ImageToLabelsConfig
from sightline.models.image_to_text import Places
from sightline.models.source_to_labels import LabelsShape
from sightline.nn.efficientnet import EfficientNetLite0Config
from sightline.nn.image import CNNConfig
from sightline.outputs.file_labels import HIDING, LOOKED
from sightline.outputs.image_labels import ImageLabelsOutput
from sightline.outputs.label_baselines import ImageBaselines
from sightline.outputs.label_scores import Labels
from sightline.records import Grid
from sightline.synthetic.shapes import made_shapes
from sightline.tasks.classify import CLASSIFY
from sightline.tasks.configs.classify_images import ImageClassifyConfig
from sightline.tasks.prepare import Setting, reopened
from sightline.tasks.run import Run
from sightline.tasks.train import build
from sightline.tasks.warm_start import SameTask
from sightline.training.loop import TrainingConfig

VARIANT = CLASSIFY.variant_of("classify_images")
TASK = CLASSIFY.of(VARIANT)
SOME_BAD = RowLimits(max_bad_share=0.2)


def config(**changes):
    options = {
        "model": ImageToLabelsConfig(size=16, heads=2, dropout=0.0),
        "encoder": CNNConfig(size=32, channels=(8, 16), blocks=0),
        "training": TrainingConfig(learning_rate=1e-2, warmup=5, steps=30, averaged=1, validate_every=15),
        "batch_rows": 8,
        "valid_share": 0.25,
    }
    return ImageClassifyConfig(**{**options, **changes})


def pictures(count, seed=0):
    """Images of one shape, red or blue, and the colour."""
    made = made_shapes(8 * count, seed, size=32, colours=("red", "blue"), shapes=("square",))
    return [(one.pixels, one.shapes[0].colour) for one in made if len(one.shapes) == 1][:count]


def write(folder, images):
    for number, (pixels, label) in enumerate(images):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / label / f"{number:03}.png")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    data = write(root / "data", pictures(28))
    shutil.copy(next((data / "red").glob("*.png")), data / "red" / "again.png")
    (data / "blue" / "broken.jpg").write_bytes(b"no image")
    run, outcome = trained_on("classify", data, root / "run", config(), limits=SOME_BAD)
    return root, run, outcome


# The data


def prepared(folder, data, limits=SOME_BAD, **changes):
    """What training would begin with, and the examples that it would train on."""
    with prepared_as("classify", data, folder / "prepared", config(**changes), limits=limits) as (found, rows):
        return found, list(rows)


def test_images_of_one_content_stay_together_and_bad_ones_are_named(tmp_path):
    data = write(tmp_path / "data", pictures(16))
    for path in sorted(data.rglob("*.png")):
        shutil.copy(path, path.with_name(f"copy {path.name}"))
    other = next((data / "red").glob("0*.png"))
    shutil.copy(other, data / "blue" / "other.png")
    (data / "red" / "bad.png").write_bytes(b"")
    found, train = prepared(tmp_path, data)
    assert not {one.x.key for one in train} & {one.x.key for one in found.valid}
    assert len(train) + len(found.valid) == 33
    assert len(found.input.features) == 17  # contents, the bad one among them
    assert found.report.duplicates == 16
    assert found.report.contradicting == 1
    assert found.report.left_out == {"bad image": 1}
    assert f"{data / 'red' / 'bad.png'}: bad image: it is empty" in found.report.places[0]
    assert "33 images of 34 rows" in found.lines()
    folder = tmp_path / "prepared"
    before = reopened(Setting(TASK, VARIANT, config(), folder, SOME_BAD), found.input, found.output)
    assert [(*parts, *labels) for parts, labels in map(before.corpus.__getitem__, range(len(train)))] == [
        (one.x.row, *found.output.labels.ids(one.y)) for one in train
    ]
    assert [(one.x[1:], one.y) for one in before.valid] == [(one.x[1:], one.y) for one in found.valid]


def test_too_many_bad_images_are_refused(tmp_path):
    data = write(tmp_path / "data", pictures(4))
    (data / "red" / "bad.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"1 of 5 images are bad .*bad.png: it is empty"):
        prepared(tmp_path, data, limits=RowLimits())
    with pytest.raises(UserError, match=r"more than --max-bad-share = 0.05; mend them, or raise --max-bad-share"):
        prepared(tmp_path, data, limits=RowLimits(max_bad_share=0.05, options=True))


def test_what_is_said_of_images_is_not_said_of_texts(tmp_path):
    few = [(pixels + np.uint8(number), label) for number, (pixels, label) in enumerate(pictures(1) * 4)]
    data = write(tmp_path / "few", [(pixels, "ab"[number % 2]) for number, (pixels, _) in enumerate(few)])
    with pytest.raises(UserError, match="validation: 4 different images cannot be split"):
        prepared(tmp_path, data)
    report = LabelReport(kind="several", pairs=3, without=2)
    report.input = ImageInput(config())
    assert "2 images have none of the labels" in report.lines()
    rows = [f"few/{'ab'[number % 2]}/{number:03}.png\tname {number}" for number in range(4)]
    (tmp_path / "names.tsv").write_text("\n".join(["image\tlabel", *rows]) + "\n")
    with pytest.raises(UserError, match=r"Name the columns with --columns IMAGE LABEL"):
        prepared(tmp_path, tmp_path / "names.tsv")


@pytest.mark.parametrize(
    ("labels", "values", "expected"),
    [
        ("several", ["a|b", "b", "", "a"], [("a", "b"), ("b",), (), ("a",)]),
        ("number", ["1.5", "2", "3", "0"], [1.5, 2.0, 3.0, 0.0]),
    ],
)
def test_labels_of_other_kinds_out_of_a_table(tmp_path, labels, values, expected):
    rows = []
    for number, (pixels, _) in enumerate(pictures(12)):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png\t{values[number % 4]}")
    (tmp_path / "t.tsv").write_text("\n".join(["image\tlabel", *rows]) + "\n")
    found, train = prepared(tmp_path, tmp_path / "t.tsv", labels=labels)
    given = {Path(one.x.file).name: one.y for one in (*train, *found.valid)}
    assert [given[f"{number}.png"] for number in range(4)] == expected
    assert found.output.labels.kind == labels
    batches = found.output.batches(found, found.config)
    pixels, gold = batches.batch(batches.epoch(0)[0])
    assert pixels.shape[1:] == (32, 32, 3)
    assert gold.shape == ((len(pixels), 2) if labels == "several" else (len(pixels),))
    baselines = ImageBaselines(found.input, found.output.labels, found.config)
    (floor,) = baselines.scores(None, [one.x for one in found.valid], found).values()
    assert floor.shape == ((len(found.valid), 2) if labels == "several" else (len(found.valid),))


def test_mirrored_images_are_mirrored_and_epochs_can_be_drawn_again(tmp_path):
    found, train = prepared(tmp_path, write(tmp_path / "data", pictures(12)))
    batches, plain = (found.output.batches(found, one) for one in (config(), config(mirrored=False)))
    handles = np.concatenate(batches.epoch(3))
    assert np.array_equal(handles, np.concatenate(batches.epoch(3)))
    assert not np.array_equal(handles, np.concatenate(batches.epoch(4)))
    rows = np.where(handles < 0, ~handles, handles)
    assert sorted(rows) == list(range(len(train)))
    assert 0 < (handles < 0).sum() < len(handles)
    assert (np.concatenate(plain.epoch(3)) >= 0).all()
    turned, straight = (batches.batch(which)[0] for which in (~np.arange(3), np.arange(3)))
    assert torch.equal(turned.flip(2), straight)
    assert torch.equal(batches.batch(~np.arange(3))[1], batches.batch(np.arange(3))[1])


# A run


def test_a_run_learns_and_is_loaded_as_it_was(trained):
    root, run, outcome = trained
    assert outcome.scores["macro_f1"] > 90
    loaded = Run.load(root / "run")
    assert loaded.about["task"] == loaded.variant.stored == "classify_images"
    images = sorted((root / "data").rglob("0*.png"))[:5]
    assert np.allclose(loaded.raw(images), run.raw(images))
    pixels = [np.asarray(Image.open(path)) for path in images]
    assert np.allclose(loaded.raw(pixels), loaded.raw([path.read_bytes() for path in images]))
    assert loaded.output.temperature == run.output.temperature
    assert [one.label for one in loaded.predict(images)] == [path.parent.name for path in images]
    with torch.no_grad():
        every = [np.asarray(Image.open(path)) for path in (root / "data").rglob("*.png")]
        average = loaded.model.see(torch.from_numpy(np.stack(every))).mean((0, 1))
    assert torch.allclose(loaded.model.blank, average, atol=0.1)
    assert loaded.model.blank.abs().max() > 0.1
    assert loaded.about["weights"] == outcome.source
    card = (root / "run" / "card.md").read_text()
    assert "| blue |" in card
    assert "linear model on 8 × 8 pixels" in card
    with pytest.raises(UserError, match=r"broken.jpg cannot be used: it is no image"):
        loaded.predict([*images, root / "data" / "blue" / "broken.jpg"])
    assert loaded.predict(str(images[0])) == loaded.predict(images[:1])[0]


def test_a_run_goes_on(trained, tmp_path):
    root, _, _ = trained
    shutil.copytree(root / "run", tmp_path / "run")
    longer = config(training=TrainingConfig(learning_rate=1e-2, warmup=5, steps=33, averaged=1, validate_every=3))
    _, further = trained_on("classify", None, tmp_path / "run", longer)
    assert further.progress.step == 33


def test_another_run_begins_with_it(trained, tmp_path):
    path = trained[0] / "run"
    earlier = SameTask(path, TASK, VARIANT)
    data = write(tmp_path / "data", pictures(12, 5))
    found, _ = prepared(tmp_path, data)
    weights = earlier.run.model.state_dict()
    same = build(found, earlier).state_dict()
    assert all(torch.equal(same[name], weights[name]) for name in weights)
    labels = replace(found.output.labels, names=("a", "b", "c"), counts=(1, 1, 1))
    new = replace(found, output=ImageLabelsOutput(config(), labels, found.input))
    other = build(new, earlier).state_dict()
    assert [name for name in weights if not torch.equal(other[name], weights[name])] == ["output.weight", "output.bias"]
    with pytest.raises(UserError, match=r"run has another image encoder"):
        trained_on("classify", data, tmp_path / "x", config(encoder=CNNConfig(size=32)), start=path)
    with pytest.raises(UserError, match="differs from that of the earlier run"):
        trained_on("classify", data, tmp_path / "x", config(model=ImageToLabelsConfig(size=8)), start=path)
    assert not (tmp_path / "x").exists()


def classifier(model, labels, how, encoder=None, temperature=1.0):
    """A run of `classify` with this model of images."""
    own = config(encoder=how, labels=labels.kind)
    seen = ImageInput(own, model.places, encoder)
    return Run(TASK, VARIANT, model, seen, ImageLabelsOutput(own, labels, seen, temperature), own)


def test_a_frozen_encoder_is_kept_in_the_run(tmp_path, monkeypatch):
    how = EfficientNetLite0Config(size=32, level="middle")
    encoder = how.build(pretrained=True)
    labels, places = Labels("one", ("a", "b"), (1, 1)), Places(encoder.annotation_size, *encoder.grid(32, 32))
    model = config().model.build(places, LabelsShape("one", 2)).eval()
    run = classifier(model, labels, how, encoder, temperature=2.0)
    saved(run, tmp_path / "run", weights="untrained")
    monkeypatch.setattr("sightline.nn.efficientnet.PACKAGE", "no_such_package_at_all")
    loaded = Run.load(tmp_path / "run")
    images = [pixels for pixels, _ in pictures(3)]
    assert np.allclose(loaded.raw(images), run.raw(images), atol=1e-6)
    assert loaded.output.temperature == 2.0
    (tmp_path / "run" / "encoder.safetensors").unlink()
    with pytest.raises(UserError, match=r"encoder\.safetensors"):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda about: about.update(places=[16, 8]), "is damaged"),
        (lambda about: about.update(places=[16, 8, 10**9]), "places is"),
        (lambda about: about["config"]["encoder"].pop("size"), "do not fit the encoder"),
        (lambda about: about.update(temperature=0), "temperature is"),
        (lambda about: about["config"]["encoder"].update(channels=[8, 10**7]), "is damaged"),
        (lambda about: about["config"]["encoder"].update(blocks=2**31), "blocks is 2,147,483,648"),
        (lambda about: about.update(task="caption"), "is a run of the task 'caption'"),
    ],
)
def test_a_damaged_run_is_refused(trained, tmp_path, change, reason):
    shutil.copytree(trained[0] / "run", tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    path = tmp_path / "run" / "config.json"
    about = json.loads(path.read_text())
    change(about)
    path.write_text(json.dumps(about))
    with pytest.raises(UserError, match=reason):
        Run.load(tmp_path / "run", CLASSIFY)


def test_scores_know_what_was_trained_on_under_any_name(trained, tmp_path):
    root, _, _ = trained
    data = write(tmp_path / "data", [*pictures(3), *pictures(4, 9)])
    (data / "red" / "broken.jpg").write_bytes(b"x")
    found = Run.load(root / "run").evaluate(data)
    assert found.seen.sum() == 3
    shown = found.to_json(errors=1)
    assert shown["images"] == 7
    assert list(shown["bad_images"]) == [str(data / "red" / "broken.jpg")]
    assert shown["in_training"] == 3
    assert set(shown["without_training_images"]) >= {"accuracy", "macro_f1"}
    rows = list(found.rows())
    right = np.mean([row["label"] == row["prediction"] for row in rows])
    assert shown["accuracy"] == pytest.approx(100 * right)
    assert {row["image"] for row in rows} == {str(path) for path in data.rglob("*.png")}


# Evidence over the image


def test_an_explanation_shows_where_it_looked(trained, tmp_path):
    root, _, _ = trained
    run = Run.load(root / "run")
    image = sorted((root / "data" / "red").glob("0*.png"))[0]
    found = run.explain(image)
    assert found.output == "red"
    assert found.input == image.name
    looked, hiding = found.of(LOOKED)[0], found.of(HIDING)[0]
    assert looked.columns == Grid(8, 8)
    assert looked.matrix().sum() == pytest.approx(1, abs=1e-5)
    assert hiding.matrix().min() >= 0
    assert found.image.width == 32
    keys = {one.key for one in found.belief.findings}
    assert keys == {"entropy", "leave_one_out", "gradient", "removal", "uniform"}
    assert run.explain(image, "blue", measure=False).steps[0].written == "blue"
    for ending in ("png", "json"):
        assert found.save(tmp_path / f"map.{ending}").stat().st_size > 1000
    with pytest.raises(UserError, match="has no label 'green'; it has 'blue', 'red'"):
        run.explain(image, "green")
    with pytest.raises(UserError, match="cannot be used: there is no such file"):
        run.explain(tmp_path / "none.png")
    asked = invoke.run("view", root / "run", "--out", tmp_path / "none.png", cwd=tmp_path)
    assert asked.returncode == 2
    assert f"{root / 'run'} reads images; name one with --image" in asked.stderr


@pytest.mark.parametrize(("labels", "layers", "pooled"), [("several", 1, True), ("number", 0, True), ("one", 0, False)])
def test_explanations_of_every_kind(labels, layers, pooled):
    known = Labels(labels) if labels == "number" else Labels(labels, ("a", "b"), (1, 1))
    how = CNNConfig(size=32, channels=(8, 16))
    model_config = ImageToLabelsConfig(size=8, layers=layers, heads=2)
    model_config = model_config if pooled else ImageToLabelsConfig(size=8, pooling=None)
    model = model_config.build(Places(16, 8, 8), LabelsShape(labels, known.classes), how.build()).eval()
    run = classifier(model, known, how)
    found = run.explain(pictures(1)[0][0])
    titles = [stack.kind for stack in found.stacks]
    assert titles == {"several": ["pool", "pool", "self"], "number": ["pool", "pool"], "one": ["pool"]}[labels]
    assert (found.belief is None) is not pooled
    assert bool(found.steps) is (labels != "number")
    if not pooled:
        with pytest.raises(UserError, match="has no attention: it reads the mean of all places"):
            run.explain(pictures(1)[0][0], measure=False)


# Commands


def done(*arguments, cwd):
    """What a command printed, which did what it should."""
    ended = invoke.run(*arguments, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended


def test_predictions_keep_their_lines(trained, tmp_path):
    root, _, _ = trained
    folder, predict = root / "data" / "blue", ("predict", root / "run")
    printed = done(*predict, "--image", folder, cwd=tmp_path)
    lines = printed.stdout.splitlines()
    assert len(lines) == len(list(folder.iterdir()))
    assert f"{folder / 'broken.jpg'}\t" in lines
    assert sum(line.endswith("\tblue") for line in lines) == len(lines) - 1
    assert "broken.jpg: it is no image" in printed.stderr
    (tmp_path / "list.txt").write_text(f"{sorted(folder.glob('0*.png'))[0]}\n")
    written = ("--out", tmp_path / "o", "--format", "jsonl")
    done(*predict, "--input", "list.txt", *written, cwd=tmp_path)
    (row,) = map(json.loads, (tmp_path / "o").read_text().splitlines())
    assert row["label"] == "blue"
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    ended = invoke.run(*predict, "--image", folder / "broken.jpg", *written, cwd=tmp_path)
    assert ended.returncode == 2
    assert "none of the images could be read" in ended.stderr
    assert json.loads((tmp_path / "o").read_text())["label"] == "blue"  # as it was


def test_evaluating_and_comparing(trained, tmp_path):
    root, _, _ = trained
    run, data = root / "run", ("--data", root / "data")
    printed = done("evaluate", run, *data, "--errors", 1, "--out", tmp_path / "o.jsonl", cwd=tmp_path)
    assert "29 of 29 images are in the run's own data" in printed.stdout
    assert f"sightline: {root / 'data' / 'blue' / 'broken.jpg'}: it is no image" in printed.stderr
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 29
    found = json.loads(done("evaluate", run, *data, "--json", cwd=tmp_path).stdout)
    assert found["accuracy"] > 90
    assert list(found["bad_images"]) == [str(root / "data" / "blue" / "broken.jpg")]
    shutil.copytree(run, tmp_path / "twin")
    compare = ("compare", run, tmp_path / "twin", *data, "--samples", 20, "--json")
    found = json.loads(done(*compare, cwd=tmp_path).stdout)
    assert found["metrics"]["accuracy"]["runs"][str(tmp_path / "twin")]["difference"] == 0


def test_wrong_options_of_training(tmp_path):
    data = write(tmp_path / "data", pictures(4))
    for arguments, said in (
        (("--source", "x"), "--source is for translate and summarise, not for classify; leave it out"),
        (("--metric", "bleu"), "invalid choice 'bleu'"),
        (("--data", data, "--model", "han"), "--model han is for other data; here it is one of attentive"),
        ((), "give --data FILE: texts and labels, in the columns text (or text and text2) and label; or images"),
    ):
        ended = invoke.run("train", "classify", *arguments, "--out", tmp_path / "run", cwd=tmp_path)
        assert ended.returncode == 2
        assert said in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_separator_means_several_labels(tmp_path):
    asked = config().for_source(Source.of(tmp_path, separator=";"))
    assert asked.labels == "several"
    with pytest.raises(UserError, match="is for several labels; give --labels several"):
        config(labels="number").for_source(Source.of(tmp_path, separator=";"))


def test_presets_have_their_sizes():
    assert preset(VARIANT, "attentive", "small").model.layers == 1
