"""Pictures of an output that was partly copied: which words, from where, with p; and the scale of coverage."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from copiers import MODELS, OUTPUT, SOURCE, copier, explained, partly_copied
from page_samples import translation
from sightline.explain.explanation import Copied, Explanation
from sightline.records import TopK
from sightline.view import pictures
from sightline.view.copied import NOTE, copied_phrase, copied_words
from sightline.view.film import Scene


@pytest.fixture(scope="module", params=MODELS)
def explanation(request):
    return explained(request.param)


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, instead of their files."""
    drawn = []
    monkeypatch.setattr(pictures, "save", lambda figure, path: drawn.append(figure) or path)
    return drawn


def written_on(axes):
    return [text.get_text() for text in axes.texts]


def frames_of(axes):
    """The row and the column of each framed cell."""
    return [
        (round(one.get_y() + one.get_height() / 2), round(one.get_x() + one.get_width() / 2)) for one in axes.patches
    ]


def test_a_model_says_what_it_copied_and_from_where(explanation):
    zyx, dream, _ = (step.copied for step in explanation.steps)
    assert (zyx.from_source, zyx.place) == (True, SOURCE.split().index("Zyx"))
    assert zyx.share == pytest.approx(1)
    assert (dream.from_source, dream.share, dream.place) == (False, 0, None)
    assert all(0 < step.copied.gate < 1 for step in explanation.steps)


def test_it_survives_json(explanation):
    after = Explanation.from_json(json.loads(json.dumps(explanation.to_json(), allow_nan=False)))
    assert after.steps == explanation.steps
    assert after.stacks == explanation.stacks


def test_coverage_is_the_sum_of_earlier_weights_and_says_so(explanation):
    stack = explanation.stacks[-1]
    assert (stack.names, stack.unit) == (("coverage",), "sum of weights")
    copies = "copying" if explanation.title == "transformer" else "decoder.attention"
    (weights,), (covered,) = (explanation.of(name) for name in (copies, "coverage"))
    expected = [weights.matrix()[:row].sum(axis=0) for row in range(len(weights.rows))]
    np.testing.assert_allclose(covered.matrix(), expected, atol=1e-6)


def test_of_long_inputs_the_largest_are_kept():
    run = copier("transformer")
    whole = run.explain(SOURCE, OUTPUT, measure=False)
    some = run.explain(SOURCE, OUTPUT, measure=False, top=2)
    for name in ("copying", "coverage"):
        kept, all_of_it = some.of(name)[0].weights, whole.of(name)[0].matrix()
        assert isinstance(kept, TopK)
        np.testing.assert_allclose(kept.weights, -np.sort(-all_of_it, axis=1)[:, :2], atol=1e-6)


def test_the_picture_marks_each_word(explanation, tmp_path):
    texts = "".join(ElementTree.parse(explanation.save(tmp_path / "map.svg")).getroot().itertext())
    for part in ("copied", "written", f"{explanation.steps[0].copied.gate:.2f}", "probability to write"):
        assert part in texts


def test_marks_and_frames(figures, tmp_path):
    one = partly_copied()
    one.save(tmp_path / "map.png", merge=False)
    axes = figures[0].axes[0]
    marks = [mark for text in one.steps for mark in _marks(text.copied)]
    assert written_on(axes) == ["p", *marks, NOTE]
    assert frames_of(axes) == [(6, 9), (7, 10), (9, 12)]
    assert axes.get_ylabel() == "output", "not all of it is written"


def _marks(copied):
    return ["copied" if copied.from_source else "written", f"{copied.gate:.2f}"]


def test_frames_of_narrow_cells_can_be_seen(figures, tmp_path):
    partly_copied().save(tmp_path / "map.png", merge=False, width=1.6)
    figure, axes = figures[0], figures[0].axes[0]
    pitch = axes.get_position().width * figure.get_size_inches()[0] / 13
    assert pitch < 0.07
    assert [frame.get_width() * pitch for frame in axes.patches] == pytest.approx([0.07] * 3)


def test_words_are_put_together(figures, tmp_path):
    one = partly_copied()
    copies = copied_words(one.steps, one.records[0])
    assert len(copies) == 9, "Fenster and bank are one word"
    word = copies[6]
    assert (word.gate, word.share) == pytest.approx((0.07, 0.94)), "the means of its tokens"
    assert word.place == 7, "the word of the first of two places that give one token each"
    one.save(tmp_path / "map.png")
    axes = figures[0].axes[0]
    assert frames_of(axes) == [(6, 7), (8, 10)]
    assert written_on(axes).count("copied") == 2


def test_a_model_that_cannot_copy_has_no_marks(figures, tmp_path):
    translation().save(tmp_path / "map.png")
    axes = figures[0].axes[0]
    assert written_on(axes) == []
    assert frames_of(axes) == []
    assert axes.get_ylabel() == "written"


def test_maps_inside_the_source_have_no_marks(figures, tmp_path):
    partly_copied().save(tmp_path / "map.png", name="encoder.attention")
    assert written_on(figures[0].axes[0]) == []


@pytest.mark.parametrize("layout", ["alignment", "heads", "layers"])
def test_the_scale_of_coverage_holds_sums(figures, tmp_path, layout):
    one = partly_copied()
    one.save(tmp_path / "map.png", name="coverage", layout=layout)
    (scale,) = (axes.get_ylabel() for axes in figures[0].axes[0].child_axes)
    assert scale == "sum of weights"
    largest = one.of("coverage")[0].matrix().max()
    assert largest > 1
    assert figures[0].axes[0].images[0].get_clim()[1] >= largest


def test_a_film_says_it_step_by_step(monkeypatch, tmp_path):
    captions, seen, framed = [], [], []
    show = Scene.show

    def watched(scene, step, caption):
        image = show(scene, step, caption)
        captions.append(caption)
        seen.append(sum(text.get_visible() for text in scene.figure.axes[0].texts))
        framed.append([place for place, (box, _) in enumerate(scene.source) if box.get_edgecolor()[3]])
        return image

    monkeypatch.setattr(Scene, "show", watched)
    partly_copied().save(tmp_path / "steps.gif", merge=False)
    assert captions[0].endswith("; written, p 0.98")
    assert captions[6].endswith("; copied from dow (place 10), p 0.04")
    assert seen == [2 + 2 * rows for rows in range(1, 11)] + [22], "p, the note, and two marks for each row so far"
    assert framed == [[], [], [], [], [], [], [9], [10], [], [12], []]


def test_phrases():
    columns = translation().records[0].columns
    assert copied_phrase(Copied(0.5, 0.5, 0), columns) == "copied from ▁the (place 1), p 0.50"
    assert copied_phrase(Copied(0.97, 0.2, 3), columns) == "written, p 0.97"
    assert copied_phrase(None, columns) == ""
