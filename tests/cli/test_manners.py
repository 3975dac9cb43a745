"""What a shell sees: quick errors about what is not there, closed pipes, missing extras, exported folders."""

import subprocess
import sys

import pytest

from exported import run_of
from frozen_run import FROZEN
from invoke import run
from sightline.cli.options import READ, check_there
from sightline.cli.parser_train import options_of
from sightline.errors import UserError
from sightline.tasks.registry import tasks
from sightline.tasks.train import building

# Standard error says in the end whether torch was imported.
TOLD = "import sys, atexit; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr)); "
RUNS = FROZEN[0].parent / "runs"
MISSING = [
    ("predict", "nowhere", "--text", "a"),
    ("evaluate", "nowhere", "--data", "nothing.tsv"),
    ("train", "classify", "--data", "nothing.tsv", "--out", "run"),
    ("view", "nowhere", "--text", "a", "--out", "a.png"),
    ("serve", "nowhere"),
    ("view", RUNS / "caption" / "run", "--image", "nothing.png", "--out", "a.png"),
    ("view", "hf:nowhere", "--text", "a", "--out", "a.png"),
    ("saliency", "nothing.png", "--out", "maps"),
    ("train", "classify", "--data", RUNS / "classify-text" / "data.tsv", "--out", "run", "--config", "nothing.json"),
    ("align", RUNS / "translate" / "run", "--data", RUNS / "translate" / "data.tsv", "--gold", "nothing.links"),
]


@pytest.mark.parametrize("arguments", MISSING, ids=lambda one: f"{one[0]} {one[-1]}")
def test_what_is_missing_is_said_before_torch_is_imported(arguments, tmp_path):
    command = [sys.executable, "-c", f"{TOLD}from sightline.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    sentence, torch_imported = done.stderr.splitlines()
    assert "nowhere" in sentence or "nothing." in sentence
    assert torch_imported == "False"


def test_addresses_pipes_and_patterns_are_no_missing_files():
    (data,) = (one for one in options_of(tasks()["translate"]) if one.name == "data")
    assert "data" in READ
    for given in ("-", "https://example.org/a.tsv", "made:copy", "part-*.tsv"):
        check_there(data, given)
    with pytest.raises(UserError, match="no such file"):
        check_there(data, "nothing.tsv")


def test_a_closed_pipe_ends_a_command_quietly(tmp_path):
    command = f"{sys.executable} -m sightline --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() in ("141", "0")  # 0 if all of it was written before


def test_help_that_nobody_reads_is_no_error(tmp_path):
    """What is left in the buffer when the reader has gone."""
    command = f"{sys.executable} -m sightline --help | (exec 0<&-; sleep 0.1); echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout.strip(), done.stderr) == ("141", "")


def test_a_broken_pipe_is_no_error_of_the_machine(tmp_path, monkeypatch):
    def closed(*arguments):
        raise BrokenPipeError

    monkeypatch.setattr("sightline.cli._run", closed)
    done = run("predict", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
    ids=["Python", "processor", "card", "library"],
)
def test_too_little_memory_is_a_sentence(error, tmp_path, monkeypatch):
    def failing(*arguments):
        raise error

    monkeypatch.setattr("sightline.cli._run", failing)
    done = run("predict", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("sightline: the memory of this machine is not enough; smaller batches")
    with pytest.raises(type(error)), building():
        raise error


def test_serve_names_its_extra(tmp_path):
    hidden = (
        "import sys; sys.modules['fastapi'] = sys.modules['uvicorn'] = None; from sightline.cli import main; main()"
    )
    command = [sys.executable, "-c", hidden, "serve", str(FROZEN[-1])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr == "sightline: the server needs FastAPI and uvicorn: pip install 'sightline[serve]'\n"


def test_an_export_is_predicted_by_the_engine_it_was_made_for(tmp_path):
    pytest.importorskip("onnxruntime")
    from sightline.export.run import export_run

    run_of(tmp_path / "run")
    export_run(tmp_path / "run", "onnx", tmp_path / "onnx")
    expected = run("predict", "run", "--text", "the cat", cwd=tmp_path)
    done = run("predict", "onnx", "--text", "the cat", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, expected.stdout), done.stderr
    refused = run("evaluate", "onnx", "--data", "run/data/valid.jsonl", cwd=tmp_path)
    assert refused.returncode == 2
    assert "is an export of a run, which only predict reads" in refused.stderr
