"""The command line: what it prints, its exit codes, and what it leaves on the disk."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from invoke import run
from sightline import __version__
from sightline.cli.options import Arg, joined
from sightline.errors import MachineError, UserError
from sightline.explain.explanation import Explanation
from sightline.files import check_writable, write_text
from sightline.training.folder import RunFolder
from signals import start_interruptible

pytestmark = pytest.mark.unchecked_shapes


def sightline(*arguments, cwd=None, **options):
    command = [sys.executable, "-m", "sightline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, **options)


def test_version():
    assert sightline("--version").stdout.strip() == f"sightline {__version__}"


def test_help_teaches():
    done = sightline("--help")
    assert done.returncode == 0
    for word in ("demo", "mechanisms", "check", "Start with: sightline demo"):
        assert word in done.stdout


def test_help_respects_no_color_and_names_the_nearest_option(monkeypatch, tmp_path):
    code = (
        "import sys, tyro; sys.argv = ['sightline', 'predict', '--help']\n"
        "from tyro import _fmtlib\n"
        "_fmtlib._FORCE_ANSI = True\n"
        "from sightline.cli import main; main()"
    )
    shown = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **more}).stdout
        for more in ({"NO_COLOR": ""}, {"NO_COLOR": "1"})
    ]
    assert ["\x1b[" in text for text in shown] == [True, False]
    done = run("predict", "run", "--beem", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "sightline: predict has no option --beem; did you mean --beam?\n")
    done = run("predit", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "sightline: there is no command predit; did you mean predict?\n")


def test_mechanisms_lists_every_kind():
    found = json.loads(sightline("mechanisms", "--json").stdout)
    assert {"additive", "scaled_dot", "fixed"} <= set(found["score"])
    assert found["normaliser"] == ["entmax15", "hard", "softmax", "sparsemax"]
    assert "multi_head" in sightline("mechanisms").stdout


def test_check_holds():
    done = sightline("check", "general", "--normaliser", "entmax15", "--heads", "2", "--output", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert all(law["holds"] for law in found["laws"].values())


BROKEN = """
import torch
from dataclasses import dataclass
from typing import ClassVar
from sightline.attention import Score, ScoreConfig

class Peeks(Score):
    def forward(self, query, keys, position):
        return (query + query.mean(dim=-2, keepdim=True)) @ keys.transpose(-2, -1)

@dataclass(frozen=True)
class PeeksConfig(ScoreConfig):
    kind: ClassVar[str] = "peeks"
    def build(self, query_size, key_size, *, heads=()):
        return Peeks()
"""


def test_check_finds_what_is_broken(tmp_path):
    (tmp_path / "peeking.py").write_text(BROKEN)
    metadata = tmp_path / "peeking-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: peeking\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sightline.score]\npeeks = peeking:PeeksConfig\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = sightline("check", "peeks", env=environment)
    assert done.returncode == 1
    assert "broken" in done.stdout
    assert "one by one" in done.stdout
    listed = json.loads(sightline("mechanisms", "--json", env=environment).stdout)
    assert "peeks" in listed["score"]


def test_check_reads_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"kind": "multi_head", "heads": 2, "inner": {"kind": "local", "half_width": 2}}')
    assert sightline("check", path).returncode == 0


WRONG = {
    "unknown mechanism": (["check", "additiv"], 2, "attention has no kind 'additiv'"),
    "unknown normaliser": (["check", "dot", "--normaliser", "softmx"], 2, "did you mean 'softmax'?"),
    "no normaliser to choose": (["check", "multi_head", "--normaliser", "softmax"], 2, "has no normaliser to choose"),
    "no heads": (["check", "dot", "--heads", "0"], 2, "--heads is 0; it must be at least 1"),
    "a file that is not there": (["check", "nothing.json"], 2, "there is no nothing.json"),
    "unknown option": (["demo", "--step", "3"], 2, "--steps"),
    "unknown command": (["dmo"], 2, "demo"),
    "no steps": (["demo", "--steps", "0"], 2, "--steps is 0; it must be at least 1"),
    "no threads": (["demo", "--threads", "0"], 2, "--threads is 0; it must be at least 1"),
    "too few pairs": (["demo", "--pairs", "5"], 2, "--pairs is 5; it must be at least 1,000"),
    "no minutes": (["demo", "--minutes", "0"], 2, "--minutes is 0; it must be above 0"),
    "demo into a file": (["demo", "--out", "file"], 2, "file is a file; name a folder"),
    "demo where no folder can be": (["demo", "--out", "/proc/x"], 3, "cannot make the folder /proc/x"),
    "train into a file": (
        ["train", "translate", "--data", "file", "--out", "file"],
        2,
        "--out is file, which is a file; name a folder for the run",
    ),
    "train below a file": (
        ["train", "translate", "--data", "file", "--out", "file/run"],
        2,
        "cannot make the folder file/run: file is a file",
    ),
    "too many threads": (["demo", "--threads", "100000000000"], 2, "--threads is 100000000000"),
    "a seed too large": (["demo", "--seed", "99999999999999999999999"], 2, "--seed is 99999999999999999999999"),
    "a mechanism that cannot be built": (["check", "multi_head", "--heads", "2"], 2, "cannot stand inside multi_head"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_a_sentence_and_an_exit_code(case, tmp_path):
    arguments, code, message = WRONG[case]
    (tmp_path / "file").write_text("in the way")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing half-written"


def test_a_folder_that_cannot_be_written_to_is_named_and_trying_leaves_nothing(tmp_path):
    check_writable(tmp_path / "new" / "below")
    assert not list(tmp_path.iterdir())
    check_writable(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(MachineError, match=r"^cannot write to the folder /proc: "):
        check_writable(Path("/proc"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"file is a file; name a folder$"):
        check_writable(tmp_path / "file")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name in (Path("/dev/null"), tmp_path / "nowhere"):
        with pytest.raises(UserError, match=rf"{name} is a file; name a folder$"):
            check_writable(name)
        with pytest.raises(UserError, match=rf"cannot make the folder {name / 'below'}: {name} is a file$"):
            check_writable(name / "below")
    with pytest.raises(MachineError, match=r"File name too long"):
        check_writable(tmp_path / "above" / ("x" * 300))
    assert not (tmp_path / "above").exists()
    # The files that a run is locked with are ours: nobody has heard of them.
    with pytest.raises(MachineError, match=r"^cannot write to the folder /proc: "), RunFolder.creating(Path("/proc")):
        pass


def test_folders_that_several_processes_try_at_once(tmp_path, monkeypatch):
    """Each takes away what it has made, and the others may be about to use it."""
    real, gone = tempfile.TemporaryFile, [True] * 3

    def taken_away(dir):
        if gone and gone.pop():
            dir.rmdir()
        return real(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", taken_away)
    check_writable(tmp_path / "new")
    assert not gone
    assert not list(tmp_path.iterdir())


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"pipe is a device or a pipe, which would be replaced by a file; name a file$"):
        write_text(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "bad.json").write_bytes(b'{"kind": "\xff"}')
    done = sightline("check", "bad.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.json is not UTF-8 text: byte 10" in done.stderr


@pytest.mark.long
def test_demo_learns_draws_and_records(tmp_path):
    """The real demo at its full length: its score, its files, and where it looked."""
    done = sightline("demo", "--out", "there", "--minutes", "20", "--threads", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("exact match")]
    assert float(line.split()[2]) >= 99.0
    made = tmp_path / "there"
    scored = json.loads(run("evaluate", made, "--data", made / "dates" / "test.tsv", "--json", cwd=tmp_path).stdout)
    assert scored["exact"]["value"] >= 99.0
    (record,) = Explanation.from_json(json.loads((made / "explanation.json").read_text())).records
    written, source = record.rows.texts, record.columns.texts
    assert (written[-1], source[-1]) == ("</s>", "</s>")
    year = record.matrix()[:4]  # the year is copied: each digit is looked at where it stands
    places = year.argmax(axis=1)
    assert [source[place] for place in places[2:]] == list(written[2:4])
    translated = run("predict", made, "--text", "27 sierpnia 2024", "2028年12月31日", cwd=tmp_path).stdout.split()
    assert translated == ["2024-08-27", "2028-12-31"]


@pytest.mark.slow
def test_a_short_demo_draws_and_records_and_repeats_itself(tmp_path):
    """In a process of its own and in this one."""
    words = ["--steps", "3", "--pairs", "1000", "--threads", "1"]
    done = sightline("demo", "--out", "a[bold]b", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a[bold]b/attention.png" in done.stdout  # a path is no markup
    made = tmp_path / "a[bold]b"
    assert (made / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert (made / "page.html").stat().st_size > 10_000
    lines = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    assert [line["data"] for line in lines if "exact_match" in line] == ["test", "unseen language"]
    one, weights = json.loads((made / "explanation.json").read_text()), (made / "model.safetensors").read_bytes()
    # Made again in its own folder, refused in that of another run.
    assert run("demo", "--out", "a[bold]b", *words, cwd=tmp_path).returncode == 0
    assert json.loads((made / "explanation.json").read_text()) == one
    assert (made / "model.safetensors").read_bytes() == weights
    (made / "demo.txt").unlink()
    refused = run("demo", "--out", "a[bold]b", "--steps", "1", cwd=tmp_path)
    assert refused.returncode == 2
    assert "holds a run that is not the demo's" in refused.stderr


def test_a_terminal_may_know_ascii_only():
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for arguments in (["--help"], ["demo", "--help"], ["train", "--help"]):
        assert sightline(*arguments, env=plain).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to one process")
def test_ctrl_c_leaves_with_one_sentence(tmp_path):
    command = [sys.executable, "-m", "sightline", "demo", "--steps", "100000", "--pairs", "1000"]
    running = start_interruptible(command, cwd=tmp_path)
    deadline = time.monotonic() + 300  # a busy machine takes long to begin
    while not (tmp_path / "runs" / "demo" / "config.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "runs" / "demo" / "config.json").exists()
    time.sleep(1.0)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=120)
    assert running.returncode == 130, error
    assert error.strip().splitlines()[-1] == "sightline: stopped"
    assert "Traceback" not in error


def test_every_command_can_run_without_kernels(tmp_path):
    code = (
        "import sys; sys.argv = ['sightline', 'mechanisms', '--no-kernels']\n"
        "from sightline.cli import main\n"
        "main()\n"
        "from sightline import kernels\n"
        "assert not kernels.enabled()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_list_given_in_parts_is_one_list():
    options = [Arg("set", tuple[str, ...], "", ()), Arg("text", tuple[str, ...], "", ()), Arg("out", str, "")]
    given = ["RUN", "--set", "a=1", "b=2", "--out", "x", "--text", "", "--set=c=3", "--text", "t"]
    assert joined(options, given) == ["RUN", "--set", "a=1", "b=2", "c=3", "--out", "x", "--text", "", "t"]
    assert joined(options, ["RUN", "--out", "x"]) == ["RUN", "--out", "x"]
    with pytest.raises(UserError, match="--text has no value"):
        joined(options, ["--text", "--out", "x"])


def test_every_set_counts(tmp_path):
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"a{i}\tb{i}\n" for i in range(30)))
    fields = ["--set", "model.size=16", "--set", "model.embedding_size=8"]
    words = ["--model", "rnnsearch", "--steps", "1", "--out", "run", *fields]
    assert run("train", "translate", "--data", "pairs.tsv", *words, cwd=tmp_path).returncode == 0
    model = json.loads((tmp_path / "run" / "config.json").read_text())["config"]["model"]
    assert (model["size"], model["embedding_size"]) == (16, 8)
