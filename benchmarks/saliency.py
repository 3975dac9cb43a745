"""Saliency against where people looked: ``python benchmarks/saliency.py DATA --write``

DATA is a folder with images and fixations.tsv (columns image, viewer, x and y), such as Scene-500. Every fourth photo
decides what the paper leaves open; the figures are those of the others. Beside the model stand OpenCV's spectral
residual, where people look in any photo, chance, and how well half of the viewers say where the other half looked. It
needs ``pip install opencv-contrib-python-headless==5.0.0.93``. Without DATA: is the odd one of made arrays found first?
"""

import csv
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from PIL import Image

from report import machine, write_section
from sightline.data.images import read_image
from sightline.errors import UserError
from sightline.saliency import PathConfig, Saliency, SaliencyConfig, fixation_density, prepare_image, saliency_stream
from sightline.saliency.arrays import Oddity, pop_out
from sightline.saliency.picture import draw
from sightline.saliency.pyramids import blur, resize
from sightline.saliency.truth import METRICS, SPREAD, HumanFixations, score_one

EXAMPLES = Path("runs/saliency.png")  # other people's photos: not among the results
SIDES = (640, 960, 1280)
BLURS = (0.0, 0.02, 0.03, 0.04)
ARRAYS = 200
RESAMPLES = 10_000
KINDS: tuple[Oddity, ...] = ("colour", "orientation")
CHOSEN_BY = ("AUC-Judd", "shuffled AUC")
Maps = dict[str, np.ndarray]
Scores = dict[str, np.ndarray]  # of each metric, for each photo


@dataclass(frozen=True)
class Photos:
    """Some of the photos, and the fixations made in them and in the others of their part."""

    names: list[str]
    pixels: dict[str, np.ndarray]
    looked: dict[str, HumanFixations]
    densities: dict[str, np.ndarray] = field(default_factory=dict)

    def density(self, name: str) -> np.ndarray:
        """Where people looked, smooth, at the photo's own size; made once."""
        if name not in self.densities:
            one = self.looked[name]
            spread = SPREAD * max(one.height, one.width)
            self.densities[name] = fixation_density(one.fixations, one.height, one.width, spread).astype(np.float32)
        return self.densities[name]

    def score(self, maps: Maps, metrics: Sequence[str] = METRICS) -> Scores:
        """The metrics of a map for each photo, at the photo's own size."""
        shares = {name: self.looked[name].within(1, 1) for name in self.names}
        rows = []
        for name in self.names:
            elsewhere = np.concatenate([share for other, share in shares.items() if other != name])
            density = self.density(name) if set(metrics) - set(CHOSEN_BY) else maps[name]  # the areas need none
            rows.append(score_one(maps[name], self.looked[name], elsewhere, metrics, density))
        return {metric: np.array([row[metric] for row in rows]) for metric in metrics}


def read(data: Path) -> tuple[Photos, Photos, dict[str, tuple[HumanFixations, HumanFixations]]]:
    """The photos to choose by, those to report, and for each photo the fixations of each half of its viewers."""
    viewers: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with (data / "fixations.tsv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table, delimiter="\t"):
            viewers[row["image"]][row["viewer"]].append((float(row["x"]), float(row["y"])))
    names = sorted(viewers)
    pixels = {name: read_image(data / name) for name in names}
    looked, halves = {}, {}
    for name in names:
        size = pixels[name].shape[0], pixels[name].shape[1]
        each = [viewers[name][viewer] for viewer in sorted(viewers[name])]
        parts = [
            np.array([place for one in some for place in one]).reshape(-1, 2) for some in (each, each[::2], each[1::2])
        ]
        looked[name], one, other = (HumanFixations(part, *size) for part in parts)
        halves[name] = one, other
    choosing = names[::4]
    reported = [name for name in names if name not in set(choosing)]
    return Photos(choosing, pixels, looked), Photos(reported, pixels, looked), halves


def ours(photos: Photos, config: SaliencyConfig, path: PathConfig | None = None) -> dict[str, Saliency]:
    ready = ((name, prepare_image(photos.pixels[name], config)) for name in photos.names)
    return {name: found for name, _, found in saliency_stream(ready, config, path or PathConfig(fixations=0))}


def at_photo_size(photos: Photos, found: dict[str, Saliency]) -> Maps:
    return {name: one.resized(one.height, one.width) for name, one in found.items()}


def blurred(maps: Maps, share: float, sizes: dict[str, tuple[int, int]] | None = None) -> Maps:
    """Maps under a Gaussian that is a share of their longer side, at the sizes given."""
    done = {}
    for name, one in maps.items():
        smooth = blur(torch.from_numpy(np.ascontiguousarray(one))[None, None], share * max(one.shape))
        done[name] = resize(smooth, sizes[name] if sizes else one.shape)[0, 0].numpy()
    return done


def spectral_residual(photos: Photos) -> tuple[Maps, str]:
    """OpenCV's maps, unchanged, and its version."""
    try:
        cv2: Any = importlib.import_module("cv2")
        model = cv2.saliency.StaticSaliencySpectralResidual_create()
    except (ImportError, AttributeError):
        raise UserError("OpenCV's saliency is missing: pip install opencv-contrib-python-headless==5.0.0.93") from None
    maps = {}
    for name in photos.names:
        good, found = model.computeSaliency(np.ascontiguousarray(photos.pixels[name][..., ::-1]))
        assert good
        maps[name] = found.astype(np.float32)
    return maps, cv2.__version__


def centre_prior(photos: Photos, choosing: Photos) -> Maps:
    """A Gaussian with the mean and the spread of the fixations in the photos to choose by, as shares of the sides."""
    shares = np.concatenate([choosing.looked[name].within(1, 1) for name in choosing.names])
    (middle_x, middle_y), (spread_x, spread_y) = shares.mean(axis=0), shares.std(axis=0)
    maps = {}
    for name in photos.names:
        height, width = photos.pixels[name].shape[:2]
        x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
        across, down = ((x - middle_x) / spread_x) ** 2, ((y - middle_y) / spread_y) ** 2
        maps[name] = np.exp(-0.5 * (across[None] + down[:, None]))
    return maps


def noise(photos: Photos) -> Maps:
    draw_from = np.random.default_rng(0)
    return {name: draw_from.random(photos.pixels[name].shape[:2]) for name in photos.names}


def half_of_the_viewers(photos: Photos, halves: dict[str, tuple[HumanFixations, HumanFixations]]) -> Scores:
    """How well the fixations of one half of the viewers, blurred, say those of the other half."""
    other = Photos(photos.names, photos.pixels, {name: halves[name][1] for name in photos.names})
    one = Photos(photos.names, photos.pixels, {name: halves[name][0] for name in photos.names})
    return other.score({name: one.density(name) for name in photos.names})


def choices(photos: Photos) -> list[str]:
    """The rows of the table that the side and the blur were chosen by."""
    lines = []
    sizes = {name: (photos.pixels[name].shape[0], photos.pixels[name].shape[1]) for name in photos.names}
    for side in SIDES:
        raw = {name: one.raw for name, one in ours(photos, SaliencyConfig(side=side)).items()}
        cells = []
        for share in BLURS:
            scores = photos.score(blurred(raw, share, sizes), CHOSEN_BY)
            cells.append(" / ".join(f"{scores[metric].mean():.3f}" for metric in CHOSEN_BY))
        lines.append(f"| {side} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def best_blur(photos: Photos, maps: Maps) -> float:
    """The blur that is best for another model's maps, by the sum of both areas."""

    def both(share: float) -> float:
        return sum(float(values.mean()) for values in photos.score(blurred(maps, share), CHOSEN_BY).values())

    return max(BLURS, key=both)


def difference(first: np.ndarray, second: np.ndarray) -> str:
    """The mean difference over photos and the interval that holds 95 % of its resamples."""
    off = first - second
    drawn = np.random.default_rng(0).integers(len(off), size=(RESAMPLES, len(off)))
    low, high = np.percentile(off[drawn].mean(axis=1), [2.5, 97.5])
    return f"{off.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def found_first(oddity: Oddity, config: SaliencyConfig) -> int:
    """In how many arrays the first fixation is nearest to the odd one."""
    arrays = [pop_out(oddity, seed) for seed in range(ARRAYS)]
    ready = ((number, prepare_image(array.pixels, config)) for number, array in enumerate(arrays))
    hits = 0
    for number, _, found in saliency_stream(ready, config, PathConfig(fixations=1)):
        hits += bool(found.path) and arrays[number].nearest(found.path[0].x, found.path[0].y) == arrays[number].odd
    return hits


def speed(photos: Photos, config: SaliencyConfig) -> tuple[float, float]:
    """Images a second: maps and scan paths of eight fixations, and OpenCV's maps, both from decoded photos."""
    rates = []
    for work in (lambda: ours(photos, config, PathConfig()), lambda: spectral_residual(photos)):
        run: Callable[[], Any] = work
        times = []
        for _ in range(3):
            started = time.perf_counter()
            run()
            times.append(time.perf_counter() - started)
        rates.append(len(photos.names) / float(np.median(times)))
    return rates[0], rates[1]


def draw_examples(photos: Photos, config: SaliencyConfig, path: Path) -> None:
    """Six photos of the reported part, spread over it, two in a row."""
    path.parent.mkdir(exist_ok=True)
    names = photos.names[:: len(photos.names) // 6][:6]
    ready = {name: prepare_image(photos.pixels[name], config) for name in names}
    found = {name: one for name, _, one in saliency_stream(ready.items(), config)}
    pictures = [draw(ready[name], found[name]) for name in names]
    for picture in pictures:
        picture.thumbnail((600, 600), Image.Resampling.LANCZOS)
    wide, tall = max(one.width for one in pictures), max(one.height for one in pictures)
    sheet = Image.new("RGB", (2 * wide + 30, 3 * (tall + 20)), "white")
    for number, picture in enumerate(pictures):
        sheet.paste(picture, (number % 2 * (wide + 30), number // 2 * (tall + 20)))
    sheet.save(path)


def measure(choosing: Photos, reported: Photos, halves: dict[str, tuple[HumanFixations, HumanFixations]]) -> str:
    config, tried = SaliencyConfig(), choices(choosing)
    theirs_blur = best_blur(choosing, spectral_residual(choosing)[0])
    theirs, version = spectral_residual(reported)
    maps: dict[str, Maps] = {
        f"**ours**, blur {config.blur:g}": at_photo_size(reported, ours(reported, config)),
        "ours, no blur": at_photo_size(reported, ours(reported, replace(config, blur=0.0))),
        "ours, colours by the printed formula": at_photo_size(
            reported, ours(reported, replace(config, colours="printed"))
        ),
        f"spectral residual, OpenCV {version}, unchanged": theirs,
        f"spectral residual, blur {theirs_blur:g} more": blurred(theirs, theirs_blur),
        "centre prior": centre_prior(reported, choosing),
        "chance": noise(reported),
    }
    scores = {}
    for name, some in maps.items():
        scores[name] = reported.score(some)
        print(name, {metric: round(float(values.mean()), 3) for metric, values in scores[name].items()}, flush=True)
    scores["half of the viewers, for the others"] = half_of_the_viewers(reported, halves)
    first = next(iter(scores))
    better = [
        f"| {name} | {' | '.join(difference(scores[first][metric], scores[name][metric]) for metric in CHOSEN_BY)} |"
        for name in scores
        if name.startswith("spectral")
    ]
    ours_speed, theirs_speed = speed(Photos(choosing.names[:40], choosing.pixels, choosing.looked), config)
    draw_examples(reported, config, EXAMPLES)
    rows = "\n".join(
        f"| {name} | {' | '.join(f'{values.mean():.3f}' for values in some.values())} |"
        for name, some in scores.items()
    )
    total = len(choosing.names) + len(reported.names)
    return f"""## Saliency: photos

Measured on {machine()}. {total} photos with the fixations of up to 12 viewers. Every fourth
({len(choosing.names)}) was used to choose what the paper leaves open, such as side {config.side} and blur
{config.blur:g} of the longer side; the figures are means over the other {len(reported.names)}. Fixation density
(similarity, KL): spread {SPREAD:g} of the longer side. Shuffled AUC: against all fixations in the other photos. For KL,
less is better.

| | {" | ".join(METRICS)} |
|---|{"--:|" * len(METRICS)}
{rows}

| ours is better than | {" | ".join(f"by {metric} (95 % over photos)" for metric in CHOSEN_BY)} |
|---|--:|--:|
{chr(10).join(better)}

Tried on the {len(choosing.names)} photos, AUC-Judd / shuffled AUC:

| side \\ blur | {" | ".join(f"{share:g}" for share in BLURS)} |
|--:|{"--:|" * len(BLURS)}
{chr(10).join(tried)}

Decoded photos per second: {ours_speed:.1f} with scan paths of 8 fixations; OpenCV {theirs_speed:.0f}, on maps of
64 × 64.

Reproduce: `python benchmarks/saliency.py DATA --write`"""


def measure_arrays() -> str:
    config = SaliencyConfig()
    opposed = {kind: found_first(kind, config) for kind in KINDS}
    print(opposed, flush=True)
    printed = found_first("colour", replace(config, colours="printed"))
    return f"""## Saliency: odd one out

{ARRAYS} random fields of 169 to 324 bars for each kind, generated by `sightline.saliency.arrays`, side {config.side}:
how often the first fixation is nearest to the odd one.

| | opposed colours | by the printed formula |
|---|--:|--:|
| one red bar among green ones of equal brightness | {opposed["colour"]} of {ARRAYS} | {printed} of {ARRAYS} |
| one tilted bar among upright ones | {opposed["orientation"]} of {ARRAYS} | |

Reproduce: `python benchmarks/saliency.py --write`"""


def main(data: tyro.conf.Positional[Path | None] = None, write: bool = False) -> None:
    """Measure on the photos in DATA, or without it on made arrays; with --write, also into RESULTS.md."""
    body = measure_arrays() if data is None else measure(*read(data))
    print(body)
    if write:
        write_section("saliency-arrays" if data is None else "saliency", body)


if __name__ == "__main__":
    tyro.cli(main)
