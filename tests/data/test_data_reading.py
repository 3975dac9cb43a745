"""Reading pairs: every format, every fault of a row, every fault of a file, and memory that stays flat."""

import csv
import gzip
import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pair_files import PAIRS, pairs_of, rows_of, written
from sightline.data.columns import TableRow
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.data.tables import LINE_LIMIT
from sightline.errors import UserError
from sightline.tasks.registry import task_named


def as_tsv(pairs):
    return "".join(f"{source}\t{target}\n" for source, target in [("source", "target"), *pairs]).encode()


def as_csv(pairs):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("source", "target"), *pairs])
    return text.getvalue().encode()


def as_jsonl(pairs, **options):
    return "".join(json.dumps({"target": t, "id": 1, "source": s}, **options) + "\n" for s, t in pairs).encode()


WRITERS = {"tsv": as_tsv, "csv": as_csv, "jsonl": as_jsonl, "ndjson": as_jsonl}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("packed", ["", ".gz", "gzip without the name", ".gz without gzip"])
@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_gives_the_same_pairs(tmp_path, kind, packed, ending, mark):
    content = mark + WRITERS[kind](PAIRS).replace(b"\r\n", b"\n").replace(b"\n", ending.encode())
    if packed in (".gz", "gzip without the name"):
        content = gzip.compress(content, mtime=0)
    rows = rows_of(tmp_path, f"pairs.{kind}" + (".gz" if packed.startswith(".gz") else ""), content)
    assert pairs_of(rows) == PAIRS
    first = 1 if WRITERS[kind] is as_jsonl else 2  # the others have a header
    assert [row.line for row in rows] == list(range(first, first + len(PAIRS)))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_aligned_files(tmp_path, ending):
    sources, targets = zip(*PAIRS, strict=True)
    source = written(tmp_path, "a.de", "\ufeff" + "".join(text + ending for text in sources))
    target = written(tmp_path, "a.en", gzip.compress(ending.join(targets).encode()))  # no line break at the end
    rows = list(pair_cells(Source.of(None, source=source, target=target)))
    assert pairs_of(rows) == PAIRS
    assert rows[1] == TableRow(PAIRS[1], source, 2, None)
    assert pairs_of(pair_cells(Source.of(None, source=source, target=source))) == [(text, text) for text in sources]


def test_an_empty_line_of_an_aligned_file_is_a_row(tmp_path):
    source, target = written(tmp_path, "a", "x\n\ny\n"), written(tmp_path, "b", "1\n2\n3")
    assert pairs_of(pair_cells(Source.of(None, source=source, target=target))) == [("x", "1"), ("", "2"), ("y", "3")]


def test_csv_records_start_where_they_start(tmp_path):
    content = 'source,target\n"a\nb","c ""d"""\nx,y\n"p\r\nq",\n5" pipe,z\n'
    rows = rows_of(tmp_path, "a.csv", content)
    assert pairs_of(rows) == [("a\nb", 'c "d"'), ("x", "y"), ("p\r\nq", ""), ('5" pipe', "z")]
    assert [row.line for row in rows] == [2, 4, 5, 7]


@pytest.mark.parametrize(
    ("bad", "words"),
    [('"never closed,x', "expected after|never closed"), ('"a"b,c', "expected after"), ("a\rb,c", "carriage return")],
)
@pytest.mark.parametrize("quoted_later", [True, False])
def test_a_bad_quote_spoils_one_row_only(tmp_path, bad, words, quoted_later):
    after = [(f"s{i}", f'"t{i}"' if quoted_later and i == 30 else f"t{i}") for i in range(50)]
    rows = rows_of(tmp_path, "a.csv", f"source,target\nx,y\n{bad}\n" + "".join(f"{s},{t}\n" for s, t in after))
    assert [row.line for row in rows if row.problem] == [3]
    assert [row.values for row in rows if not row.problem][1:] == [(s, t.strip('"')) for s, t in after]
    assert rows[1].problem.startswith("bad CSV: found ")
    assert any(word in rows[1].problem for word in words.split("|"))


MEASURE = """
import json, sys, tracemalloc
from sightline.data.reading import pair_cells
from sightline.data.source import Source
files = json.loads(sys.argv[1])
tracemalloc.start()
rows, bad = 0, []
for row in pair_cells(Source.of(files.pop("data", None), **files)):
    rows += 1
    if row.problem:
        bad.append([row.line, row.problem])
print(json.dumps([rows, bad, tracemalloc.get_traced_memory()[1]]))
assert "torch" not in sys.modules
"""


def measured(**files):
    """How many rows, which are bad, the most memory. In a process of its own: checked signatures are slow."""
    done = subprocess.run([sys.executable, "-c", MEASURE, json.dumps(files)], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path):
    content = 'source,target\n"x,y\n' + "some words,other words\n" * 60_000
    rows, bad, peak = measured(data=written(tmp_path, "a.csv", content))
    assert rows == 60_001
    assert [line for line, _ in bad] == [2]
    assert peak < 8e6


GOOD = b'{"source": "a", "target": "b"}\n'


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("a.tsv", b"source\ttarget\na\tb\tc\n", 2, ["wrong number of columns", "found 3", "expected 2"]),
        ("a.tsv", b"source\ttarget\na\tb\n\n", 3, ["wrong number of columns", "found 1", "expected 2"]),
        ("a.tsv", b"source\ttarget\nok\tb\na\xff\tb\n", 3, ["bad UTF-8", "0xff", "offset 1", "line 3"]),
        ("a.tsv", b"source\ttarget\na\0\tb\n", 2, ["NUL", "source"]),
        ("a.csv", b"source,target\na\n", 2, ["wrong number of columns", "found 1", "expected 2"]),
        ("a.csv", b'source,target\n"a\nb\xe4",c\n', 2, ["bad UTF-8", "0xe4", "offset 1", "line 3"]),
        ("a.csv", b"source,target\na,\0\n", 2, ["NUL", "target"]),
        ("a.jsonl", GOOD + b'{"source": "a"}\n', 2, ["missing field", "'source'", "expected 'target'"]),
        ("a.jsonl", GOOD + b'{"source": "a", "Target": "b"}\n', 2, ["missing field", "did you mean 'Target'"]),
        ("a.jsonl", b'{"source": "a", "target": 3}\n', 1, ["field is not text", "a number", "'target'", "a string"]),
        ("a.jsonl", b'{"source": null, "target": "b"}\n', 1, ["field is not text", "null", "'source'"]),
        ("a.jsonl", b'{"source": "a", "target": "b"\n', 1, ["bad JSON", "column 30", "an object"]),
        ("a.jsonl", b'["a", "b"]\n', 1, ["bad JSON", "a list", "an object"]),
        ("a.jsonl", b"\n", 1, ["bad JSON", "column 1"]),
        ("a.jsonl", b'{"source": "a\\u0000", "target": "b"}\n', 1, ["NUL", "source"]),
        ("a.jsonl", b'{"source": "a", "target": "\\ud800"}\n', 1, ["bad JSON", "surrogate", "'target'"]),
        ("a.jsonl", b"[" * 100_000 + b"\n", 1, ["bad JSON"]),
        ("a.jsonl", b"1" * 5000 + b"\n", 1, ["bad JSON"]),
    ],
)
def test_a_bad_row_says_what_is_wrong(tmp_path, name, content, line, words):
    bad = [row for row in rows_of(tmp_path, name, content) if row.problem]
    assert [(row.file, row.line, row.values) for row in bad] == [(str(tmp_path / name), line, ("", ""))]
    for word in words:
        assert word in bad[0].problem


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "aligned"])
def test_a_line_that_is_too_long_is_one_bad_row(tmp_path, kind):
    long = "x" * (3 * LINE_LIMIT)
    pairs = [("a", "b"), (long, "c"), ("d", "e")]
    if kind == "aligned":
        source = written(tmp_path, "s", "".join(s + "\n" for s, _ in pairs))
        files = {"source": source, "target": written(tmp_path, "t", "b\nc\ne\n")}
    else:
        files = {"data": written(tmp_path, f"a.{kind}", WRITERS[kind](pairs))}
    rows = list(pair_cells(Source.of(files.get("data"), source=files.get("source"), target=files.get("target"))))
    assert [row.values for row in rows] == [("a", "b"), ("", ""), ("d", "e")]
    assert rows[1].problem.startswith("line too long: found 3,000,0")
    assert measured(**files)[2] < 2.9e6, "the line was held whole"


@pytest.mark.parametrize("extra", [0, 1])
def test_the_limit_of_a_line_is_exact(tmp_path, extra):
    length = LINE_LIMIT - 2 + extra
    for ending in ("", "\n"):
        rows = rows_of(tmp_path, "a.tsv", f"source\ttarget\n{'x' * length}\ty{ending}")
        assert [bool(row.problem) for row in rows] == [bool(extra)]


def test_bad_utf8_in_the_middle_of_a_large_file(tmp_path):
    lines = as_tsv([(f"Straße {i}", "street") for i in range(20_000)]).split(b"\n")
    lines[15_000] = b"Stra\xdfe\tstreet"
    rows = rows_of(tmp_path, "a.tsv", b"\n".join(lines))
    assert len(rows) == 20_000
    (bad,) = [row for row in rows if row.problem]
    assert bad.line == 15_001
    assert "0xdf at offset 4 of line 15001" in bad.problem


def test_a_problem_of_an_aligned_file_names_that_file(tmp_path):
    source, target = written(tmp_path, "s", b"a\nb\xff\nc\n"), written(tmp_path, "t", b"1\n2\n3\xfe\n")
    rows = list(pair_cells(Source.of(None, source=source, target=target)))
    assert [(row.file, row.line) for row in rows if row.problem] == [(source, 2), (target, 3)]


# --- columns


@pytest.mark.parametrize(
    ("header", "columns", "expected"),
    [
        ("target\tsource", None, [("2", "1")]),
        ("id\tsource\ttarget\tnote", None, [("2", "3")]),
        ("id\tde\ten", ("en", "de"), [("3", "2")]),
        ("en\tsource", None, [("2", "1")]),  # the named one keeps its side
        ("target\ten", None, [("2", "1")]),
        ("ein Haus\ta house", None, [("ein Haus", "a house"), ("1", "2")]),
        ("Source\tTarget", None, [("1", "2")]),
        ("en\tde", ("de", "de"), [("2", "2")]),
        ("en\tfr", None, [("1", "2")]),
        ("id\tGerman\tEnglish", None, [("2", "3")]),
        ("pt_BR\tzh-CN", None, [("1", "2")]),
        ("text\tsummary", None, [("1", "2")]),
        ("tgt\tsrc", None, [("2", "1")]),
    ],
)
@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_columns(tmp_path, kind, header, columns, expected):
    content = f"{header}\n" + "\t".join("1234"[: header.count("\t") + 1]) + "\n"
    options = {"columns": columns} if columns else {}
    rows = rows_of(tmp_path, f"a.{kind}", content.replace("\t", "," if kind == "csv" else "\t"), **options)
    assert pairs_of(rows) == expected


@pytest.mark.parametrize(
    ("header", "columns", "words"),
    [
        (
            "id\tsrc_text\tTargets",
            None,
            ["'src_text'", "'source' and 'target'", "did you mean", "'Targets' for"],
        ),
        ("one", ("source", "target"), ["'one'"]),
        ("id\tde\ten", ("de", "fr"), ["'de', 'en'", "'de', 'fr'"]),
        ("german\tenglish", ("de", "en"), ["'german', 'english'", "'de', 'en'"]),
        ("text\tlabel", None, ["'text', 'label'", "--columns", "above it"]),
        ("\t".join(f"column{i}" + "x" * 500 for i in range(50)), ("de", "fr"), ["and 40 more", "…"]),
    ],
)
def test_missing_columns(tmp_path, header, columns, words):
    with pytest.raises(UserError) as caught:
        rows_of(tmp_path, "a.tsv", header + "\n1\t2\t3\n", columns=columns)
    for word in ["a.tsv", *words]:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 800


SENTENCES = [(f"Das ist Satz {i}.", f"This is sentence {i}.") for i in range(400)]


@pytest.mark.parametrize(
    ("header", "pairs", "count"),
    [
        ("en\tfr", SENTENCES, 400),
        ("ein Haus\ta house", SENTENCES, 401),
        ("Hallo!\tHello!", SENTENCES, 401),
        ("Haus\thouse", [(f"Wort{i}", f"word{i}") for i in range(400)], 401),
        ("Haus\thouse", [], 1),
        ("col_a\tcol_b", SENTENCES, None),
        ("text\tlabel", [(s, "pos") for s, _ in SENTENCES], None),
        ("review\tsentiment", [(f"w{i}", "pos") for i in range(400)], None),
    ],
)
def test_a_header_is_no_row_and_a_row_no_header(tmp_path, header, pairs, count):
    content = "".join(f"{line}\n" for line in [header, *("\t".join(pair) for pair in pairs)])
    if count is None:
        with pytest.raises(UserError, match="none of the task's; name the columns to use with --columns"):
            rows_of(tmp_path, "a.tsv", content)
    else:
        assert len(rows_of(tmp_path, "a.tsv", content)) == count


# --- files


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.tsv", b"", ["no rows"]),
        ("a.csv", b"", ["no rows"]),
        ("a.jsonl", b"", ["no rows"]),
        ("a.tsv.gz", gzip.compress(b"", mtime=0), ["no rows"]),
        ("a.tsv", b"source\ttarget\n", ["no rows", "header alone"]),
        ("a.csv", b"source,target", ["no rows", "header alone"]),
        ("a.tsv", "source\ttarget\na\tb\n".encode("utf-16"), ["UTF-16", "UTF-8"]),
        ("a.tsv", b"sour\xff\ttarget\na\tb\n", ["a.tsv:1", "0xff"]),
        ("a.txt", b"a b\n", ["'.txt'", ".tsv", ".parquet"]),
        ("a.tsv.gz", gzip.compress(as_tsv(PAIRS * 3000), mtime=0)[:-9], ["cut short"]),
        ("a.tsv.gz", gzip.compress(as_tsv(PAIRS), mtime=0)[:-8] + b"12345678", ["damaged gzip"]),
        ("a.tsv.gz", gzip.compress(as_tsv(PAIRS), mtime=0)[:10] + b"\xff" * 60, ["damaged gzip"]),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path, name, content, words):
    with pytest.raises(UserError) as caught:
        rows_of(tmp_path, name, content)
    for word in [name, *words]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.jsonl", "a.parquet", "a.unknown", "."])
def test_a_file_that_is_not_there_and_a_folder(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(UserError, match="folder" if name == "." else "no such file"):
        next(pair_cells(Source(str(path))))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).mkdir(exist_ok=True)
    with pytest.raises(UserError, match="folder"):
        next(pair_cells(Source(str(folder / name))))


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = written(tmp_path, "a.tsv", "a\tb\n")
    monkeypatch.setattr("builtins.open", refuse)  # who runs the tests may be root, whom no permission stops
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        next(pair_cells(Source(path)))


@pytest.mark.parametrize(("sources", "targets"), [(3, 5), (5, 3), (0, 2), (2, 0), (4000, 9000)])
def test_unequal_counts(tmp_path, sources, targets):
    source, target = written(tmp_path, "s", "x\n" * sources), written(tmp_path, "t", "y\n" * targets)
    with pytest.raises(UserError) as caught:
        list(pair_cells(Source.of(None, source=source, target=target)))
    short, long = sorted([(sources, source), (targets, target)])
    assert f"{short[1]} has {short[0]:,} lines and {long[1]} has {long[0]:,};" in str(caught.value)


WRONG = [{}, {"source": "a"}, {"target": "a"}, {"data": "a", "source": "b"}, {"source": "-", "target": "-"}]


@pytest.mark.parametrize("options", [*WRONG, {"data": "a", "columns": ("a", "")}])
def test_what_was_given_must_make_sense(options):
    source = Source.of(options.pop("data", None), **options)
    with pytest.raises(UserError):
        task_named("translate").check_source(source) or pair_cells(source)


# --- standard input

SCRIPT = """
import json, sys
from sightline.data.reading import pair_cells
from sightline.data.source import Source
for row in pair_cells(Source(sys.argv[1])):
    print(json.dumps(row))
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_guessed(path, kind, packed):
    content = b"\xef\xbb\xbf" + WRITERS[kind](PAIRS)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, path],
        input=gzip.compress(content, mtime=0) if packed else content,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    rows = [TableRow(tuple(values), *place) for values, *place in map(json.loads, done.stdout.splitlines())]
    assert pairs_of(rows) == PAIRS
    assert {row.file for row in rows} == {"standard input" if path == "-" else path}


def test_a_stream_that_comes_byte_by_byte(monkeypatch):
    class Slow(io.RawIOBase):
        def __init__(self, content):
            self.content = content

        def readable(self):
            return True

        def readinto(self, buffer):
            found, self.content = self.content[:1], self.content[1:]
            buffer[: len(found)] = found
            return len(found)

    stream = io.BufferedReader(Slow(gzip.compress(as_tsv(PAIRS), mtime=0)))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    assert pairs_of(pair_cells(Source("-"))) == PAIRS


def test_standard_input_read_twice_says_so(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(as_tsv(PAIRS))))
    assert pairs_of(pair_cells(Source("-"))) == PAIRS
    with pytest.raises(UserError, match=r"standard input has no rows.*only once"):
        list(pair_cells(Source("-")))


# --- any text, and much of it

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t\r\0"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), ascii_only=st.booleans(), packed=st.booleans())
def test_any_text_comes_back(tmp_path, pairs, ascii_only, packed):
    for kind, write in WRITERS.items():
        content = write(pairs, ensure_ascii=ascii_only) if write is as_jsonl else write(pairs)
        assert pairs_of(rows_of(tmp_path, f"a.{kind}", gzip.compress(content, mtime=0) if packed else content)) == pairs


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(min_size=1), kind=st.sampled_from(sorted(WRITERS)))
def test_any_bytes_give_rows_or_one_sentence(tmp_path, content, kind):
    try:
        rows = rows_of(tmp_path, f"a.{kind}", content)
    except UserError:
        return
    assert all(isinstance(row, TableRow) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_memory_stays_flat(tmp_path, kind):
    count = 200_000 if kind == "tsv" else 40_000
    pairs = ((f"source {i}", "the target " * 5) for i in range(count))
    rows, bad, peak = measured(data=written(tmp_path, f"a.{kind}", WRITERS[kind](pairs)))
    assert (rows, bad) == (count, [])
    assert peak < 2e6
