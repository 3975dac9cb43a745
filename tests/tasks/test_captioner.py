"""A captioner: its limits, images that cannot be read, and where its words looked."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from captioning import FLOOR, HARD, SOFT, TRANSFORMER, captioner, read_images
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.inputs.image import PlaceSubject
from sightline.outputs.captions import looks
from sightline.records import Grid
from sightline.synthetic.shapes import made_shapes
from sightline.vocabulary import END, UNKNOWN


def pixels(seed=0, size=32):
    return made_shapes(1, seed, size)[0].pixels


def test_the_unknown_word_is_never_written():
    found = captioner()
    with torch.no_grad():
        found.model.output.bias[UNKNOWN] = 100.0
    for options in ({"beam": 1}, {"beam": 3}, {"sample": True, "best": 2}):
        for some in found.predict([pixels()], **options):
            assert all(UNKNOWN not in one.tokens for one in some.all)


def test_captions_keep_to_their_limits():
    found = captioner()
    with torch.no_grad():
        found.model.output.bias[END] = -100.0
    assert len(found.predict([pixels()])[0].tokens) == 9
    assert len(found.predict([pixels()], max_length=4)[0].tokens) == 4
    assert found.predict([pixels()], prefix="there is")[0].text.startswith("there is")


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    found = captioner()
    (tmp_path / "text.jpg").write_text("no image", encoding="utf-8")
    with pytest.raises(UserError, match=r"text\.jpg cannot be used: it is no image"):
        found.predict([tmp_path / "text.jpg"])
    with pytest.raises(UserError, match="image 2 cannot be used: it is empty"):
        found.predict([pixels(), b""])
    with pytest.raises(UserError, match=r"photo\.png cannot be used: there is no such file"):
        found.predict("photo.png")  # one image, not the letters of its name
    with pytest.raises(UserError, match=r"text\.jpg cannot be used"):
        found.explain(tmp_path / "text.jpg")


@pytest.mark.parametrize("model", [SOFT, HARD, TRANSFORMER], ids=["soft", "hard", "transformer"])
def test_an_explanation_has_a_row_for_each_word_and_a_grid_over_the_image(model, tmp_path):
    found = captioner(model)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels(size=48)[:, :32]).save(path)
    explained = found.explain(path, beam=2)
    cross = explained.of(explained.stacks[0].names[-1])
    assert cross[0].columns == Grid(4, 4)
    assert cross[0].rows.texts[-1] == "</s>"
    for record in cross:
        assert np.allclose(record.matrix().sum(axis=1), 1, atol=1e-5)
        if model is HARD:
            assert set(np.unique(record.matrix())) <= {0.0, 1.0}
    assert len(explained.steps) == len(cross[0].rows)
    assert explained.output == found.predict([path], beam=2)[0].text
    assert explained.input == "photo.png"
    assert (explained.image.width, explained.image.height) == (32, 48)
    keys = [finding.key for finding in explained.belief.findings]
    assert "leave_one_out" in keys
    assert "first" not in keys
    again = Explanation.from_json(json.loads(json.dumps(explained.to_json())))
    assert again.image.content == explained.image.content
    tokens = found.predict([path], beam=2)[0].tokens
    (weights,) = looks(found, read_images(found, path), [tokens])
    assert np.allclose(weights, np.mean([record.matrix() for record in cross], axis=0), atol=1e-5)


def test_files_and_pixels_keep_their_order(tmp_path):
    found = captioner()
    images = [pixels(seed) for seed in range(4)]
    for seed in (1, 3):
        Image.fromarray(images[seed]).save(tmp_path / f"{seed}.png")
    mixed = [images[0], tmp_path / "1.png", images[2], (tmp_path / "3.png").read_bytes()]
    assert torch.equal(read_images(found, *mixed), read_images(found, *images))
    bad = {}
    raws = found.raw([mixed[0], tmp_path / "none.png", mixed[3]], options=found.output.options({}), bad=bad)
    assert bad == {1: "there is no such file"}
    assert [raw is not None for raw in raws] == [True, False, True]


def test_what_is_given_as_output_is_what_is_explained():
    explained = captioner().explain(pixels(), "a green star", measure=False)
    assert explained.records[0].rows.texts[:3] == ("▁a", "▁green", "▁star")
    assert explained.belief is None


def test_without_attention_there_is_nothing_to_show():
    found = captioner(FLOOR)
    with pytest.raises(UserError, match="has no attention"):
        found.explain(pixels())
    assert looks(found, read_images(found, pixels()), [[5, 6]]) is None


def test_hidden_places_hold_the_mean_of_the_image():
    found = captioner()
    source = read_images(found, pixels()).clone()
    tokens = [*found.predict([pixels()])[0].tokens, END]
    subject = PlaceSubject(found.model, source, tokens)
    keep = torch.ones(3, 16, dtype=torch.bool)
    keep[1] = False
    keep[2, 5] = False
    whole, nothing, one = subject.log_probs(keep)
    steps = found.explain(pixels(), measure=False).steps
    assert whole.exp().tolist() == pytest.approx([step.probability for step in steps], rel=1e-4)
    assert not torch.allclose(whole, nothing)
    assert not torch.equal(whole, one)
    gradients = subject.gradient_times_input([0, len(tokens) - 1])
    assert gradients.shape == (2, 16)
    assert gradients.abs().sum() > 0
