"""Runs of every format there was load and give what they gave: one frozen run of each, never made again."""

import json
import resource
import shutil
import time

import pytest

import sightline
from frozen_run import FROZEN
from sightline.errors import UserError


def test_there_is_a_frozen_run_of_every_format():
    from sightline.training.folder import FORMAT

    assert [path.name for path in FROZEN] == [f"run-format-{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.name)
def test_a_frozen_run_gives_what_it_gave(path, tmp_path):
    """Also after it was moved: a run folder is complete on its own."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(path, moved)
    expected = json.loads((path / "expected.json").read_text())
    found = sightline.load(moved).predict([line["source"] for line in expected])
    assert [one.text for one in found] == [line["text"] for line in expected]
    for one, line in zip(found, expected, strict=True):
        assert one.log_prob == pytest.approx(line["log_prob"], abs=1e-4)


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.name)
def test_a_frozen_run_shows_where_it_looked(path):
    (record,) = sightline.load(path).explain("abcd").records
    assert record.rows.texts[:4] == ("d", "c", "b", "a")
    # It reads backwards: the first letter written comes from the last one read.
    assert record.matrix()[0].argmax() > record.matrix()[3].argmax()


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 1 << 20},
        {"embedding_size": 1 << 20},
        {"layers": 10_000_000},
        {"attention": None},
        {"dropout": "much"},
        {"size": 10**30},
    ],
    ids=str,
)
def test_what_a_stranger_describes_is_not_built_before_it_is_known_to_be_what_the_weights_are(tmp_path, wrong):
    """A few bytes of config.json can describe a model that fills the memory."""
    run = tmp_path / "run"
    shutil.copytree(FROZEN[-1], run)
    (run / "checksums.json").unlink()
    about = json.loads((run / "config.json").read_text())
    about["config"]["model"] |= wrong
    (run / "config.json").write_text(json.dumps(about))
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="is damaged"):
        sightline.load(run)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(FROZEN[-1], run)
    (run / "checksums.json").unlink()
    about = json.loads((run / "config.json").read_text())
    for wrong in (10**12, "many", -1, None):
        (run / "config.json").write_text(json.dumps(about | {"target_words": wrong}))
        with pytest.raises(UserError, match="is damaged"):
            sightline.load(run)
