"""Made-up explanations of images for the tests of pictures and page: a caption, a label, labelled cells."""

import numpy as np

from page_samples import softmax, step
from sightline.explain.explanation import Choice, Explanation, Highlights, OutputStep, Stack
from sightline.picture import Labelling, Picture
from sightline.records import Grid, Record, Tokens

WORDS = ("a", "red", "circle", "left", "</s>")
GRID = Grid(4, 6)
PEAKS = (3, 13, 13, 20, 5)  # the place that each word looks at most


def scene(height=120, width=180):
    """A red circle and a blue square on a ground that is not even."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([90 + 60 * y / height, 150 + 40 * x / width, 220 - 120 * y / height], axis=-1)
    pixels[(y - 0.65 * height) ** 2 + (x - 0.25 * width) ** 2 < (0.15 * height) ** 2] = (210, 40, 30)
    pixels[(abs(y - 0.4 * height) < 0.14 * height) & (abs(x - 0.72 * width) < 0.1 * width)] = (40, 60, 200)
    return pixels.astype(np.uint8)


def looks(rows=5, seed=0):
    """A map with one clear peak in each row."""
    scores = np.random.default_rng(seed).normal(size=(rows, len(GRID))).astype(np.float32)
    scores[np.arange(rows), [PEAKS[row % len(PEAKS)] for row in range(rows)]] += 4.0
    return softmax(scores)


def captioned(words=WORDS, *, heads=1, title="shapes", name="shapes.png", **fit):
    """Words that look at places of an image."""
    rng = np.random.default_rng(1)
    rows = Tokens(tuple(words), tuple(range(len(words))), (len(words) - 1,))
    records = [Record("decoder.attention", 0, head, rows, GRID, looks(len(words), head)) for head in range(heads)]
    return Explanation(
        title,
        "caption",
        name,
        " ".join(words[:-1]),
        tuple(records),
        (Stack("From the caption to the image", "cross", ("decoder.attention",)),),
        tuple(step(word, rng) for word in words),
        alternatives=(Choice("a blue square", 0.1),),
        image=Picture.of(scene(), name, **fit),
    )


def classified():
    """A label and the places that it was given for."""
    shares = (Choice("circle", 0.83), Choice("square", 0.17))
    record = Record("label", 0, 0, Tokens(("circle",)), GRID, looks(1))
    return Explanation(
        "shapes",
        "classify",
        "shapes.png",
        "circle",
        (record,),
        (Stack("From the label to the image", "pool", ("label",)),),
        (OutputStep("circle", 0.83, shares),),
        highlights=Highlights("circle", 0.83, shares, (), ()),
        image=Picture.of(scene(), "shapes.png"),
    )


def labelled(*, maps=True, image=True):
    """Cells with labels, each of which looked at all."""
    labels = np.zeros((GRID.height, GRID.width), dtype=np.int32)
    labels[1, 2:5] = 1
    labels[3, 0] = 2
    shares = np.linspace(0.5, 1.0, len(GRID), dtype=np.float32).reshape(labels.shape)
    weights = softmax(np.random.default_rng(2).normal(size=(len(GRID), len(GRID))) * 2)
    return Explanation(
        "roads",
        "grid",
        "road.png",
        "3 cells: crack",
        (Record("decoder.attention", 0, 0, GRID, GRID, weights),) if maps else (),
        (Stack("From the cells to the image", "cross", ("decoder.attention",)),) if maps else (),
        image=Picture.of(scene(), "road.png") if image else None,
        cells=Labelling(("none", "crack", "pothole"), labels, shares, "none"),
    )
