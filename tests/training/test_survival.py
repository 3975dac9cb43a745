"""Runs survive: killed, interrupted, terminated, damaged, on a full disk, in several processes."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from reversal import Reversal, small_model
from sightline.errors import MachineError, UserError
from sightline.training.checkpoint import checkpoints, read_progress
from sightline.training.folder import METRICS, RunFolder
from sightline.training.loop import TrainingConfig, train
from sightline.training.stopping import Terminated
from training_runs import CONFIG, assert_equal, last_state, whole  # noqa: F401 - pytest finds the fixtures here

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard():
    """A shell that runs the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stopped_by(number, folder, step, **options):
    """Train until a signal comes behind a step."""

    def on_step(event):
        if event.progress.step == step:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt) as caught:
        train(small_model(), Reversal(), CONFIG, folder, device="cpu", on_step=on_step, **options)
    return caught.value


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_saves_and_going_on_changes_nothing(tmp_path, whole, number, error):
    folder = RunFolder.create(tmp_path / "run")
    before = signal.getsignal(number)
    assert type(stopped_by(number, folder, 6)) is error
    assert signal.getsignal(number) is before
    assert read_progress(checkpoints(folder.path)[-1]).step == 7  # the signal is heard between steps
    train(small_model(), Reversal(), CONFIG, folder, device="cpu")
    assert_equal(last_state(folder), last_state(whole[0]))


def test_a_signal_within_a_validation_loses_nothing(tmp_path, whole):
    """The validation is made when training goes on, its line is written once, and the run ends like another."""

    class Interrupted(Reversal):
        def validate(self, model):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)  # the signal is heard at once
            raise AssertionError

    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(small_model(), Interrupted(), CONFIG, folder, device="cpu")
    assert read_progress(checkpoints(folder.path)[-1]).pending
    outcome = train(small_model(), Reversal(), CONFIG, folder, device="cpu")
    assert [line["step"] for line in folder.metrics()] == [4, 8, 12, 15]
    assert outcome.source == whole[1].source
    assert_equal(outcome.weights, whole[1].weights)


@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json"])
@pytest.mark.parametrize("how", ["a byte", "cut", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, whole, name, how):
    path = tmp_path / "run"
    shutil.copytree(whole[0].path, path)
    folder, damaged = RunFolder(path), checkpoints(path)[-1] / name
    content = bytearray(damaged.read_bytes())
    if how == "missing":
        damaged.unlink()
    else:
        content[len(content) // 2] ^= 0x55
        damaged.write_bytes(content if how == "a byte" else content[: len(content) // 2])
    remarks = []
    train(small_model(), Reversal(), CONFIG, folder, device="cpu", on_remark=remarks.append)
    if (name, how) != ("state.json", "missing"):  # without it there is no checkpoint
        (remark,) = remarks
        assert "step-15" in remark
        assert remark.endswith("resuming from the checkpoint before it")
    assert_equal(last_state(folder), last_state(whole[0]))
    assert [line["step"] for line in folder.metrics()] == [4, 8, 12, 15]


def test_where_every_checkpoint_is_damaged_it_is_said(tmp_path, whole):
    path = tmp_path / "run"
    shutil.copytree(whole[0].path, path)
    for one in checkpoints(path):
        (one / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="there is none before it"):
        train(small_model(), Reversal(), CONFIG, RunFolder(path), device="cpu", on_remark=lambda text: None)


def test_what_a_killed_process_left_half_written_goes(tmp_path, whole):
    path = tmp_path / "run"
    shutil.copytree(whole[0].path, path)
    (path / ".model.77.part.safetensors").write_bytes(b"half")
    half = path / "checkpoints" / ".step-20.77.part"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    with (path / METRICS).open("a") as file:
        file.write('{"step": 19, "loss": 0.')
    config = TrainingConfig(learning_rate=1e-2, warmup=5, steps=18, validate_every=4)
    folder = RunFolder(path)
    train(small_model(), Reversal(), config, folder, device="cpu")
    assert not list(path.rglob("*.part*"))
    assert [json.loads(line)["step"] for line in (path / METRICS).read_text().splitlines()] == [4, 8, 12, 15, 16, 18]


def test_between_validations_too_a_killed_process_loses_little(tmp_path, whole):
    """Checkpoints by the clock: only the newest is there, and neither the end nor the mean of a run changes."""
    config = TrainingConfig(**{**vars(CONFIG), "save_minutes": 1e-9})
    folder, seen = RunFolder.create(tmp_path / "run"), []

    def on_step(event):
        seen.append([path.name for path in checkpoints(folder.path)])

    outcome = train(small_model(), Reversal(), config, folder, device="cpu", on_step=on_step)
    assert seen[2] == ["step-2"]
    assert seen[6] == ["step-4", "step-6"]
    assert_equal(outcome.weights, whole[1].weights)


def test_two_trainings_of_one_run_are_refused(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    with folder.locked(), pytest.raises(UserError, match="another process is training"):
        train(small_model(), Reversal(), CONFIG, folder, device="cpu")


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, whole):
    """A limit on the size of files stands in for the disk's: writing fails in the middle."""
    folder = RunFolder.create(tmp_path / "run")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_step(event):
        if event.progress.step == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))

    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(MachineError, match="cannot write"):
            train(small_model(), Reversal(), CONFIG, folder, device="cpu", on_step=on_step)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [path.name for path in checkpoints(folder.path)] == ["step-4"]
    assert not list(folder.path.rglob("*.part*"))
    train(small_model(), Reversal(), CONFIG, folder, device="cpu")
    assert_equal(last_state(folder), last_state(whole[0]))


TWO = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sightline.training.folder import RunFolder
from sightline.training.loop import OtherRank, TrainingConfig, train
from reversal import Reversal, small_model
config = TrainingConfig(learning_rate=1e-2, warmup=5, steps=100, validate_every=50)
model = small_model(dropout=0.0).double()
try:
    train(model, Reversal(), config, RunFolder(Path(sys.argv[2])), device="cpu")
except OtherRank:
    pass
"""


@pytest.mark.long
def test_two_processes_do_what_one_does_with_two_batches(tmp_path):
    """In float64 and without dropout, over 100 steps. Six batches an epoch: each is some process's, once."""
    config = TrainingConfig(learning_rate=1e-2, warmup=5, steps=100, validate_every=50, accumulate=2)
    one = RunFolder.create(tmp_path / "one")
    train(small_model(dropout=0.0).double(), Reversal(), config, one, device="cpu")
    two = RunFolder.create(tmp_path / "two")
    line = [sys.executable, "-c", TWO, str(Path(__file__).parents[1] / "helpers"), str(two.path)]
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + os.getpid() % 1000), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(line, env={**os.environ, **places, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
    states = [last_state(folder) for folder in (one, two)]
    for name, tensor in states[0].items():
        if not name.startswith("torch_random"):
            torch.testing.assert_close(tensor, states[1][name], atol=1e-8, rtol=0)
    assert read_progress(checkpoints(two.path)[-1]).tokens == read_progress(checkpoints(one.path)[-1]).tokens


def test_data_that_was_half_prepared_when_killed_is_prepared_anew(tmp_path):
    """Nothing has to be cleared away by hand; a folder of the user's own is never touched."""
    with RunFolder.creating(tmp_path / "run") as folder:
        (folder.path / "data").mkdir()
    copy = shutil.copytree(folder.path, tmp_path / "killed")
    folder.write_config({})
    assert not list(folder.path.glob(".*"))
    with RunFolder.creating(copy) as again:
        assert not (again.path / "data").exists()
    own = tmp_path / "own" / "data"
    own.mkdir(parents=True)
    (own / "pairs.tsv").write_text("mine")
    with pytest.raises(UserError, match="has a folder 'data' already"), RunFolder.creating(own.parent):
        raise AssertionError
    assert (own / "pairs.tsv").read_text() == "mine"
