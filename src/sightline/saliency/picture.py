"""A picture of saliency: the image with the numbered scan path, the map as light, and the three maps it is made of."""

from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.saliency.competition import FOCUS
from sightline.saliency.compute import PreparedImage, Saliency

PANEL = 480  # pixels along the longer side of the image in the picture
GAP, LINE, LETTERS = 10, 22, 15  # pixels: between panels, for a line of text, and its letters
FINER = 3  # lines and circles are drawn larger by this factor and scaled down, for smooth edges
DOT = 11  # pixels: radius of the disc around a number
DARKEST = 0.15  # of the light, so that regions without saliency stay visible
PATH, PAPER, INK, RIM = (255, 209, 0), (255, 255, 255), (0, 0, 0), (0, 0, 0)


def draw(image: PreparedImage, salient: Saliency) -> Image.Image:
    """The picture: above, the image with its scan path and the image lit by the map; below, the map of each feature."""
    scale = PANEL / max(salient.height, salient.width)
    wide, tall = max(1, round(salient.width * scale)), max(1, round(salient.height * scale))
    photo = Image.fromarray(image.pixels).resize((wide, tall), Image.Resampling.LANCZOS)
    whole = max(2 * wide + GAP, 3 * 90)  # a narrow image leaves room for the words
    third = (whole - 2 * GAP) // 3
    below = max(1, round(tall * min(1.0, third / wide)))
    picture = Image.new("RGB", (whole, 2 * LINE + tall + GAP + below), PAPER)
    _put(picture, _with_path(photo, salient), 0, 0, "scan path" if salient.path else "scan path: nothing stands out")
    _put(picture, _lit(photo, salient.map), wide + GAP, 0, "saliency")
    for number, (name, part) in enumerate(salient.conspicuity.items()):
        shown = _grey(part, (min(third, wide), below))
        _put(picture, shown, number * (third + GAP), LINE + tall + GAP, name)
    return picture


def _put(picture: Image.Image, panel: Image.Image, left: int, top: int, title: str) -> None:
    font = ImageFont.load_default(LETTERS)
    ImageDraw.Draw(picture).text((left, top + LINE // 2), title, fill=INK, font=font, anchor="lm")
    picture.paste(panel, (left, top + LINE))


def _with_path(photo: Image.Image, salient: Saliency) -> Image.Image:
    """The fixations in order, joined by lines; around the first, the disc of attention."""
    across, down = (FINER * side for side in photo.size)
    layer = Image.new("RGBA", (across, down), (0, 0, 0, 0))
    pen = ImageDraw.Draw(layer)
    places = [(one.x * across / salient.width, one.y * down / salient.height) for one in salient.path]
    for (x, y), (to_x, to_y) in pairwise(places):
        for colour, thick in ((RIM, 5), (PATH, 3)):
            pen.line([x, y, to_x, to_y], fill=(*colour, 255), width=thick * FINER)
    if places:
        radius = FOCUS * min(across, down)
        for colour, thick, more in ((RIM, 4, 1), (PATH, 2, 0)):
            pen.ellipse(_box(*places[0], radius + more * FINER), outline=(*colour, 255), width=thick * FINER)
    font = ImageFont.load_default(14 * FINER)
    for number, place in reversed(list(enumerate(places, start=1))):  # the first on top
        pen.ellipse(_box(*place, (DOT + 1.5) * FINER), fill=(*RIM, 255))
        pen.ellipse(_box(*place, DOT * FINER), fill=(*PATH, 255))
        pen.text(place, str(number), fill=(*INK, 255), font=font, anchor="mm")
    smooth = layer.resize(photo.size, Image.Resampling.BOX)
    return Image.alpha_composite(photo.convert("RGBA"), smooth).convert("RGB")


def _box(x: float, y: float, radius: int | float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def _lit(photo: Image.Image, saliency: np.ndarray) -> Image.Image:
    """Light instead of colour, so that the image keeps its colours. Full light is where the map is highest."""
    light = np.asarray(_grey(saliency, photo.size), dtype=np.float32)[..., :1] / 255
    return Image.fromarray((np.asarray(photo) * (DARKEST + (1 - DARKEST) * light)).round().astype(np.uint8))


def _grey(values: np.ndarray, size: tuple[int, int]) -> Image.Image:
    """Black where a map is 0, white where it is highest; all black if it is flat."""
    high = float(values.max())
    scaled = (values / high if high > 0 else np.zeros_like(values)).astype(np.float32)
    smooth = np.asarray(Image.fromarray(scaled).resize(size, Image.Resampling.BILINEAR))
    return Image.fromarray(np.rint(255 * np.clip(smooth, 0, 1)).astype(np.uint8)).convert("RGB")
