"""Sequence: vectors out of arrays and of recordings, their scores, their baselines, and where they stop."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import sightline
from invoke import run
from sightline.baselines.ridge import Ridge, around
from sightline.data.made import made_rows
from sightline.data.sound import wav_bytes
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.metrics.vectors import length_statistics, mse_statistics, r2_statistics
from sightline.models.recurrent_steps import RecurrentStepsConfig
from sightline.models.series_to_series import SeriesToSeriesConfig
from sightline.models.vector_writer import TargetShape, VectorsBatch
from sightline.nn.series import SeriesBatch, SeriesFrontConfig, SeriesShape
from sightline.outputs.vectors import TargetFacts, VectorsOutput, read_vectors
from sightline.tasks.configs.sequence import SequenceConfig
from sightline.tasks.task import BadValueError, Example
from sightline.tasks.train import TaskLesson
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes
SMALL = SeriesToSeriesConfig(
    front=SeriesFrontConfig(masking=None, centring="data"),
    size=12,
    reduces=(2,),
    embedding_size=8,
    decoder_size=16,
    dropout=0.0,
)


def walks(folder, name, count, seed):
    """Two numbers for each two steps of a walk in three."""
    rows, draw = ["features\ttarget"], np.random.default_rng(seed)
    for number in range(count):
        walk = np.cumsum(draw.normal(size=(2 * int(draw.integers(5, 12)), 3)), axis=0) / 2
        np.save(folder / f"{name}-{number}.npy", walk)
        np.save(folder / f"{name}-{number}-target.npy", np.tanh(walk[::2, :2] - walk[::2, 2:]) + 3)
        rows.append(f"{name}-{number}.npy\t{name}-{number}-target.npy")
    (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return folder / f"{name}.tsv"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walks")
    config = SequenceConfig(
        model=SMALL,
        batch_tokens=600,
        training=TrainingConfig(learning_rate=0.02, warmup=10, steps=200, validate_every=100, averaged=1),
    )
    train, valid = walks(folder, "train", 60, 1), walks(folder, "valid", 10, 2)
    return sightline.train(train, folder / "run", task="sequence", valid=valid, config=config), folder


def test_it_learns_and_stops(trained):
    run, folder = trained
    evaluation = run.evaluate(walks(folder, "test", 20, 3))
    assert evaluation.values["r2"] > 60
    assert evaluation.values["length_error"] < 20
    assert evaluation.baselines["the mean vector"]["r2"] == pytest.approx(0, abs=1e-6)
    assert "ridge regression on 5 frames to each side" in evaluation.baselines


def test_predictions_are_the_same_alone_and_together(trained):
    run, folder = trained
    paths = [folder / f"valid-{number}.npy" for number in range(6)]
    together = run.predict(paths)
    for path, prediction in zip(paths, together, strict=True):
        (alone,) = run.predict([path])
        np.testing.assert_allclose(alone.values, prediction.values, atol=1e-5)
        assert prediction.complete


def test_lengths_are_bounded(trained):
    run, folder = trained
    (fixed,) = run.predict([folder / "valid-0.npy"], min_length=30, max_length=30)
    assert fixed.values.shape == (30, 2)
    (short,) = run.predict([folder / "valid-0.npy"], max_length=2)
    assert (len(short.values), short.complete) == (2, False)
    with pytest.raises(UserError, match="min_length is '5'; it must be a whole number"):
        run.predict([folder / "valid-0.npy"], min_length="5")
    with pytest.raises(UserError, match="max_length is 2; it must be from 3 to 100,000"):
        run.predict([folder / "valid-0.npy"], min_length=3, max_length=2)


def test_long_series_are_scored_over_their_true_length(trained, monkeypatch):
    """In windows, each of which has its share of the vectors."""
    run, folder = trained
    walk = np.cumsum(np.random.default_rng(5).normal(size=(101, 3)), axis=0) / 9
    np.save(folder / "long.npy", walk)
    np.save(folder / "long-target.npy", np.tanh(walk[::2, :2] - walk[::2, 2:]) + 3)
    (folder / "long.tsv").write_text("features\ttarget\nlong.npy\tlong-target.npy\n")
    monkeypatch.setattr(type(run.input), "windows", lambda self, frames: [(0, 40), (40, 77), (77, len(frames))])
    evaluation = run.evaluate(folder / "long.tsv")
    assert len(evaluation.predictions[0].values) == 51


def test_comparing_gives_the_scores_of_evaluating(trained):
    run, folder = trained
    data = walks(folder, "compared", 8, 4)
    compared = run.compare([run], data, samples=10)
    values = run.evaluate(data).values
    for metric in ("r2", "mse", "length_error"):
        for one in compared.resampled[metric].values():
            assert one.value == pytest.approx(values[metric], rel=1e-6)


def test_runs_of_other_vectors_are_not_compared(trained):
    run, folder = trained
    other = replace(run, output=VectorsOutput(run.config, TargetFacts((0.0,), (1.0,), 3)))
    with pytest.raises(UserError, match=r"writes vectors of 1 numbers, the first run of 2: not comparable"):
        run.compare([other], folder / "valid.tsv")
    twice = tuple(2 * one for one in run.output.facts.deviation)
    scaled = replace(run, output=VectorsOutput(run.config, replace(run.output.facts, deviation=twice)))
    compared = run.compare([scaled], folder / "valid.tsv", samples=10).resampled["mse"]
    assert len({round(one.value, 9) for one in compared.values()}) == 1  # measured by the first run's deviation


def test_the_length_error_does_not_depend_on_the_batch(trained):
    """A model that never stops is far off, whatever is beside an item."""
    run, folder = trained
    model = copy.deepcopy(run.model)
    model.stop.bias.data.fill_(-30.0)
    endless = replace(run, model=model)
    data = folder / "valid.tsv"
    together = endless.evaluate(data).statistics["length_error"].of_each()
    header, *rows = data.read_text().splitlines()
    (folder / "one.tsv").write_text(f"{header}\n{rows[0]}\n")
    assert endless.evaluate(folder / "one.tsv").values["length_error"] == pytest.approx(together[0])
    assert together[0] > 60


def test_a_damaged_baseline_is_one_sentence(trained):
    run, folder = trained
    examples = [Example(folder / "valid-0.npy", np.zeros((3, 2), np.float32))]
    for damaged in ({"beside": 5, "weights": [[1.0]]}, {"beside": 5, "weights": "abc"}, {"beside": 99, "weights": []}):
        with pytest.raises((ValueError, TypeError)):
            run.output.baseline_predictions(run, examples, {"ridge": damaged})


def test_each_vector_looks_at_its_frames(trained):
    run, folder = trained
    explanation = run.explain(folder / "valid-0.npy")
    (record,) = explanation.records
    (prediction,) = run.predict([folder / "valid-0.npy"])
    assert record.matrix().shape[0] == len(prediction.values)
    np.testing.assert_allclose(record.matrix().sum(axis=1), 1, atol=1e-5)
    assert any("deviations" in one.sentence for one in explanation.belief.findings)


def test_the_command_line_writes_arrays(trained):
    _, folder = trained
    done = run(
        "predict", folder / "run", "--features", folder / "valid-0.npy", "--format", "npy", "--out", "made", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    (prediction,) = trained[0].predict([folder / "valid-0.npy"])
    np.testing.assert_allclose(np.load(folder / "made" / "valid-0.npy"), prediction.values, atol=1e-5)
    done = run(
        "predict", folder / "run", "--features", folder / "valid-0.npy", "--format", "srt", "--out", "x", cwd=folder
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_recordings_have_vectors_too(tmp_path):
    draw, rows = np.random.default_rng(0), ["audio\ttarget"]
    for number in range(12):
        samples = draw.normal(0, 0.1, 1600 + 80 * number).astype(np.float32)
        (tmp_path / f"{number}.wav").write_bytes(wav_bytes(samples, 8000))
        np.save(tmp_path / f"{number}.npy", draw.normal(size=(5, 3)))
        rows.append(f"{number}.wav\t{number}.npy")
    (tmp_path / "data.tsv").write_text("\n".join(rows) + "\n")
    settings = ["model.size=4", "model.decoder_size=4", "sound.size=6"]
    done = run(
        "train", "sequence", "--data", "data.tsv", "--out", "run", "--steps", 1, "--set", *settings, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"] == "sequence_sound"


BAD = {
    "missing": ("none.npy", "there is no file"),
    "text": ("text.npy", "it is no array"),
    "flat": (np.zeros(3), "expected vectors × numbers"),
    "empty": (np.zeros((0, 3)), "found 0 vectors"),
    "infinite": (np.full((2, 3), np.inf), "not finite"),
    "large": (np.full((2, 3), 1e20), "not finite or above 1e18"),
    "complex": (np.zeros((2, 3), complex), "expected vectors × numbers"),
    "nothing": ("", "found no text in the target"),
    "ragged": ([[1, 2], [3]], "it is no array"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_targets_are_named(case, tmp_path):
    (tmp_path / "text.npy").write_text("no array")
    given, message = BAD[case]
    with pytest.raises(BadValueError, match=message):
        read_vectors(str(tmp_path / given) if isinstance(given, str) and given else given)


def test_vectors_of_another_size_are_bad_rows(tmp_path):
    data = walks(tmp_path, "train", 30, 1)
    np.save(tmp_path / "train-7-target.npy", np.zeros((4, 5)))
    done = run("train", "sequence", "--data", data, "--out", "run", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "found vectors of 5 numbers, expected 2" in done.stdout + done.stderr


def test_the_training_data_decides_the_width(tmp_path):
    data, valid = walks(tmp_path, "train", 30, 1), walks(tmp_path, "valid", 30, 2)
    for number in range(30):
        np.save(tmp_path / f"valid-{number}-target.npy", np.zeros((4, 5)))
    done = run("train", "sequence", "--data", data, "--valid", valid, "--out", "run", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert "valid.tsv" in done.stderr
    assert "found vectors of 5 numbers, expected 2" in done.stderr


def test_targets_keep_their_precision(tmp_path):
    """Numbers that differ from the seventh digit on are no constants."""
    draw = np.random.default_rng(0)
    output, rows = VectorsOutput(SequenceConfig()), []
    for _ in range(5):
        read = read_vectors(47.3769 + 1e-3 * draw.normal(size=(20, 1)))
        rows.append(output.unpack(output.pack(read)))
    assert np.concatenate(rows).std() == pytest.approx(1e-3, rel=0.3)


@pytest.mark.parametrize(
    "damage",
    [
        {"mean": []},
        {"mean": [0.0]},
        {"deviation": [0.0, 1.0]},
        {"mean": ["a", "b"]},
        {"longest": -1},
        {"longest": 1e99},
    ],
)
def test_damaged_facts_are_refused(damage):
    facts = {"mean": [0.0, 1.0], "deviation": [1.0, 1.0], "longest": 3}
    assert TargetFacts.read(facts) == TargetFacts((0.0, 1.0), (1.0, 1.0), 3)
    with pytest.raises(ValueError, match=r"targets|longest"):
        TargetFacts.read({**facts, **damage})


def test_targets_survive_packing():
    output, values = VectorsOutput(SequenceConfig()), (np.arange(12, dtype=np.float32).reshape(4, 3) / 7 + 47)
    np.testing.assert_array_equal(output.unpack(json.loads(json.dumps(output.pack(values)))), values)


# -- the model


def batch(seed=0, lengths=(9, 6)):
    torch.manual_seed(seed)
    return SeriesBatch(torch.randn(len(lengths), max(lengths), 3), torch.tensor(lengths))


def test_the_loss_is_the_squared_error_and_that_of_the_stop():
    torch.manual_seed(0)
    model = SMALL.build(SeriesShape((3,), 0.01), TargetShape(2)).eval()
    model.standardise(torch.tensor([1.0, -2.0]), torch.tensor([2.0, 0.5]))
    source, true = batch(), torch.randn(2, 4, 2)
    loss = model.loss(source, VectorsBatch(true, torch.tensor([4, 2])))
    expected = 0.0
    for row, count in enumerate((4, 2)):
        own = (true[row : row + 1, :count] - torch.tensor([1.0, -2.0])) / torch.tensor([2.0, 0.5])
        frames = int(source.lengths[row])
        state = model.begin(SeriesBatch(source.values[row : row + 1, :frames], source.lengths[row : row + 1]))
        last = torch.zeros(1, 1, 2)
        for place in range(count):
            features, state = model.decode(last, state)
            expected += (model.output(features)[0, 0] - own[0, place]).square().mean()
            stop = torch.tensor([[[float(place == count - 1)]]])
            expected += F.binary_cross_entropy_with_logits(model.stop(features), stop)
            last = own[:, place : place + 1]
    assert loss.tokens == 6
    assert float(loss.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert sum(loss.parts.values()) == pytest.approx(float(loss.total.detach()), rel=1e-5)


def test_dropped_vectors_are_not_seen():
    torch.manual_seed(0)
    config = SeriesToSeriesConfig(**{**vars(SMALL), "dropped": 1.0})
    model = config.build(SeriesShape((3,), 0.01), TargetShape(2)).train()
    source, true = batch(), torch.randn(2, 4, 2, requires_grad=True)
    state = model.begin(source)
    features, _ = model.decode(model._before(true), state)
    features.sum().backward()
    assert true.grad is None or not true.grad.any()
    seen, _ = model.eval().decode(true.detach(), model.begin(source))  # and it does not see its own
    torch.testing.assert_close(seen, model.decode(torch.zeros(2, 4, 2), model.begin(source))[0])
    before = model.eval()._before(true.detach())
    torch.testing.assert_close(before, F.pad(true.detach(), (0, 0, 1, 0))[:, :-1])


def test_it_stops_at_the_median_of_the_length():
    torch.manual_seed(0)
    model = SMALL.build(SeriesShape((3,), 0.01), TargetShape(2)).eval()
    torch.nn.init.zeros_(model.stop.weight)
    torch.nn.init.constant_(model.stop.bias, float(np.log(0.2 / 0.8)))  # a fifth at each: below a half after the fourth
    made = model.generate(batch(), most=20)
    assert made.stops.tolist() == [4, 4]
    assert made.values.shape[1] == 4
    model.stop.bias.data.fill_(-20.0)
    endless = model.generate(batch(), most=7)
    assert endless.values.shape[1] == 7
    assert endless.stops.tolist() == [8, 8]  # more than there are: not yet


def test_what_it_writes_again_is_what_it_wrote():
    torch.manual_seed(0)
    model = SMALL.build(SeriesShape((3,), 0.01), TargetShape(2)).eval()
    model.standardise(torch.tensor([1.0, -2.0]), torch.tensor([2.0, 0.5]))
    made = model.generate(batch(), most=6, least=6)
    again = model.again(model.annotate(batch()), made.values)
    torch.testing.assert_close(again * model.target_deviation + model.target_mean, made.values, atol=1e-5, rtol=1e-5)


# -- scores and baselines


def test_scores_by_hand():
    true = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])]
    own = [np.array([[1.0, 1.0], [3.0, 4.0]]), np.array([[0.0, 2.0]])]
    mean, deviation = np.array([1.0, 1.0]), np.array([1.0, 2.0])
    around_mean = (0 + 1) + (4 + 9) + (1 + 1)
    assert r2_statistics(own, true, mean, deviation).score() == pytest.approx(100 * (1 - 5 / around_mean))
    assert r2_statistics([np.tile(mean, (2, 1)), mean[None]], true, mean, deviation).score() == pytest.approx(0)
    constant = r2_statistics([mean[None] + 1], [mean[None]], mean, deviation)  # of no variance: bad, and finite
    assert -1e9 < constant.score() < -100
    assert mse_statistics(own, true, deviation).score() == pytest.approx((1 / 4 / 2 + 1 / 2) / 3)
    assert length_statistics([3, 1], [2, 1]).score() == pytest.approx(100 / 3)


def test_ridge_regression_has_the_frames_around_each_place():
    frames = np.arange(10.0)[:, None]
    np.testing.assert_array_equal(around(frames, 5, 1), [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8], [8, 9, 9]])
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(11 * 2 + 1, 3))
    pairs = []
    for _ in range(60):
        x = draw.normal(size=(20, 2))
        pairs.append((x, around(x, 10) @ weights[:-1] + weights[-1]))
    fitted = Ridge.fit(pairs)
    np.testing.assert_allclose(fitted.predict(*((pairs[0][0]), 10)), pairs[0][1], atol=0.05)
    assert Ridge.fit([]) is None
    assert Ridge.fit([(np.zeros((3, 5000)), np.zeros((3, 1)))]) is None  # too wide
    wide = Ridge.fit([(draw.normal(size=(9, 1000)), draw.normal(size=(4, 1)))] * 3)
    assert wide.beside == 1


def test_ridge_regression_minds_no_scale():
    draw, pairs = np.random.default_rng(1), []
    for _ in range(40):
        x = draw.normal(size=(20, 4)) * (1, 1, 1, 1000) + (0, 0, 0, 10_000)
        pairs.append((x, x[::2, :1] - x[::2, 1:2] + 3))
    fitted = Ridge.fit(pairs)
    x, y = pairs[0]
    assert np.square(fitted.predict(x, 10) - y).mean() < 0.01 * y.var()
    again = Ridge.from_json(json.loads(json.dumps(fitted.to_json())), 4, 1)
    np.testing.assert_allclose(again.predict(x, 10), fitted.predict(x, 10), rtol=1e-4, atol=1e-2)


def test_a_run_of_arrays_is_no_start_for_recordings(tmp_path, trained):
    (tmp_path / "0.wav").write_bytes(wav_bytes(np.zeros(800, np.float32), 8000))
    (tmp_path / "data.tsv").write_text("audio\ttarget\n0.wav\t0.npy\n")
    done = run("train", "sequence", "--data", "data.tsv", "--out", "run", "--from", trained[1] / "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "reads arrays, and the data is of recordings: begin without --from" in done.stderr


# -- bits, made data, numbers in rows


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine that has learnt to copy two vectors of two bits."""
    folder = tmp_path_factory.mktemp("machine")
    options = ["--data", "made:copy:width=2", "--lengths", "1-2", "--count", "300", "--model", "ntm", "--steps", "250"]
    options += ["--set", "model.slots=6", "model.width=6", "model.size=24", "batch_rows=32", "training.warmup=20"]
    options += ["training.learning_rate=0.02", "training.validate_every=125", "--threads", "1"]
    done = run("train", "sequence", "--out", str(folder / "run"), *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_machine_learns_made_bits(machine):
    done = run(
        "evaluate",
        str(machine),
        "--data",
        "made:copy:width=2",
        "--lengths",
        "1-2",
        "--count",
        "60",
        "--json",
        cwd=machine.parent,
    )
    scores = json.loads(done.stdout)
    assert scores["exact"] > 90
    assert scores["bit_error"] < 0.3
    assert "the more frequent bits" in scores["baselines"]
    loaded = sightline.load(machine)
    assert loaded.config.made == "copy:lengths=1-2:width=2"
    assert loaded.config.model.answers == "after"
    assert loaded.config.metric == "bit_error"
    x = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    (made,) = loaded.predict([x])
    assert made.values.tolist() == [[1, 0], [0, 1]]


def test_made_items_are_predicted_and_viewed(machine, tmp_path):
    """By their name, without a file; they are those that are scored, and a view without ``count`` takes the first."""
    name, both = "made:copy:width=2:lengths=2", ("--format", "jsonl", "--min-length", "2", "--max-length", "2")
    done = run("predict", str(machine), "--input", f"{name}:count=4", *both, cwd=tmp_path)
    made = [json.loads(line) for line in done.stdout.splitlines()]
    scored = list(made_rows(Source(name, options={"scored": True, "count": 4})))
    assert [np.asarray(one["vectors"]).shape[1] for one in made] == [2] * 4, done.stderr
    right = [one["vectors"] == row.values[1].tolist() for one, row in zip(made, scored, strict=True)]
    assert sum(right) >= 3
    seen = run("view", str(machine), "--input", name, "--quick", "--out", "seen.json", cwd=tmp_path)
    assert seen.returncode == 0, seen.stderr
    assert json.loads((tmp_path / "seen.json").read_text())["input"] == "made:copy:1"
    long = "made:copy:width=2:lengths=3001:count=2"  # longer than data to score may be
    options = ("--max-length", "1", "--format", "npy", "--out", "made")
    done = run("predict", str(machine), "--input", long, *options, cwd=tmp_path)
    assert not done.returncode, done.stderr
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["made-copy-1.npy", "made-copy-2.npy"]
    np.save(tmp_path / "one.npy", scored[0].values[0])
    for command, message in (
        (["predict", "--input", "made:nothing"], "there is no made data 'nothing'"),
        (["predict", "--input", name, "--features", "one.npy"], f"give --input {name} or --features, not both"),
        (["predict", "--input", "made:tables"], "does not read made:tables; it reads made:copy, made:repeat-copy"),
        (["predict", "--input", "made:copy"], " was trained on made:copy:lengths=1-2:width=2"),
        (["predict", "--input", name, "--encoding", "latin-1"], f"give --input {name} or --encoding, not both"),
        (["view", "--input", "made:sort", "--out", "no.png"], "made:sort: its frames are 1, and the model reads 3"),
    ):
        wrong = run(command[0], str(machine), *command[1:], cwd=tmp_path)
        assert wrong.returncode == 2
        assert message in wrong.stderr.strip().splitlines()[-1]


def test_a_machine_that_answers_each_frame_answers_all_of_them(tmp_path):
    """However much longer an item is than those of training."""
    options = ["--data", "made:dynamic-ngrams", "--lengths", "5", "--count", "60", "--model", "lstm", "--steps", "2"]
    sets = ["--threads", "1", "--set", "model.size=8", "batch_rows=16"]
    done = run("train", "sequence", "--out", str(tmp_path / "run"), *options, *sets, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one is written at each frame (--set model.answers=after: behind all of them)" in done.stdout
    loaded = sightline.load(tmp_path / "run")
    long, short = np.zeros((40, 1), np.float32), np.zeros((3, 1), np.float32)
    assert [len(one.values) for one in loaded.predict([long, short])] == [40, 3]
    assert [one.complete for one in loaded.predict([long, short])] == [True, True]
    assert [len(one.values) for one in loaded.predict([long], max_length=7)] == [7]


def test_a_dry_run_tries_the_longest_made_sequences(tmp_path):
    options = ["--data", "made:repeat-copy", "--lengths", "1-4", "--repeats", "1-3", "--count", "60", "--model", "lstm"]
    sets = ["--threads", "1", "--steps", "2", "--set", "model.size=8", "batch_rows=4"]
    assert not run("train", "sequence", "--out", str(tmp_path / "run"), *options, *sets, cwd=tmp_path).returncode
    loaded = sightline.load(tmp_path / "run")
    lesson = TaskLesson(loaded, reopened_data(loaded))
    source, target = lesson.batch(lesson.longest(lesson.epoch(0)))
    assert source.lengths.tolist() == [5] * 4  # and a mark
    assert target.lengths.tolist() == [12] * 4


def test_a_resumed_machine_draws_the_same_batches(machine, tmp_path):
    """Trained in two parts, it is what it is trained in one."""
    options = ["--data", "made:copy:width=2:lengths=1-2", "--count", "120", "--model", "ntm", "--threads", "1"]
    sets = ["--set", "model.slots=4", "model.width=3", "model.size=8", "batch_rows=16", "training.validate_every=10"]
    for name, steps in (("whole", "30"), ("parts", "20")):
        done = run("train", "sequence", "--out", str(tmp_path / name), *options, "--steps", steps, *sets, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    batches = []
    for name in ("whole", "parts"):
        loaded = sightline.load(tmp_path / name)
        prepared = reopened_data(loaded)
        batches.append(loaded.output.batches(prepared, loaded.config))
    first, second = (one.batch(one.epoch(3)[1]) for one in batches)
    assert torch.equal(first[0].values, second[0].values)
    assert torch.equal(first[1].values, second[1].values)
    other = batches[0].batch(batches[0].epoch(3)[2])
    assert other[0].values.shape != first[0].values.shape or not torch.equal(other[0].values, first[0].values)


def reopened_data(loaded):
    from sightline.tasks.prepare import Setting, reopened

    setting = Setting(loaded.task, loaded.variant, loaded.config, loaded.folder / "data", loaded.task.limits())
    return reopened(setting, loaded.input, loaded.output)


def test_numbers_may_stand_in_the_rows(tmp_path):
    draw = np.random.default_rng(0)
    rows = [{"features": (x := draw.integers(0, 2, (4, 3))).tolist(), "target": x[:, :1].tolist()} for _ in range(80)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    config = SequenceConfig(
        model=RecurrentStepsConfig(size=12),
        batch_rows=8,
        training=TrainingConfig(learning_rate=0.02, warmup=5, steps=80, averaged=1),
    )
    made = sightline.train(tmp_path / "rows.jsonl", tmp_path / "run", task="sequence", config=config)
    assert made.config.model.answers == "each"
    (prediction,) = made.predict([np.array(rows[0]["features"], np.float32)])
    assert prediction.values.tolist() == rows[0]["target"]
    held = sightline.train(rows, tmp_path / "held", task="sequence", config=replace(config, seed=0))
    assert held.evaluate(rows[:10]).values["exact"] == made.evaluate(tmp_path / "rows.jsonl").values["exact"] == 100

    wide = {"features": [[1, 0, 0, 1]]}
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (rows[0], wide, rows[0], rows[1])))
    asked = run("predict", str(tmp_path / "run"), "--input", "some.jsonl", cwd=tmp_path)
    expected = [" ".join(f"{one[0]}" for one in row["target"]) for row in (rows[0], rows[0], rows[1])]
    lines = [
        f"some.jsonl:{line}\t{text}" for line, text in zip((1, 2, 3, 4), [expected[0], "", *expected[1:]], strict=True)
    ]
    assert asked.stdout.splitlines() == lines
    assert "some.jsonl:2: its frames are 4, and the model reads 3" in asked.stderr
    (tmp_path / "empty.jsonl").write_text('{"features": null}\n' + json.dumps(rows[0]) + "\n")
    refused = run("predict", str(tmp_path / "run"), "--input", "empty.jsonl", cwd=tmp_path)
    assert refused.returncode == 2
    assert "empty.jsonl:1: empty: found null in the array, expected a path or lists of numbers" in refused.stderr


def test_a_null_in_the_first_row_is_a_bad_row(tmp_path):
    rows = [{"features": None, "target": None}] + [{"features": [[n, 1]], "target": [[n % 2]]} for n in range(60)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    report = sightline.train(tmp_path / "rows.jsonl", tmp_path / "run", task="sequence", steps=1, model="lstm")
    assert len(report.evaluate(tmp_path / "rows.jsonl").examples) == 60


def test_targets_that_are_too_long_name_their_limit(tmp_path):
    rows = [{"features": [[n, 1]], "target": [[n % 2]] * (1 if n % 2 else 9)} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    options = ["--model", "lstm", "--steps", "1", "--set", "max_vectors=8"]
    done = run("train", "sequence", "--data", "rows.jsonl", "--out", "run", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert "or raise max_vectors (--set max_vectors=N), because most are too long" in done.stderr
    assert "max-characters" not in done.stderr


def test_a_run_of_bits_goes_on_with_bits_alone(machine, tmp_path):
    rows = [{"features": [[1, 0, 0], [0, 0, n]], "target": [[n / 7, 0.5]]} for n in range(30)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    done = run("train", "sequence", "--data", "rows.jsonl", "--from", str(machine), "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "writes bits, and the data has other numbers" in done.stderr


def test_made_data_to_score_differs_by_every_seed():
    for seed in (0, 1, 3):
        source = Source(f"made:copy:lengths=9:count=20:seed={seed}")
        trained, scored = (list(made_rows(replace(source, options=one))) for one in ({}, {"scored": True}))
        assert not any(np.array_equal(one.values[0], two.values[0]) for one, two in zip(trained, scored, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "made:nothing"], "there is no made data 'nothing'"),
        (["--data", "made:copy", "--lengths", "0"], "lengths is '0'; expected numbers from 1"),
        (
            ["--data", "made:copy", "--metric", "r2"],
            "metric is r2; of these bits it is one of bit_error, exact, length_error",
        ),
        (["--data", "made:copy", "--model", "ntm", "--set", "model.answers=each"], "set answers=after"),
        (["--data", "made:dynamic-ngrams:lengths=5", "--metric", "length_error"], "it is one of bit_error, exact"),
        (
            ["--data", "made:copy", "--repeats", "2"],
            "repeats is an option of made:repeat-copy alone; made:copy has none",
        ),
        (["--data", "made:addition", "--width", "18"], "width is 18; of made:addition it is at most 17"),
        (["--data", "made:trees", "--lengths", "99"], "lengths is 99; of made:trees it is at most 50"),
        (["--data", "rows.tsv", "--lengths", "4"], "--lengths is for made data, such as --data made:copy"),
        (["--data", "made:sort", "--model", "ntm"], "--model ntm is for other data; here it is one of pointer"),
    ],
)
def test_wrong_options_of_made_data_are_one_sentence(options, message, tmp_path):
    (tmp_path / "rows.tsv").write_text("features\ttarget\n")
    done = run("train", "sequence", "--out", str(tmp_path / "run"), "--count", "20", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "config.json").exists()


def test_an_empty_file_is_called_empty(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    done = run("train", "sequence", "--data", "empty.jsonl", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "sequence cannot read empty.jsonl, which is empty; expected a table" in done.stderr
    assert not (tmp_path / "run").exists()


def test_symbols_for_symbols(tmp_path):
    done = run(
        *("train", "sequence", "--data", "made:trees", "--lengths", "3-5", "--count", "80", "--model", "grammar"),
        *("--set", "model.size=16", "model.encoder_size=16", "model.embedding_size=16", "--steps", "4"),
        *("--out", str(tmp_path / "run")),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert sightline.load(tmp_path / "run").config.metric == "exact"
    scored = run(
        "evaluate",
        str(tmp_path / "run"),
        "--data",
        "made:trees",
        "--lengths",
        "3-5",
        "--count",
        "5",
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(scored.stdout)["pairs"] == 5
