"""`sightline bench`: figures of this machine that hang together."""

import json
import time

import pytest
import torch

from invoke import run
from pairs import QUICK, make_pairs, write_tsv
from sightline.speed import OUTSIDE, profile_of, seconds_of
from sightline.tasks.bench import threads_tried

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench")
    write_tsv(path / "train.tsv", make_pairs(120, seed=0))
    options = ["--model", "rnnsearch", "--steps", "4", "--set", *QUICK]
    done = run("train", "translate", "--data", "train.tsv", "--out", "run", *options, cwd=path)
    assert done.returncode == 0, done.stderr
    return path


def test_every_kind_of_work_is_measured(folder):
    before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    done = run("bench", "run", "--seconds", "0.05", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["unit"] for one in found["work"]] == ["tokens"] + ["sentences"] * 4
    for one in found["work"]:
        assert 0 < one["slowest"] <= one["rate"] <= one["fastest"]
        assert one["memory"] > 50e6
    shares = found["work"][0]["profile"]["shares"]
    assert sum(shares.values()) == pytest.approx(1, abs=0.02)
    assert shares["matrix products"] > 0.01
    assert found["work"][0]["profile"]["over_limit"] > 1
    assert set(found["training_tokens_per_second_by_threads"]) == {str(n) for n in threads_tried(found["threads"])}
    after = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    assert before == after, "the run stays as it is"


def test_people_get_tables(folder):
    done = run("bench", "run", "--seconds", "0.05", cwd=folder)
    assert done.returncode == 0, done.stderr
    for part in ("training", "greedy, one by one", "beam 5", "where the time goes", "times its matrix products alone"):
        assert part in done.stdout
    refused = run("bench", "run", "--seconds", "0", cwd=folder)
    assert refused.returncode == 2
    assert "--seconds is 0" in refused.stderr


def test_the_limit_is_the_time_of_the_products():
    x, w = torch.randn(256, 512), torch.randn(512, 512)
    only = profile_of(lambda: x @ w, calls=5)
    assert only.shares["matrix products"] > 0.5
    assert 0.5 < only.over_limit < 4
    slept = profile_of(lambda: (x @ w, time.sleep(0.02)), calls=5)
    assert slept.shares[OUTSIDE] > 0.5
    assert slept.over_limit > 2 * only.over_limit


def test_repeats_are_at_least_as_many_as_asked():
    calls = []
    found = seconds_of(lambda: calls.append(1), seconds=0.0, least=4)
    assert (len(found), len(calls)) == (4, 5)
    assert threads_tried(1) == [1]
    assert threads_tried(6) == [1, 2, 4, 6]
