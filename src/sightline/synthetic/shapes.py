"""Made images: coloured shapes at known places on a noisy ground, with captions that describe them.

For tests, examples and demonstrations: nothing has to be fetched, and because the place of each word's shape
is known, it can be measured whether a model attends to it. The same seed makes the same images.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

Box = tuple[int, int, int, int]  # left, top, right, bottom

Language = Literal["en", "zh"]

COLOURS = {
    "red": (210, 40, 40),
    "green": (40, 160, 60),
    "blue": (50, 80, 210),
    "yellow": (235, 205, 40),
    "purple": (150, 60, 170),
    "black": (25, 25, 25),
}
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
_CHINESE = {
    **dict(zip(COLOURS, ("红色", "绿色", "蓝色", "黄色", "紫色", "黑色"), strict=True)),
    **dict(zip(SHAPES, ("圆形", "方形", "三角形", "星形", "十字形", "圆环"), strict=True)),
}
_CHINESE |= {"left": "左边", "right": "右边", "above": "上面", "below": "下面"}
_OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
_FINER = 4  # shapes are drawn this much larger and averaged, so that their edges are smooth


@dataclass(frozen=True)
class Shape:
    """One shape of an image and its box."""

    colour: str
    shape: str
    box: Box


@dataclass(frozen=True, eq=False)
class Made:
    """An image, its captions, and for each caption the box that a word of it is about, by the word's number.

    Words are what stands between spaces; in Chinese, each character is one.
    """

    pixels: np.ndarray  # size, size, 3: uint8
    captions: list[str]
    places: list[dict[int, Box]]
    shapes: tuple[Shape, ...]


def made_shapes(
    count: int,
    seed: int = 0,
    size: int = 64,
    language: Language = "en",
    *,
    colours: Sequence[str] = tuple(COLOURS),
    shapes: Sequence[str] = SHAPES,
) -> list[Made]:
    """Images of one shape or of two, side by side or above each other, with two captions each."""
    if count < 0 or size < 32:
        raise ValueError(f"count is {count} and size {size}; expected at least 0, and a size of at least 32")
    random = np.random.default_rng(seed)
    return [_made(random, size, language, colours, shapes) for _ in range(count)]


def _made(
    random: np.random.Generator, size: int, language: Language, colours: Sequence[str], kinds: Sequence[str]
) -> Made:
    things = list(itertools.product(colours, kinds))
    two = len(things) > 1 and bool(random.random() < 0.75)
    chosen = [things[place] for place in random.choice(len(things), 1 + two, replace=False)]
    where = str(random.choice(list(_OPPOSITE)))
    shapes = tuple(
        Shape(colour, kind, box)
        for (colour, kind), box in zip(chosen, _boxes(random, size, where if two else None), strict=True)
    )
    captions, places = [], []
    for caption, about in _captions(shapes, where, language):
        captions.append(caption)
        places.append({word: shapes[number].box for word, number in about.items()})
    return Made(_picture(random, size, shapes), captions, places, shapes)


def _boxes(random: np.random.Generator, size: int, where: str | None) -> list[Box]:
    """Where the shapes stand: alone anywhere, two in halves of the image that lie as ``where`` says of the first."""
    halves: list[Box] = [(0, 0, size, size)]
    if where in ("left", "right"):
        halves = [(0, 0, size // 2, size), (size // 2, 0, size, size)]
    elif where in ("above", "below"):
        halves = [(0, 0, size, size // 2), (0, size // 2, size, size)]
    if where in ("right", "below"):
        halves.reverse()
    boxes = []
    for left, top, right, bottom in halves:
        side = int(random.integers(round(size * 0.26), round(size * 0.42), endpoint=True))
        x = int(random.integers(left + 1, right - side - 1, endpoint=True))
        y = int(random.integers(top + 1, bottom - side - 1, endpoint=True))
        boxes.append((x, y, x + side, y + side))
    return boxes


def _captions(shapes: Sequence[Shape], where: str, language: Language) -> list[tuple[str, dict[int, int]]]:
    """Captions, each with the number of the shape that a word is about."""
    if len(shapes) == 1:
        pieces = [[(shapes[0], 0)], [(shapes[0], 0)]]
        relations = ["alone", "there"]
    else:
        first, second = (shapes[0], 0), (shapes[1], 1)
        pieces, relations = [[first, second], [second, first]], [where, _OPPOSITE[where]]
    write = _english if language == "en" else _chinese
    return [write(things, relation) for things, relation in zip(pieces, relations, strict=True)]


def _english(things: Sequence[tuple[Shape, int]], relation: str) -> tuple[str, dict[int, int]]:
    words: list[str] = []
    about: dict[int, int] = {}

    def name(shape: Shape, number: int) -> None:
        about.update({len(words) + 1: number, len(words) + 2: number})
        words.extend(("a", shape.colour, shape.shape))

    if relation == "there":
        words.extend(("there", "is"))
    name(*things[0])
    if len(things) == 2:
        words.extend((relation, "of") if relation in ("left", "right") else (relation,))
        name(*things[1])
    return " ".join(words), about


def _chinese(things: Sequence[tuple[Shape, int]], relation: str) -> tuple[str, dict[int, int]]:
    """ "A left of B" is said as 一个A在一个B的左边; alone, 一个A or 有一个A."""
    text = "有" if relation == "there" else ""
    about: dict[int, int] = {}
    for place, (shape, number) in enumerate(things):
        text += "一个" if place == 0 else "在一个"
        colour, kind = _CHINESE[shape.colour], _CHINESE[shape.shape]
        about.update(dict.fromkeys(range(len(text), len(text) + len(colour)), number))
        text += colour + "的"
        about.update(dict.fromkeys(range(len(text), len(text) + len(kind)), number))
        text += kind
    if len(things) == 2:
        text += f"的{_CHINESE[relation]}"
    return text, about


def _picture(random: np.random.Generator, size: int, shapes: Sequence[Shape]) -> np.ndarray:
    ground = random.integers(150, 230, 3) + random.normal(0, 12, (size, size, 1)) + random.normal(0, 6, (size, size, 3))
    pixels = np.clip(ground, 0, 255)
    for shape in shapes:
        cover = _cover(size, shape)[..., None]
        colour = np.array(COLOURS[shape.colour]) + random.normal(0, 10, 3)
        pixels = pixels * (1 - cover) + np.clip(colour, 0, 255) * cover
    return np.clip(np.rint(pixels + random.normal(0, 3, pixels.shape)), 0, 255).astype(np.uint8)


def _cover(size: int, shape: Shape) -> np.ndarray:
    """How much of each pixel a shape covers, from 0 to 1."""
    fine = Image.new("L", (size * _FINER, size * _FINER))
    draw = ImageDraw.Draw(fine)
    left, top, right, bottom = (_FINER * side for side in shape.box)
    right, bottom = right - 1, bottom - 1
    side, x, y = right - left, (left + right) / 2, (top + bottom) / 2
    if shape.shape == "circle":
        draw.ellipse((left, top, right, bottom), fill=255)
    elif shape.shape == "ring":
        draw.ellipse((left, top, right, bottom), outline=255, width=max(1, side // 4))
    elif shape.shape == "square":
        draw.rectangle((left, top, right, bottom), fill=255)
    elif shape.shape == "triangle":
        draw.polygon([(x, top), (right, bottom), (left, bottom)], fill=255)
    elif shape.shape == "cross":
        draw.rectangle((x - side / 6, top, x + side / 6, bottom), fill=255)
        draw.rectangle((left, y - side / 6, right, y + side / 6), fill=255)
    elif shape.shape == "star":
        turns = np.arange(10) * np.pi / 5
        reach = np.where(np.arange(10) % 2, 0.4, 1.0) * side / 2
        draw.polygon(list(zip(x + reach * np.sin(turns), y - reach * np.cos(turns), strict=True)), fill=255)
    else:
        raise ValueError(f"there is no shape {shape.shape!r}; there is {', '.join(SHAPES)}")
    return np.asarray(fine).reshape(size, _FINER, size, _FINER).mean(axis=(1, 3)) / 255


# Grids whose labels follow a rule that no cell can follow alone: ``y_ij = x_ij ⊕ y_up ⊕ y_left``, with labels beyond
# the edge 0. Given the labels above and to the left, one bit is to be added; from the cell alone, it is a fair coin.


def parity_grid(height: int, width: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features ``h w 1`` of zeros and ones, and the labels."""
    x = draw.integers(2, size=(height, width))
    y = np.zeros((height + 1, width + 1), dtype=np.int64)
    for i in range(height):
        for j in range(width):
            y[i + 1, j + 1] = x[i, j] ^ y[i, j + 1] ^ y[i + 1, j]
    return x[:, :, None].astype(np.float32), y[1:, 1:]


def parity_grids(
    count: int, seed: int, least: tuple[int, int] = (6, 6), most: tuple[int, int] = (10, 10)
) -> list[tuple[np.ndarray, np.ndarray]]:
    """As many grids, of sizes between ``least`` and ``most``."""
    draw = np.random.default_rng(seed)
    sizes = [(draw.integers(least[0], most[0] + 1), draw.integers(least[1], most[1] + 1)) for _ in range(count)]
    return [parity_grid(int(height), int(width), draw) for height, width in sizes]
