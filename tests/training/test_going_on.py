"""What a run goes on from when something was lost or changed: moments, files, batches, processes."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sightline.tasks.train as train_module
import sightline.training.folder as folder_module
import sightline.training.loop as loop
from invoke import run
from reversal import Reversal, small_model
from sightline.data.spool import Spool
from sightline.errors import MachineError, UserError
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training import ranks
from sightline.training.checkpoint import STATE, _digest, checkpoints, read_progress, save_checkpoint, verify_checkpoint
from sightline.training.folder import MODEL, RunFolder
from sightline.training.loop import TrainingConfig, train
from sightline.training.stopping import Terminated
from training_runs import CONFIG, assert_equal, last_state, whole  # noqa: F401 - a fixture

pytestmark = pytest.mark.unchecked_shapes


class Killed(BaseException):
    """As if the process were gone: nothing is done about it."""


@pytest.mark.parametrize("moment", ["before the checkpoint", "while it takes the place of another"])
def test_killed_at_the_first_validation_a_run_begins_with_its_first_weights(tmp_path, whole, moment, monkeypatch):
    """The best weights are on the disk, the checkpoint is not: they must not be taken for what the run began with."""
    folder = RunFolder.create(tmp_path / "run")

    def killed(path, model, optimiser, progress, keep, interrupted=False):
        if progress.step and not interrupted:
            raise Killed
        return save_checkpoint(path, model, optimiser, progress, keep, interrupted)

    rename = Path.rename

    def killed_between(self, target):
        if self.name.endswith(".part") and Path(target).name == "step-4" and (folder.path / MODEL).exists():
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patched:
        if moment == "before the checkpoint":
            patched.setattr(loop, "save_checkpoint", killed)
        else:  # a checkpoint of the same step stands there, which a signal wrote before its validation
            patched.setattr(Path, "rename", killed_between)
            patched.setattr(loop._Loop, "validate", _saving_first(loop._Loop.validate))
        with pytest.raises(Killed):
            train(small_model(), Reversal(), CONFIG, folder, device="cpu")
    assert (folder.path / MODEL).exists()
    train(small_model(), Reversal(), CONFIG, folder, device="cpu")
    assert_equal(last_state(folder), last_state(whole[0]))
    assert [line["step"] for line in folder.metrics()] == [4, 8, 12, 15]
    assert not list((folder.path / "checkpoints").glob(".*"))


def _saving_first(validate):
    def saving(self, stopping):
        self.save(interrupted=True)
        validate(self, stopping)

    return saving


def test_a_damaged_older_checkpoint_is_left_out_of_the_mean(tmp_path, whole):
    path = shutil.copytree(whole[0].path, tmp_path / "run")
    model = checkpoints(path)[0] / MODEL
    content = bytearray(model.read_bytes())
    content[-3] ^= 0x55
    model.write_bytes(content)
    remarks = []
    outcome = train(small_model(), Reversal(), CONFIG, RunFolder(path), device="cpu", on_remark=remarks.append)
    (remark,) = remarks
    assert str(model) in remark
    assert remark.endswith("the mean of the last checkpoints is without it")
    assert outcome.source in ("mean of the last 2 checkpoints", whole[1].source)


@pytest.mark.parametrize("errno_", [errno.EIO, errno.EACCES, errno.EMFILE])
def test_a_disk_that_cannot_be_read_now_is_not_taken_for_damage(tmp_path, whole, monkeypatch, errno_):
    """The checkpoint may be good: it is neither passed over nor cleared away."""
    path = shutil.copytree(whole[0].path, tmp_path / "run")
    before = sorted(str(file) for file in path.rglob("*"))
    last = checkpoints(path)[-1] / MODEL
    real = folder_module.checksum

    def failing(file):
        if file == last.resolve():
            raise OSError(errno_, "not now", str(file))
        return real(file)

    monkeypatch.setattr(folder_module, "checksum", failing)
    with pytest.raises(OSError, match="not now"):
        train(small_model(), Reversal(), CONFIG, RunFolder(path), device="cpu", on_remark=lambda text: None)
    assert sorted(str(file) for file in path.rglob("*")) == before


def test_weights_of_a_checkpoint_may_lie_on_another_disk(tmp_path, whole):
    path = shutil.copytree(whole[0].path, tmp_path / "run")
    last = checkpoints(path)[-1] / MODEL
    shutil.move(last, tmp_path / "elsewhere")
    last.symlink_to(tmp_path / "elsewhere")
    verify_checkpoint(last.parent)
    last.unlink()
    last.symlink_to(last)  # round and round
    with pytest.raises(UserError, match="is missing"):
        verify_checkpoint(last.parent)


class Smaller(Reversal):
    """The same rows in batches of half the size."""

    def epoch(self, number):
        return [half for batch in super().epoch(number) for half in batch.split(4)]


@pytest.mark.parametrize("change", ["batches", "updates"])
def test_batches_may_be_others_and_it_is_said(tmp_path, change):
    folder, remarks = RunFolder.create(tmp_path / "run"), []

    def stop(event):
        if event.progress.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        train(small_model(), Reversal(), CONFIG, folder, device="cpu", on_step=stop)
    stood = read_progress(checkpoints(folder.path)[-1])
    assert (stood.batch, stood.planned, stood.together) == (4, 6, 1)  # heard behind the next step
    lesson = Smaller() if change == "batches" else Reversal()
    config = TrainingConfig(**{**vars(CONFIG), "accumulate": 1 if change == "batches" else 2})
    places = []
    train(
        small_model(),
        lesson,
        config,
        folder,
        device="cpu",
        on_step=lambda event: places.append((event.progress.epoch, event.progress.batch)),
        on_remark=remarks.append,
    )
    (remark,) = remarks
    if change == "batches":
        assert remark.startswith("an epoch has 12 batches, and had 6")
        assert places[0] == (0, 9)  # as far into the epoch as before: behind the eighth of twelve, not of six
    else:
        assert remark == "an update is of 2 batches, and was of 1"
        assert places[0] == (1, 0)


def test_the_state_of_a_stranger_names_no_other_files(tmp_path, whole):
    path = shutil.copytree(whole[0].path, tmp_path / "run")
    for one in checkpoints(path):
        state = json.loads((one / STATE).read_text())
        del state["digest"]
        state["files"] = {"/dev/zero": "x"}  # would be read for ever
        (one / STATE).write_text(json.dumps({**state, "digest": _digest(state)}))
    with pytest.raises(UserError, match="it is not what was written"):
        train(small_model(), Reversal(), CONFIG, RunFolder(path), device="cpu", on_remark=lambda text: None)


@pytest.mark.parametrize("value", ["seven", [1], None])
def test_a_position_that_is_no_number_is_damage(tmp_path, whole, value):
    path = shutil.copytree(checkpoints(whole[0].path)[-1], tmp_path / "step-15")
    state = json.loads((path / STATE).read_text())
    state["progress"]["batch"] = value
    (path / STATE).write_text(json.dumps(state))
    with pytest.raises(UserError, match="batch is"):
        read_progress(path)


def test_a_second_sigterm_is_the_same_wish(tmp_path):
    """A scheduler sends it to every process of a job, and the launcher passes it on."""
    folder = RunFolder.create(tmp_path / "run")

    def stop(event):
        if event.progress.step == 6:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated):
        train(small_model(), Reversal(), CONFIG, folder, device="cpu", on_step=stop)
    assert read_progress(checkpoints(folder.path)[-1]).step == 7


def test_a_folder_that_is_being_prepared_is_left_alone(tmp_path):
    with RunFolder.creating(tmp_path / "run") as folder:
        (folder.path / "data").mkdir()
        with pytest.raises(UserError, match="another process is preparing"), RunFolder.creating(tmp_path / "run"):
            raise AssertionError
        assert (folder.path / "data").is_dir()


def test_no_file_is_open_when_an_earlier_run_is_put_back(tmp_path, monkeypatch):
    """Windows moves no folder that holds an open file, nor removes it."""
    folder = RunFolder.create(tmp_path / "run")
    folder.write_config({"old": True})
    opened, real, rename = [], folder_module._opened, Path.rename
    monkeypatch.setattr(folder_module, "_opened", lambda path: opened.append(real(path)) or opened[-1])

    def renamed(self, target):
        assert all(file.closed for file in opened)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)
    with pytest.raises(ZeroDivisionError), RunFolder.creating(tmp_path / "run", overwrite=True):
        raise ZeroDivisionError
    assert folder.read_config()["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert len(opened) == 2

    def not_moved(self, target):
        if self.name == ".run.replaced":
            raise PermissionError(errno.EACCES, "in use")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", not_moved)
    said = "no rows; the earlier run could not be moved back, and is in .*replaced: in use"
    with pytest.raises(MachineError, match=said), RunFolder.creating(tmp_path / "run", overwrite=True):
        raise UserError("no rows")


def test_a_restarted_launcher_resumes_the_run_that_it_began_and_no_earlier_one(tmp_path, monkeypatch):
    """Its first processes may have failed before they replaced the earlier run, or because there was one."""
    out, trained = tmp_path / "run", []

    def train_task(task, source, out, config, *, on_report, overwrite=False, **listeners):
        trained.append("resumed" if source is None else "begun")
        on_report(None, None)
        RunFolder(out).write_config({})

    monkeypatch.setattr(train_module, "train_task", train_task)
    out.mkdir()

    def launched(restarts, overwrite):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restarts))
        train_module.train_together(None, "rows", out, None, device="cpu", fresh={"overwrite": overwrite})
        return trained[-1]

    assert launched(0, overwrite=False) == "begun"
    assert str(os.getppid()) in (out / ".launch").read_text().split()
    assert launched(1, overwrite=False) == launched(1, overwrite=True) == "resumed"
    (out / ".launch").write_text("another launcher")
    with pytest.raises(UserError, match="holds a run already"):
        launched(1, overwrite=False)
    assert launched(1, overwrite=True) == "begun"
    assert launched(2, overwrite=True) == "resumed"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job 7")
    assert launched(1, overwrite=True) == "begun"
    assert (out / ".launch").read_text() == "job 7"


def test_a_lost_process_is_a_sentence_for_the_others(monkeypatch):
    for said, raised in {
        "[gloo/pair.cc:537] Connection reset by peer": MachineError,
        "sizes differ": RuntimeError,
    }.items():

        def failing(tensor, said=said):
            raise RuntimeError(said)

        monkeypatch.setattr(ranks, "_device", lambda: torch.device("cpu"))
        monkeypatch.setattr(ranks.dist, "all_reduce", failing)
        with pytest.raises(raised, match="another process of this training ended" if raised is MachineError else said):
            ranks.Ranks(0, 2).sum(1.0)


def test_workers_import_nothing_of_the_folder_they_stand_in(tmp_path, monkeypatch):
    (tmp_path / "base64.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    tokeniser = train_tokeniser(["a b", "b a"], TokeniserConfig("words", vocab_size=50, min_frequency=1))
    with Spool(tmp_path / "spool", iter([("a b", "b a")] * 9), 2) as kept:
        assert sum(len(block.source_lengths) for block in kept.encoded(tokeniser, tokeniser, None)) == 9
    assert not (tmp_path / "ran").exists()


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    """A small run with everything that a run keeps."""
    folder = tmp_path_factory.mktemp("damage")
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"ab{i}\tba{i}\n" for i in range(60)))
    sizes = ["model.embedding_size=8", "model.size=8", "training.validate_every=2", "batch_tokens=64"]
    words = ["--data", "pairs.tsv", "--out", "run", "--model", "rnnsearch", "--steps", "4", "--set", *sizes]
    done = run("train", "translate", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


NOT_READ = {"curves.png", "README.md", "card.md", ".lock", "about.json"}


@pytest.mark.slow
def test_a_damaged_byte_in_any_file_is_a_sentence(translated, tmp_path):
    """Of every file of a run in turn; predict and resume say what is damaged, or do not need it."""
    names = sorted(path.relative_to(translated) for path in translated.rglob("*") if path.is_file())
    older = {path.name for path in checkpoints(translated)[:-1]}
    for name in names:
        copy = shutil.copytree(translated, tmp_path / "copy")
        content = bytearray((copy / name).read_bytes())
        if content:
            content[len(content) // 2] ^= 0x80
        (copy / name).write_bytes(content)
        predicted = run("predict", "copy", "--text", "ab1", cwd=tmp_path)
        resumed = run("resume", "copy", "--set", "steps=5", cwd=tmp_path)
        for done in (predicted, resumed):
            assert "Traceback" not in done.stderr, name
            assert done.returncode in (0, 2), name
        if name.parts[0] not in ("data", "checkpoints") and name.name not in NOT_READ:
            assert (predicted.returncode, resumed.returncode) == (2, 2), name
            assert name.name in predicted.stderr
        if name.parts[0] == "data":
            assert predicted.returncode == 0, name
            assert resumed.returncode == 2, name
            assert (tmp_path / "copy" / "checksums.json").exists(), name  # a run that could not go on is as it was
        if name.parts[0] == "checkpoints":
            assert resumed.returncode == 0, name
            assert name.name in resumed.stdout or name.parts[1] in older, name
        shutil.rmtree(copy)


def test_weights_that_are_lost_leave_those_of_the_checkpoints(translated, tmp_path):
    copy = shutil.copytree(translated, tmp_path / "copy")
    (copy / MODEL).write_bytes(b"lost")
    refused = run("predict", "copy", "--text", "ab1", cwd=tmp_path)
    last = checkpoints(copy)[-1]
    assert refused.returncode == 2
    assert f"its last checkpoint are in {Path('copy') / last.relative_to(copy)}" in refused.stderr
    done = run("predict", last.relative_to(tmp_path), "--text", "ab1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = bytearray((last / MODEL).read_bytes())
    content[-1] ^= 1
    (last / MODEL).write_bytes(content)
    assert run("predict", last.relative_to(tmp_path), "--text", "ab1", cwd=tmp_path).returncode == 2


def test_the_size_of_batches_may_change_and_is_kept(translated, tmp_path):
    copy = shutil.copytree(translated, tmp_path / "copy")
    done = run("resume", "copy", "--set", "steps=6", "batch_tokens=32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "batches, and had" in done.stdout
    kept = json.loads((copy / "config.json").read_text())["config"]
    assert (kept["batch_tokens"], kept["training"]["steps"]) == (32, 6)
    refused = run("resume", "copy", "--set", "seed=3", cwd=tmp_path)
    assert refused.returncode == 2
    assert "seed" in refused.stderr


TOGETHER = """
import sys
import sightline
found = sightline.train(sys.argv[1], sys.argv[2], task="classify", steps=3, on_remark=lambda text: None)
print(found.predict([("a b", "b a")])[0].label)
"""


@pytest.mark.long
def test_python_trains_in_several_processes_too(tmp_path):
    """Pairs of texts: the first process fits the model to them, and the other one must know."""
    rows = "".join(f"a {i}\t{'b a' if i % 2 else i}\t{i % 2}\n" for i in range(40))
    (tmp_path / "pairs.tsv").write_text(f"text\ttext2\tlabel\n{rows}")
    line = [sys.executable, "-c", TOGETHER, str(tmp_path / "pairs.tsv"), str(tmp_path / "run")]
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(30500 + os.getpid() % 1000), "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            line, env={**os.environ, **places, "RANK": str(rank)}, stdout=-1, stderr=-1, text=True, cwd=tmp_path
        )
        for rank in range(2)
    ]
    said = []
    for process in started:
        output, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        said.append(output.split()[-1])
    assert said[0] == said[1]
    assert torch.isfinite(last_state(RunFolder(tmp_path / "run"))["torch_random"].float()).all()
    assert read_progress(checkpoints(tmp_path / "run")[-1]).step == 3
