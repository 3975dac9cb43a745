"""The confusion matrix and the reliability picture: what is drawn, read from the figure."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from sightline.metrics import ece, reliability_bins
from sightline.view import charts
from sightline.view.charts import MOST, confusion_matrix, draw_curves, reliability

MATRIX = np.array([[90, 10, 0], [5, 15, 0], [0, 0, 0]])
NAMES = ["fréquent", "酒店", "a name that is far too long to be written in a picture"]


@pytest.fixture
def figure_of(monkeypatch):
    """Calls a function that draws, and gives the figure instead of a file."""
    figures = []

    def keep(figure, path):
        figures.append(figure)
        return path

    def call(draw, *arguments, **options):
        draw(*arguments, **options, path=Path("unused.png"))
        return figures[-1]

    monkeypatch.setattr(charts, "save", keep)
    return call


def written(axes):
    return {(round(one.get_position()[1]), round(one.get_position()[0])): one.get_text() for one in axes.texts}


def test_counts_are_written_and_shades_are_shares_of_the_row(figure_of):
    axes = figure_of(confusion_matrix, MATRIX, NAMES, title="accuracy 87.5").axes[0]
    assert written(axes) == {(0, 0): "90", (0, 1): "10", (1, 0): "5", (1, 1): "15"}
    shades = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert shades[:2] == pytest.approx(np.array([[0.9, 0.1, 0], [0.25, 0.75, 0]]))
    assert np.isnan(shades[2]).all()  # no text of that class: grey, not white
    names = [one.get_text() for one in axes.get_yticklabels()]
    assert names[:2] == NAMES[:2]
    assert len(names[2]) <= 24
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("gold label", "predicted label")
    # white on dark, black on light
    inks = {one.get_text(): to_hex(one.get_color()) for one in axes.texts}
    assert (inks["90"], inks["10"]) == ("#ffffff", "#000000")


def test_counts_fit_into_their_cells_and_labels_do_not_touch(figure_of):
    matrix = np.full((MOST, MOST), 8888)
    figure = figure_of(confusion_matrix, matrix, [f"class {one}" for one in range(MOST)])
    figure.canvas.draw()
    axes = figure.axes[0]
    width, height = (side / MOST for side in axes.get_window_extent().size)
    boxes = [one.get_window_extent() for one in axes.texts[:: MOST + 1]]
    assert max(box.width for box in boxes) < width
    assert max(box.height for box in boxes) < height
    labels = [one.get_window_extent() for one in axes.get_yticklabels()]
    assert len(labels) == MOST
    assert not any(a.overlaps(b) for a, b in pairwise(labels))


def test_of_more_classes_the_rest_is_one_and_no_text_is_lost(figure_of):
    draw = np.random.default_rng(0)
    matrix = draw.integers(3, size=(70, 70))
    matrix[7] += 100
    axes = figure_of(confusion_matrix, matrix, [f"c{one}" for one in range(70)]).axes[0]
    names = [one.get_text() for one in axes.get_yticklabels()]
    assert len(names) == MOST
    assert names[-1] == "21 others"
    assert "c7" in names
    assert sum(int(one.get_text()) for one in axes.texts) == matrix.sum()
    assert written(figure_of(confusion_matrix, np.array([[1_234_567, 45_678]] * 2), ["a", "b"]).axes[0])[0, 0] == "1.2M"
    with pytest.raises(ValueError, match="2 names"):
        figure_of(confusion_matrix, MATRIX, ["a", "b"])


DRAW = np.random.default_rng(0)
SURE = 0.5 + DRAW.random(300) / 2
SHARES, GOLD = np.stack([SURE, 1 - SURE], axis=1), (DRAW.random(300) > 0.7).astype(int)
BINS = reliability_bins(SHARES, GOLD)


def test_bars_are_what_was_right_and_gaps_reach_to_what_was_said(figure_of):
    figure = figure_of(reliability, BINS, ece=7.5, before=BINS, ece_before=12.34, temperature=1.5, title="validation")
    upper, lower = figure.axes
    bars = [bar for bar in upper.patches if bar.get_x() < 1]
    filled = [one for one in BINS if one.count]
    assert [bar.get_height() for bar in bars[::3]] == pytest.approx([one.accuracy for one in filled])
    assert [bar.get_height() for bar in bars[1::3]] == pytest.approx(
        [abs(one.accuracy - one.confidence) for one in filled]
    )
    assert [bar.get_y() for bar in bars[1::3]] == pytest.approx([min(one.accuracy, one.confidence) for one in filled])
    assert [bar.get_height() for bar in lower.patches] == [one.count for one in filled]
    assert figure.get_suptitle() == "validation\nECE 12.3 % before, 7.5 % after (temperature 1.50)"
    assert upper.get_xlim()[0] == pytest.approx(filled[0].low)  # the empty half is not drawn
    assert upper.lines[1].get_ydata() == pytest.approx([one.accuracy for one in filled])


def test_without_a_temperature_one_error_is_told(figure_of):
    assert figure_of(reliability, BINS, ece=ece(SHARES, GOLD).value).get_suptitle().startswith("ECE ")
    assert "before" not in figure_of(reliability, BINS, ece=3.0).get_suptitle()


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_pictures_are_written_in_every_format(tmp_path, ending, start):
    one = confusion_matrix(MATRIX, ["a", "b$x$", "_c"], tmp_path / f"confusion{ending}", title="100 %")
    other = reliability(BINS, tmp_path / f"reliability{ending}", ece=3.0)
    assert all(path.read_bytes().startswith(start) for path in (one, other))
    assert sorted(tmp_path.iterdir()) == [one, other]  # and nothing half-written beside them


@pytest.mark.parametrize(("metric", "best"), [("bleu", "30.00"), ("wer", "10.00")])
def test_the_curve_marks_the_best_score_which_is_the_least_of_errors(figure_of, metric, best):
    lines = [{"step": step, "epoch": 1, "seconds": 1.0, metric: 10.0 * value} for step, value in enumerate((2, 1, 3))]
    figure = figure_of(draw_curves, lines)
    assert [text.get_text() for text in figure.axes[0].texts] == [best]
