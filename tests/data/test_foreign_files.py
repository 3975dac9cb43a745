"""Files as other programs write them: read, or refused in one sentence that says what to do."""

import gzip
import http.server
import json
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import sightline
from invoke import run
from pair_files import pairs_of, rows_of, written
from sightline.cli.lines import Lines
from sightline.data import tables
from sightline.data.image_tables import image_paths, is_image_data, read_image_table
from sightline.data.images import BadImage, read_image
from sightline.data.labelled import labelled_cells
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.errors import UserError
from task_samples import RUNS

PAIRS = [(f"ein Satz {i}, nicht mehr", f"a sentence {i}; no more") for i in range(7)]
OBJECTS = [{"de": source, "en": target} for source, target in PAIRS]
NESTED = [{"id": str(number), "translation": one} for number, one in enumerate(OBJECTS)]


@pytest.fixture(autouse=True)
def _utf8():
    yield
    tables.read_as(None)


def lines(rows):
    return "".join(f"{row}\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("semicolons.csv", lines(["source;target", *(f'"{s}";"{t}"' for s, t in PAIRS)])),
        ("tabs.csv", lines(["source\ttarget", *(f"{s}\t{t}" for s, t in PAIRS)])),
        ("list.json", json.dumps(OBJECTS)),
        ("indented.json", json.dumps(OBJECTS, indent=2)),
        ("within.json", json.dumps({"version": 1.5, "data": OBJECTS, "note": {"a": [1]}})),
        ("lines.json", lines(map(json.dumps, OBJECTS))),
        ("list.json.gz", gzip.compress(json.dumps(OBJECTS).encode())),
        ("marked.json", "\ufeff" + json.dumps(OBJECTS)),
        ("nested.jsonl", lines(map(json.dumps, NESTED))),
        ("nested.json", json.dumps(NESTED)),
        ("bars.txt", lines(f"{s} ||| {t}" for s, t in PAIRS)),
        ("bars.de-en", lines(f"{s} ||| {t}" for s, t in PAIRS)),
        ("tabs.txt", lines(f"{s}\t{t}" for s, t in PAIRS)),
        ("objects.txt", lines(map(json.dumps, OBJECTS))),
    ],
)
def test_pairs_of_other_programs(tmp_path, name, content):
    assert pairs_of(rows_of(tmp_path, name, content)) == PAIRS


def test_values_of_json_may_end_anywhere_in_a_block(tmp_path, monkeypatch):
    for size in (1, 2, 3, 7, 50):
        monkeypatch.setattr("sightline.data.json_files.CHUNK", size)
        assert pairs_of(rows_of(tmp_path, "a.json", json.dumps({"n": 1234567, "rows": OBJECTS}, indent=1))) == PAIRS


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[{", "bad JSON at character"),
        ('[{"de": "a", "en": "b"} {"de": "a"}]', "expected ']'"),
        ('[{"de": "a", "en": "b"}] x', "expected its end"),
        ('{"a": [{}], "b": [{}]}', "the lists 'a', 'b'; expected one list of rows"),
        ('"text"', "expected a list of objects"),
        ("", "has no rows"),
        ("[" * 200_000, "bad JSON"),
        ('[{"de": "' + "x" * 3_000_000 + '"}]', "bad JSON"),
        ('[{"de": "\xff"}]'.encode("latin-1"), "expected UTF-8"),
    ],
)
def test_json_that_is_no_list_of_rows(tmp_path, content, reason):
    with pytest.raises(UserError, match=reason) as caught:
        rows_of(tmp_path, "a.json", content)
    assert "\n" not in str(caught.value)


def test_elements_that_are_no_rows_are_bad_rows(tmp_path):
    rows = rows_of(tmp_path, "a.json", json.dumps([*OBJECTS[:2], 3, {"de": "x"}]))
    assert [bool(row.problem) for row in rows] == [False, False, True, True]


def arrow_files(folder, **columns):
    table = pa.table(columns)
    pq.write_table(table, folder / "a.parquet")
    pyarrow.feather.write_feather(table, str(folder / "a.feather"))
    saved = folder / "saved"
    saved.mkdir(exist_ok=True)
    with (
        pa.OSFile(str(saved / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    (saved / "dataset_info.json").write_text("{}")
    (saved / "state.json").write_text("{}")
    return [str(folder / "a.parquet"), str(folder / "a.feather"), str(saved)]


def test_arrow_feather_and_saved_datasets(tmp_path):
    for path in arrow_files(tmp_path, translation=OBJECTS, id=[*range(7)]):
        assert pairs_of(pair_cells(Source(path))) == PAIRS
        assert pairs_of(pair_cells(Source(path, ("en", "de")))) == [(t, s) for s, t in PAIRS]
    values = {"text": ["a", None, "c"], "label": [["x", "y"], [], None]}
    for path in arrow_files(tmp_path, **values):
        rows = [row.values for row in labelled_cells(Source(path), ()) if row.problem is None]
        assert rows == [("a", None, ["x", "y"]), ("c", None, None)]
    (tmp_path / "saved" / "dataset_dict.json").write_text("{}")
    with pytest.raises(UserError, match=r"name one of its folders, such as .*/train"):
        list(pair_cells(Source(str(tmp_path / "saved"))))
    for path in arrow_files(tmp_path, text=["a"], label=["b"])[:2]:
        with pytest.raises(UserError, match="'text', 'label', which are none of the task's"):
            list(pair_cells(Source(path)))
    (tmp_path / "b.arrow").write_bytes(b"ARROW1 and nothing")
    with pytest.raises(UserError, match="is no Arrow file that can be read"):
        list(pair_cells(Source(str(tmp_path / "b.arrow"))))


MEASURE = """
import resource, sys
import pyarrow.parquet, pyarrow.compute
from sightline.data.reading import pair_cells
from sightline.data.source import Source
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    assert {row.problem.partition(":")[0] for row in pair_cells(Source(path))} == {"cell too long"}, path
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_small_parquet_file_does_not_become_large(tmp_path):
    def repeated(text, count):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))

    files = []
    for name, source in {
        "repeated": repeated("x" * 4_000_000, 1000),
        "long": pa.array(["x" * 20_000_000]),
        "lists": pa.ListArray.from_arrays(pa.array([0, 1000, 2000]), repeated("x" * 900_000, 2000)),
        "numbers": pa.ListArray.from_arrays(pa.array([0, 5_000_000]), pa.array(np.zeros(5_000_000, np.int8))),
    }.items():
        files.append(tmp_path / f"{name}.parquet")
        table = pa.table({"source": source, "target": ["y"] * len(source)})
        pq.write_table(table, files[-1], compression="zstd", dictionary_pagesize_limit=1 << 27)
        assert files[-1].stat().st_size < 100_000
    done = subprocess.run([sys.executable, "-c", MEASURE, *map(str, files)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500_000, "more than 500 MB"


def test_labels_of_fasttext(tmp_path):
    path = written(tmp_path, "a.txt", "__label__pos I like it\n__label__neg __label__rude I do not\n__label__pos\n")
    rows = list(labelled_cells(Source(path), ()))
    assert [row.values for row in rows] == [
        ("I like it", None, "pos"),
        ("I do not", None, "neg|rude"),
        ("", None, "pos"),
    ]
    assert [row.line for row in rows] == [1, 2, 3]


def test_captions_of_coco_and_of_flickr(tmp_path):
    images = [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}]
    captions = [
        {"id": 1, "image_id": 8, "caption": "B one"},
        {"id": 2, "image_id": 7, "caption": "A"},
        {"id": 3, "image_id": 9, "caption": "none"},
        {"id": 4, "image_id": 7},
    ]
    path = written(tmp_path, "c.json", json.dumps({"annotations": captions, "info": {"year": 1}, "images": images}))
    rows = list(read_image_table(path, ("caption",)))
    assert [row.values for row in rows[:2]] == [(tmp_path / "b.jpg", "B one"), (tmp_path / "a.jpg", "A")]
    assert rows[2].problem.startswith("bad caption")
    assert rows[3].problem.startswith("missing field")
    path = written(tmp_path, "captions.txt", 'image,caption\na.jpg,"A dog , running ."\n')
    assert is_image_data(path)
    assert [row.values for row in read_image_table(path, ("caption",))] == [(tmp_path / "a.jpg", "A dog , running .")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.xlsx", "save the sheet as CSV"),
        ("a.zip", "unpack it"),
        ("a.pkl", "a pickle can run code"),
        ("a.txt", "found the ending '.txt'; expected .tsv"),
        ("corpus.fr", "--source and --target"),
    ],
)
def test_what_is_not_read_says_what_to_do(tmp_path, name, words):
    with pytest.raises(UserError, match=words):
        rows_of(tmp_path, name, "une phrase\n")


def test_heic_is_named():
    with pytest.raises(BadImage, match=r"HEIC .* convert it to JPEG"):
        read_image(b"\0\0\0\x18ftypheic" + bytes(100))


def test_other_encodings_of_texts_beside_images_and_of_lines(tmp_path):
    (tmp_path / "ö.png").touch()
    (tmp_path / "ö.txt").write_bytes("ein großer Hund\n".encode("latin-1"))
    (tmp_path / "list").write_bytes("ö.png\n".encode("latin-1"))
    with tables.reading_as("latin-1"):
        (row,) = read_image_table(str(tmp_path), ("caption",))
        assert row.values == (tmp_path / "ö.png", "ein großer Hund")
        assert image_paths([], str(tmp_path / "list")) == [tmp_path / "ö.png"]
        assert [block for block, _ in Lines(str(tmp_path / "ö.txt")).blocks()] == [["ein großer Hund"]]
    (row,) = read_image_table(str(tmp_path), ("caption",))
    assert row.problem == "bad UTF-8: found byte 0xdf at offset 7, expected UTF-8"
    with pytest.raises(UserError, match="neither an image nor a list of images: bad UTF-8"):
        image_paths([], str(tmp_path / "list"))
    with pytest.raises(UserError, match="0xdf, which is not UTF-8; a file in another encoding is read with --encoding"):
        list(Lines(str(tmp_path / "ö.txt")).blocks())
    with tables.reading_as("ascii"):
        (row,) = read_image_table(str(tmp_path), ("caption",))
        assert row.problem == "bad encoding: found byte 0xdf at offset 7, expected ascii"


@pytest.mark.unchecked_shapes  # a stand-in for a run is none
def test_python_and_predict_name_an_encoding_too(tmp_path, monkeypatch):
    data, seen = tmp_path / "data.tsv", []
    data.write_bytes((RUNS / "classify-text" / "data.tsv").read_text().replace("ga", "gä").encode("utf-16"))
    monkeypatch.setattr("sightline.api.train_together", lambda *given, **options: seen.append(tables._ENCODING.get()))
    monkeypatch.setattr("sightline.api.Run.load", lambda out: None)
    sightline.train(str(data), tmp_path / "run", task="classify", encoding="utf-16")
    assert (seen, tables._ENCODING.get()) == (["utf-16"], "utf-8")
    monkeypatch.undo()
    loaded = sightline.load(RUNS / "classify-text" / "run")
    assert loaded.evaluate(str(data), encoding="utf-16").examples
    with pytest.raises(UserError, match="--encoding utf-16"):
        loaded.evaluate(str(data))
    (tmp_path / "texts").write_bytes("gä\nzup ba\n".encode("latin-1"))
    words = ("predict", RUNS / "classify-text" / "run", "--input", "texts")
    assert run(*words, cwd=tmp_path).returncode == 2
    done = run(*words, "--encoding", "latin-1", cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 2, done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "gb18030", "utf-16"])
def test_other_encodings(tmp_path, encoding):
    pairs = [("Größe café", "size")] if encoding != "gb18030" else [("语言 学习", "language")]
    pairs *= 500
    for name, content in (
        ("a.tsv", lines(["source\ttarget", *("\t".join(pair) for pair in pairs)])),
        ("a.json", json.dumps([dict(zip(("de", "en"), pair, strict=True)) for pair in pairs], ensure_ascii=False)),
    ):
        content = content.encode(encoding)
        path = written(tmp_path, name, content)
        tables.read_as(encoding)
        assert pairs_of(pair_cells(Source(path))) == pairs
        assert pairs_of(pair_cells(Source(written(tmp_path, f"{name}.gz", gzip.compress(content))))) == pairs
    tables.read_as("ascii")
    with pytest.raises(UserError, match=r"which is not .*name another --encoding"):
        list(pair_cells(Source(path)))
    tables.read_as(None)
    first = "Größe\tb\n".encode("latin-1")
    with pytest.raises(UserError, match="another encoding is read with --encoding, such as latin-1"):
        rows_of(tmp_path, "b.tsv", first)
    for wrong in ("klingon", "rot13", "base64"):
        with pytest.raises(UserError, match="there is no encoding"):
            tables.read_as(wrong)


def test_chains_of_addresses_are_not_followed(tmp_path):
    pytest.importorskip("aiohttp")
    secret = written(tmp_path, "secret.tsv", "source\ttarget\na\tb\n")
    for address in (
        f"simplecache::file://{secret}",
        f"filecache::file://{secret}",
        f"zip://a.tsv::file://{secret}",
        f"reference://a?fo=file://{secret}",
    ):
        with pytest.raises(UserError, match="chain of addresses"):
            list(pair_cells(Source(address)))

    class Redirect(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"file://{secret}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(UserError) as caught:
            list(pair_cells(Source(f"http://127.0.0.1:{server.server_port}/a.tsv")))
    finally:
        server.shutdown()
        server.server_close()
    assert "\n" not in str(caught.value)
