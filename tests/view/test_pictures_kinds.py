"""Every kind of picture: what is drawn is what the record holds."""

from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image

from sightline import Record, Slots, Tokens
from sightline.errors import UserError
from sightline.explain.explanation import Explanation, OutputStep, Stack
from sightline.records import Cells, Grid
from sightline.view import animation, highlight, overlay, pictures
from sightline.view import pictures as heads
from sightline.view.drawing import draw
from sightline.view.fonts import widths
from sightline.view.highlight import flow
from sightline.view.layout import SMALLEST, ink, largest, largest_of, title_lines

RANDOM = np.random.default_rng(0)
ROWS, COLUMNS = Tokens(("Zwei", "Hunde", "</s>")), Tokens(("two", "dogs", ".", "</s>"))


def record(rows=ROWS, columns=COLUMNS, head=0, name="cross", layer=0):
    weights = RANDOM.gamma(0.5, size=(len(rows), len(columns))) + 1e-6
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return Record(name, layer, head, rows, columns, weights)


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, instead of their files."""
    drawn = []
    for module in (pictures, heads, highlight, overlay):
        monkeypatch.setattr(module, "save", lambda figure, path: drawn.append(figure) or path)
    return drawn


def texts_of(path):
    return [text.strip() for text in ElementTree.parse(path).getroot().itertext() if text.strip()]


def test_a_heat_map_shows_the_weights(figures, tmp_path):
    one = record()
    pictures.heat_map(one, tmp_path / "x.png", title="a map", rows_label="written", most=None)
    axes = figures[0].axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), one.matrix())
    assert axes.images[0].get_clim() == (0, largest([one]))
    assert [text.get_text() for text in axes.get_xticklabels()] == list(COLUMNS.texts)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(ROWS.texts)


@pytest.mark.parametrize("width", [3.4, 7.0])
def test_wide_maps_fit_a_column_and_can_be_read(figures, tmp_path, width):
    long = Tokens(tuple(f"word{place}" for place in range(60)))
    pictures.heat_map(record(long, long), tmp_path / "x.png", width=width)
    heads.all_heads([record(long, long, head) for head in range(8)], tmp_path / "x.png", width=width)
    heads.all_layers(
        [record(head=head, name=f"l{layer}") for layer in range(6) for head in range(8)], tmp_path / "x", width=width
    )
    for figure in figures:
        assert figure.get_size_inches()[0] <= width + 1e-6
        assert figure.get_size_inches()[1] <= 9.5
        for axes in figure.axes:
            for text in [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.title]:
                assert text.get_fontsize() >= SMALLEST
    labels = figures[0].axes[0].get_xticklabels()
    pitch = figures[0].axes[0].get_position().width * figures[0].get_size_inches()[0] / 60 * 72
    distance = (figures[0].axes[0].get_xticks()[1] - figures[0].axes[0].get_xticks()[0]) * pitch
    assert distance >= labels[0].get_fontsize(), "labels do not touch"


def test_all_heads_share_one_scale(figures, tmp_path):
    some = [record(head=head) for head in range(5)]
    heads.all_heads(some, tmp_path / "x.png")
    maps = [axes.images[0] for axes in figures[0].axes if axes.images]
    for image, one in zip(maps, some, strict=True):
        np.testing.assert_array_equal(image.get_array(), one.matrix())
        assert image.get_clim() == (0, largest(some))
    assert [axes.get_title() for axes in figures[0].axes if axes.images] == [f"head {n}" for n in range(1, 6)]
    with pytest.raises(UserError, match="same rows and columns"):
        heads.all_heads([record(), record(columns=Slots(2))], tmp_path / "x.png")
    with pytest.raises(UserError, match="no map"):
        heads.all_heads([], tmp_path / "x.png")


def test_layers_by_heads(figures, tmp_path):
    some = [record(head=head, name=f"layer{layer}") for layer in range(3) for head in range(2)]
    heads.all_layers(some, tmp_path / "x.png")
    maps = [axes for axes in figures[0].axes if axes.images]
    for axes, one in zip(maps, some, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), one.matrix())
    tops = [round(axes.get_position().y1, 6) for axes in maps]
    assert tops == sorted(tops, reverse=True), "the first layer is on top"
    assert len(set(tops)) == 3


def test_words_are_shaded_by_their_weight(figures, tmp_path):
    words = [record(Slots(1), COLUMNS), record(Slots(1), COLUMNS)]
    weights = np.array([[0.75, 0.25]], dtype=np.float32)
    sentences = Record("s", 0, 0, Slots(1), Slots(2), weights)
    highlight.highlight(words, tmp_path / "x.png", sentences=sentences, title="a text")
    page = figures[0].axes[0]
    boxes = [patch for patch in page.patches if patch.get_height() > 0.1]
    shades = [patch.get_facecolor() for patch in boxes]
    end = largest_of(*(one.matrix() for one in words))
    for number, one in enumerate(words):
        own = shades[5 * number : 5 * number + 4]  # four words, then the mark of the sentence
        for shade, weight in zip(own, one.matrix()[0], strict=True):
            assert matches(shade, ink(float(weight), end)[0])
        assert matches(shades[5 * number + 4], ink(float(weights[0, number]), 0.8, highlight.SENTENCES)[0])
    with pytest.raises(UserError, match="2 sentences but weights for 4"):
        highlight.highlight(words, tmp_path / "x.png", sentences=record())
    with pytest.raises(UserError, match="row is 9"):
        highlight.highlight(record(), tmp_path / "x.png", row=9)


def matches(colour, code):
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour[:3]) == code


def test_lines_wrap_and_run_from_the_right_in_arabic():
    placed = flow(["word"] * 40, 3.0, 8.0)
    assert max(one.left + one.width for one in placed) <= 3.0
    assert len({one.top for one in placed}) > 2
    assert placed[0].left == 0
    arabic = flow(["كان", "الطعام", "رائعا"], 3.0, 8.0)
    assert arabic[0].left + arabic[0].width == pytest.approx(3.0)
    assert arabic[0].left > arabic[1].left > arabic[2].left
    joined = flow(["猫", "犬"], 3.0, 8.0)
    parted = flow(["a", "b"], 3.0, 8.0)
    assert joined[1].left == pytest.approx(joined[0].width)
    assert parted[1].left > parted[0].width


def test_an_image_is_bright_where_it_was_looked_at(figures, tmp_path):
    weights = np.zeros((3, 16), dtype=np.float32)
    weights[[0, 1, 2], [0, 5, 15]] = 1.0
    one = Record("cross", 0, 0, ROWS, Grid(4, 4), weights)
    overlay.overlay(np.full((64, 64, 3), 200, dtype=np.uint8), one, tmp_path / "x.png")
    panels = figures[0].axes
    assert [axes.get_title() for axes in panels] == ["image", *ROWS.texts]
    assert len(panels[0].images) == 1
    for axes, place in zip(panels[1:], [0, 5, 15], strict=True):
        dark = axes.images[1].get_array()[..., 3]
        row, column = divmod(place, 4)
        assert dark[16 * row + 8, 16 * column + 8] < 0.1
        assert dark.max() == pytest.approx(overlay.DARKEST)
        assert dark[16 * (3 - row) + 8, 16 * (3 - column) + 8] > 0.6
    with pytest.raises(UserError, match="places of an image"):
        overlay.overlay(np.zeros((4, 4)), record(), tmp_path / "x.png")
    with pytest.raises(UserError, match="its shape is"):
        overlay.overlay(np.zeros((4, 4, 7)), one, tmp_path / "x.png")


def test_long_titles_are_broken_between_words():
    title = "a title that is much longer than the map is wide"
    lines = title_lines(title, 9.0, 1.5)
    assert len(lines) > 1
    assert " ".join(lines) == title
    assert max(widths(lines, 9.0)) <= 1.5
    assert title_lines(None, 9.0, 1.5) == []


def test_the_cells_of_a_table_are_named(figures, tmp_path):
    pictures.heat_map(record(Slots(1), Cells(("age", "town"), 2)), tmp_path / "x.png")
    labels = [text.get_text() for text in figures[0].axes[0].get_xticklabels()]
    assert labels == ["age 1", "age 2", "town 1", "town 2"]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_record_makes_the_same_file(tmp_path, ending):
    one = record()
    first, second = (pictures.heat_map(one, tmp_path / f"{name}.{ending}", title="t") for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_shades_are_in_the_file(tmp_path):
    weights = np.array([[0.0, 1.0]], dtype=np.float32)
    path = pictures.heat_map(Record("a", 0, 0, Slots(1), Slots(2), weights), tmp_path / "map.png")
    pixels = (imread(path)[..., :3] * 255).round().astype(int)
    dark = [int(code, 16) for code in ("08", "30", "6b")]  # the end of the scale
    assert (pixels == dark).all(axis=-1).sum() > 1000


@pytest.mark.parametrize(
    ("largest_weight", "end"), [(0.0, 1.0), (0.11, 0.12), (0.37, 0.4), (0.5, 0.5), (1.0, 1.0), (0.0031, 0.004)]
)
def test_the_end_of_a_scale(largest_weight, end):
    assert largest_of(np.array([largest_weight])) == end


def test_a_replay_has_a_frame_for_each_step(tmp_path):
    one = record()
    steps = [OutputStep(text, 0.5) for text in ROWS.texts]
    path = animation.replay_gif(one, steps, tmp_path / "a.gif", title="a replay", width=3.4)
    with Image.open(path) as gif:
        assert gif.n_frames == len(ROWS) + 1
        assert gif.info["loop"] == 0
        durations = []
        for number in range(gif.n_frames):
            gif.seek(number)
            durations.append(gif.info["duration"])
        assert durations == [800, 800, 800, 3200]
        assert gif.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
    again = animation.replay_gif(one, steps, tmp_path / "b.gif", title="a replay", width=3.4)
    assert again.read_bytes() == path.read_bytes()
    with pytest.raises(UserError, match="1 steps for 3 rows"):
        animation.replay_gif(one, steps[:1], tmp_path / "a.gif")


def test_a_replay_shows_where_each_word_looked():
    one = record()
    scene = animation._text_scene(one, None, 3.4, "Blues", 1.0)
    scene.show(1, "")
    for (box, _), weight in zip(scene.source, one.matrix()[1], strict=True):
        assert matches(box.get_facecolor(), ink(float(weight), 1.0)[0])
    assert [text.get_visible() for _, text in scene.written] == [True, True, False]
    shown = scene.figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown, np.concatenate([one.matrix()[:2], np.zeros((1, 4))]))
    scene.show(None, "")
    np.testing.assert_array_equal(scene.figure.axes[0].images[0].get_array(), one.matrix())


def test_fifteen_steps_are_small(tmp_path):
    words = Tokens(tuple(f"word{place}" for place in range(15)))
    path = animation.replay_gif(record(words, words), None, tmp_path / "a.gif")
    assert path.stat().st_size < 1_000_000


def explanation(shift=0, kind="cross"):
    columns = Tokens(("▁two", "▁do", "gs", "</s>"), (0, 1, 1, 2), (3,))
    names = ("first", "second")
    records = [record(ROWS, columns, head, name) for name in names for head in range(2)]
    steps = tuple(OutputStep(text, 0.5) for text in ROWS.texts)
    return Explanation("run", "translate", "", "", tuple(records), (Stack("Maps", kind, names),), steps, shift=shift)


def test_draw_takes_the_mean_of_the_last_layer(tmp_path):
    texts = texts_of(draw(explanation(), tmp_path / "a.svg"))
    assert "Maps, layer 2 of 2, mean of 2 heads" in " ".join(texts)
    assert "dogs" in texts
    texts = texts_of(draw(explanation(shift=1), tmp_path / "b.svg", name="first", head=1, merge=False))
    assert "Maps, layer 1 of 2, head 2 of 2 (moved down by 1)" in " ".join(texts)
    assert "gs" in texts
    assert "head 2" in texts_of(draw(explanation(), tmp_path / "c.svg", layout="heads"))
    assert "layer" in texts_of(draw(explanation(), tmp_path / "d.svg", layout="layers"))
    assert "word: 0" in texts_of(draw(explanation(kind="pool"), tmp_path / "e.svg"))


def test_draw_moves_rows_that_were_written(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr("sightline.view.drawing.heat_map", lambda record, path, **_: drawn.append(record) or path)
    one = explanation(shift=1)
    mean = (one.of("second")[0].matrix() + one.of("second")[1].matrix()) / 2
    draw(one, tmp_path / "a.png", merge=False)
    np.testing.assert_allclose(drawn[0].matrix(), [np.zeros(4), mean[0], mean[1]], atol=1e-6)
    draw(one, tmp_path / "a.png", merge=False, shift=0)
    np.testing.assert_allclose(drawn[1].matrix(), mean, atol=1e-6)
    draw(explanation(shift=1, kind="self"), tmp_path / "a.png", merge=False)
    assert drawn[2].matrix()[0].any(), "what looks at itself is not moved"


def test_draw_makes_a_gif(tmp_path):
    with Image.open(draw(explanation(), tmp_path / "a.gif")) as gif:
        assert gif.n_frames == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "a.bmp"}, "should end in .png, .svg, .pdf or .gif"),
        ({"name": "third"}, "no attention named 'third'; there is first, second"),
        ({"head": 2}, "head is 2; second has 2"),
        ({"path": "a.gif", "layout": "heads"}, "a GIF replays one map"),
        ({"layout": "circle"}, "alignment, heads or layers"),
    ],
)
def test_what_cannot_be_drawn_is_said(tmp_path, options, message):
    path = tmp_path / options.pop("path", "a.png")
    with pytest.raises(UserError, match=message):
        draw(explanation(), path, **options)
    assert not path.exists()
