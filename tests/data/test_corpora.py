"""Corpora that do not fit: shards and addresses, damage, pairs prepared in several processes."""

import gzip
import importlib
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from checked import checked_pairs
from runs import prepared_as
from sightline.data import splitting, spool
from sightline.data.checking import RowLimits
from sightline.data.disk import hash_of, scratch_array
from sightline.data.labelled import labelled_cells
from sightline.data.plain import plain_cells
from sightline.data.progress import counted, watched
from sightline.data.reading import pair_cells
from sightline.data.source import Source, table_cells
from sightline.data.spool import Spool
from sightline.data.store import write_blocks, write_corpus
from sightline.data.tagged import tagged_cells
from sightline.errors import UserError
from sightline.outputs import translation
from sightline.tasks import prepare
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.registry import task_named
from sightline.text.tokeniser import TokeniserConfig, train_tokenisers

SHARDS = [[("one", "eins"), ("two", "zwei")], [("three", "drei")], [("four", "vier"), ("five", "fünf")]]
PAIRS = [pair for shard in SHARDS for pair in shard]


def as_tsv(rows):
    return "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in rows)


def as_jsonl(rows):
    return "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows)


def as_csv(rows):
    return "source,target\n" + "".join(f'"{a}",{b}\n' for a, b in rows)


def write_shards(folder, write, ending, packed=False, shards=SHARDS):
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(shards):
        content = write(rows).encode()
        name = f"part-{number}{ending}" + (".gz" if packed else "")
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return folder


def rows_of(data):
    return pair_cells(Source.of(data))


def pairs_of(data):
    return [row.values for row in rows_of(data)]


@pytest.mark.parametrize(("write", "ending"), [(as_tsv, ".tsv"), (as_jsonl, ".jsonl"), (as_csv, ".csv")])
@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_a_pattern_and_addresses_are_read_in_order(tmp_path, write, ending, packed):
    folder = write_shards(tmp_path / "corpus", write, ending, packed)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.tsv").write_text("source\ttarget\nno\tno\n")
    (folder / "README.md").write_text("about")
    (folder / "test").mkdir()
    (folder / "test" / f"part-9{ending}").write_text(write([("no", "no")]))
    assert pairs_of(folder) == PAIRS
    assert pairs_of(folder / f"*{ending}*") == PAIRS
    assert pairs_of(folder.as_uri()) == PAIRS
    assert pairs_of(f"{folder.as_uri()}/part-*{ending}*") == PAIRS
    rows = list(rows_of(folder))
    assert os.path.basename(rows[2].file).startswith("part-1")
    assert [row.line for row in rows] == ([1, 2, 1, 1, 2] if ending == ".jsonl" else [2, 3, 2, 2, 3])


def test_parquet_shards(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    for number, rows in enumerate(SHARDS):
        table = pyarrow.table({"source": [a for a, _ in rows], "target": [b for _, b in rows]})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    assert pairs_of(tmp_path) == PAIRS
    assert pairs_of(f"{tmp_path.as_uri()}/*.parquet") == PAIRS
    (tmp_path / "1.parquet").write_bytes((tmp_path / "1.parquet").read_bytes()[:40])
    rows = list(rows_of(tmp_path))
    assert [row.values[0] for row in rows if row.problem is None] == ["one", "two", "four", "five"]
    assert [row.problem.partition(":")[0] for row in rows if row.problem] == ["damaged shard"] * 2
    assert "1.parquet" in rows[-1].file


def test_memory_and_wrong_addresses(monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for number, rows in enumerate(SHARDS):
        memory.pipe(f"/corpora/{number}.jsonl.gz", gzip.compress(as_jsonl(rows).encode()))
    assert pairs_of("memory://corpora") == PAIRS
    assert pairs_of("memory://corpora/[12].jsonl.gz") == PAIRS[2:]
    assert pairs_of("memory://corpora/1.jsonl.gz") == PAIRS[2:3]
    wrong = {
        "memory://corpora/9.jsonl": "no such file",
        "memory://corpora/9.xml": "ends in .xml",
        "memory://corpora/*.csv": "no file has a name like that",
        "nowhere://corpora": "cannot be opened",
    }
    for address, message in wrong.items():
        with pytest.raises(UserError, match=message):
            pairs_of(address)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UserError, match=r"pip install 'sightline\[remote\]'"):
        pairs_of("memory://corpora")


def test_every_reader_takes_shards(tmp_path):
    texts = {
        "labels": ["label\ttext\ngood\tone\n", "text\tlabel\ntwo\tbad\n"],  # each by its own header
        "answers": ["question\ttext\tanswer\nwho\tit is me\tme\n", "question\ttext\tanswer\nwhat\ta b\tb\n"],
        "tags": ["a\tX\nb\tY\n", "c\tX\n"],  # a sentence does not go on in the next file
        "plain": ["one\ntwo\n", "three\n"],
    }
    endings = {"labels": ".tsv", "answers": ".tsv", "tags": ".conll", "plain": ".txt"}
    for name, contents in texts.items():
        (tmp_path / name).mkdir()
        for number, content in enumerate(contents):
            packed = gzip.compress(content.encode())
            (tmp_path / name / f"{number}{endings[name]}.gz").write_bytes(packed)
    data = {name: str(tmp_path / name) for name in texts}

    def cells(task, read, name, **options):
        return [row.values for row in read(Source.of(data[name], **options), task_named(task).columns)]

    labelled = cells("classify", labelled_cells, "labels")
    assert [(text, label) for text, _, label in labelled] == [("one", "good"), ("two", "bad")]
    assert [values[2] for values in cells("span", table_cells, "answers")] == ["me", "b"]
    assert [tuple(values[0]) for values in cells("tag", tagged_cells, "tags")] == [("a", "b"), ("c",)]
    for paragraphs, expected in ((False, ["one", "two", "three"]), (True, ["one two", "three"])):
        found = cells("pretrain", plain_cells, "plain", paragraphs=paragraphs)
        assert [text for (text,) in found] == expected
    (tmp_path / "plain" / "0.txt.gz").write_bytes(gzip.compress(b"one\n" * 9000)[:-9])
    assert [row.problem is None for row in plain_cells(Source.of(data["plain"]), ())].count(False) == 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "is a folder; expected files in it"),
        ({"a.tsv": as_tsv(PAIRS), "b.jsonl": as_jsonl(PAIRS)}, "several kinds: found .jsonl, .tsv"),
        ({"a.tsv": as_tsv(PAIRS), "b.tsv": "one\teins\n"}, "a.tsv begins with the names"),
        ({"a.tsv": as_tsv(PAIRS), "b.tsv": "x\ty\tz\n"}, r"b.tsv: found the columns 'x', 'y', 'z'"),
        ({"a.tsv": "", "b.tsv": ""}, "has no rows"),
    ],
)
def test_folders_that_cannot_be_used(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        pairs_of(tmp_path)


def damaged_corpus(folder, shards=20, rows=100):
    """Shards of which the eighth is cut: of its hundred rows, some can be read."""
    made = [[(f"{shard} {row} {hash_of(str(row))}", f"{row}") for row in range(rows)] for shard in range(shards)]
    write_shards(folder, as_jsonl, ".jsonl", packed=True, shards=made)
    cut = folder / "part-7.jsonl.gz"
    cut.write_bytes(cut.read_bytes()[:-600])
    return made


def test_a_damaged_shard_is_left_out_where_it_fell_off(tmp_path):
    damaged_corpus(tmp_path)
    reading = checked_pairs(rows_of(tmp_path), RowLimits(max_bad_share=0.05))
    kept = list(reading)
    lost = reading.report.left_out["damaged shard"]
    assert 0 < lost < 100  # what came before the cut was kept
    assert len(kept) + lost == reading.report.rows == 2000
    (place,) = reading.report.places
    assert "part-7.jsonl.gz" in place
    assert f"cut short after line {100 - lost};" in place
    assert f"counts as {lost} rows" in place


def test_too_much_damage_is_refused(tmp_path):
    damaged_corpus(tmp_path)
    with pytest.raises(UserError, match=r"rows are bad \(.*part-7.jsonl.gz:\d+: damaged shard: .*max_bad_share = 0.01"):
        list(checked_pairs(rows_of(tmp_path)))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UserError, match=r"part-0.jsonl.gz is a gzip file cut short"):
        list(rows_of(tmp_path))


def some_pairs(count):
    random = np.random.default_rng(1)
    words = ["".join(random.choice(list("abcdefgh"), 4)) for _ in range(60)]
    sentences = [" ".join(random.choice(words, random.integers(1, 6))) for _ in range(count)]
    return [(one, one[::-1].upper()) for one in sentences]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(spool, "BLOCK", 100)


def test_several_processes_give_what_one_gives(tmp_path, small_blocks):
    pairs = [*some_pairs(1500), ("two\nlines", "ein\ttab"), ("é", "\u00e9\u0301 𝄞")]
    source, target = train_tokenisers(
        lambda: (a for a, _ in pairs), lambda: (b for _, b in pairs), TokeniserConfig(vocab_size=400, joint=False)
    )
    found = []
    for processes in (1, 2):
        with Spool(tmp_path / "spool", iter(pairs), processes) as kept:
            assert [tuple(row) for row in kept.rows()] == pairs
            marks = kept.mark(lambda start, end: np.arange(start, end) % 3 == 0)
            assert [tuple(row) for row in kept.rows(marks)] == pairs[::3]
            hashes = kept.hashes(b"k" * 32)
            write_blocks(tmp_path / str(processes), kept.encoded(source, target, marks))
            found.append([side.tolist() for side in hashes])
        assert not (tmp_path / "spool").exists()
    assert found[0] == found[1]
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert all((tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes() for name in names)
    plain = write_corpus(
        tmp_path / "plain",
        zip(
            *(
                one.encode(side)
                for one, side in zip((source, target), map(list, zip(*pairs[::3], strict=True)), strict=True)
            ),
            strict=True,
        ),
    )
    assert len(plain) == len(pairs[::3])
    assert all((tmp_path / "plain" / name).read_bytes() == (tmp_path / "1" / name).read_bytes() for name in names)


def test_a_lost_process_loses_nothing(tmp_path, small_blocks, monkeypatch):
    started = []
    begin = subprocess.Popen

    def remembering(*arguments, **options):
        started.append(begin(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remembering)
    pairs = some_pairs(2000)
    with Spool(tmp_path / "spool", iter(pairs), 2) as kept:
        answers = kept._answers({"job": "hash", "key": ""}, None, "comparing")
        found = [next(answers)]
        started[0].kill()
        found += answers
    assert np.concatenate([one[0] for one in found]).tolist() == [hash_of(f"{a}\0{b}") for a, b in pairs]
    assert all(process.poll() is not None for process in started)


def prepared(data, folder):
    config = TranslateConfig(tokeniser=TokeniserConfig(vocab_size=400), valid_share=0.1, seed=3)
    with prepared_as("translate", data, folder, config) as (found, _):
        return found


def test_an_interrupt_leaves_nothing(tmp_path, small_blocks, monkeypatch):
    (tmp_path / "pairs.tsv").write_text(as_tsv(some_pairs(1000)))

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "checked", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepared(tmp_path / "pairs.tsv", tmp_path / "data")
    started = []
    begin = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *one, **two: started.append(begin(*one, **two)) or started[-1])
    monkeypatch.setattr(spool, "PARALLEL", 1)
    monkeypatch.setattr(spool, "cores", lambda: 2)

    def stop(stage, done, total):
        if stage == "tokenising":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), watched(stop):
        prepared(tmp_path / "pairs.tsv", tmp_path / "data")
    assert len(started) == 4
    assert all(process.poll() is not None for process in started)
    assert list((tmp_path / "data").iterdir()) == []


def hashed(pairs, seed):
    key, normalise = splitting.key_of(seed), splitting.normalise
    sources = np.array([hash_of(normalise(source), key) for source, _ in pairs], np.uint64)
    return sources, np.array([hash_of(normalise(target)) for _, target in pairs], np.uint64)


def test_the_split_is_that_of_the_pairs(tmp_path, small_blocks):
    pairs = [*some_pairs(900), ("a  b", "x"), ("a b", " y"), ("c", "y")]
    sources, targets = hashed(pairs, 3)
    split = splitting.split_hashes(sources, targets, 0.1)
    with Spool(tmp_path / "spool", iter(pairs)) as kept:
        _, *hashes = kept.hashes(splitting.key_of(3))
        np.testing.assert_array_equal(hashes, [sources, targets])
        for side in (split.train, split.valid):
            expected = [pairs[i] for i in np.flatnonzero(side(0, len(pairs)))]
            assert [tuple(row) for row in kept.rows(kept.mark(side))] == expected
        evaluation = [*pairs[:5], ("a b", "x"), ("a b", "new"), ("new", "y")]
        found = splitting.overlap_of_hashes(tuple(hashes), evaluation, splitting.key_of(3))
    assert found == splitting.Overlap(8, 6, 7)


def test_a_share_of_very_many_is_no_more_than_can_be_held(monkeypatch):
    monkeypatch.setattr(splitting, "MOST_VALID", 100)
    pairs = [(f"source {number}", f"target {number}") for number in range(2000)]
    hashes = hashed(pairs, 0)
    assert 50 <= splitting.split_hashes(*hashes, 0.1).valid(0, 2000).sum() <= 150
    assert 250 <= splitting.split_hashes(*hashes, 300).valid(0, 2000).sum() <= 350  # asked for by number


def test_a_vocabulary_is_learnt_from_a_part_of_very_many(tmp_path, monkeypatch):
    (tmp_path / "pairs.tsv").write_text(as_tsv(some_pairs(1200)))
    whole = prepared(tmp_path / "pairs.tsv", tmp_path / "whole")
    assert whole.output.remarks == ()
    monkeypatch.setattr(translation, "VOCABULARY_ROWS", 200)
    part, again = (prepared(tmp_path / "pairs.tsv", tmp_path / name) for name in ("a", "b"))
    assert part.output.remarks == again.output.remarks
    (said,) = (line for line in part.lines() if "drawn at random" in line)
    assert 120 < int(re.search(r"learnt from (\d+) of the pairs", said)[1]) < 280
    assert part.input.tokeniser.same_as(again.input.tokeniser)
    assert len(part.corpus) == len(whole.corpus)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["train", "valid.jsonl"]


def test_progress_is_told(monkeypatch):
    told = []
    with watched(lambda *what: told.append(what)):
        assert list(counted(range(5), "reading", 5)) == [0, 1, 2, 3, 4]
        assert list(counted([[1, 2], [3]], "tokenising", 3, len)) == [[1, 2], [3]]
    assert told == [("reading", 5, 5), ("tokenising", 3, 3)]
    assert list(counted("ab", "reading")) == ["a", "b"]


def test_room_on_the_disk_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    array = scratch_array(10, np.int32)
    array[3] = 7
    assert array.tolist() == [0, 0, 0, 7, 0, 0, 0, 0, 0, 0]
    assert list(tmp_path.iterdir()) == []

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(Exception, match="No space left on device; set TMPDIR"):
        scratch_array(10, np.int32)
