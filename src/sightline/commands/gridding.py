"""Train, predict, evaluate, compare and view, for runs that label the cells of images."""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.text import Text as Plain

from sightline.commands.common import say_unfinished, set_up, writing
from sightline.commands.comparing import check_runs
from sightline.commands.evaluation import console, plain_table, predicting
from sightline.commands.images import (
    bad_line,
    check_image_options,
    check_images,
    free_names,
    image_eye,
    image_paths,
    in_folder,
    listed,
    one_line,
    say_unread,
)
from sightline.commands.scoring import (
    WHAT_P_IS,
    check_rows_wanted,
    given_data,
    print_classes,
    print_json,
    refuse_picture,
    say_left_out,
    spaced,
    write_rows,
)
from sightline.data.checking import Limits
from sightline.data.grids import ARRAY, GRID_ENDINGS, BadImage, GridFile, Raw, read_grids, read_raw
from sightline.errors import UserError
from sightline.explanation import Explanation
from sightline.files import check_writable, is_no_folder
from sightline.machine import check_seed
from sightline.tasks.explaining import Wanted
from sightline.tasks.grid import GridMetric
from sightline.tasks.grid_data import raw_rows
from sightline.tasks.grid_presets import GRID_MODELS
from sightline.tasks.grid_scores import COMPARED, GridComparison, GridEvaluation, compare
from sightline.tasks.gridder import Gridder, GridPrediction, load_gridder
from sightline.view.cells import picture, save_json, save_mask, save_picture

DATA = "--data: a table with the columns image and mask, or a folder with images and masks in it"
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
WRITTEN = (".mask.png", ".overlay.png", ".json")  # behind the name of each image that is predicted
VIEWED = (*PICTURES, ".html", ".json")


def check_train_options(others: Mapping[str, object], metric: str | None, model: str | None) -> None:
    """Options of another task are refused, not passed over."""
    check_image_options("grid", others, metric, get_args(GridMetric), "grids")
    if model is not None and model not in GRID_MODELS:
        raise UserError(f"--model {model} does not label cells; choose one of {', '.join(GRID_MODELS)}")


def training_files(
    data: str | None, valid: str | None, columns: tuple[str, ...] | None
) -> tuple[GridFile, GridFile | None]:
    """The files that the options name."""
    return GridFile(given_data(data, DATA), columns), None if valid is None else GridFile(valid, columns)


def load_run(run: Path) -> Gridder:
    """A trained model, with a word on standard error when its training has not ended."""
    found, about = load_gridder(run)
    say_unfinished(run, about)
    return found


def _paths(images: Sequence[str | Path], path: str | None) -> list[Path]:
    """As of captions; an array is one grid of features, and a folder may hold some."""
    found = listed(images, GRID_ENDINGS)
    if path is not None and path != "-" and Path(path).is_dir():
        return found + in_folder(Path(path), GRID_ENDINGS)
    if path is not None and path.lower().endswith(ARRAY):
        return [*found, Path(path)]
    return found + image_paths((), path)


def _readable(gridder: Gridder, paths: Sequence[Path], bad: dict[str, str]) -> Iterator[Raw]:
    for path in paths:
        try:
            found = read_raw(path, None, str(path))
            gridder.check(found)
        except (BadImage, UserError) as error:
            bad[str(path)] = _reason(error, path)
        else:
            yield found


def _reason(error: Exception, path: Path) -> str:
    """What is wrong, without the name: that stands before it wherever it is said."""
    return str(error).removeprefix(f"{path}: ").replace(f"{path} has", "it has", 1)


def predict_command(
    run: Path,
    images: Sequence[str | Path],
    path: str | None,
    out: Path | None,
    as_json: bool,
    threshold: float | None,
    threads: int | None,
) -> None:
    """A line for each image: its path and how many cells of each class; with ``out``, a folder, three files for each.

    NAME.mask.png has the values that the masks of the training data had, NAME.overlay.png shows image and labels, and
    NAME.json has the label and the probabilities of every cell. An image that cannot be read keeps its line, without
    cells, and is named on standard error.
    """
    set_up(threads)
    if out is not None and is_no_folder(out):
        raise UserError(f"--out is {out}, which is a file; name a folder for masks and pictures")
    paths = _paths(images, path)
    check_images(paths, "label")
    gridder = load_run(run)
    if threshold is not None and len(gridder.facts.names) > 2:
        raise UserError("--threshold is for two classes; of several the likeliest is taken")
    if out is not None:
        check_writable(out)
    bad: dict[str, str] = {}
    read: deque[Raw] = deque()  # images on their way to their predictions
    called = [""] * len(paths) if out is None else free_names(paths, out, WRITTEN)
    coming = zip(paths, called, strict=True)

    def remembered() -> Iterator[Raw]:
        for raw in _readable(gridder, paths, bad):
            read.append(raw)
            yield raw

    with predicting(len(paths)) as advance, writing(None) as stream:
        for found in gridder.stream(remembered(), threshold, on_predicted=advance):
            while str((turn := next(coming))[0]) != found.name:
                print(bad_line(turn[0], bad[str(turn[0])], as_json), file=stream)
            image = read.popleft().values
            if out is not None:
                _write_all(gridder, found, image, out, turn[1])
            print(_line(gridder, found, as_json), file=stream, flush=True)
            _say_parts(found)
        for unread, _ in coming:
            print(bad_line(unread, bad[str(unread)], as_json), file=stream)
    say_unread(bad, paths)


def _say_parts(found: GridPrediction) -> None:
    """Of several parts, no cell knows of what lies beyond its own."""
    if found.parts > 1:
        print(f"sightline: {found.name} was labelled in {found.parts:,} parts that overlap", file=sys.stderr)


def _write_all(gridder: Gridder, found: GridPrediction, image: Any, out: Path, name: str) -> None:
    facts = gridder.facts
    classes = found.labels if found.pixels is None else found.pixels
    mask, overlay, data = (out / f"{name}{ending}" for ending in WRITTEN)
    save_mask(classes, facts.values, mask)
    refined = found.pixels if gridder.model.pixel_head is not None else None
    save_picture(picture(image, found.labels, facts.cell, pixels=refined), overlay)
    save_json(found.to_json(facts), data)


def _line(gridder: Gridder, found: GridPrediction, as_json: bool) -> str:
    if as_json:
        return json.dumps(found.to_json(gridder.facts), ensure_ascii=False)
    counts = [int((found.labels == label).sum()) for label in range(len(gridder.facts.names))]
    said = "\t".join(f"{name} {count}" for name, count in zip(gridder.facts.names, counts, strict=True))
    return f"{one_line(found.name)}\t{said}"


def _evaluated(gridder: Gridder, data: str | None, columns: tuple[str, ...] | None) -> GridEvaluation:
    """Scores on images with masks; what was left out is said, because it changes what a score is a score of."""
    files = GridFile(given_data(data, DATA), columns or gridder.facts.columns)
    total = sum(1 for _ in read_grids(files))
    # A score is of all images: only what nobody could read is left out.
    reading = raw_rows(files, gridder.config, masks=True, limits=Limits(max_bad_share=1.0))
    with predicting(total) as advance:
        found = gridder.evaluate(reading, on_predicted=advance)
    say_left_out(reading.report)
    if found.doubt is not None:
        print(f"sightline: {found.doubt}; expected masks with the same values", file=sys.stderr)
    return found


def evaluate_command(
    run: Path,
    data: str | None,
    columns: tuple[str, ...] | None,
    as_json: bool,
    threads: int | None,
    *,
    errors: int = 0,
    out: Path | None = None,
) -> None:
    """Every score of cells, and of pixels within some distances."""
    set_up(threads)
    check_rows_wanted(errors, out)
    gridder = load_run(run)
    found = _evaluated(gridder, data, columns)
    write_rows(_rows(found, gridder), out)
    if as_json:
        print_json(found.to_json(errors))
    else:
        _print(found, gridder, errors)


def _rows(found: GridEvaluation, gridder: Gridder) -> Iterator[dict[str, Any]]:
    for row, one in zip(found.rows(), found.predictions, strict=True):
        yield row | one.to_json(gridder.facts)


def _print(found: GridEvaluation, gridder: Gridder, errors: int) -> None:
    table = plain_table("score", "all", *(["not in the training data"] if found.without else []))
    for name, value in found.values.items():
        without = [f"{found.without[name]:.2f}" if name in found.without else ""] if found.without else []
        table.add_row(_shown(name), f"{value:.2f}", *without)
    console().print(table)
    images = len(found.predictions)
    speed = f"{found.seconds / images * 1000:.0f} ms an image"
    print(f"{images:,} image{'' if images == 1 else 's'}, {found.cells:,} cells; {speed}")
    if parted := sum(one.parts > 1 for one in found.predictions):
        print(f"{parted:,} of them too large to be labelled whole: in parts that overlap")
    if found.threshold is not None:
        print(f"a cell is marked from a probability of {found.threshold:.3f} on, which was best on validation data")
    if found.seen:
        print(f"{found.seen:,} of {images:,} images stand in the run's own data: scores on them flatter")
    print_classes(found.table, "class", "there")
    for number, row in enumerate(found.worst(errors), start=1):
        print(f"\n{number}. {row['image']}: F1 {row['f1']:.1f}, precision {row['precision']:.1f}, ", end="")
        print(f"recall {row['recall']:.1f}")


def compare_command(
    runs: Sequence[Path],
    data: str | None,
    columns: tuple[str, ...] | None,
    metrics: Sequence[str] | None,
    samples: int,
    seed: int,
    out: Path | None,
    as_json: bool,
    threads: int | None,
) -> None:
    """Scores of several runs, and the 95 % interval of their differences over resamples of the photos."""
    set_up(threads)
    check_seed(seed)
    chosen = metrics or ("f1",)
    check_runs(runs, chosen, samples)
    for name in chosen:
        if name not in COMPARED:
            raise UserError(f"--metrics {name} is not one of grids; expected some of {', '.join(COMPARED)}")
    refuse_picture(out, "images have none")
    gridders = {str(run): load_run(run) for run in runs}
    evaluations = {name: _evaluated(gridder, data, columns) for name, gridder in gridders.items()}
    found = compare(evaluations, chosen, samples, seed)
    if as_json:
        print_json(found.to_json())
    else:
        _print_comparison(found)


def _print_comparison(found: GridComparison) -> None:
    table = plain_table("metric", "run", "score", "95 % interval", "difference", "its 95 % interval", "p")
    for metric, runs in found.found.items():
        for place, (name, row) in enumerate(runs.items()):
            other = ["", "", ""]
            if "difference" in row:
                low, high = row["difference_interval"]
                other = [f"{row['difference']:+.2f}", f"{low:+.2f} – {high:+.2f}", f"{row['p']:.3f}"]
            interval = f"{row['interval'][0]:.2f} – {row['interval'][1]:.2f}"
            table.add_row("" if place else _shown(metric), Plain(name), f"{row['value']:.2f}", interval, *other)
    console().print(table)
    print(f"\n{found.images:,} images; paired bootstrap over images, {found.samples:,} resamples, seed {found.seed}.")
    print(WHAT_P_IS)


def _shown(name: str) -> str:
    pixel, _, distance = name.rpartition("_")
    if name.startswith("pixel_") and distance.isdigit():
        return f"{spaced(pixel)} within {distance} px"
    return spaced(name)


def gridding_eye(run: Path, wanted: Wanted) -> Callable[[Any], Explanation]:
    """What explains an image beside other runs, for `sightline view`."""
    gridder = load_run(run)
    return image_eye(run, lambda image: gridder.explain(image, top=wanted.top))


def view_command(run: Path, images: Sequence[str | Path], path: str | None, out: Path, threads: int | None) -> None:
    """The labels over an image as a picture; as a page (.html) or data (.json), also where each cell looked."""
    ending = out.suffix.lower()
    if ending not in VIEWED:
        raise UserError(f"--out is {out}; it must end in one of {', '.join(VIEWED)}")
    if out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    if not images and path is None:
        raise UserError(f"{run} reads images; name one with --image")
    folder = next((one for one in images if Path(one).is_dir()), None)
    if folder is not None and ending != ".html":
        raise UserError(f"--image is {folder}, which is a folder; name one image, or write a page (--out NAME.html)")
    paths = _paths(images, path)
    if len(paths) != 1 and ending != ".html":
        raise UserError(f"found {len(paths)} images; one goes into a picture: name it with --image")
    if not paths:
        raise UserError("there is no image to view: name one with --image")
    check_writable(out.parent)
    set_up(threads)
    gridder = load_run(run)
    if ending in PICTURES:
        try:
            raw = read_raw(paths[0], None, str(paths[0]))
        except BadImage as error:
            raise UserError(str(error)) from None
        gridder.check(raw)
        (found,) = gridder.stream([raw])
        refined = found.pixels if gridder.model.pixel_head is not None else None
        save_picture(picture(raw.values, found.labels, gridder.facts.cell, pixels=refined), out)
        print(_line(gridder, found, as_json=False))
        _say_parts(found)
    else:
        explained = [gridder.explain(one) for one in paths]
        if ending == ".html":
            from sightline.view.page import write_page

            write_page(explained, out)
        else:
            explained[0].save(out)
        for one in explained:
            print(f"{one.input}  →  {one.output}")
    print(out)
