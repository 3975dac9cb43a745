"""Positions out: cells, scores, facts, tables and made data, training, resuming, and every verb's answer."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import sightline
from invoke import run
from sightline.attention import AdditiveConfig
from sightline.data.series_tables import is_position_source, is_vector_source
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.metrics.positions import exact_positions, position_accuracy
from sightline.models.pointer import ChosenPositions, PointerConfig
from sightline.outputs.positions import PositionFacts, PositionsOptions, PositionsOutput, read_positions
from sightline.synthetic.made import MadeData, convex_hull, sort
from sightline.tasks.configs.sequence import PositionsConfig
from sightline.tasks.registry import task_named
from sightline.tasks.task import BadValueError
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes
SMALL = PointerConfig(size=24, decoder_size=32, score=AdditiveConfig(hidden_size=24))
MADE = "made:sort:lengths=2-4:count=120"


def config(**training):
    given = {"learning_rate": 0.01, "warmup": 10, "steps": 300, "validate_every": 150, "averaged": 1, **training}
    return PositionsConfig(model=SMALL, batch_rows=32, training=TrainingConfig(**given))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sorted")
    return sightline.train(MADE, folder / "run", task="sequence", config=config()), folder


def arrays(count, length, seed=5):
    draw = np.random.default_rng(seed)
    return [draw.random((length, 1)).astype(np.float16) for _ in range(count)]


# -- cells

GOOD = {
    "text": ("3 0 2", (3, 0, 2)),
    "commas": ("3, 0,2", (3, 0, 2)),
    "brackets": ("[3, 0]", (3, 0)),
    "list": ([3, 0, 0], (3, 0, 0)),
    "array": (np.array([3, 1]), (3, 1)),
    "one": (2, (2,)),
    "whole": ([1.0, 2.0], (1, 2)),
}
BAD = {
    "outside": ("3 4", "found 4, expected 0 to 3, since the array has 4 frames"),
    "negative": ([0, -1], "found -1, expected 0 to 3"),
    "words": ("3 a", "found 'a', expected whole numbers such as 3 0 2"),
    "halves": ([0.5], "found '0.5', expected whole numbers"),
    "truth": ([True], "found 'True', expected whole numbers"),
    "nested": ([[0, 1]], "expected whole numbers"),
    "huge": ("9" * 5000, "expected whole numbers"),
    "empty": ("  ", "empty: found no positions"),
    "nothing": (None, "empty: found no positions"),
    "no list": ([], "empty: found no positions"),
    "many": ([0] * 100_001, "too many positions: found 100,001, expected at most 100,000"),
}


@pytest.mark.parametrize("case", GOOD)
def test_positions_are_read(case):
    given, expected = GOOD[case]
    assert read_positions(given, 4) == expected


@pytest.mark.parametrize("case", BAD)
def test_bad_positions_are_named(case):
    given, message = BAD[case]
    with pytest.raises(BadValueError, match=message):
        read_positions(given, 4)


def test_bad_rows_of_a_table_are_named(tmp_path):
    rows = [{"features": [[0.1], [0.5], [0.3]], "order": [0, 2, 1]} for _ in range(4)]
    rows += [{"features": [[0.1], [0.2]], "order": [0, 2]}, {"features": [[0.1], [0.2]], "order": "x"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("train", "sequence", "--data", path, "--out", "run", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert "rows.jsonl:5" in done.stderr
    assert "found 2, expected 0 to 1, since the array has 2 frames" in done.stderr


def test_longer_targets_than_allowed_are_bad():
    output = PositionsOutput(replace(config(), max_positions=2))
    with pytest.raises(BadValueError, match=r"found 3, expected at most 2 \(max_positions\)"):
        output.check((0, 1, 2), None)


# -- which data is of positions


def test_made_data_goes_to_its_variant():
    for name, positions in (("sort", True), ("convex-hull", True), ("copy", False), ("parity", False)):
        source = Source(f"made:{name}")
        assert (is_position_source(source), is_vector_source(source)) == (positions, not positions)
        variant = task_named("sequence").variant_for(source)
        assert variant.stored == ("sequence_positions" if positions else "sequence")


@pytest.mark.parametrize(
    ("row", "columns", "positions"),
    [
        ({"features": [[0.5]], "positions": [0]}, None, True),
        ({"features": [[0.5]], "Order": "0"}, None, True),
        ({"features": [[0.5]], "target": [[0.5]]}, None, False),
        ({"x": [[0.5]], "y": [0]}, ("x", "y"), True),
        ({"x": [[0.5]], "y": "0"}, ("x", "y"), True),
        ({"x": [[0.5]], "y": "a.npy"}, ("x", "y"), False),
        ({"x": [[0.5]], "y": [[0.5]]}, ("x", "y"), False),
    ],
)
def test_columns_tell_positions_from_vectors(row, columns, positions, tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(row) + "\n")
    sources = [Source(str(path), columns)] + ([Source(held=[row])] if columns is None else [])
    for source in sources:
        assert (is_position_source(source), is_vector_source(source)) == (positions, not positions)


def test_made_numbers_have_the_order_that_is_stored():
    for draw in (sort, convex_hull):
        x, _ = draw(MadeData.read("made:sort"), np.random.default_rng(0), 50, 2)
        np.testing.assert_array_equal(x, x.astype(np.float16).astype(np.float32))


# -- scores and facts


def test_scores_by_hand():
    own, true = [(0, 1, 2), (1,), (0, 1)], [(0, 2, 1), (1, 0), (0, 1)]
    assert exact_positions(own, true).score() == pytest.approx(100 / 3)
    assert position_accuracy(own, true).of_each() == pytest.approx([100 / 3, 50, 100])
    assert position_accuracy(own, true).score() == pytest.approx(100 * 4 / 7)


@pytest.mark.parametrize("damage", [{"longest": 0}, {"usual": 1.5}, {"once": 1}, {"longest": 10**9}])
def test_damaged_facts_are_refused(damage):
    facts = {"longest": 4, "usual": 2, "once": True}
    assert PositionFacts.read(facts) == PositionFacts(4, 2, True)
    with pytest.raises(ValueError, match=r"longest|usual|once"):
        PositionFacts.read({**facts, **damage})


def test_options_are_checked():
    for given, message in (({"beam": 0}, "beam is 0"), ({"beam": 1.5}, "beam is 1.5"), ({"once": 1}, "once is 1")):
        with pytest.raises(UserError, match=message):
            PositionsOptions(**given)
    with pytest.raises(ValueError, match="speeds is"):
        PositionsConfig(speeds=(0.9, 1.0))


def test_parts_of_a_long_series_keep_their_positions():
    from sightline.inputs.series import SeriesWindow

    output = PositionsOutput(config(), PositionFacts(4, 2, True))
    parts = [SeriesWindow(np.zeros((3, 1)), 0, 5), SeriesWindow(np.zeros((2, 1)), 3, 5)]
    merged = output.merge("x.npy", parts, [ChosenPositions((2, 0), -1.0, True), ChosenPositions((1,), -0.5, True)])
    assert merged == ChosenPositions((2, 0, 4), -1.5, True)


# -- a run


def test_it_learns_to_sort(trained):
    run, _ = trained
    assert run.output.facts == PositionFacts(4, run.output.facts.usual, True)
    evaluation = run.evaluate("made:sort:lengths=2-4:count=60:seed=7")
    assert evaluation.values["exact"] > 80
    assert evaluation.values["position_accuracy"] > 90
    assert evaluation.baselines["positions in their order"]["exact"] < 50
    assert set(evaluation.row(0)) >= {"target", "positions", "probability", "complete"}


def test_predictions_are_the_same_alone_and_together(trained):
    run, _ = trained
    items = [*arrays(3, 4), *arrays(3, 3, 6), *arrays(2, 1, 7)]
    for beam in (1, 3):
        together = run.predict(items, beam=beam)
        for item, prediction in zip(items, together, strict=True):
            (alone,) = run.predict([item], beam=beam)
            assert alone.positions == prediction.positions
            assert alone.probability == pytest.approx(prediction.probability, abs=1e-5)
            assert sorted({*prediction.positions}) == sorted(prediction.positions)


def test_positions_may_repeat_where_the_training_data_repeats_them(tmp_path):
    rows = [{"features": array.tolist(), "positions": [0, 0, 1]} for array in arrays(30, 2)]
    made = sightline.train(rows, tmp_path / "run", task="sequence", config=config(steps=60, validate_every=60))
    assert made.output.facts == PositionFacts(3, 3, False)
    assert made.predict(arrays(1, 2, 9))[0].positions == (0, 0, 1)
    assert made.predict(arrays(1, 2, 9), once=True)[0].positions[:2] == (0, 1)
    assert sightline.load(tmp_path / "run").output.facts == made.output.facts


def test_it_resumes_bit_for_bit_on_made_data(tmp_path):
    def stop(event):
        if event.progress.step == 3:
            raise KeyboardInterrupt

    given = config(steps=6, validate_every=2)
    sightline.train(MADE, tmp_path / "whole", task="sequence", config=given)
    with pytest.raises(KeyboardInterrupt):
        sightline.train(MADE, tmp_path / "stopped", task="sequence", config=given, on_step=stop)
    done = run("resume", tmp_path / "stopped", "--threads", torch.get_num_threads(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    whole, stopped = (sightline.load(tmp_path / name).model.state_dict() for name in ("whole", "stopped"))
    assert all(tensor.equal(stopped[name]) for name, tensor in whole.items())


def test_the_map_is_the_output(trained):
    run, folder = trained
    (item,) = arrays(1, 4, 8)
    np.save(folder / "item.npy", item)
    explanation = run.explain(folder / "item.npy")
    (record,) = explanation.records
    (prediction,) = run.predict([item])
    assert explanation.output == " ".join(map(str, prediction.positions))
    weights = record.matrix()
    assert weights.shape == (len(prediction.positions) + 1, 5)
    assert weights.argmax(axis=1).tolist() == [*prediction.positions, 4]
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
    chosen = weights[np.arange(len(weights)), [*prediction.positions, 4]]
    assert float(np.prod(chosen)) == pytest.approx(prediction.probability, rel=1e-3)
    assert {"leave_one_out", "gradient", "removal"} <= {one.key for one in explanation.belief.findings}
    assert not explanation.belief.heads


def test_the_command_line_writes_positions(trained):
    made, folder = trained
    np.save(folder / "one.npy", arrays(1, 3, 3)[0])
    (prediction,) = made.predict([folder / "one.npy"])
    text = " ".join(map(str, prediction.positions))
    done = run("predict", folder / "run", "--features", "one.npy", cwd=folder)
    assert done.stdout == f"one.npy\t{text}\n", done.stderr
    done = run("predict", folder / "run", "--features", "one.npy", "--format", "jsonl", "--beam", 2, cwd=folder)
    answered = json.loads(done.stdout)
    assert {"item", "positions", "count", "probability", "complete"} == set(answered)
    done = run("predict", folder / "run", "--input", "made:sort:lengths=3:count=2", cwd=folder)
    assert [sorted(line.split("\t")[1].split()) for line in done.stdout.splitlines()] == [["0", "1", "2"]] * 2, (
        done.stderr
    )
    done = run("predict", folder / "run", "--features", "one.npy", "--format", "npy", "--out", "x", cwd=folder)
    assert done.returncode == 2
    assert "there is text, jsonl" in done.stderr
    done = run("evaluate", folder / "run", "--data", "made:sort:count=9:lengths=6:seed=2", "--errors", 1, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "prediction" in done.stdout
    assert "positions in their order" in done.stdout
    assert "pointer" in (folder / "run" / "card.md").read_text()


def test_runs_of_positions_and_of_vectors_are_not_compared(trained):
    from sightline.outputs.vectors import TargetFacts, VectorsOutput

    made, _ = trained
    other = replace(made, output=VectorsOutput(made.config, TargetFacts((0.0,), (1.0,), 3)))
    with pytest.raises(UserError, match="gives vectors, the first run gives positions: not comparable"):
        made.compare([other], "made:sort:count=5")


def test_a_run_of_positions_is_no_start_for_vectors(trained, tmp_path):
    done = run("train", "sequence", "--data", "made:copy", "--out", "x", "--from", trained[1] / "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "gives positions, and the data has vectors: begin without --from" in done.stderr
