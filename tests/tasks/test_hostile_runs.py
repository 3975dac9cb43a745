"""Run folders that were made to do harm: each is refused in one sentence, at once."""

import json
import os
import shutil

import pytest

from hostile_folders import RUNS, hostile_runs
from sightline.api import load
from sightline.errors import UserError
from sightline.files import open_lock, read_bytes
from sightline.tasks.registry import task_of
from sightline.training.folder import RunFolder
from sightline.view.page import write_page

CASES = hostile_runs()
CHOSEN = [name for name in CASES if ("/dev/zero" in name or "pipe" in name or "folder" in name or "100 GB" in name)] + [
    "classify-pair: 200,000 checksums",
    "tag: model.safetensors holds 20,001 empty tensors",
]


@pytest.mark.parametrize("case", CHOSEN)
def test_a_hostile_run_is_refused(case, tmp_path):
    good, change = CASES[case]
    shutil.copytree(good, tmp_path / "run")
    change(tmp_path / "run")
    with pytest.raises(UserError) as error:
        load(tmp_path / "run")
    assert "\n" not in str(error.value)
    if "config.json" in case:
        with pytest.raises(UserError):
            task_of(tmp_path / "run")


def test_there_are_enough_for_the_benchmark():
    assert len(CASES) >= 100


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")  # as in the cache of Hugging Face
    assert read_bytes(tmp_path / "link", 3) == b"abc"
    with pytest.raises(UserError, match="has 3 bytes; at most 2 are read"):
        read_bytes(tmp_path / "a", 2)
    with pytest.raises(UserError, match="device or a pipe"):
        read_bytes(tmp_path.joinpath("/dev/zero"))


def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    open_lock(tmp_path / ".lock").close()
    with RunFolder(tmp_path).locked():
        pass


def test_labels_do_not_reach_the_page_as_code(tmp_path):
    shutil.copytree(RUNS / "classify-text" / "run", tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    path = tmp_path / "run" / "labels.json"
    data = json.loads(path.read_text())
    evil = [f"</script><img src=x onerror=alert({number})>" for number in range(len(data["names"]))]
    path.write_text(json.dumps({**data, "names": evil}))
    run = load(tmp_path / "run")
    explanation = run.explain("a b", measure=False)
    assert evil[0] in (explanation.output, explanation.highlights.label) or evil[1] in explanation.output
    write_page([explanation], tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert "</script><" not in text.replace("</script></", "")
