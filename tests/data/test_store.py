"""A corpus on disk: what goes in comes out, whole or not at all, in little memory."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data import store
from sightline.data.store import Corpus, write_corpus
from sightline.errors import MachineError, UserError

pytestmark = pytest.mark.fast

PAIRS = [([5, 6, 7], [8]), ([], [9, 10]), ([11], []), ([1, 2, 3, 4], [5, 5])]


@pytest.fixture
def folder(tmp_path):
    write_corpus(tmp_path / "corpus", PAIRS)
    return tmp_path / "corpus"


def read(corpus):
    return [(source.tolist(), target.tolist()) for source, target in (corpus[row] for row in range(len(corpus)))]


def test_what_goes_in_comes_out(folder):
    corpus = Corpus.open(folder)
    assert len(corpus) == 4
    assert read(corpus) == PAIRS
    assert corpus[-1][1].tolist() == [5, 5]
    assert corpus[0][0].dtype == np.uint16
    assert [lengths.tolist() for lengths in corpus.lengths()] == [[3, 0, 1, 4], [1, 2, 0, 2]]
    with pytest.raises(IndexError):
        corpus[4]
    with pytest.raises(ValueError, match="read-only"):
        corpus[0][0][0] = 1
    about = json.loads((folder / "corpus.json").read_text())
    assert about["pairs"] == 4
    assert about["source"] == {"tokens": 8, "longest": 4, "largest_id": 11, "type": "<u2"}


def test_numpy_reads_the_files_by_itself(folder):
    assert np.load(folder / "source.npy").tolist() == [5, 6, 7, 11, 1, 2, 3, 4]
    assert np.load(folder / "target_offsets.npy").tolist() == [0, 1, 3, 3, 5]


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.lists(st.tuples(*[st.lists(st.integers(0, 70_000), max_size=6)] * 2), min_size=1, max_size=20),
    chunk=st.integers(1, 8),
)
def test_any_pairs_come_out(tmp_path_factory, pairs, chunk):
    """With chunks so small that the widening to 32 bits happens in the middle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_CHUNK", chunk)
        corpus = write_corpus(tmp_path_factory.mktemp("store") / "corpus", pairs)
    assert read(corpus) == pairs
    largest = max([token for source, _ in pairs for token in source], default=0)
    assert corpus[0][0].dtype == (np.uint16 if largest < 2**16 else np.int32)


def test_nothing_is_left_of_a_corpus_that_failed(tmp_path):
    def failing():
        yield [1], [2]
        raise RuntimeError("the reader stopped")

    with pytest.raises(RuntimeError):
        write_corpus(tmp_path / "corpus", failing())
    with pytest.raises(ValueError, match="token ids"):
        write_corpus(tmp_path / "corpus", [([-1], [2])])
    with pytest.raises(UserError, match="no pairs"):
        write_corpus(tmp_path / "corpus", [])
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_is_not_written_over(folder):
    with pytest.raises(UserError, match="exists already"):
        write_corpus(folder, PAIRS)
    assert read(Corpus.open(folder)) == PAIRS


def test_a_disk_that_is_full_is_the_machine(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(MachineError, match="No space"):
        write_corpus(tmp_path / "corpus", PAIRS)
    assert list(tmp_path.iterdir()) == []


NAMES = ["source.npy", "source_offsets.npy", "target.npy", "target_offsets.npy", "corpus.json"]


@pytest.mark.parametrize("name", NAMES)
def test_an_incomplete_folder(folder, name):
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"no {name}"):
        Corpus.open(folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["short", "long", "garbage", "empty", "header"])
def test_a_damaged_file(folder, name, damage):
    path = folder / name
    content = path.read_bytes()
    changed = {
        "short": content[:-1],
        "long": content + b"\0\0",
        "garbage": b"\x80" * len(content),
        "empty": b"",
        "header": content.replace(b"<", b">"),
    }
    path.write_bytes(changed[damage])
    with pytest.raises(UserError, match="corpus"):
        Corpus.open(folder)


@pytest.mark.parametrize("change", [{"pairs": 3}, {"version": 2}, {"pairs": "4"}, {"format": "x"}, {"source": 1}])
def test_a_description_that_does_not_fit(folder, change):
    path = folder / "corpus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match="damaged"):
        Corpus.open(folder)


def test_offsets_that_go_back(folder):
    offsets = np.load(folder / "source_offsets.npy")
    offsets[1], offsets[2] = 5, 2
    content = bytearray((folder / "source_offsets.npy").read_bytes())
    content[128:] = offsets.tobytes()
    (folder / "source_offsets.npy").write_bytes(bytes(content))
    with pytest.raises(UserError, match="does not fit"):
        Corpus.open(folder)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="complete corpus"):
        Corpus.open(tmp_path / "nowhere")


def test_memory_stays_flat_over_a_million_pairs(tmp_path):
    # 12 million tokens: 24 MB as stored, about 400 MB as Python lists of their own.
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from sightline.data.store import write_corpus\n"
        "source, target = list(range(300, 306)), list(range(400, 406))\n"
        "write_corpus(Path(sys.argv[1]) / 'warm', [(source, target)])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "corpus = write_corpus(Path(sys.argv[1]) / 'large', ((source[:], target[:]) for _ in range(1_000_000)))\n"
        "assert len(corpus) == 1_000_000 and corpus[999_999][1].tolist() == target\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)
    shutil.rmtree(tmp_path / "large")
    assert int(done.stdout) < 64
