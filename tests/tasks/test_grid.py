"""A label for every cell: what is read, what is learnt, what is scored, and that no gold label reaches a prediction."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import invoke
from grid_samples import cracked, gridder, write_parity, write_photos
from runs import config_from, prepared_as, read_as, trained_on
from sightline.cli.train import preset
from sightline.data.checking import RowLimits
from sightline.data.grids import read_mask, read_values
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.inputs.grid import collate
from sightline.models.grid import Inputs
from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
from sightline.models.grid_sequential import SequentialConfig
from sightline.outputs.cells import Mask
from sightline.tasks.configs.grid import GridConfig
from sightline.tasks.dry_run import estimate
from sightline.tasks.evaluate import examples_for
from sightline.tasks.grid import GRID
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.training.loop import TrainingConfig
from sightline.view.cells import save_mask

TINY = AtOnceConfig(width=8, cell_size=16, rnn_size=4, pixel_width=8, dropout=0.0)
PARITY = SequentialConfig(
    cell_size=16, rnn_layers=0, attn_num_hidden=48, attention=None, dropout=0.0, neighbours=4, own_labels=0.0
)


def config(steps=2, model=TINY, rate=3e-3, **options):
    training = TrainingConfig(
        learning_rate=rate, warmup=10, steps=steps, validate_every=max(1, steps // 2), averaged=1, cooldown=0.3
    )
    return GridConfig(model=model, training=training, **{"cell": 8, "crop": 4, "batch": 4, **options})


@pytest.fixture(scope="module", autouse=True)
def _without_curves():
    """Drawing how training went takes longer than these trainings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sightline.view.charts.draw_curves", lambda metrics, path, unit: path)
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"), 10)


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "photos"
    return trained_on("grid", photos, out, config(36))[0]


@pytest.fixture(scope="module")
def parity(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parity")
    train = write_parity(folder / "train", 200, least=(3, 3), most=(4, 4))
    test = write_parity(folder / "test", 20, seed=1, least=(3, 3), most=(6, 6))  # and larger than any it learnt from
    found, _ = trained_on("grid", train, folder / "run", config(80, PARITY, rate=0.05, batch=32))
    return train, test, found


def test_neighbours_are_needed_and_enough(parity):
    train, test, decoder = parity
    assert decoder.evaluate(test).values["accuracy"] >= 99
    out = train.parent / "single"
    single, _ = trained_on("grid", train, out, config(20, SingleConfig(cell_size=16), rate=0.01, batch=32))
    assert single.evaluate(test).values["accuracy"] <= 60


def test_gold_labels_never_reach_predictions(parity, trained, photos, tmp_path):
    """Scrambled, moved and inverted gold labels leave every prediction as it was, byte by byte."""
    _, test, decoder = parity
    draw = np.random.default_rng(0)
    for run, table in ((decoder, test), (trained, photos)):
        examples, _ = examples_for(run, table)
        scrambled = []
        for number, (x, y) in enumerate(examples):
            mask = draw.permuted(read_mask(Path(y.path)), axis=0)[::-1].copy()
            np.save(tmp_path / f"{number}.npy", mask)
            scrambled.append(Example(x, Mask(str(tmp_path / f"{number}.npy"), int(mask.min()), int(mask.max()))))
        masks = [[read_mask(Path(one.y.path)) for one in some] for some in (examples, scrambled)]
        assert any((a != b).any() for a, b in zip(*masks, strict=True))
        one, other = run.evaluate(examples), run.evaluate(scrambled)
        assert one.values["f1"] != other.values["f1"]
        for a, b in zip(one.predictions, other.predictions, strict=True):
            assert a.labels.tobytes() == b.labels.tobytes()
            assert a.probs.tobytes() == b.probs.tobytes()
            assert (a.pixels is None and b.pixels is None) or a.pixels.tobytes() == b.pixels.tobytes()


def test_cracks_are_found_and_the_run_loads_again(trained, tmp_path):
    table = write_photos(tmp_path, 4, seed=5)
    found = trained.evaluate(table)
    assert found.values["f1"] > 85
    assert found.values["average_precision"] > 90
    assert found.values["pixel_f1_5"] >= found.values["pixel_f1_2"] >= found.values["pixel_f1_0"] > 25
    assert not found.seen.any()
    again = Run.load(trained.folder)
    assert again.task.name == "grid"
    assert again.about["weights"]
    assert again.output.facts == again.input.facts == trained.output.facts
    same = again.evaluate(table)
    assert all(a.probs.tobytes() == b.probs.tobytes() for a, b in zip(found.predictions, same.predictions, strict=True))
    card = (trained.folder / "card.md").read_text(encoding="utf-8")
    assert "within 5 px" in card
    assert "refined inside the cells" in card


def test_pixels_are_refined_inside_marked_cells_only(trained, tmp_path):
    image, _ = cracked(36, 50, 77)  # not whole cells
    (found,) = trained.predict([image])
    assert found.labels.shape == (5, 7)
    assert found.pixels.shape == (36, 50)
    cells = found.labels.repeat(8, axis=0).repeat(8, axis=1)[:36, :50]
    assert found.pixels.any()
    assert not found.pixels[cells == 0].any()
    assert found.pixels.sum() < cells.sum()
    (all_of_it,) = trained.predict([image], threshold=0.0)
    assert all_of_it.labels.all()
    with pytest.raises(UserError, match="threshold is 2"):
        trained.predict([image], threshold=2.0)


def test_a_batch_of_different_sizes_says_what_each_says_alone(trained):
    images = [cracked(height, width, 3)[0] for height, width in ((32, 48), (8, 8), (1, 1), (40, 21))]
    together = trained.predict(images)
    for image, found in zip(images, together, strict=True):
        (alone,) = trained.predict([image])
        np.testing.assert_allclose(found.probs, alone.probs, atol=1e-5)
        assert (found.labels == alone.labels).all()


def test_going_on_and_beginning_with_an_earlier_run(photos, tmp_path):
    out = tmp_path / "run"
    trained_on("grid", photos, out, config(2))
    assert invoke.run("resume", out, "--set", "steps=4", cwd=tmp_path).returncode == 0
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 4
    resume_from = config_from("grid", out)
    assert resume_from.training.steps is None
    assert resume_from.training.learning_rate == config().training.learning_rate / 4
    later = replace(resume_from, training=replace(resume_from.training, steps=1))
    began = Run.load(out)
    seen = []
    trained_on(
        "grid",
        photos,
        tmp_path / "later",
        later,
        start=out,
        on_report=lambda prepared, model: seen.append({name: one.clone() for name, one in model.state_dict().items()}),
    )
    assert all(torch.equal(one, began.model.state_dict()[name]) for name, one in seen[0].items())
    (out / "data" / "split.json").unlink()
    done = invoke.run("resume", out, "--set", "steps=5", cwd=tmp_path)
    assert done.returncode == 2
    assert "without its data" in done.stderr


def test_a_dry_run_keeps_nothing(photos, tmp_path):
    found = estimate(GRID, Source.of(photos), None, config(10))
    assert found.parameters > 1000
    assert found.seconds > 0
    assert len(found.prepared.corpus) == 8
    assert "cells to train on" in " ".join(found.prepared.lines())


def test_crops_and_turns_keep_image_and_mask_together(photos, tmp_path):
    """A made image whose dark pixels are the mask: it must stay so, however it is cut and turned."""
    with prepared_as("grid", photos, tmp_path, config()) as (prepared, _):
        lesson = prepared.output.batches(prepared, config())
    handles = lesson.epoch(3)
    assert [list(one.rows) for one in handles] == [list(one.rows) for one in lesson.epoch(3)]
    seen = set()
    for handle in handles:
        grids, gold = lesson.batch(handle)
        again, _ = lesson.batch(handle)
        assert torch.equal(grids.values, again.values)
        assert grids.values.shape[1:] == (32, 32, 3)
        dark = grids.values.float().mean(dim=-1)
        for image, mask in zip(dark, gold.pixels, strict=True):
            if (mask == 1).any():
                assert image[mask == 1].mean() < image[mask == 0].mean() - 20
        seen.add(grids.values.numpy().tobytes())
        cells = gold.pixels.reshape(-1, 4, 8, 4, 8).eq(1).any(dim=4).any(dim=2)
        assert torch.equal(cells.long(), gold.cells)
    assert len(seen) == len(handles)


def test_presets():
    (variant,) = GRID.variants
    assert preset(variant).model.kind == "at_once"
    assert preset(variant, "sequential", "small").model.attn_num_hidden == 192
    with pytest.raises(ValueError, match="preset is 'huge'"):
        preset(variant, "single", "huge")
    assert GridConfig.loads(preset(variant, "sequential").dumps()) == preset(variant, "sequential")
    with pytest.raises(ValueError, match="cell is 10"):
        GridConfig(cell=10)


def test_bad_images_are_named_and_nothing_else_is_lost(photos, tmp_path):
    table = write_photos(tmp_path, 12)
    (tmp_path / "images" / "0.png").write_bytes(b"")
    (tmp_path / "images" / "1.png").write_text("no image at all")
    Image.new("L", (20, 20)).save(tmp_path / "masks" / "2.png")
    (tmp_path / "images" / "3.png").unlink()
    header = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54, 0, 54, 40, 20_000, 20_000, 1, 24, 0, 0, 0, 0, 0, 0)
    (tmp_path / "images" / "4.png").write_bytes(header)  # what it says of itself is enough
    kept, report = read_as("grid", table, limits=RowLimits(max_bad_share=0.5))
    assert len(kept) == 7
    places = "\n".join(report.places)
    for reason in (
        "0.png: it is empty",
        "1.png: it is no image",
        "the mask is 20 × 20",
        "3.png: there is no such file",
    ):
        assert reason in places
    assert "4.png: it is too large" in places
    with pytest.raises(UserError, match=r"5 of 12 rows are bad"):
        trained_on("grid", table, tmp_path / "run", config())
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=r"one to learn from has at most 4 \(most_cells\); cut it"):
        trained_on("grid", photos, tmp_path / "run", config(most_cells=4))


def test_a_run_of_several_classes(tmp_path):
    """Three shades of grey, told by their colour: learnt, painted and written with the values of the masks."""
    folder = tmp_path / "data"
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    draw = np.random.default_rng(0)
    for number in range(8):
        mask = draw.integers(3, size=(4, 4)).repeat(8, axis=0).repeat(8, axis=1)
        image = np.repeat((40 + 90 * mask)[:, :, None], 3, axis=2) + draw.integers(-9, 9, size=(32, 32, 3))
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / "images" / f"{number}.png")
        Image.fromarray((mask * 5).astype(np.uint8)).save(folder / "masks" / f"{number}.png")
    how = config(30, SingleConfig(width=8, cell_size=16, pixel_width=4, dropout=0.0), rate=0.02, share=0.5, crop=0)
    how = replace(how, augment=False, class_weights="balanced")
    found, _ = trained_on("grid", folder, tmp_path / "run", how)
    assert found.output.facts.names == ("0", "5", "10")
    measured = found.evaluate(folder)
    assert measured.values["f1"] > 95
    assert [one.name for one in measured.extra["table"]] == ["0", "5", "10"]
    save_mask(measured.predictions[0].pixels, found.output.facts.values, tmp_path / "mask.png")
    assert set(np.unique(read_mask(tmp_path / "mask.png"))) <= {0, 5, 10}


def test_commands(trained, photos, parity, tmp_path):
    def said(*arguments, code=0):
        done = invoke.run(*arguments, "--threads", "1", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done

    run, image = trained.folder, photos.parent / "images" / "0.png"
    done = said("predict", run, "--image", image, tmp_path / "no.png", "--out", "out")
    assert "0.png\tbackground " in done.stdout
    assert "no.png: there is no such file" in done.stderr
    (found,) = trained.predict([image])
    mask = read_mask(tmp_path / "out" / "0.mask.png")
    assert (mask == 255 * found.pixels.astype(int)).all()
    data = json.loads((tmp_path / "out" / "0.json").read_text())
    assert data["labels"] == found.labels.tolist()
    assert read_values(tmp_path / "out" / "0.overlay.png").shape == (32, 48, 3)
    scores = json.loads(
        said("evaluate", run, "--data", photos, "--json", "--errors", "1", "--out", "rows.jsonl").stdout
    )
    assert scores["images"] == scores["in_training"] == 10
    assert len(scores["errors"]) == 1
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 10
    assert "pixel f1 within 5 px" in said("evaluate", run, "--data", photos, "--errors", "1").stdout
    other = tmp_path / "other"
    trained_on("grid", photos, other, config(1))
    compare = ("compare", other, run, "--data", photos)
    scored = json.loads(said(*compare, "--samples", "200", "--json").stdout)["metrics"]["f1"]
    low, high = scored["difference_interval"][str(run)]
    assert low <= scored["runs"][str(run)]["difference"] <= high
    done = said(*compare, "--metrics", "f1", "pixel_f1_2", "--samples", "50")
    assert "its 95 % interval" in done.stdout
    for name in ("seen.png", "seen.html", "seen.json"):
        said("view", run, "--image", image, "--out", name)
        assert (tmp_path / name).stat().st_size > 1000
    assert (
        "was trained on 1 features"
        in said("view", parity[2].folder, "--image", image, "--out", "no.png", code=2).stderr
    )
    assert "there is no such file" in said("predict", run, "--image", tmp_path / "no.png", code=2).stderr
    train = ("train", "grid", "--data", photos, "--out", "new", "--steps", "1")
    refused = said(*train, "--model", "luong", code=2).stderr
    assert all(name in refused for name in ("luong", "at_once", "sequential", "single"))
    assert "--source" in said(*train, "--source", "a", code=2).stderr


def test_masks_with_other_values_are_said(trained, photos, tmp_path):
    """Trained on 0 and 255, scored on 0 and 1: nothing is marked in them, and that is not passed over."""
    table = write_photos(tmp_path, 2)
    said = invoke.run("evaluate", trained.folder, "--data", table, "--json", cwd=tmp_path)
    assert "doubt" not in json.loads(said.stdout)
    assert not said.stderr
    for path in (tmp_path / "masks").iterdir():
        Image.fromarray(read_mask(path).astype(np.uint8) // 255).save(path)
    said = invoke.run("evaluate", trained.folder, "--data", table, "--json", cwd=tmp_path)
    assert "go from 0 to 1, and all of them mean 'background'" in json.loads(said.stdout)["doubt"]
    assert "255 for 'marked'; expected masks with the same values" in said.stderr
    with pytest.raises(UserError, match="give masks with the same values"):
        trained_on("grid", photos, tmp_path / "run", config(), valid=Source.of(table))


@pytest.mark.slow
def test_where_each_cell_looked(trained, photos):
    """The rows of a map are the cells in their own order, whatever the scan's."""
    image = photos.parent / "images" / "0.png"
    pictured = trained.explain(image)
    assert pictured.image.box == (0.0, 0.0, 1.0, 1.0)
    (record,) = pictured.records
    assert (record.rows.height, record.rows.width) == (4, 6)
    np.testing.assert_allclose(record.weights.sum(axis=1), 1, atol=1e-5)
    assert pictured.cells.plain == "background"
    again = type(pictured).from_json(json.loads(json.dumps(pictured.to_json())))
    assert again.cells.labels.tolist() == pictured.cells.labels.tolist()
    kinds = SequentialConfig(width=8, cell_size=8, rnn_size=4, attn_num_hidden=8, order="snake", sweeps=2)
    maps = []
    for order in ("rows", "snake"):
        torch.manual_seed(0)
        model = replace(kinds, order=order).build(Inputs(8, 3, 2))
        run = gridder(model, trained.output.facts, config())
        (record,) = run.explain(image).records
        maps.append(record.weights)
        with torch.inference_mode(), capture(model) as trace:
            model.eval().answer(collate([read_values(image)], 8))
        steps = trace["decoder.attention"].weights[0, 0].numpy()  # the last pass: 24 steps there, 24 back
        path = np.arange(24).reshape(4, 6)
        path[1::2] = path[1::2, ::-1] if order == "snake" else path[1::2]
        np.testing.assert_allclose(record.weights[path.ravel()[::-1]], steps[24:], atol=1e-6)
    assert not np.allclose(*maps)
    (record,) = run.explain(image, top=3).records
    assert record.weights.places.shape == (24, 3)
    assert not gridder(kinds.build(Inputs(8, 3, 2)), trained.output.facts, config()).explain(image).notes


def test_damaged_runs_are_refused(trained, tmp_path):
    import shutil

    for change in ({"cell": "8"}, {"names": ["a"]}, {"threshold": 3.0}, {"counts": [1, -1]}, {"channels": 10**9}):
        broken = tmp_path / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(trained.folder, broken, ignore=shutil.ignore_patterns("data", "checkpoints", "checksums.json"))
        facts = json.loads((broken / "grid.json").read_text())
        (broken / "grid.json").write_text(json.dumps(facts | change))
        with pytest.raises(UserError, match="damaged"):
            Run.load(broken)
