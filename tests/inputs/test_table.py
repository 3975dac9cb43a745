"""Tables and questions about them: out of files of every form, as numbers, and stored once."""

import gzip
import json

import numpy as np
import pytest

from sightline.data import table_files
from sightline.data.questions import answer_line, answers_of, question_cells
from sightline.data.source import Source
from sightline.data.table_files import BadTableError, TableFiles, read_table, table_of_text
from sightline.data.table_store import TableStore
from sightline.data.tables import reading_as
from sightline.errors import UserError
from sightline.inputs.table import Asked, TableInput
from sightline.models.asking import NOT_COMPARABLE, unflattened
from sightline.table import DataTable, for_spreadsheet, numbered
from sightline.tasks.ask import ASK
from sightline.tasks.configs.ask import AskConfig
from sightline.tasks.prepare import table_of
from sightline.tasks.task import BadValueError

MEDALS = DataTable.of(
    ["Rank", "Nation", "Gold", "Year"],
    [
        ["1", "Norway", "14", "2018"],
        ["2", "Germany", "14", "2018"],
        ["3", "Canada", "1,100", "2014"],
        ["4", "", "", "-"],
    ],
    "medals",
)
SAME = (("a", "b"), (("1", "2"), ("x", "")))


def test_ragged_rows_are_filled_and_no_cell_is_lost():
    table = DataTable.of(["a"], [["1", "2", "3"], [], ["4"]])
    assert table.header == ("a", "column 2", "column 3")
    assert table.rows == (("1", "2", "3"), ("", "", ""), ("4", "", ""))


def test_names_that_repeat_are_numbered():
    names = ("Gold", "Gold (3)", "column 3", "Gold (2)", "Gold (4)")
    assert numbered(["Gold", "Gold", "", "Gold (2)", "Gold"]) == names
    table = DataTable.of(["Gold", "Gold"], [["1", "2"]])
    assert table.header == ("Gold", "Gold (2)")
    assert table.plain_header == ("Gold", "Gold")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "a,b\r\n1,2\r\nx\r\n"),
        ("t.csv", "a;b\n1;2\nx;\n"),
        ("t.csv", '\ufeff"a",b\n1,2\n\nx,\n'),
        ("t.tsv", "a\tb\n1\t2\nx\n"),
        ("t.json", '[{"a": 1, "b": 2.0}, {"a": "x"}]'),
        ("t.json", '{"header": ["a", "b"], "rows": [[1, 2], ["x"]]}'),
        ("t.json", '[["a", "b"], [1, 2], ["x", null]]'),
        ("t.jsonl", '{"a": 1, "b": 2}\n{"a": "x", "b": ""}\n'),
        ("t.dat", "a,b\n1,2\nx,\n"),
    ],
)
def test_one_table_in_many_forms(name, text, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    table = read_table(tmp_path / name)
    assert (table.header, table.rows) == SAME
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    packed = read_table(tmp_path / f"{name}.gz")
    assert (packed.header, packed.rows) == SAME


def test_a_table_of_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.table({"a": ["1", "x"], "b": [2, None]}), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert (table.header, table.rows) == SAME


def test_quotes_with_a_backslash_are_read(tmp_path):
    (tmp_path / "t.csv").write_text('"a","b"\n"the \\"best\\" one","2, 3"\n')
    assert read_table(tmp_path / "t.csv").rows == (('the "best" one', "2, 3"),)


def test_other_encodings(tmp_path):
    (tmp_path / "t.csv").write_bytes("Stadt,b\nKöln,1\n".encode("latin-1"))
    with pytest.raises(BadTableError, match=r"bad UTF-8: found byte 0xf6.*--encoding"):
        read_table(tmp_path / "t.csv")
    with reading_as("latin-1"):
        assert read_table(tmp_path / "t.csv").rows == (("Köln", "1"),)


def test_bad_tables_are_refused_in_a_sentence(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "open.csv").write_text('a,b\n"1,2\n3,4\n')
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(2000)) + "\n")
    (tmp_path / "sheet.xlsx").write_bytes(b"PK")
    (tmp_path / "no.json").write_text('{"a": 1}')
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(1 << 30)
    for name, reason in {
        "empty.csv": "no columns",
        "open.csv": "never closed",
        "wide.csv": "too many columns: found 2,000",
        "sheet.xlsx": "save the sheet as CSV",
        "no.json": "expected one with the lists header and rows",
        "huge.csv": "too large: found 1,073,741,824 bytes",
        "none.csv": "there is no such file",
        "": "it is a folder",
    }.items():
        with pytest.raises(BadTableError, match=reason):
            read_table(tmp_path / name)


def test_a_packed_file_is_read_no_further_than_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_BYTES", 1000)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 100_000))
    with pytest.raises(BadTableError, match="more than 1,000 bytes"):
        read_table(tmp_path / "t.csv.gz")


def test_a_formula_is_text_and_none_leaves():
    table = table_of_text("a,b\n=cmd(),-5\n")
    assert table.rows == (("=cmd()", "-5"),)
    assert [for_spreadsheet(one) for one in ("=cmd()", "+a", "@x", "-a", "-5", "+1,000", "5%")] == [
        *("'=cmd()", "'+a", "'@x", "'-a"),
        *("-5", "+1,000", "5%"),
    ]


def test_each_file_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    read = []
    monkeypatch.setattr(table_files, "read_table", lambda path: read.append(path) or read_table(path))
    files = TableFiles(tmp_path)
    assert files.table("t.csv") is files.table("t.csv")
    for _ in range(2):
        with pytest.raises(BadTableError, match="no such file"):
            files.table("none.csv")
    assert len(read) == 2
    with pytest.raises(BadTableError, match="address"):
        files.table("https://example.org/t.csv")


@pytest.mark.parametrize("items", [("a",), ("a|b", "c\\n"), ("1,000", "line\nbreak", "back\\slash")])
def test_answers_survive_a_line(items):
    assert answers_of(answer_line(items)) == items
    assert answers_of(list(items)) == items


def test_answers_of_other_forms():
    assert answers_of(3) == ("3",)
    assert answers_of([2.0, "a", "a"]) == ("2", "a")
    for wrong in ("", None, [], " | ", {"a": 1}, [[1]]):
        with pytest.raises(ValueError, match="answer"):
            answers_of(wrong)


def cells_of(data, **options):
    return list(table_of(Source.of(str(data), **options), ASK, ASK.columns))


def test_tables_are_beside_the_data_or_in_it(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "q.tsv").write_text(
        "id\tutterance\tcontext\ttargetValue\nq1\twhich?\ttables/1.csv\t2|3\nq2\twho?\tno.csv\t1\n"
    )
    good, bad = cells_of(tmp_path / "q.tsv")
    assert good.values[0] == "which?"
    assert good.values[1].table.rows == (("1", "2"),)
    assert good.values[4] == "q1"
    assert "no such file" in bad.problem
    rows = [{"question": "a?", "table": {"header": ["x"], "rows": [[1]]}, "answer": ["1"], "kind": "k"}]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (row,) = cells_of(tmp_path / "q.jsonl")
    assert row.values[1].table.rows == (("1",),)
    (tmp_path / "plain.tsv").write_text("question\tanswer\na?\t1\n")
    (row,) = cells_of(tmp_path / "plain.tsv", table=str(tmp_path / "tables" / "1.csv"))
    assert row.values[1].table.header == ("a", "b")


def test_made_questions_have_kinds_and_others_to_score():
    source = Source.of("made:tables:kinds=max_print+match_count:count=4:rows=5")
    rows = list(question_cells(source, ASK.columns))
    assert {row.values[3] for row in rows} == {"max_print", "match_count"}
    assert all(len(row.values[1].table.rows) == 5 for row in rows)
    again = list(question_cells(source, ASK.columns))
    assert [row.values[0] for row in again] == [row.values[0] for row in rows]
    scored = list(question_cells(Source.of("made:tables:count=4:rows=5", scored=True), ASK.columns))
    assert [row.values[1] for row in scored] != [row.values[1] for row in rows]
    for wrong in ("made:tables:kinds=fly", "made:tables:rows=1", "made:tables:what=1", "made:copy"):
        with pytest.raises(UserError, match=r"made:|made data"):
            list(question_cells(Source.of(wrong), ASK.columns))


def test_tables_of_other_cells_have_other_digests():
    tables = [
        DataTable.of(["a\1b"], []),
        DataTable.of(["a"], [["b"]]),
        DataTable.of(["a\2\3b"], []),
        DataTable.of(["a\2", "b"], []),
    ]
    assert len({one.digest for one in tables}) == len(tables)


def test_a_table_is_stored_once(tmp_path):
    store = TableStore.create(tmp_path)
    assert store.add(MEDALS) == store.add(DataTable("other", MEDALS.header, MEDALS.rows))
    store.add(MEDALS.head(1))
    assert len((tmp_path / "tables.jsonl").read_text().splitlines()) == 2
    store.close()
    for one in (store, TableStore.open(tmp_path)):
        assert one.get(MEDALS.digest) == MEDALS
    with pytest.raises(UserError, match="is missing"):
        TableStore.open(tmp_path / "elsewhere")


def reading(**fields):
    return TableInput(AskConfig(**fields), ["which", "nation", "won", "more", "than", "10", "gold"])


def test_what_a_model_reads_of_a_question():
    part = reading().encode([Asked("which nation won more than 14 gold, Norway?", MEDALS)])[0][0]
    assert part.words[:4].tolist() == [2, 3, 4, 5]
    assert part.number_at.tolist() == [5, -1]
    assert part.ranks[:, 2].tolist() == [1, 1, 2, 0]
    assert part.signs[0, :, 2].tolist() == [0, 0, 1, NOT_COMPARABLE]
    assert (part.signs[1] == NOT_COMPARABLE).all()
    assert part.entries[:, 2].tolist() == [0, 0, 1, 2]
    assert part.matches[:, 1].tolist() == [1, 0, 0, 0]
    assert part.named.tolist() == [0, 1, 1, 0]
    batch = reading().collate([reading().stored(part).astype(np.uint16), part])
    assert (batch.signs[0] == batch.signs[1]).all()
    assert reading().size(part) == len(reading().stored(part))
    assert unflattened(part.flat()).shape == part.shape


def test_training_leaves_out_rows_and_predictions_do_not():
    own = reading(max_rows=2)
    xs = [Asked("which nation?", MEDALS)]
    assert own.train_parts(xs)[0][0].ranks.shape == (2, 4)
    assert own.encode(xs)[0][0].ranks.shape == (4, 4)
    assert "1 table has more than 2 rows (max_rows)" in own.notes()[0]


def test_items_of_python_lines_and_requests(tmp_path):
    own = reading()
    table = MEDALS.to_json()
    assert own.item(("a?", table)).table == MEDALS
    assert own.item({"question": "a?", "table": table}) == own.item(Asked("a?", MEDALS))
    assert own.item(own.requested(Asked("a?", MEDALS))).table.rows == MEDALS.rows
    (tmp_path / "m.csv").write_text(MEDALS.to_csv())
    assert own.parse(f"a?\t{tmp_path / 'm.csv'}", 1, False).table.rows == MEDALS.rows
    about = own.about_table(str(tmp_path / "m.csv"), "run")
    assert about.parse("a?", 1, False).table.rows == MEDALS.rows
    assert about.item("a?").question == "a?"
    for wrong in ("a?", ("a?",), ("a?", {"x": 1}), {"table": table}):
        with pytest.raises(UserError, match="table"):
            own.item(wrong)
    with pytest.raises(UserError, match="--table"):
        own.parse("a?", 3, False)
    with pytest.raises(BadValueError, match="no table"):
        own.read({"question": "a?"})
