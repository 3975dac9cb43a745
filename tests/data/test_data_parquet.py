"""Reading Parquet: the same pairs, the same faults named."""

import sys

import pytest

from pair_files import PAIRS, pairs_of, rows_of
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.errors import UserError


def parquet_file(folder, name="a.parquet", **columns):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), folder / name, row_group_size=1000)
    return str(folder / name)


def test_parquet(tmp_path):
    sources, targets = [[*side, *map(str, range(3000))] for side in zip(*PAIRS, strict=True)]
    path = parquet_file(tmp_path, id=list(range(3004)), target=targets, source=sources)
    rows = list(pair_cells(Source(path)))
    assert pairs_of(rows) == list(zip(sources, targets, strict=True))
    assert [row.line for row in rows] == list(range(1, 3005))


def test_parquet_problems_and_columns(tmp_path):
    path = parquet_file(tmp_path, de=["a", None, "c\0"], en=["x", "y", "z"])
    rows = list(pair_cells(Source(path)))
    assert rows[0].values == ("a", "x")
    assert "found null in 'de'" in rows[1].problem
    assert "NUL" in rows[2].problem
    path = parquet_file(tmp_path, one=["a"], two=["b"], Targets=["c"])
    with pytest.raises(UserError, match=r"'one', 'two', 'Targets'.*did you mean 'Targets'"):
        list(pair_cells(Source(path)))


def test_parquet_bad_text(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    text = arrow.Array.from_buffers(
        arrow.string(), 2, [None, arrow.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), arrow.py_buffer(b"okx\xff")]
    )
    rows = list(pair_cells(Source(parquet_file(tmp_path, source=text, target=["a", "b"]))))
    assert rows[0].values == ("ok", "a")
    assert "0xff at offset 1" in rows[1].problem


@pytest.mark.parametrize("content", [b"", b"PAR1 is not enough" * 9])
def test_parquet_damaged(tmp_path, content):
    pytest.importorskip("pyarrow")
    with pytest.raises(UserError, match=r"a\.parquet is no Parquet file") as caught:
        rows_of(tmp_path, "a.parquet", content)
    assert "\n" not in str(caught.value)


def test_parquet_names_that_are_no_text(tmp_path):
    """A column's name stands in the file several times, and each of them may be damaged alone."""
    path = parquet_file(tmp_path, source=["a"], target=["b"])
    whole = (tmp_path / "a.parquet").read_bytes()
    said, start = [], whole.find(b"target")
    while start >= 0:
        (tmp_path / "a.parquet").write_bytes(whole[: start + 2] + b"\xf5" + whole[start + 3 :])
        try:
            assert pairs_of(list(pair_cells(Source(path)))) == [("a", "b")]
        except UserError as error:
            said.append(str(error))
        start = whole.find(b"target", start + 1)
    assert said
    assert all("a.parquet" in text for text in said)


def test_parquet_without_rows(tmp_path):
    with pytest.raises(UserError, match="no rows"):
        list(pair_cells(Source(parquet_file(tmp_path, source=[], target=[]))))


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'sightline\[parquet\]'"):
        rows_of(tmp_path, "a.parquet", b"PAR1")
