"""A label for every cell: what is read, what is learnt, what is scored, and that no gold label reaches a prediction."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import sightline.commands.gridding as gridding
import sightline.tasks.grid as grid
from grids import cracked, write_parity, write_photos
from sightline.commands.training import resume_command
from sightline.data.checking import Limits
from sightline.data.grids import (
    CheckedGrids,
    GridFile,
    read_grids,
    read_mask,
    read_values,
)
from sightline.errors import UserError
from sightline.models.grid import Inputs
from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
from sightline.models.grid_sequential import SequentialConfig
from sightline.tasks.estimate import estimate
from sightline.tasks.grid import GridConfig, GridLesson, train_grid
from sightline.tasks.grid_data import collate, prepare_grids
from sightline.tasks.grid_presets import grid_config_to_go_on, grid_preset
from sightline.tasks.gridder import Gridder, load_gridder
from sightline.tasks.table import task_of
from sightline.trace import capture
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
        patch.setattr(grid, "draw_curves", lambda metrics, path, unit: None)
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"), 10)


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "photos"
    return train_grid(GridFile(str(photos)), out, config(36))[0]


@pytest.fixture(scope="module")
def parity(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parity")
    train = write_parity(folder / "train", 200, least=(3, 3), most=(4, 4))
    test = write_parity(folder / "test", 20, seed=1, least=(3, 3), most=(6, 6))  # and larger than any it learnt from
    found, _ = train_grid(GridFile(str(train)), folder / "run", config(80, PARITY, rate=0.05, batch=32))
    return train, test, found


def test_neighbours_are_needed_and_enough(parity):
    train, test, decoder = parity
    assert decoder.evaluate(test).values["accuracy"] >= 99
    out = train.parent / "single"
    single, _ = train_grid(GridFile(str(train)), out, config(20, SingleConfig(cell_size=16), rate=0.01, batch=32))
    assert single.evaluate(test).values["accuracy"] <= 60


def test_gold_labels_never_reach_predictions(parity, trained, photos, tmp_path):
    """Scrambled, moved and inverted gold labels leave every prediction as it was, byte by byte."""
    _, test, decoder = parity
    draw = np.random.default_rng(0)
    for gridder, table in ((decoder, test), (trained, photos)):
        cell = gridder.facts.cell or 8
        raws = list(CheckedGrids(read_grids(GridFile(str(table))), most_cells=1000, cell=cell))
        scrambled = [raw._replace(mask=draw.permuted(raw.mask, axis=0)[::-1].copy()) for raw in raws]
        assert any((a.mask != b.mask).any() for a, b in zip(raws, scrambled, strict=True))
        one, other = gridder.evaluate(raws), gridder.evaluate(scrambled)
        assert one.values["f1"] != other.values["f1"]
        for a, b in zip(one.predictions, other.predictions, strict=True):
            assert a.labels.tobytes() == b.labels.tobytes()
            assert a.chances.tobytes() == b.chances.tobytes()
            assert (a.pixels is None and b.pixels is None) or a.pixels.tobytes() == b.pixels.tobytes()


def test_cracks_are_found_and_the_run_loads_again(trained, tmp_path):
    table = write_photos(tmp_path, 4, seed=5)
    found = trained.evaluate(table)
    assert found.values["f1"] > 85
    assert found.values["average_precision"] > 90
    assert found.values["pixel_f1_5"] >= found.values["pixel_f1_2"] >= found.values["pixel_f1_0"] > 25
    assert found.seen == 0
    assert task_of(trained.run) == "grid"
    again, about = load_gridder(trained.run)
    assert about["weights"]
    assert again.facts == trained.facts
    same = again.evaluate(table)
    assert all(
        a.chances.tobytes() == b.chances.tobytes() for a, b in zip(found.predictions, same.predictions, strict=True)
    )
    card = (trained.run / "card.md").read_text(encoding="utf-8")
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
        np.testing.assert_allclose(found.chances, alone.chances, atol=1e-5)
        assert (found.labels == alone.labels).all()


def test_going_on_and_beginning_with_an_earlier_run(photos, tmp_path):
    out = tmp_path / "run"
    train_grid(GridFile(str(photos)), out, config(2))
    resume_command(out, 1, ["steps=4"], "cpu", False)
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 4
    go_on = grid_config_to_go_on(out)
    assert go_on.training.steps is None
    assert go_on.training.learning_rate == config().training.learning_rate / 4
    later = replace(go_on, training=replace(go_on.training, steps=1))
    began, _ = load_gridder(out)
    seen = []
    train_grid(
        GridFile(str(photos)),
        tmp_path / "later",
        later,
        start=out,
        on_report=lambda prepared, model: seen.append({name: one.clone() for name, one in model.state_dict().items()}),
    )
    assert all(torch.equal(one, began.model.state_dict()[name]) for name, one in seen[0].items())
    (out / "data" / "split.json").unlink()
    with pytest.raises(UserError, match="without its data"):
        resume_command(out, 1, ["steps=5"], "cpu", False)


def test_a_dry_run_keeps_nothing(photos, tmp_path):
    found = estimate(GridFile(str(photos)), None, config(10), None, task="grid")
    assert found.parameters > 1000
    assert found.seconds > 0
    assert len(found.prepared.corpus) == 8
    assert "cells to train on" in " ".join(found.prepared.lines())


def test_crops_and_turns_keep_image_and_mask_together(photos, tmp_path):
    """A made image whose dark pixels are the mask: it must stay so, however it is cut and turned."""
    prepared = prepare_grids(GridFile(str(photos)), None, config(), None, tmp_path)
    lesson = GridLesson(prepared, config())
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
    assert grid_preset().model.kind == "at_once"
    assert grid_preset("sequential", "small").model.attn_num_hidden == 192
    with pytest.raises(ValueError, match="preset is 'huge'"):
        grid_preset("single", "huge")
    assert GridConfig.loads(grid_preset("sequential").dumps()) == grid_preset("sequential")
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
    reading = CheckedGrids(read_grids(GridFile(str(table))), Limits(max_bad_share=0.5), most_cells=500, cell=8)
    kept = list(reading)
    assert len(kept) == 7
    places = "\n".join(reading.report.places)
    for reason in (
        "0.png: it is empty",
        "1.png: it is no image",
        "the mask is 20 × 20",
        "3.png: there is no such file",
    ):
        assert reason in places
    assert "4.png: it is too large" in places
    with pytest.raises(UserError, match=r"5 of 12 rows are bad"):
        train_grid(GridFile(str(table)), tmp_path / "run", config())
    assert not (tmp_path / "run").exists()
    few = CheckedGrids(read_grids(GridFile(str(photos))), Limits(max_bad_share=0.5), most_cells=4, cell=8)
    with pytest.raises(UserError, match=r"one to learn from has at most 4 \(most_cells\); cut it"):
        list(few)


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
    found, _ = train_grid(GridFile(str(folder)), tmp_path / "run", how)
    assert found.facts.names == ("0", "5", "10")
    measured = found.evaluate(folder)
    assert measured.values["f1"] > 95
    assert [one.name for one in measured.table] == ["0", "5", "10"]
    save_mask(measured.predictions[0].pixels, found.facts.values, tmp_path / "mask.png")
    assert set(np.unique(read_mask(tmp_path / "mask.png"))) <= {0, 5, 10}


def test_commands(trained, photos, parity, tmp_path, capsys, monkeypatch):
    run = trained.run
    gridding.predict_command(
        run, [photos.parent / "images" / "0.png", tmp_path / "no.png"], None, tmp_path / "out", False, None, 1
    )
    said = capsys.readouterr()
    assert "0.png\tbackground " in said.out
    assert "no.png: there is no such file" in said.err
    (found,) = trained.predict([photos.parent / "images" / "0.png"])
    mask = read_mask(tmp_path / "out" / "0.mask.png")
    assert (mask == 255 * found.pixels.astype(int)).all()
    data = json.loads((tmp_path / "out" / "0.json").read_text())
    assert data["labels"] == found.labels.tolist()
    assert read_values(tmp_path / "out" / "0.overlay.png").shape == (32, 48, 3)
    gridding.evaluate_command(run, str(photos), None, True, 1, errors=1, out=tmp_path / "rows.jsonl")
    scores = json.loads(capsys.readouterr().out)
    assert scores["images"] == scores["in_training"] == 10
    assert len(scores["errors"]) == 1
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 10
    gridding.evaluate_command(run, str(photos), None, False, 1, errors=1)
    assert "pixel f1 within 5 px" in capsys.readouterr().out
    other = tmp_path / "other"
    train_grid(GridFile(str(photos)), other, config(1))
    gridding.compare_command([other, run], str(photos), None, None, 200, 0, None, True, 1)
    row = json.loads(capsys.readouterr().out)["scores"]["f1"][str(run)]
    assert row["difference_interval"][0] <= row["difference"] <= row["difference_interval"][1]
    gridding.compare_command([other, run], str(photos), None, ["f1", "pixel_f1_2"], 50, 0, None, False, 1)
    assert "its 95 % interval" in capsys.readouterr().out
    image = photos.parent / "images" / "1.png"
    for name in ("seen.png", "seen.html", "seen.json"):
        gridding.view_command(run, [image], None, tmp_path / name, 1)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(UserError, match="was trained on 1 features"):
        gridding.view_command(parity[2].run, [image], None, tmp_path / "no.png", 1)
    with pytest.raises(UserError, match="none of the images"):
        gridding.predict_command(run, [tmp_path / "no.png"], None, None, False, None, 1)
    with pytest.raises(UserError, match="does not label cells"):
        gridding.check_train_options({}, None, "luong")
    with pytest.raises(UserError, match="--source is not an option"):
        gridding.check_train_options({"--source": "a"}, None, None)


def test_masks_with_other_values_are_said(trained, photos, tmp_path, capsys):
    """Trained on 0 and 255, scored on 0 and 1: nothing is marked in them, and that is not passed over."""
    table = write_photos(tmp_path, 2)
    gridding.evaluate_command(trained.run, str(table), None, True, 1)
    said = capsys.readouterr()
    assert "doubt" not in json.loads(said.out)
    assert not said.err
    for path in (tmp_path / "masks").iterdir():
        Image.fromarray(read_mask(path).astype(np.uint8) // 255).save(path)
    gridding.evaluate_command(trained.run, str(table), None, True, 1)
    said = capsys.readouterr()
    assert "go from 0 to 1, and all of them mean 'background'" in json.loads(said.out)["doubt"]
    assert "255 for 'marked'; expected masks with the same values" in said.err
    with pytest.raises(UserError, match="give masks with the same values"):
        train_grid(GridFile(str(photos)), tmp_path / "run", config(), valid=GridFile(str(table)))


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
        gridder = Gridder(model, trained.facts, config())
        (record,) = gridder.explain(image).records
        maps.append(record.weights)
        with torch.inference_mode(), capture(model) as trace:
            model.eval().answer(collate([read_values(image)], 8))
        steps = trace["decoder.attention"].weights[0, 0].numpy()  # the last pass: 24 steps there, 24 back
        path = np.arange(24).reshape(4, 6)
        path[1::2] = path[1::2, ::-1] if order == "snake" else path[1::2]
        np.testing.assert_allclose(record.weights[path.ravel()[::-1]], steps[24:], atol=1e-6)
    assert not np.allclose(*maps)
    (record,) = gridder.explain(image, top=3).records
    assert record.weights.places.shape == (24, 3)
    assert not Gridder(kinds.build(Inputs(8, 3, 2)), trained.facts, config()).explain(image).notes


def test_damaged_runs_are_refused(trained, tmp_path):
    import shutil

    for change in ({"cell": "8"}, {"names": ["a"]}, {"threshold": 3.0}, {"counts": [1, -1]}, {"channels": 10**9}):
        broken = tmp_path / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(trained.run, broken, ignore=shutil.ignore_patterns("data", "checkpoints", "checksums.json"))
        facts = json.loads((broken / "grid.json").read_text())
        (broken / "grid.json").write_text(json.dumps(facts | change))
        with pytest.raises(UserError, match="damaged"):
            load_gridder(broken)
