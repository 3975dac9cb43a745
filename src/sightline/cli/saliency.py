"""`sightline saliency`: where images draw the eye, as pictures, arrays and scan paths."""

import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TimeRemainingColumn

from sightline.cli.common import set_up
from sightline.data.image_tables import free_name
from sightline.data.images import ENDINGS, BadImage, read_image
from sightline.errors import UserError
from sightline.files import check_writable, is_no_folder, place_of, whole_file, write_text
from sightline.machine import choose_device
from sightline.saliency.competition import PathConfig
from sightline.saliency.looking import Ready, Saliency, look, make_ready
from sightline.saliency.model import SaliencyConfig
from sightline.saliency.picture import draw, save_picture
from sightline.saliency.truth import METRICS, Looked, Places, read_fixations, score_each

MARK = ".saliency"  # between the image's name and the ending: nothing written here is called as an image read
READERS = 4  # threads at most: decoding lets others run


@dataclass(frozen=True)
class Wanted:
    """What to look for and what to write."""

    fixations: int = PathConfig.fixations
    blur: float | None = None
    side: int | None = None
    colours: Literal["opposed", "printed"] = "opposed"
    truth: Path | None = None
    pictures: bool = True

    def config(self) -> SaliencyConfig:
        usual = SaliencyConfig()
        return SaliencyConfig(
            usual.side if self.side is None else self.side, usual.blur if self.blur is None else self.blur, self.colours
        )


def saliency_command(images: Sequence[Path], out: Path, wanted: Wanted, device: str, threads: int | None) -> None:
    """Look at every image and write what was found; images that cannot be read are named and left out."""
    config, path = wanted.config(), PathConfig(wanted.fixations)
    choose_device(device)
    files = _files(images)
    if is_no_folder(out):
        raise UserError(f"--out is {out}, which is a file; name a folder")
    truth = None if wanted.truth is None else _truth(wanted.truth, files)
    check_writable(out)
    set_up(threads)
    taken = {place_of(file) for file in files}
    names = [f"{free_name(file, out, (f'{MARK}.png',), taken)}{MARK}" for file in files]
    started, sizes = time.perf_counter(), {}
    with _progress(len(files)) as bar:
        task = bar.add_task("looking", total=len(files))
        for number, image, found in look(_good(files, config, bar), config, path, device=device):
            _write(out / names[number], files[number], image, found, config, wanted.pictures)
            sizes[number] = found.height, found.width
            bar.advance(task)
    if not sizes:
        raise UserError(f"none of the {len(files):,} images could be read" if len(files) > 1 else "no image was read")
    bad = len(files) - len(sizes)
    speed = len(sizes) / (time.perf_counter() - started)
    left_out = f"; {bad:,} of {len(files):,} could not be read" if bad else ""
    plural = "" if len(sizes) == 1 else "s"
    print(f"{len(sizes):,} image{plural} → {out} ({speed:.3g} images/s){left_out}")
    if truth is not None:
        _score(out, files, names, sizes, truth)


def _files(images: Sequence[Path]) -> list[Path]:
    """The images named, and those in the folders named."""
    if not images:
        raise UserError("name an image, or a folder of images")
    files: list[Path] = []
    for image in images:
        if not image.is_dir():
            files.append(image)
            continue
        inside = sorted(one for one in image.iterdir() if one.suffix.lower() in ENDINGS and one.is_file())
        inside = [one for one in inside if not one.stem.endswith(MARK)]  # what an earlier run wrote
        if not inside:
            raise UserError(f"{image} holds no image; expected files that end in {', '.join(ENDINGS)}")
        files += inside
    return files


def _truth(table: Path, files: Sequence[Path]) -> dict[Path, Places]:
    """Where people looked, of some of these images at least: better said before all the maps than after them."""
    truth = read_fixations(table)
    if not any(file.resolve() in truth for file in files):
        first = next(iter(truth))
        raise UserError(
            f"none of the images stands in the table of --truth, whose first is {first}; its paths are relative to its "
            "folder"
        )
    return truth


def _good(files: Sequence[Path], config: SaliencyConfig, bar: Progress) -> Iterator[tuple[int, Ready]]:
    """The images that can be read, made ready ahead in threads; each other one is named at once."""

    def read(file: Path) -> Ready | BadImage:
        try:
            return make_ready(read_image(file), config)
        except BadImage as error:
            return error

    readers = min(READERS, os.cpu_count() or 1)
    waiting: deque[tuple[int, Future[Ready | BadImage]]] = deque()
    pool = ThreadPoolExecutor(readers, thread_name_prefix="images")
    try:
        coming = iter(enumerate(files))
        while True:
            while len(waiting) < 2 * readers and (one := next(coming, None)) is not None:
                waiting.append((one[0], pool.submit(read, one[1])))
            if not waiting:
                return
            number, future = waiting.popleft()
            found = future.result()
            if isinstance(found, Ready):
                yield number, found
            else:
                bar.console.print(f"sightline: {files[number]}: {found}", markup=False, highlight=False, soft_wrap=True)
                bar.advance(bar.task_ids[0])
    finally:
        pool.shutdown(cancel_futures=True)


def _write(to: Path, file: Path, image: Ready, found: Saliency, config: SaliencyConfig, pictures: bool) -> None:
    with whole_file(to.with_name(f"{to.name}.npy")) as part, part.open("wb") as stream:
        np.save(stream, found.map, allow_pickle=False)
    about = {"image": str(file), "model": "Itti, Koch and Niebur 1998", "blur": config.blur, "side": config.side}
    content = {**about, "colours": config.colours, **found.to_json()}
    write_text(to.with_name(f"{to.name}.json"), json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    if pictures:
        save_picture(draw(image, found), to.with_name(f"{to.name}.png"))


def _score(
    out: Path, files: Sequence[Path], names: Sequence[str], sizes: dict[int, tuple[int, int]], truth: dict[Path, Places]
) -> None:
    """The scores of the maps just written, by the fixations of the images that have some."""
    first = {files[number].resolve(): number for number in sorted(sizes, reverse=True)}  # named twice, scored once
    known = sorted(number for path, number in first.items() if path in truth)
    if not known:
        raise UserError("none of the images that could be read stands in the table of --truth")
    given = [Looked(truth[files[number].resolve()], *sizes[number]) for number in known]
    inside = [one.inside() for one in given]
    for number, before, after in zip(known, given, inside, strict=True):
        if outside := len(before.fixations) - len(after.fixations):
            count = f"{outside:,} of {len(before.fixations):,} fixations lie"
            print(f"sightline: {files[number]}: {count} outside the image (left out)", file=sys.stderr)
    scored = [number for number, one in zip(known, inside, strict=True) if len(one.fixations)]
    looked = [one for one in inside if len(one.fixations)]
    if not scored:
        raise UserError("none of the fixations of --truth lies inside its image; expected pixels of the image, from 0")
    if len(scored) < 2:
        print("sightline: the shuffled AUC needs fixations in two images or more", file=sys.stderr)
    each = score_each(lambda place: np.load(out / f"{names[scored[place]]}.npy", allow_pickle=False), looked)
    means = {name: _mean(values) for name, values in each.items()}
    rows = [
        {"image": str(files[number]), **{name: _plain(each[name][place]) for name in METRICS}}
        for place, number in enumerate(scored)
    ]
    content = {"images": len(scored), "mean": {name: _plain(value) for name, value in means.items()}, "each": rows}
    write_text(out / "scores.json", json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    print(f"against the fixations in {len(scored):,} images (each in {out / 'scores.json'}):")
    for name in METRICS:
        print(f"  {name:<12} {means[name]:.3f}")


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _progress(count: int) -> Progress:
    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = count == 1 or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)
