"""The example of made shapes: a short training already looks at shapes and not at the ground."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sightline import capture
from sightline.data.images import fit_image
from sightline.decoding.options import pad
from sightline.models.image_to_text import Places
from sightline.models.show_attend_tell import ShowAttendTellConfig, hard, soft
from sightline.nn.image import CNNConfig
from sightline.synthetic.shapes import made_shapes
from sightline.tasks.run import Run
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.vocabulary import END, START

pytestmark = pytest.mark.unchecked_shapes

PATH = Path(__file__).parents[2] / "examples" / "shapes.py"


def load(monkeypatch):
    spec = importlib.util.spec_from_file_location("shapes", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shapes", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_words_look_at_shapes_after_a_short_training(tmp_path, monkeypatch, capsys):
    module = load(monkeypatch)
    out = tmp_path / "pictures" / "shapes.png"
    measured = module.main(out=out, quick=True, only=("soft",), keep=tmp_path / "kept")
    # Boxes cover an eighth of an image; so much would be inside by chance.
    assert measured.shape_words["soft"] > 0.3, measured
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "wrote" in capsys.readouterr().out
    again = Run.load(tmp_path / "kept" / "soft")
    assert again.predict([made_shapes(1, 3, 32)[0].pixels])


def test_a_peak_counts_where_its_middle_is(monkeypatch):
    module = load(monkeypatch)
    (made,) = made_shapes(1, 0, 32)
    maps = np.zeros((1, 4, 4))
    maps[0, 1, 2] = 1  # its middle is 20 from the left and 12 from the top
    for box, inside in (((16, 8, 24, 16), True), ((20, 12, 30, 30), True), ((21, 8, 30, 16), False)):
        assert module.Looked(made, ["circle"], maps, {0: box}).inside(0) is inside


def test_images_that_say_two_things_are_left_out(monkeypatch):
    """Where a shape is left of the other one and above it as well, two captions are right, and one is known."""
    module = load(monkeypatch)
    found = module.shapes_in_order(module.Task(side=48), 60, 5)
    assert len(found) == 60
    both = 0
    for made in found:
        assert len(made.captions) == len(made.places) == 1
        if len(made.shapes) == 2:
            (a, b), caption = (shape.box for shape in made.shapes), made.captions[0]
            beside, over = a[2] <= b[0] or b[2] <= a[0], a[3] <= b[1] or b[3] <= a[1]
            assert beside != over
            assert (" left of " in caption) == beside
            both += 1
    assert 30 < both < 60
    assert any(module._says_two_things(made) for made in made_shapes(60, 5, 48))


class Small:
    """The task made small: six kinds of shapes, 36 places, and a model that is taught in a few seconds."""

    def __init__(self, module, count, tested):
        kinds = {"colours": ("red", "green", "blue"), "shapes": ("square", "cross")}
        self.task, self.module = module.Task(side=32, read=24, **kinds), module
        made, self.tested = (module.shapes_in_order(self.task, *which) for which in ((count, 4), (tested, 10_003)))
        texts = [one.captions[0] for one in made]
        self.tokeniser = train_tokeniser(
            texts, TokeniserConfig(method="words", vocab_size=100, lower=True, min_frequency=1)
        )
        self.pixels, self.target = self.read(made)
        self.generator = torch.Generator().manual_seed(1)

    def read(self, made):
        pixels = [fit_image(one.pixels, self.task.read, self.task.read) for one in made]
        ids = self.tokeniser.encode([one.captions[0] for one in made])
        return torch.from_numpy(np.stack(pixels)), pad([[START, *row, END] for row in ids])

    def model(self, attention, weights=None):
        torch.manual_seed(3)
        encoder = CNNConfig(size=self.task.read, channels=(16, 32), blocks=0).build()
        config = ShowAttendTellConfig(
            48,
            48,
            attention=attention,
            penalty=0.0,
            positions=True,
            normalised=False,
            dropout=0.0,
            reward_weight=1.0,
            entropy_weight=0.0,
        )
        places = Places(encoder.annotation_size, *encoder.grid(self.task.read, self.task.read))
        model = config.build(places, self.tokeniser.words, encoder)
        if weights is not None:
            model.load_state_dict(weights)
        return model

    def teach(self, model, steps, rate=1e-2):
        optimiser = torch.optim.Adam(model.train().parameters(), lr=rate)
        for step in range(steps):
            optimiser.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 20, 4 * (1 - step / steps))
            rows = torch.randint(len(self.pixels), (32,), generator=self.generator)
            loss = model.loss(self.pixels[rows], self.target[rows])
            optimiser.zero_grad()
            (loss.total / loss.tokens).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return model

    def looked(self, model):
        """Where the words of the right captions of the tested images look."""
        pixels, target = self.read(self.tested)
        with torch.no_grad(), capture(model.eval()) as trace:
            model.logits(pixels, target[:, :-1])
        (seen,) = (one for one in trace.maps if model.attends_to_source(one.name))
        maps = np.asarray(seen.weights).reshape(len(pixels), -1, model.places.height, model.places.width)
        rows = zip(self.tested, maps, strict=True)
        return [self.module.Looked(made, made.captions[0].split(), one, made.places[0]) for made, one in rows]

    def chance(self, model):
        """How likely it is that a look before a colour or a shape falls into the right box: that of a soft twin."""
        found = []
        for one in self.looked(self.model(soft(48), model.state_dict())):
            side, middles = len(one.made.pixels), (np.arange(len(one.maps[0])) + 0.5) / len(one.maps[0])
            for word, (left, top, right, bottom) in one.boxes.items():
                x, y = side * middles[None, :], side * middles[:, None]
                found.append(one.maps[word][(left <= x) & (x <= right) & (top <= y) & (y <= bottom)].sum())
        return float(np.mean(found))


@pytest.mark.long
def test_hard_attention_comes_to_look_into_the_shapes(monkeypatch):
    """From a soft model that has begun to look, by REINFORCE alone.

    The chance of a look is asked for, not only the likeliest one: credit that is left out, turned around or given to
    another caption leaves that chance where it was, or lowers it.
    """
    small = Small(load(monkeypatch), 600, 150)
    begun = small.teach(small.model(soft(48)), 120)
    before = small.chance(begun)
    model = small.teach(small.model(hard(48, soft_share=0.0), begun.state_dict()), 400)
    after, looked = small.chance(model), small.looked(model)
    assert after > max(0.75, before + 0.2), (before, after)
    assert small.module.share(looked, small.task.shapes) > 0.75
    assert small.module.share(looked, small.task.colours) > 0.75
    assert all(((one.maps == 0) | (one.maps == 1)).all() for one in looked)
