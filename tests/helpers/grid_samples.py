"""Made photos with cracks and made grids, as files, for the tests of `grid`."""

import numpy as np
from PIL import Image

from sightline.inputs.grid import GridInput
from sightline.outputs.cells import CellsOutput
from sightline.synthetic.shapes import parity_grids
from sightline.tasks.grid import GRID
from sightline.tasks.run import Run


def gridder(model, facts, config):
    """A run of `grid` with this model."""
    return Run(GRID, GRID.variants[0], model, GridInput(config, facts), CellsOutput(config, facts), config)


def cracked(height, width, seed):
    """A grey noise with a dark line through it, and its mask."""
    draw = np.random.default_rng(seed)
    image = draw.normal(150, 12, size=(height, width, 3))
    mask = np.zeros((height, width), dtype=np.uint8)
    at = draw.uniform(0.2, 0.8) * height
    for column in range(width):
        at = np.clip(at + draw.normal(0, 0.6), 1, height - 3)
        mask[int(at) : int(at) + 2, column] = 255
    image[mask > 0] -= 70
    return np.clip(image, 0, 255).astype(np.uint8), mask


def write_photos(folder, count, seed=0, size=(32, 48)):
    """A table of photos with masks."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = ["image\tmask"]
    for number in range(count):
        image, mask = cracked(*size, seed * 1000 + number)
        Image.fromarray(image).save(folder / "images" / f"{number}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")
        lines.append(f"images/{number}.png\tmasks/{number}.png")
    (folder / "photos.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "photos.tsv"


def write_parity(folder, count, seed=0, least=(4, 4), most=(5, 5)):
    """A table of feature grids with labels that follow the rule of parity."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["image\tlabels"]
    for number, (x, y) in enumerate(parity_grids(count, seed, least, most)):
        np.save(folder / f"{number}.npy", x)
        np.save(folder / f"{number}.gold.npy", y)
        lines.append(f"{number}.npy\t{number}.gold.npy")
    (folder / "grids.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "grids.tsv"
