"""Pictures and films of tables: which rows are shown, what is shaded, and what strangers' files may hold."""

import itertools
import json
from copy import deepcopy

import numpy as np
import pytest
from PIL import Image

from asked import HEADER, ROWS, explained, large, made_pass, norway
from sightline.asked import AskedTable
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.models.asking import Program
from sightline.view.table_excerpt import Gap, excerpt_columns, excerpt_rows, gap_text
from sightline.view.tables import FRAME, MARK, TablePanel, cut, fitted, table_figure

pytestmark = pytest.mark.unchecked_shapes


def plain(parts):
    return [f"…{one.count}" if isinstance(one, Gap) else one for one in parts]


def printed_rows(total, *rows):
    """A table of which these rows are printed."""
    selected = np.zeros(total)
    selected[list(rows)] = 1.0
    passes = (made_pass("print", 0, {0: 0.9}, selected, 2, 2),)
    cells = [[f"{row}", "x"] for row in range(total)]
    program = Program(passes, None, tuple((row, 0) for row in rows), 0.0)
    return explained(program, ["a", "b"], cells, ["which", "?"], ["print a"], "it")


# --- The plain data.


def test_a_table_survives_json():
    for explanation in (norway(), large(50, 5, 2)):
        data = json.loads(json.dumps(explanation.to_json(), allow_nan=False))
        again = Explanation.from_json(data)
        assert again.to_json() == explanation.to_json()
        assert again.table.header == explanation.table.header


def test_maps_are_those_of_the_passes():
    explanation = norway()
    names = {"question": "word_weights", "operations": "operation_probs", "columns": "column_probs"}
    for name, field in names.items():
        (record,) = explanation.of(name)
        expected = [getattr(one, field) for one in explanation.table.passes]
        np.testing.assert_allclose(record.matrix(), np.array(expected), rtol=1e-6)
        assert len(record.rows) == 4
    assert explanation.records[0].rows.texts == ("1 reset", "2 match Nation", "3 max Gold", "4 print Year")
    assert explanation.table.passes[0].column == -1  # reset uses none


def test_a_very_large_table_keeps_the_rows_that_matter():
    whole = printed_rows(1000, 700).table
    small = AskedTable.of(whole.header, whole.rows, whole.words, whole.operations, whole.passes, None, whole.cells, 20)
    assert len(small.rows) == 10
    assert small.total == 1000
    assert small.passes[0].rows_selected == 1
    ((row, column),) = small.cells
    assert small.numbers[row] == 700
    assert small.rows[row][column] == "700"
    assert {699, 701} <= {*small.numbers}
    assert AskedTable.from_json(json.loads(json.dumps(small.to_json()))).numbers == small.numbers


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("header",), "Year"),
        (("header",), ["x"] * 10_001),
        (("header", 0), 5),
        (("rows",), {}),
        (("rows", 0), ["too", "few"]),
        (("rows", 0, 0), None),
        (("rows", 0, 0), "x" * 2001),
        (("words",), ["x"] * 10_001),
        (("passes",), [{}] * 65),
        (("passes", 0, "operation"), 15),
        (("passes", 0, "operation"), True),
        (("passes", 0, "column"), -2),
        (("passes", 0, "rows"), [1.0]),
        (("passes", 0, "rows"), [2.0] * 7),
        (("passes", 0, "rows"), ["1"] * 7),
        (("passes", 0, "rows"), [float("nan")] * 7),
        (("passes", 0, "rows"), [10**400] * 7),
        (("passes", 0, "rows_selected"), 8),
        (("passes", 0, "sentence"), 1),
        (("cells",), [[0, 6]]),
        (("cells",), [[0, 0, 0]]),
        (("cells",), [["0", 0]]),
        (("count",), -1),
        (("count",), "many"),
        (("numbers",), [0, 1, 2, 3, 4, 5, 5]),
    ],
)
def test_a_strangers_file_is_checked(path, value):
    data = deepcopy(norway().to_json())
    place = data["table"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises((ValueError, OverflowError)):
        Explanation.from_json(data)


# --- Which rows and columns are shown.


def test_a_small_table_is_shown_whole():
    assert plain(excerpt_rows(norway().table, 10)) == list(range(7))
    assert plain(excerpt_columns(norway().table, 10)) == list(range(6))


def test_printed_rows_have_their_neighbours_and_gaps_are_counted():
    parts = excerpt_rows(printed_rows(1000, 20, 500).table, 9)
    assert plain(parts) == ["…19", 19, 20, 21, "…477", 499, 500, 501, "…498"]
    assert sum(one.count if isinstance(one, Gap) else 1 for one in parts) == 1000


def test_no_gap_is_one_row():
    assert plain(excerpt_rows(printed_rows(100, 1, 4, 6).table, 9))[:7] == [0, 1, 2, 3, 4, 5, 6]


def test_more_printed_rows_than_fit():
    parts = excerpt_rows(printed_rows(1000, *range(0, 1000, 2)).table, 8)
    assert len(parts) <= 8


def test_a_gap_says_how_many_are_selected():
    table = large(2000, 4, 2).table
    parts = excerpt_rows(table, 12)
    one = table.passes[0]
    seen = sum(one.rows[part] for part in parts if not isinstance(part, Gap))
    hidden = [gap_text(part, one.rows) for part in parts if isinstance(part, Gap)]
    counts = [int(text.split(", ")[-1].split()[0].replace(",", "")) for text in hidden if "selected" in text]
    assert seen + sum(counts) == one.rows_selected


def test_columns_that_are_chosen_stay():
    parts = excerpt_columns(large(20, 40).table, 5)
    assert 17 in parts
    assert sum(one.count if isinstance(one, Gap) else 1 for one in parts) == 40


# --- Pictures.


def painted(explanation, number, width=6.0, last=False):
    from matplotlib.figure import Figure

    from sightline.view.highlight import sheet

    table = explanation.table
    layout = fitted(table, excerpt_rows(table, 20), width, 7.0)
    panel = TablePanel(sheet(Figure(), 0, 0, width, 4), table, layout, 0.0, 0.0, 7.0)
    panel.paint(number, last=last)
    return panel


def test_selected_rows_are_shaded_and_marked():
    panel = painted(norway(), 1)
    marked = [row for row, text in panel.marks.items() if MARK in text.get_text()]
    assert marked == [0, 2, 4, 5]
    white = (1.0, 1.0, 1.0, 1.0)
    assert [row for row in range(7) if panel.cells[row, 2][0].get_facecolor() != white] == marked
    darker = [sum(panel.cells[0, column][0].get_facecolor()) for column in (1, 2)]
    assert darker[0] < darker[1]  # where the chosen column crosses a selected row
    assert panel.column.get_visible()
    assert panel.column.get_x() == pytest.approx(panel.cells[0, 1][0].get_x())


def test_printed_cells_are_framed_only_at_the_end():
    from matplotlib.colors import to_rgba

    for last in (False, True):
        panel = painted(norway(), 3, last=last)
        framed = [place for place, (box, _) in panel.cells.items() if box.get_linewidth() > 1]
        assert framed == ([(5, 0)] if last else [])
    assert panel.cells[5, 0][0].get_edgecolor() == to_rgba(FRAME)


def test_columns_fit_into_the_width():
    for width in (3.4, 7.0):
        layout = painted(large(30, 40), 0, width).layout
        assert layout.width <= width + 1e-6
        assert 17 in layout.columns


def test_cells_are_cut_to_their_column():
    assert cut("short", 7.0, 2.0) == "short"
    found = cut("a cell that is much too long for its column", 7.0, 0.8)
    assert found.endswith("…")
    assert found[:-1] == "a cell that is much too long for its column"[: len(found) - 1]


@pytest.mark.parametrize("width", [3.4, 7.0])
def test_nothing_leaves_the_picture_or_overlaps(width):
    figure = table_figure(norway().table, "2002", "in which year?", width)
    figure.canvas.draw()
    boxes = [one.get_window_extent() for one in figure.axes[0].texts if one.get_text().strip()]
    right = figure.bbox.width + 1
    assert all(box.x0 >= -1 and box.x1 <= right for box in boxes)
    over = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.padded(-1.5).overlaps(b.padded(-1.5))]
    assert over == []


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_the_table_and_the_same_each_time(tmp_path, ending):
    paths = [norway().save(tmp_path / f"{number}.{ending}") for number in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    if ending == "svg":
        text = paths[0].read_text()
        assert text.count("Lillehammer") == 8
        assert "rows where Nation matches 'Norway'" in text


def test_hostile_cells_are_text(tmp_path):
    words = ["<b>", "$x^2$", "\u202eabc", "\x00"]
    program = Program((made_pass("print", 0, {0: 0.9}, [1, 1], 2, 4),), None, ((0, 0),), 0.0)
    rows = [["<script>alert(1)</script>", "$\\frac{1}{2}$"], ["\x00\x07", "=cmd()"]]
    explanation = explained(program, ["<a>", ""], rows, words, ["print <a>"], "<script>")
    text = explanation.save(tmp_path / "hostile.svg").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    page = explanation.save(tmp_path / "hostile.html").read_text()
    assert "alert(1)" not in page


def test_a_map_of_its_choices_is_drawn_by_name(tmp_path):
    text = norway().save(tmp_path / "map.svg", name="operations").read_text()
    assert "most_frequent" in text
    assert "Lillehammer" not in text


def test_a_film_has_a_frame_for_each_pass(tmp_path):
    with Image.open(norway().save(tmp_path / "film.gif")) as film:
        assert film.n_frames == 5
        frames = []
        for number in range(5):
            film.seek(number)
            frames.append(np.asarray(film.convert("RGB")).astype(int))
    assert all(np.abs(a - b).sum() > 0 for a, b in itertools.pairwise(frames))


def test_a_program_without_passes_cannot_be_drawn(tmp_path):
    explanation = explained(Program((), None, (), 0.0), HEADER, ROWS, ["why"], [], "no answer")
    with pytest.raises(UserError, match="no passes"):
        explanation.save(tmp_path / "none.png")
    explanation.save(tmp_path / "none.html")
