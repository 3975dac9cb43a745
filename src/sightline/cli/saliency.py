"""`sightline saliency`: saliency maps and scan paths of images, as pictures, arrays and JSON."""

import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from sightline.cli.common import set_up
from sightline.cli.output import progress_bar
from sightline.data.image_tables import free_name
from sightline.data.images import ENDINGS, BadImage, read_image
from sightline.errors import UserError
from sightline.files import check_writable, is_no_folder, place_of, whole_file, write_text
from sightline.machine import choose_device
from sightline.saliency.competition import PathConfig
from sightline.saliency.compute import PreparedImage, Saliency, prepare_image, saliency_stream
from sightline.saliency.model import SaliencyConfig
from sightline.saliency.picture import draw
from sightline.saliency.truth import METRICS, HumanFixations, Places, read_fixations, score_each

MARK = ".saliency"  # between an image's name and the extension: no written file has the name of an image
READERS = 4  # threads at most: decoding releases the GIL


def saliency_command(
    images: Sequence[Path],
    out: Path,
    fixations: int,
    truth: Path | None,
    quick: bool,
    device: str,
    threads: int | None,
    **fields: Any,
) -> None:
    """Compute and write the saliency of every image; images that cannot be read are named and left out."""
    config = SaliencyConfig(**{name: value for name, value in fields.items() if value is not None})
    path = PathConfig(fixations)
    choose_device(device)
    files = _files(images)
    if is_no_folder(out):
        raise UserError(f"--out is {out}, which is a file; name a folder")
    people = None if truth is None else _truth(truth, files)
    check_writable(out)
    set_up(threads)
    taken = {place_of(file) for file in files}
    names = [f"{free_name(file, out, (f'{MARK}.png',), taken)}{MARK}" for file in files]
    started, sizes = time.perf_counter(), {}
    with progress_bar("images", len(files), hidden=len(files) == 1) as advance:
        for number, image, salient in saliency_stream(_good(files, config, advance), config, path, device=device):
            _write(out / names[number], files[number], image, salient, config, not quick)
            sizes[number] = salient.height, salient.width
            advance(1)
    if not sizes:
        raise UserError(f"none of the {len(files):,} images could be read" if len(files) > 1 else "no image was read")
    bad = len(files) - len(sizes)
    speed = len(sizes) / (time.perf_counter() - started)
    left_out = f"; {bad:,} of {len(files):,} could not be read" if bad else ""
    plural = "" if len(sizes) == 1 else "s"
    print(f"{len(sizes):,} image{plural} → {out} ({speed:.3g} images/s){left_out}")
    if people is not None:
        _score(out, files, names, sizes, people)


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
    """Human fixations of at least one of these images, checked before the maps are computed."""
    truth = read_fixations(table)
    if not any(file.resolve() in truth for file in files):
        first = next(iter(truth))
        raise UserError(
            f"none of the images is in the table of --truth, whose first is {first}; its paths are relative to its "
            "folder"
        )
    return truth


def _good(
    files: Sequence[Path], config: SaliencyConfig, advance: Callable[[int], None]
) -> Iterator[tuple[int, PreparedImage]]:
    """The images that can be read, prepared ahead in threads; the others are named on standard error."""

    def read(file: Path) -> PreparedImage | BadImage:
        try:
            return prepare_image(read_image(file), config)
        except BadImage as error:
            return error

    readers = min(READERS, os.cpu_count() or 1)
    waiting: deque[tuple[int, Future[PreparedImage | BadImage]]] = deque()
    pool = ThreadPoolExecutor(readers, thread_name_prefix="images")
    try:
        coming = iter(enumerate(files))
        while True:
            while len(waiting) < 2 * readers and (one := next(coming, None)) is not None:
                waiting.append((one[0], pool.submit(read, one[1])))
            if not waiting:
                return
            number, future = waiting.popleft()
            image = future.result()
            if isinstance(image, PreparedImage):
                yield number, image
            else:
                print(f"sightline: {files[number]}: {image}", file=sys.stderr)
                advance(1)
    finally:
        pool.shutdown(cancel_futures=True)


def _write(
    to: Path, file: Path, image: PreparedImage, salient: Saliency, config: SaliencyConfig, picture: bool
) -> None:
    with whole_file(to.with_name(f"{to.name}.npy")) as part, part.open("wb") as stream:
        np.save(stream, salient.map, allow_pickle=False)
    fields = {"blur": config.blur, "side": config.side, "colours": config.colours}
    content = {"image": str(file), "model": "Itti, Koch and Niebur 1998", **fields, **salient.to_json()}
    write_text(to.with_name(f"{to.name}.json"), json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    if picture:
        with whole_file(to.with_name(f"{to.name}.png")) as part:
            draw(image, salient).save(part, format="PNG")


def _score(
    out: Path, files: Sequence[Path], names: Sequence[str], sizes: dict[int, tuple[int, int]], truth: dict[Path, Places]
) -> None:
    """Score the written maps by the fixations of the images that have some."""
    first = {files[number].resolve(): number for number in sorted(sizes, reverse=True)}  # an image is scored once
    known = sorted(number for path, number in first.items() if path in truth)
    if not known:
        raise UserError("none of the images that could be read is in the table of --truth")
    scored: dict[int, HumanFixations] = {}
    for number in known:
        given = HumanFixations(truth[files[number].resolve()], *sizes[number])
        inside = given.inside()
        if outside := len(given.fixations) - len(inside.fixations):
            count = f"{outside:,} of {len(given.fixations):,} fixations lie"
            print(f"sightline: {files[number]}: {count} outside the image (left out)", file=sys.stderr)
        if len(inside.fixations):
            scored[number] = inside
    if not scored:
        raise UserError("none of the fixations of --truth lies inside its image; expected pixels of the image, from 0")
    if len(scored) < 2:
        print("sightline: the shuffled AUC needs fixations in two images or more", file=sys.stderr)
    numbers = list(scored)
    saved = (out / f"{names[number]}.npy" for number in numbers)
    each = score_each((np.load(path, allow_pickle=False) for path in saved), list(scored.values()))
    means = {name: _mean(values) for name, values in each.items()}
    rows = [
        {"image": str(files[number]), **{name: _plain(each[name][row]) for name in METRICS}}
        for row, number in enumerate(numbers)
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
