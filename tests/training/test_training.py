"""The training loop: it learns, stops for the right reason, and goes on exactly where it stopped."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from reversal import WORDS, Reversal, small_model
from sightline.errors import UserError
from sightline.kernels.allocator import keep_memory
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.training.checkpoint import Progress, checkpoints
from sightline.training.folder import RunFolder, average, load_tensors, save_tensors
from sightline.training.loop import TrainingConfig, rank_of, train
from sightline.training.steps import add_noise
from training_runs import CONFIG


@pytest.mark.slow
def test_it_learns_and_keeps_a_record(tmp_path):
    torch.manual_seed(0)
    model = RNNSearchConfig(24, 32, dropout=0.0).build(WORDS, WORDS)
    folder = RunFolder.create(tmp_path / "run")
    events, heard = [], []
    config = TrainingConfig(learning_rate=1e-2, warmup=20, epochs=25, validate_every=30)
    outcome = train(
        model,
        Reversal(),
        config,
        folder,
        device="cpu",
        on_step=lambda event: events.append((event.progress.step, event.loss)),
        on_scores=lambda progress, scores: heard.append(scores["exact"]),
    )
    assert outcome.scores["exact"] >= 95
    assert events[-1][0] == outcome.progress.step
    assert events[-1][1] < events[0][1] / 2
    lines = folder.metrics()
    assert [line["exact"] for line in lines] == heard
    assert {"step", "epoch", "seconds", "exact"} <= set(lines[0])
    model.load_state_dict(outcome.weights)
    assert Reversal().validate(model.eval())["exact"] == outcome.scores["exact"]


@pytest.mark.parametrize(("stop_at", "noise"), [(1, 0.0), (4, 0.0), (6, 0.0), (7, 0.01), (11, 0.0)])
def test_going_on_changes_nothing(tmp_path, stop_at, noise):
    """Interrupted anywhere, also within an epoch: every parameter equals the uninterrupted run's."""
    config = TrainingConfig(learning_rate=1e-2, warmup=5, steps=15, validate_every=6, gradient_noise=noise)
    whole = train(small_model(), Reversal(), config, RunFolder.create(tmp_path / "whole"), device="cpu")
    folder = RunFolder.create(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        train(small_model(), Reversal(stop_at), config, folder, device="cpu")
    parts = train(small_model(), Reversal(), config, folder, device="cpu")
    assert parts.progress.step == whole.progress.step == 15
    last = [load_tensors(checkpoints(tmp_path / name)[-1] / "model.safetensors") for name in ("whole", "parts")]
    for name in last[0]:
        assert torch.equal(last[0][name], last[1][name]), name


LIMITS = {
    "steps": (TrainingConfig(steps=4), "4 steps", 4),
    "epochs": (TrainingConfig(epochs=2), "2 epochs", 12),
    "patience": (
        TrainingConfig(patience=2, learning_rate=1e-9, validate_every=6),
        "no better score in 2 validations",
        18,
    ),
    "minutes": (TrainingConfig(minutes=1e-6), "1e-06 minutes", 1),
}


@pytest.mark.parametrize("case", LIMITS)
def test_it_stops_for_the_right_reason(tmp_path, case):
    config, reason, steps = LIMITS[case]
    outcome = train(small_model(), Reversal(), config, RunFolder.create(tmp_path / "run"), device="cpu")
    assert outcome.reason == reason
    assert outcome.progress.step == steps


def test_accumulation_is_a_larger_batch(tmp_path):
    """Two batches of eight at once: the same update as one of sixteen, since every token counts the same."""

    class Larger(Reversal):
        def epoch(self, number):
            parts = super().epoch(number)
            return [torch.cat(parts[i : i + 2]) for i in range(0, len(parts), 2)]

    states = []
    for name, lesson, config in (
        ("two", Reversal(), TrainingConfig(accumulate=2, steps=3)),
        ("one", Larger(), TrainingConfig(steps=3)),
    ):
        model = small_model(dropout=0.0).double()  # Adam turns the rounding of a zero gradient into a step
        train(model, lesson, config, RunFolder.create(tmp_path / name), device="cpu")
        states.append(load_tensors(checkpoints(tmp_path / name)[-1] / "model.safetensors"))
    for name in states[0]:
        torch.testing.assert_close(states[0][name], states[1][name], atol=1e-9, rtol=0)


def test_gradient_noise_is_drawn_by_the_step_and_fades():
    weights = [torch.nn.Parameter(torch.zeros(400, 50)) for _ in range(2)]

    def noise(step):
        for one in weights:
            one.grad = torch.zeros_like(one)
        add_noise(weights, 0.3, step)
        return torch.cat([one.grad.flatten() for one in weights])

    torch.testing.assert_close(noise(7), noise(7), rtol=0, atol=0)
    assert not torch.equal(noise(7), noise(8))
    for step in (0, 1000):
        assert float(noise(step).var()) == pytest.approx(0.3 / (1 + step) ** 0.55, rel=0.03)
    with pytest.raises(ValueError, match="gradient_noise is -1"):
        TrainingConfig(gradient_noise=-1)


def test_old_checkpoints_go(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    train(small_model(), Reversal(), TrainingConfig(epochs=5, averaged=2, validate_every=6), folder, device="cpu")
    assert [path.name for path in checkpoints(folder.path)] == ["step-24", "step-30"]
    assert not list(folder.path.rglob("*.part*"))


@pytest.mark.unchecked_shapes
def test_without_decay_the_rate_falls_only_at_the_end():
    config = TrainingConfig(learning_rate=1.0, warmup=100, steps=2000, decay="none", cooldown=0.5)
    assert config.rate(49) == 0.5
    assert config.rate(99) == config.rate(1000, done=0.5) == 1.0
    assert config.rate(1500, done=0.75) == 0.5
    with pytest.raises(ValueError, match="decay is 'linear'; it is root or none"):
        TrainingConfig(decay="linear")


def test_the_rate_rises_and_falls():
    config = TrainingConfig(learning_rate=1.0, warmup=100)
    assert config.rate(0) == pytest.approx(0.01)
    assert config.rate(99) == pytest.approx(1.0)
    assert config.rate(399) == pytest.approx(0.5)
    assert config.rate(399, done=0.75) == pytest.approx(0.5)
    assert config.rate(399, done=0.875) == pytest.approx(0.25)
    assert TrainingConfig.loads(config.dumps()) == config


def test_a_short_training_is_not_all_warm_up():
    config = TrainingConfig(learning_rate=1.0, warmup=1000, steps=100, cooldown=0.0)
    assert config.rate(9) == pytest.approx(1.0)
    assert TrainingConfig(learning_rate=1.0, warmup=1000, epochs=10, cooldown=0.0).rate(9, batches=10) == 1.0
    assert TrainingConfig(learning_rate=1.0, warmup=1000, epochs=10, cooldown=0.0).rate(9) == pytest.approx(0.01)
    by_the_clock = TrainingConfig(learning_rate=1.0, warmup=1000, minutes=5.0, cooldown=0.0)
    assert [by_the_clock.rate(9, done) for done in (0.0, 0.05, 0.1, 0.5)] == pytest.approx([0.01, 0.5, 1.0, 1.0])


def test_limits_and_validations_suit_the_size_of_the_data():
    config = TrainingConfig()
    assert config.limited(200).epochs == 30
    assert config.limited(3).epochs == 1000
    assert TrainingConfig(minutes=3.0).limited(3) == TrainingConfig(minutes=3.0)
    assert [config.interval(batches) for batches in (3, 500, 10_000)] == [100, 500, 2000]
    assert TrainingConfig(validate_every=7).interval(500) == 7


def test_a_diverged_training_is_said(tmp_path):
    class Diverged(Reversal):
        def loss(self, model, batch):
            return super().loss(model, batch)._replace(total=torch.tensor(float("nan"), requires_grad=True))

    config, folder = TrainingConfig(learning_rate=0.5, steps=3), RunFolder.create(tmp_path / "run")
    with pytest.raises(
        UserError, match=r"at step 1: training has diverged; choose a smaller --learning-rate than 0\.5"
    ):
        train(small_model(), Diverged(), config, folder, device="cpu")


def test_where_the_score_says_nothing_the_second_decides():
    """BLEU is 0 for every output of three words: perplexity then says which checkpoint is best."""
    assert rank_of({"bleu": 0.0, "perplexity": 3.0}) > rank_of({"bleu": 0.0, "perplexity": 4.0})
    assert rank_of({"bleu": 1.0, "perplexity": 9.0}) > rank_of({"bleu": 0.0, "perplexity": 4.0})
    assert rank_of({"bleu": 0.0}) > rank_of({"bleu": float("nan")})
    assert rank_of({"bleu": 0.0, "perplexity": 9.0}) > rank_of({"bleu": 0.0, "perplexity": float("inf")})


def test_of_error_rates_the_least_decides(tmp_path):
    """The best checkpoint of a metric of errors is that with the fewest, also when training resumes."""
    assert rank_of({"wer": 3.0, "perplexity": 9.0}) > rank_of({"wer": 4.0, "perplexity": 2.0})
    assert rank_of({"wer": 3.0, "perplexity": 2.0}) > rank_of({"wer": 3.0, "perplexity": 9.0})
    assert rank_of({"wer": 300.0}) > rank_of({"wer": float("nan")})

    class Errors(Reversal):
        rates = iter([40.0, 20.0, 30.0, 25.0, 22.0, 10.0, 50.0])

        def validate(self, model):
            return {"wer": next(self.rates)}

    folder = RunFolder.create(tmp_path / "run")
    config = TrainingConfig(steps=4, validate_every=1, averaged=1, warmup=1)
    outcome = train(small_model(), Errors(), config, folder, device="cpu")  # the fifth is that of the mean
    assert (outcome.progress.best, outcome.progress.best_step) == (20.0, 2)
    assert (outcome.scores, outcome.source) == ({"wer": 20.0}, "best checkpoint, step 2")
    resumed = train(small_model(), Errors(), replace(config, steps=5), folder, device="cpu")
    assert (resumed.progress.best, resumed.progress.best_step) == (10.0, 5)


def test_an_interrupted_run_ends_like_another(tmp_path):
    """What an interrupt saved is for going on: it is neither averaged nor does it push another one out."""
    config = TrainingConfig(learning_rate=1e-2, warmup=5, steps=15, validate_every=4, averaged=2)
    whole = train(small_model(), Reversal(), config, RunFolder.create(tmp_path / "whole"), device="cpu")
    folder = RunFolder.create(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        train(small_model(), Reversal(6), config, folder, device="cpu")
    assert [path.name for path in checkpoints(folder.path)][-1] != "step-4"
    parts = train(small_model(), Reversal(), config, folder, device="cpu")
    names = [[path.name for path in checkpoints(tmp_path / name)] for name in ("whole", "parts")]
    assert names == [["step-12", "step-15"]] * 2
    assert whole.source == parts.source
    for name, tensor in whole.weights.items():
        assert torch.equal(tensor, parts.weights[name]), name


def test_the_clock_does_not_decide_where_steps_do():
    """With the same seed the same model, however fast the machine; only without other limits the clock cools down."""
    progress = Progress(step=10, seconds=59.0)
    assert TrainingConfig(steps=100, minutes=1.0).done(progress, 5) == pytest.approx(0.1)
    assert TrainingConfig(steps=100, minutes=1.0).share(progress, 5) == pytest.approx(59 / 60)
    assert TrainingConfig(minutes=1.0).done(progress, 5) == pytest.approx(59 / 60)
    assert TrainingConfig(epochs=4).done(Progress(epoch=1, batch=3), 6) == pytest.approx(1.5 / 4)


def test_tied_tensors_are_written_once_and_come_back(tmp_path):
    model = small_model()
    save_tensors(tmp_path / "m.safetensors", dict(model.state_dict()))
    found = load_tensors(tmp_path / "m.safetensors")
    assert set(found) == set(model.state_dict())
    assert torch.equal(found["output.weight"], found["target_embedding.weight"])
    size = (tmp_path / "m.safetensors").stat().st_size
    assert size < 4 * sum(parameter.numel() for parameter in model.parameters()) + 10_000
    mean = average([found, {name: tensor + 2 for name, tensor in found.items()}])
    torch.testing.assert_close(mean["output.weight"], found["output.weight"] + 1)


def test_run_folders_refuse_what_is_not_right(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(UserError, match="there is no run folder"):
        RunFolder.open(path)
    folder = RunFolder.create(path)
    with pytest.raises(UserError, match=r"is not a run folder: it has no config.json"):
        RunFolder.open(path)
    folder.write_config({"task": "none"})
    with pytest.raises(UserError, match="holds a run already"):
        RunFolder.create(path)
    (path / "model.safetensors").write_bytes(b"1234")
    folder.seal(["config.json", "model.safetensors"])
    assert RunFolder.open(path).read_config() == {"format": 1, "task": "none"}
    (path / "model.safetensors").write_bytes(b"1235")
    with pytest.raises(UserError, match=r"model.safetensors is damaged: its checksum"):
        RunFolder.open(path)
    with pytest.raises(UserError, match=r"model.safetensors is damaged"):
        load_tensors(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model.safetensors is missing"):
        RunFolder.open(path)
    (path / "checksums.json").write_text(json.dumps({"../../x": "1"}))
    with pytest.raises(UserError, match="outside the folder"):
        RunFolder.open(path)
    folder.write_json("config.json", {"format": 99})
    with pytest.raises(UserError, match=r"newer Sightline \(format 99"):
        folder.read_config()
    (path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config.json is damaged"):
        folder.read_config()


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    from safetensors import SafetensorError

    from sightline.errors import MachineError
    from sightline.training import folder

    path = tmp_path / "m.safetensors"
    save_tensors(path, {"x": torch.ones(3)})

    def full(*arguments, **options):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(folder, "save_file", full)
    with pytest.raises(MachineError, match=r"cannot write .*m.safetensors: No space left on device"):
        save_tensors(path, {"x": torch.zeros(3)})
    assert load_tensors(path)["x"].tolist() == [1, 1, 1]
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]


def test_memory_is_kept_where_that_is_possible():
    assert keep_memory() == sys.platform.startswith("linux")


LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not LARGE_PAGES.exists(), reason="this system knows no large pages")
def test_the_heap_may_stand_in_large_pages_and_takes_no_memory_for_it():
    """Asked in a process of its own: this one's heap is in use already."""
    script = """
import re
from pathlib import Path
from sightline.kernels.allocator import keep_memory
used = lambda: int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = used()
keep_memory()
after = used()
flags = [line for line in Path("/proc/self/smaps").read_text().splitlines() if line.startswith("VmFlags")]
print(after - before, any("hg" in line.split() for line in flags))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert int(said[0]) < 16_384  # kB
    assert said[1] == "True"


@pytest.mark.parametrize(("rate", "said"), [(1e30, "no longer|and was"), (1e3, "and was")])
def test_a_loss_that_runs_away_ends_training_with_an_error(tmp_path, rate, said):
    config = replace(CONFIG, learning_rate=rate, steps=8, validate_every=4)
    with pytest.raises(UserError, match=f"({said}).*training has diverged; choose a smaller --learning-rate"):
        train(small_model(), Reversal(), config, RunFolder.create(tmp_path / "run"), device="cpu")


def test_weights_that_are_no_numbers_after_the_last_step_are_an_error(tmp_path):
    model = small_model()

    def spoil(event):
        next(model.parameters()).data.fill_(float("nan"))

    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(UserError, match="weights are no longer numbers at step 1"):
        train(model, Reversal(), replace(CONFIG, steps=1), folder, device="cpu", on_step=spoil)
