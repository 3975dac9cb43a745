"""A frozen run of each kind of task gives what it gave when it was trained, and goes on.

`fixtures/runs/make.py` made them. Outputs were written with HERE for the folder of the kind. A later version may say
more, never less or other things.
"""

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from invoke import run

pytestmark = pytest.mark.unchecked_shapes

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
KINDS = sorted(path.parent.parent.name for path in RUNS.glob("*/expected/commands.json"))
TIMES = ("seconds", "seconds_per_image", "per_second")  # another one each time
MOST = 3_000_000  # bytes of all of them


@pytest.fixture
def here(request, tmp_path):
    """The folder of a kind, elsewhere: a run is complete on its own."""
    shutil.copytree(RUNS / request.param, tmp_path / "elsewhere")
    return tmp_path / "elsewhere"


def told(here):
    return json.loads((here / "expected" / "commands.json").read_text(encoding="utf-8"))


def arguments(argv, here):
    places = {"RUN": str(here / "run"), "HERE": str(here)}
    return [places.get(one, one.replace("HERE/", f"{here}/")) for one in argv]


def parsed(name, text):
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if name.endswith(".json") else text.splitlines()


def differences(was, now, at=""):
    """Where what is said now is not what was said, numbers within the noise of another processor."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was:
            if key not in now:
                yield f"{at}.{key} is gone"
            elif key not in (*TIMES, "sentence"):  # sentences may be reworded, their values not
                yield from differences(was[key], now[key], f"{at}.{key}")
    elif isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            yield f"{at} had {len(was)} entries, has {len(now)}"
        for number, (one, other) in enumerate(zip(was, now, strict=False)):
            yield from differences(one, other, f"{at}[{number}]")
    elif not same(was, now):
        yield f"{at} was {was!r}, is {now!r}"


def same(was, now):
    if isinstance(was, str) and isinstance(now, str):  # numbers in a text too
        pieces = [re.split(r"([\t ,])", one) for one in (was, now)]
        return len(pieces[0]) == len(pieces[1]) and all(map(same_piece, *pieces))
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (was, now)):
        return was == now and type(was) is type(now)
    if math.isnan(was):
        return math.isnan(now)
    return math.isclose(was, now, rel_tol=1e-3 if abs(was) > 1 else 0.0, abs_tol=1e-4)


def same_piece(was, now):
    try:
        return was == now or same(float(was), float(now))
    except ValueError:
        return False


def test_there_is_a_frozen_run_of_every_kind():
    texts = "ask classify-pair classify-text pretrain span summaries summarise tag translate"
    files = "caption classify-image classify-sound grid sequence sequence-positions transcribe transcribe-vectors"
    assert sorted([*texts.split(), *files.split()]) == KINDS


def test_the_frozen_runs_are_small():
    assert sum(path.stat().st_size for path in RUNS.rglob("*") if path.is_file()) < MOST


@pytest.mark.parametrize("here", KINDS, indirect=True)
def test_a_frozen_run_gives_what_it_gave(here, tmp_path):
    for command in told(here)["commands"]:
        done = run(*arguments(command["argv"], here), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        name = command.get("stdout") or command["file"]
        found = (tmp_path / name).read_text(encoding="utf-8") if "file" in command else done.stdout
        was = (here / "expected" / name).read_text(encoding="utf-8")
        wrong = list(differences(parsed(name, was), parsed(name, found.replace(str(here), "HERE"))))
        assert not wrong, f"{name}: " + "; ".join(wrong[:10])


@pytest.mark.parametrize("here", KINDS, indirect=True)
def test_a_frozen_run_goes_on(here, tmp_path):
    """Four steps more than it was trained for."""
    told_steps = told(here)["resume"]
    done = run(*arguments(told_steps, here), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = told_steps[-1].removeprefix("steps=")
    assert f"ended after {steps} steps" in done.stdout
    assert [path.name for path in (here / "run" / "checkpoints").iterdir()] == [f"step-{steps}"]
    assert run(*arguments(told(here)["commands"][0]["argv"], here), cwd=tmp_path).returncode == 0
