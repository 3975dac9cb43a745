"""Does a captioner attend to the right place? Synthetic images of shapes, where the place of every word is known.

A caption such as "circle in red left of square in blue" describes the image, and the program that drew it has the box
of each shape. So we can count how often the place with the largest weight is inside the box of the word's shape. Soft
attention reads a weighted mean of all places; hard attention reads one place and learns by REINFORCE which. There is no
supervision of attention: the encoder (a small CNN) and soft attention learn from the captions alone, from a random
start. Hard attention starts from the weights of the soft run. From a random start, a sampled place is right one time in
eight, and in short trials the model learned to ignore attention.

Captions name the left or upper shape first, its form before its colour, and have no articles. All of this matters.
Attention is computed before the word of the previous step is read (Xu et al. 2015). If either shape may come first, the
model attends to both before it has chosen one, remembers them, and later words no longer attend to what they name. An
article gives the model an attention step that no word needs: it reads the shape then, and the attention of the next
word may be elsewhere (13.5 % of the words for forms with one seed). One read also gives both form and colour, so the
second word needs no attention; therefore the two are counted separately. Images in which one shape is both beside the
other and above or below it are excluded, because two captions would be right. If a caption is right, its own words are
counted; if it is wrong, the model is forced to write the right one, and those words are counted.

    python examples/shapes.py --out runs/examples/shapes.png
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import tyro
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from sightline.attention import AttentionConfig
from sightline.data.images import Box
from sightline.data.source import Source
from sightline.inputs.image import ImageInput
from sightline.models.show_attend_tell import ShowAttendTellConfig, hard, soft
from sightline.nn.image import CNNConfig
from sightline.outputs.captions import CaptionOutput, looks
from sightline.outputs.searched import Prediction
from sightline.synthetic.shapes import COLOURS, SHAPES, Made, made_shapes
from sightline.tasks.caption import CAPTION
from sightline.tasks.configs.caption import CaptionConfig
from sightline.tasks.run import Run
from sightline.tasks.train import train_task
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig

ATTENTIONS: dict[str, AttentionConfig] = {"soft": soft(64), "hard": hard(64, soft_share=0.0)}
SHOWN = 3  # images in the picture


class Task(NamedTuple):
    """How many images of which kind, and how long to train. Sides are in pixels: drawn, and as the encoder reads it."""

    images: int = 6000
    tested: int = 300
    side: int = 64
    read: int = 64
    colours: Sequence[str] = tuple(COLOURS)
    shapes: Sequence[str] = SHAPES
    channels: tuple[int, ...] = (16, 32)
    size: int = 128
    steps: int = 3000  # of soft attention
    hard_steps: int = 1000  # after them


QUICK = Task(200, 20, 32, 32, ("red", "green", "blue"), ("square", "cross"), (16, 32), 64, 100, 50)


class Looked(NamedTuple):
    """An image, the words of a caption, the map of each word (rows × columns), and the box it should attend to."""

    made: Made
    words: list[str]
    maps: np.ndarray  # words, rows, columns
    boxes: dict[int, Box]

    def inside(self, word: int) -> bool:
        """Whether the centre of the place with the largest weight is in the box."""
        rows, columns = self.maps.shape[1:]
        row, column = divmod(int(self.maps[word].argmax()), columns)
        side = len(self.made.pixels)
        x, y = (column + 0.5) * side / columns, (row + 0.5) * side / rows
        left, top, right, bottom = self.boxes[word]
        return left <= x <= right and top <= y <= bottom


class Measured(NamedTuple):
    """By the name of the attention: shares from 0 to 1, and minutes of training (hard: after the soft run)."""

    exact: dict[str, float]  # captions that are right
    shape_words: dict[str, float]  # of words such as circle: largest weight in the right shape
    colour_words: dict[str, float]
    minutes: dict[str, float]


def shapes_in_order(task: Task, count: int, seed: int) -> list[Made]:
    """Synthetic images with captions that name the left or upper shape first, or the only one."""
    found: list[Made] = []
    drawn = count
    while len(found) < count:
        drawn += count // 2 + 10
        made = made_shapes(drawn, seed, task.side, colours=task.colours, shapes=task.shapes)
        found = [one for one in made if not _says_two_things(one)]
    return [_in_order(one) for one in found[:count]]


def _says_two_things(made: Made) -> bool:
    """Whether one shape is both left of the other and above or below it: then two captions are right."""
    if len(made.shapes) == 1:
        return False
    (left, top, right, bottom), (left_2, top_2, right_2, bottom_2) = (shape.box for shape in made.shapes)
    return (right <= left_2 or right_2 <= left) and (bottom <= top_2 or bottom_2 <= top)


def _in_order(made: Made) -> Made:
    """With one caption, and the boxes of its words for forms and colours."""
    shapes = sorted(made.shapes, key=lambda shape: shape.box[:2])
    relation: tuple[str, ...] = ("left", "of")
    if len(shapes) == 2 and shapes[0].box[2] > shapes[1].box[0]:  # not beside each other
        shapes, relation = sorted(shapes, key=lambda shape: shape.box[1]), ("above",)
    words: list[str] = []
    places: dict[int, Box] = {}
    for shape in shapes:
        words += relation if words else ()
        places |= {len(words): shape.box, len(words) + 2: shape.box}
        words += [shape.shape, "in", shape.colour]
    return replace(made, captions=[" ".join(words)], places=[places])


def write_images(task: Task, folder: Path, seed: int) -> Source:
    """Images in files, as users have them."""
    rows = ["image\tcaption"]
    for number, one in enumerate(shapes_in_order(task, task.images, seed + 1)):
        name = f"{number}.png"
        Image.fromarray(one.pixels).save(folder / name)
        rows += [f"{name}\t{caption}" for caption in one.captions]
    (folder / "captions.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return Source.of(folder / "captions.tsv")


def config_of(name: str, task: Task, seed: int) -> CaptionConfig:
    """How soft or hard attention is trained."""
    steps = task.steps if name == "soft" else task.hard_steps
    rate, warmup = (6e-3, 300) if name == "soft" else (2e-3, 100)  # fine-tuning needs smaller steps
    training = TrainingConfig(learning_rate=rate, warmup=warmup, steps=steps, averaged=3, patience=100)
    return CaptionConfig(
        model=_model(ATTENTIONS[name], task),
        # 16 × 16 places, each of which covers the largest shape and little more. With places of half a shape, or of
        # less context, a captioner attends to the edges of a shape, and the centre of such a place is outside. With
        # much more context (images read at 48 pixels) it can attend beside a shape as well as to it.
        encoder=CNNConfig(size=task.read, channels=task.channels),
        tokeniser=TokeniserConfig(method="words", vocab_size=100, lower=True, min_frequency=1),
        training=replace(training, validate_every=max(100, steps // 10)),
        metric="exact",
        smoothing=0.0,
        batch_rows=32,
        valid_share=60 / max(task.images, 1000),
        seed=seed,
    )


def _model(attention: AttentionConfig, task: Task) -> ShowAttendTellConfig:
    # Most places of these images are empty: they need no attention (no penalty, no reward for covering many places),
    # and they must stay distinguishable (not normalised). "Left of" depends on positions.
    plain = ShowAttendTellConfig(task.size, task.size, attention=attention, penalty=0.0, dropout=0.1)
    return replace(plain, positions=True, normalised=False, entropy_weight=0.0)


def train(name: str, files: Source, task: Task, folder: Path, seed: int) -> Run:
    """Soft attention from a random start, hard attention from the soft run in the same folder."""
    start = None if name == "soft" else folder / "soft"
    found, _ = train_task(CAPTION, files, folder / name, config_of(name, task, seed), start=start, on_scores=_say)
    return found


def _say(progress: object, scores: dict[str, float]) -> None:
    print(f"  step {progress.step:,}: {scores['exact']:.1f} % of validation captions exact")  # type: ignore[attr-defined]


def look(run: Run, tested: Sequence[Made]) -> tuple[list[str], list[Looked]]:
    """The captions of images, and the maps of their words."""
    assert isinstance(run.input, ImageInput)
    assert isinstance(run.output, CaptionOutput)
    captions = cast("list[Prediction]", run.predict([one.pixels for one in tested], beam=3))
    texts = [one.text for one in captions]
    looked = []
    for made, text in zip(tested, texts, strict=True):
        source = run.input.collate(cast("list[np.ndarray]", run.encode([made.pixels])[0]))
        which = made.captions.index(text) if text in made.captions else 0
        caption = made.captions[which]
        weights = looks(run, source, run.output.tokeniser.encode([caption]))
        assert weights is not None
        maps = weights[0][:-1].reshape(-1, run.input.places.height, run.input.places.width)
        looked.append(Looked(made, caption.split(), maps, made.places[which]))
    return texts, looked


def share(looked: Sequence[Looked], words: Sequence[str]) -> float:
    """How often these words attended to their shape."""
    inside = [one.inside(word) for one in looked for word in one.boxes if one.words[word] in words]
    return float(np.mean(inside))


def draw(shown: Sequence[tuple[str, Looked]], out: Path) -> None:
    """A row of words for each image: the map of each word, and the box of its shape."""
    longest = max(len(one.words) for _, one in shown)
    figure = Figure(figsize=(0.9 * longest, 1.15 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), longest, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for row, (name, one) in zip(grid, shown, strict=True):
        side = len(one.made.pixels)
        row[0].text(-0.1, 0.5, name, fontsize=8, rotation=90, ha="right", va="center", transform=row[0].transAxes)
        for number, (axes, word) in enumerate(zip(row, one.words, strict=False)):
            axes.imshow(one.made.pixels, extent=(0, side, side, 0))
            shade = one.maps[number] / one.maps[number].max()
            axes.imshow(shade, extent=(0, side, side, 0), cmap="gray", alpha=0.6, vmin=0, vmax=1)
            axes.set_title(word, fontsize=8, pad=2)
            if number in one.boxes:
                left, top, right, bottom = one.boxes[number]
                axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, color="#E69F00"))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)


def main(
    out: Path = Path("runs/examples/shapes.png"),
    seed: int = 0,
    quick: bool = False,
    only: Sequence[str] = tuple(ATTENTIONS),
    keep: Path | None = None,
) -> Measured:
    """Train captioners on synthetic shapes and count how often they attend to the right one.

    Args:
        out: where the picture goes (PNG).
        seed: of the images and of the training.
        quick: fewer, smaller and simpler images.
        only: soft, hard, or both. Hard attention starts from soft attention, which is trained in any case.
        keep: a folder for the trained runs, without their data.
    """
    task = QUICK if quick else Task()
    tested = shapes_in_order(task, task.tested, seed + 10_000)
    measured = Measured({}, {}, {}, {})
    shown: list[tuple[str, Looked]] = []
    with tempfile.TemporaryDirectory(prefix="sightline-shapes-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        files = write_images(task, folder, seed)
        for name in ("soft", "hard") if "hard" in only else ("soft",):
            print(f"{name} attention")
            began = time.perf_counter()
            captioner = train(name, files, task, folder, seed)
            measured.minutes[name] = (time.perf_counter() - began) / 60
            if name not in only:
                continue
            texts, looked = look(captioner, tested)
            if keep is not None:
                shutil.copytree(folder / name, keep / name, ignore=shutil.ignore_patterns("data", "checkpoints"))
            right = [text in made.captions for text, made in zip(texts, tested, strict=True)]
            measured.exact[name] = float(np.mean(right))
            measured.shape_words[name] = share(looked, task.shapes)
            measured.colour_words[name] = share(looked, task.colours)
            shown += [(name, one) for one in list(_with_two(looked))[:SHOWN]]
    draw(shown, out)
    print(f"\n{'':>6}{'exact':>10}{'shapes':>10}{'colours':>10}{'minutes':>10}")
    for name in measured.exact:
        values = (measured.exact[name], measured.shape_words[name], measured.colour_words[name])
        print(f"{name:>6}" + "".join(f"{value:10.1%}" for value in values) + f"{measured.minutes[name]:10.1f}")
    print(f"shapes, colours: words that looked into their own shape most; {task.tested} images")
    print(f"minutes of hard attention: behind those of soft attention, from which it goes on\n\nwrote {out}")
    return measured


def _with_two(looked: Sequence[Looked]) -> Iterator[Looked]:
    return (one for one in looked if len(one.made.shapes) == 2)


if __name__ == "__main__":
    tyro.cli(main)
