"""The task `caption`: reading images and captions, training, run folders, prediction and explanation."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning import HARD, MODELS, TRANSFORMER, captioner, read_images, tiny, written
from runs import config_from, prepared_as, read_as, trained_on
from sightline.cli.train import preset
from sightline.config import override
from sightline.data.checking import RowLimits
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.inputs.files import StoredFile
from sightline.nn import efficientnet
from sightline.nn.efficientnet import EfficientNetLite0Config
from sightline.synthetic.shapes import made_shapes
from sightline.tasks import train
from sightline.tasks.caption import CAPTION
from sightline.tasks.configs.caption import CaptionConfig
from sightline.tasks.dry_run import estimate
from sightline.tasks.evaluate import compare, evaluate
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.tasks.train import TaskLesson

LENIENT = RowLimits(max_bad_share=0.9)


def pixels(seed=0, size=32):
    return made_shapes(1, seed, size)[0].pixels


@pytest.fixture(scope="module", autouse=True)
def _without_curves():
    """Drawing takes longer than these trainings; one test draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sightline.view.charts.draw_curves", lambda metrics, path, unit: path)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    table, _ = written(folder)
    return table


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run with a frozen encoder, whose weights are random here."""
    out = tmp_path_factory.mktemp("runs") / "run"
    config = tiny(encoder=EfficientNetLite0Config(size=32, level="middle"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(efficientnet, "_load", lambda encoder: None)
        trained_on("caption", data, out, config)
    return out


def bad_files(folder):
    """Images that no one can read, and captions that cannot be used."""
    images = folder / "images"
    (images / "corrupt.png").write_bytes((images / "0-0.png").read_bytes()[:200])
    (images / "empty.jpg").write_bytes(b"")
    (images / "text.jpg").write_text("not an image", encoding="utf-8")
    Image.fromarray(pixels(5)[:1, :1]).save(images / "dot.png")
    rows = ["images/corrupt.png\ta red star", "images/corrupt.png\ta star", "images/empty.jpg\ta star"]
    rows += ["images/text.jpg\ta star", "images/missing.png\ta star", "images/dot.png\ta dot"]
    rows += ["images/0-1.png\t   ", "images/0-1.png\t.", f"images/0-1.png\t{'word ' * 500}"]
    return rows


def test_images_with_their_captions_in_the_order_of_the_table(data):
    photos, report = read_as("caption", data)
    assert [Path(photo.x.file).name for photo in photos] == [f"0-{number}.png" for number in range(12)]
    assert all(len(photo.y) == 2 for photo in photos)
    assert report.images == 12
    assert report.pairs == 24
    assert "12 images with 24 captions, of 24 rows" in report.lines()


def test_what_cannot_be_used_is_said_by_name_and_nothing_else_is_lost(tmp_path):
    table, _ = written(tmp_path)
    table.write_text(table.read_text(encoding="utf-8") + "\n".join(bad_files(tmp_path)) + "\n", encoding="utf-8")
    said = []
    config = tiny()
    found, _ = trained_on(
        "caption",
        table,
        tmp_path / "run",
        config,
        limits=LENIENT,
        on_report=lambda prepared, model: said.extend([*prepared.lines(), prepared.summary()]),
    )
    text = "\n".join(said)
    for name in ("corrupt.png", "empty.jpg", "text.jpg", "missing.png"):
        assert name in text
    assert "empty caption: found no word in ''" in text
    assert "empty caption: found no word in '.'" in text
    assert "too long: found 2,499 characters" in text
    assert "13 images with 25 captions, of 33 rows" in text  # the image of one pixel is an image
    assert "bad image 5" in text
    assert text.count("corrupt.png") == 1  # it has two captions, and is one image
    assert "more" not in text.split("rows left out")[1]
    about = json.loads((tmp_path / "run" / "about.json").read_text(encoding="utf-8"))
    assert about["report"]["bad_images"] == 4
    assert about["images"] == 13
    assert f"captions of {13 - about['valid_images']} images to train on" in text
    assert found.predict([pixels()])


def test_too_many_bad_images_stop_it_and_leave_nothing(tmp_path):
    table, _ = written(tmp_path)
    table.write_text(table.read_text(encoding="utf-8") + "\n".join(bad_files(tmp_path)) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"corrupt\.png"):
        trained_on("caption", table, tmp_path / "run", tiny())
    assert not (tmp_path / "run").exists()


def test_an_interrupt_while_images_are_read_leaves_nothing(data, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained_on("caption", data, tmp_path / "run", tiny(), on_items=stop)
    assert not (tmp_path / "run").exists()


def test_captions_of_too_many_tokens_are_not_trained_on_and_that_is_said(tmp_path):
    table, _ = written(tmp_path)
    with table.open("a", encoding="utf-8") as file:
        file.write(f"images/0-3.png\t{'red ' * 60}\n")
    said = []
    listen = {"on_report": lambda prepared, model: said.append((prepared.lines(), len(prepared.corpus)))}
    trained_on("caption", table, tmp_path / "run", tiny(max_length=20), valid=Source.of(table), **listen)
    lines, captions = said[0]
    assert any(line.startswith("1 captions have more than 20 tokens") for line in lines)
    assert captions == 24


def test_a_folder_of_images_with_captions_beside_them(tmp_path):
    _, made = written(tmp_path)
    for number, one in enumerate(made[:-1]):
        (tmp_path / "images" / f"0-{number}.txt").write_text("\n".join(one.captions) + "\n", encoding="utf-8")
    photos, report = read_as("caption", tmp_path / "images")
    assert len(photos) == 11
    assert report.left_out["missing caption"] == 1
    assert "0-11" in report.places[0]


def test_the_same_content_is_one_image_whatever_it_is_called(tmp_path):
    table, _ = written(tmp_path)
    (tmp_path / "images" / "copy.png").write_bytes((tmp_path / "images" / "0-2.png").read_bytes())
    with table.open("a", encoding="utf-8") as file:
        file.write("images/copy.png\ta third caption\n")
    photos, _ = read_as("caption", table)
    assert len(photos) == 12
    assert photos[2].y[2] == "a third caption"
    with prepared_as("caption", table, tmp_path / "data", tiny()) as (prepared, rows):
        assert rows.count + len(prepared.valid) == 12
        assert prepared.report.same == 1
        assert "1 files have the content of another: each of these is one image" in prepared.lines()


def test_the_split_is_by_image_and_does_not_depend_on_the_order(data, tmp_path):
    head, *rows = data.read_text(encoding="utf-8").splitlines()
    turned = data.with_name("turned.tsv")
    turned.write_text("\n".join([head, *rows[::-1]]) + "\n", encoding="utf-8")

    def split(table, seed):
        config = tiny(valid_share=0.25, seed=seed)
        with prepared_as("caption", table, tmp_path / f"{table.stem} {seed}", config) as (prepared, rows):
            return {one.x.key for one in rows}, {one.x.key for one in prepared.valid}

    train, valid = split(data, 1)
    assert len(valid) == 3
    assert split(turned, 1) == (train, valid)
    assert train | valid == {one.x.key for one in read_as("caption", data)[0]}
    assert not train & valid
    assert split(data, 2)[1] != valid


def test_a_photo_in_training_and_validation_is_counted(data, tmp_path):
    table, _ = written(tmp_path, 3, seed=9)
    (tmp_path / "images" / "again.png").write_bytes((data.parent / "images" / "0-4.png").read_bytes())
    with table.open("a", encoding="utf-8") as file:
        file.write("images/again.png\ta star\n")
    said = []
    found, _ = trained_on(
        "caption",
        data,
        tmp_path / "run",
        tiny(),
        valid=Source.of(table),
        on_report=lambda prepared, model: said.extend(prepared.lines()),
    )
    assert "of 4 validation images, 1 are in the training data: scores on them are too high" in said
    photos, _ = read_as("caption", table)
    assert evaluate(found, photos, beam=1).seen.tolist() == [True] * 4  # those that chose the weights count as seen


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_is_saved_and_gives_the_same_again(name, data, tmp_path):
    out = tmp_path / "run"
    found, outcome = trained_on("caption", data, out, tiny(MODELS[name]))
    assert set(outcome.scores) == {"bleu4", "perplexity"}
    again = Run.load(out)
    assert again.about["task"] == "caption"
    images = [pixels(seed) for seed in range(3)]
    found.model.requires_grad_(False)  # as a loaded one: search lays out weights that do not learn in its own way
    assert again.predict(images) == found.predict(images)
    assert {"config.json", "model.safetensors", "tokenizer.json", "card.md", "checksums.json"} <= {
        path.name for path in out.iterdir()
    }
    card = (out / "card.md").read_text(encoding="utf-8")
    assert "from images to captions" in card
    assert "tok:alnum" in card


def test_a_frozen_encoder_is_kept_in_the_run(run):
    sealed = json.loads((run / "checksums.json").read_text(encoding="utf-8"))
    assert "encoder.safetensors" in sealed
    found = Run.load(run)
    assert found.input.places == (112, 2, 2)
    read = read_images(found, pixels())
    assert read.shape == (1, 4, 112)
    rows = np.load(run / "data" / "images" / "features.npy")
    assert rows.dtype == np.float16
    assert rows.shape == (12, 4, 112)
    first = torch.from_numpy(rows[0].astype(np.float32))
    ((bad,),) = found.input.encode([run.parent.parent / "nowhere.png"])
    assert str(bad) == "there is no such file"
    assert first.shape == read[0].shape
    (run / "encoder.safetensors").rename(run / "elsewhere")
    try:
        with pytest.raises(UserError, match=r"encoder\.safetensors is missing"):
            Run.load(run)
    finally:
        (run / "elsewhere").rename(run / "encoder.safetensors")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["config"]["model"].update(size=10**5), "not .* as described"),
        (lambda data: data.update(places=[112, 9, 9]), "do not fit the encoder"),
        (lambda data: data["config"].update(max_length=-1), "max_length is -1"),
        (lambda data: data.pop("words"), "words"),
        (lambda data: data.update(task="translate"), "expected 'caption'"),
    ],
)
def test_a_strangers_folder_that_does_not_fit_together_is_refused(change, said, run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("data", "checkpoints"))
    (copied / "checksums.json").unlink()
    data = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    change(data)
    (copied / "config.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UserError, match=said):
        Run.load(copied, CAPTION)


def test_features_are_made_once_for_several_runs(data, tmp_path, monkeypatch):
    monkeypatch.setattr(efficientnet, "_load", lambda encoder: torch.manual_seed(0))
    config = tiny(encoder=EfficientNetLite0Config(size=32, level="middle"))
    told, files = [], Source.of(data, features=tmp_path / "features")
    first, _ = trained_on("caption", files, tmp_path / "first", config, on_items=lambda *state: told.append(state))
    assert told[-1][:2] == (12, 12)
    told.clear()
    second, _ = trained_on("caption", files, tmp_path / "second", config, on_items=lambda *state: told.append(state))
    assert not told
    assert second.predict([pixels()]) == first.predict([pixels()])
    for path in (tmp_path / "features").rglob("*.*"):
        path.unlink()
    more = replace(config, training=replace(config.training, steps=4))
    _, outcome = trained_on("caption", None, tmp_path / "second", more)  # the run has what it needs
    assert outcome.progress.step == 4


def test_going_on_is_the_same_as_not_stopping(data, tmp_path):
    class Stop(KeyboardInterrupt):
        pass

    def stop(event):
        if event.progress.step == 3:
            raise Stop

    whole, _ = trained_on("caption", data, tmp_path / "whole", tiny(steps=6))
    with pytest.raises(Stop):
        trained_on("caption", data, tmp_path / "parts", tiny(steps=6), on_step=stop)
    parts, outcome = trained_on("caption", None, tmp_path / "parts", tiny(steps=6))
    assert outcome.progress.step == 6
    for (name, one), other in zip(whole.model.state_dict().items(), parts.model.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


def test_a_run_goes_on_from_another_with_its_vocabulary_and_encoder(run, tmp_path):
    table, _ = written(tmp_path, 4, seed=3)
    with table.open("a", encoding="utf-8") as file:
        file.write("images/3-0.png\ta zebra\n")
    config = config_from("caption", run)
    assert config.training.learning_rate == pytest.approx(tiny().training.learning_rate / 4)
    config = replace(config, training=replace(config.training, steps=1))
    said = []
    listen = {"on_report": lambda prepared, model: said.extend(prepared.lines())}
    found, _ = trained_on("caption", table, tmp_path / "run", config, start=run, **listen)
    before = Run.load(run)
    assert found.output.tokeniser.same_as(before.output.tokeniser)
    name = "stem.conv.weight"
    assert torch.equal(found.input.encoder.state_dict()[name], before.input.encoder.state_dict()[name])
    assert any("zebra (1)" in line for line in said)
    with pytest.raises(UserError, match="another image encoder"):
        trained_on("caption", table, tmp_path / "other", tiny(), start=run)
    with pytest.raises(UserError, match="differs from that of the earlier run"):
        trained_on("caption", table, tmp_path / "other", replace(config, model=TRANSFORMER), start=run)


def test_a_trial_prepares_and_keeps_nothing_outside_its_folder(data, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = estimate(CAPTION, Source.of(data), None, tiny())
    assert len(found.prepared.corpus) == 22
    assert found.seconds > 0
    assert not list(tmp_path.iterdir())
    with prepared_as("caption", data, tmp_path / "trial", tiny()) as (prepared, _):
        model = train.build(prepared)
        run = Run(CAPTION, CAPTION.variants[0], model, prepared.input, prepared.output, prepared.config)
    lesson = TaskLesson(run, prepared)
    batch = lesson.batch(lesson.epoch(0)[0])
    assert batch[0].shape == (len(batch[1]), 16, 16, 3)
    assert lesson.tokens(batch) > 0


def test_chinese_captions_by_characters(tmp_path):
    table, made = written(tmp_path, language="zh")
    found, _ = trained_on("caption", table, tmp_path / "run", tiny(max_length=30))
    assert found.output.tokeniser.decode(found.output.tokeniser.encode([made[0].captions[0]])) == [made[0].captions[0]]
    explained = found.explain(table.parent / "images" / "0-0.png", made[0].captions[0], measure=False)
    assert explained.records[0].rows.texts[:-1] == tuple(made[0].captions[0])


def test_evaluation_leaves_out_bad_images_by_name_and_finds_the_worst(data, tmp_path):
    found = captioner()
    photos, _ = read_as("caption", data)
    broken = Example(StoredFile(str(tmp_path / "gone.png"), 1), photos[0].y)
    scored = evaluate(found, [broken, *photos[1:]], beam=2)
    assert list(scored.bad) == [str(tmp_path / "gone.png")]
    assert len(scored.predictions) == 11
    assert scored.values["perplexity"] > 1
    assert scored.seen is None
    data = json.loads(json.dumps(scored.to_json(errors=2)))
    assert data["images"] == 11
    assert "nrefs:2" in data["bleu4_no_bp"]["signature"]
    order = [row["cider_d"] for row in scored.worst(11)]
    assert order == sorted(order)
    with pytest.raises(UserError, match="no image to score"):
        evaluate(found, [broken])


def test_comparison_is_over_the_same_images(data):
    photos, _ = read_as("caption", data)
    runs = {"one": captioner(), "two": captioner(TRANSFORMER)}
    found = compare(runs, photos, metrics=["bleu1", "cider_d"], samples=50, beam=1)
    assert found.count == 12
    assert found.resampled["bleu1"]["two"].difference == pytest.approx(
        found.resampled["bleu1"]["two"].value - found.resampled["bleu1"]["one"].value
    )
    with pytest.raises(UserError, match="expected two or more"):
        compare({"one": runs["one"]}, photos)


def test_presets_have_their_sizes():
    sizes = [preset(CAPTION.variants[0], None, size).model.size for size in ("tiny", "small", "base")]
    assert sizes == sorted(sizes)
    assert preset(CAPTION.variants[0], "transformer").model.kind == "transformer"


def test_hard_attention_and_none_are_a_setting_away():
    hard = override(preset(CAPTION.variants[0]), ['model.attention.normaliser={"kind": "hard", "soft_share": 0.5}'])
    assert hard.model.attention.normaliser == HARD.attention.normaliser
    assert override(preset(CAPTION.variants[0]), ["model.attention=null"]).model.attention is None
    assert CaptionConfig.from_json(hard.to_json()) == hard
