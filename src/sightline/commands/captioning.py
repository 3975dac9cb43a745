"""Train, predict, evaluate, compare and view, for runs that write captions of images."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sightline.commands.common import say_unfinished, set_up
from sightline.commands.comparing import check_runs
from sightline.commands.evaluation import check_beam, console, plain_table, predicting
from sightline.commands.images import (
    bad_line,
    check_image_options,
    check_images,
    image_eye,
    image_paths,
    one_line,
    say_bad,
    write_lines,
)
from sightline.commands.scoring import (
    check_rows_wanted,
    given_data,
    print_json,
    print_resampled,
    refuse_picture,
    say_left_out,
    write_rows,
)
from sightline.data.checking import Limits
from sightline.errors import UserError
from sightline.explanation import Explanation
from sightline.machine import check_seed
from sightline.tasks.caption_data import CaptionFile, Photo, read_photos
from sightline.tasks.caption_explaining import explain
from sightline.tasks.caption_scores import (
    PAPER_NAMES,
    CaptionComparison,
    CaptionEvaluation,
    check_caption_metrics,
    compare,
    evaluate,
)
from sightline.tasks.captioner import Captioner, Sources, load_captioner
from sightline.tasks.explaining import Wanted
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import SearchConfig
from sightline.training.scores.several import CaptionMetric

MODELS = ("show_attend_tell", "transformer")
DATA = "--data: a table with the columns image and caption, or a folder of images with .txt files"


def check_train_options(others: Mapping[str, object], metric: str | None, model: str | None) -> None:
    """Options of another task are refused, not passed over."""
    check_image_options("caption", others, metric, get_args(CaptionMetric), "captions")
    if model is not None and model not in MODELS:
        raise UserError(f"--model {model} does not write captions; choose {' or '.join(MODELS)}")


def training_files(
    data: str | None, valid: str | None, columns: tuple[str, ...] | None, features: Path | None = None
) -> tuple[CaptionFile, CaptionFile | None]:
    """The files that the options name."""
    found, names = given_data(data, DATA), _columns(columns)
    return CaptionFile(found, names, features), None if valid is None else CaptionFile(valid, names)


def _columns(columns: tuple[str, ...] | None) -> tuple[str, str] | None:
    if columns is None:
        return None
    if len(columns) != 2:
        raise UserError(f"--columns has {len(columns)} names; expected two, of the image and of the caption")
    return columns[0], columns[1]


def load_run(run: Path) -> Captioner:
    """A trained model, with a word on standard error when its training has not ended."""
    captioner, about = load_captioner(run)
    say_unfinished(run, about)
    return captioner


def predict_command(
    run: Path,
    images: Sequence[str | Path],
    path: str | None,
    out: Path | None,
    as_json: bool,
    search: SearchConfig,
    threads: int | None,
    *,
    prefix: str = "",
) -> None:
    """A line for each image, in order: its path, a tab and its caption; with JSON also where each word looked.

    An image that cannot be read keeps its line, without a caption, and is named on standard error.
    """
    set_up(threads)
    if out is not None and out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    if search.best > 1 and not as_json:
        raise UserError("--best above 1 gives several captions of one image; write them with --format jsonl")
    paths = image_paths(images, path)
    check_images(paths, "caption")
    captioner = load_run(run)

    def say(part: Sequence[Path], number: int, bad: dict[str, str]) -> Iterator[str]:
        # Each block draws anew: the same seed would give the same draws again.
        how = replace(search, seed=(search.seed + number) % 2**63)
        return _lines(captioner, part, how, prefix, as_json, bad)

    write_lines(paths, out, say)


def _lines(
    captioner: Captioner,
    paths: Sequence[Path],
    search: SearchConfig,
    prefix: str,
    as_json: bool,
    bad: dict[str, str],
) -> Iterator[str]:
    sources = captioner.read(paths)
    found = captioner.search_read(sources.read, search, prefix=prefix) if sources.numbers else []
    maps = _maps(captioner, sources, found) if as_json and found else None
    written = dict(zip(sources.numbers, range(len(found)), strict=True))
    for number, path in enumerate(paths):
        if number in sources.bad:
            bad[str(path)] = sources.bad[number]
            yield bad_line(path, sources.bad[number], as_json)
            continue
        some, looks = found[written[number]], None if maps is None else maps[written[number]]
        if as_json:
            yield json.dumps(_fields(captioner, path, some, looks), ensure_ascii=False)
        else:
            yield f"{one_line(path)}\t{some[0].text}"


def _maps(captioner: Captioner, sources: Sources, found: list[list[Prediction]]) -> list[np.ndarray] | None:
    return captioner.looks(sources.read, [some[0].tokens for some in found])


def _fields(captioner: Captioner, path: Path, found: list[Prediction], looks: np.ndarray | None) -> dict[str, Any]:
    """What is written of an image: its captions and, of the best, the place that each token looked at most."""
    best = found[0]
    data: dict[str, Any] = {"image": str(path), "caption": best.text, "log_prob": best.log_prob, "score": best.score}
    if len(found) > 1:
        data["captions"] = [{"text": one.text, "log_prob": one.log_prob, "score": one.score} for one in found]
    if looks is not None:
        places = captioner.places
        data["grid"] = [places.height, places.width]
        data["alignment"] = [
            {"token": token, "row": int(at) // places.width, "column": int(at) % places.width, "weight": float(row[at])}
            for token, row in zip(captioner.tokeniser.spell(best.tokens), looks, strict=False)
            for at in [row.argmax()]
        ]
    return data


def evaluate_command(
    run: Path,
    data: str | None,
    columns: tuple[str, ...] | None,
    beam: int,
    length_penalty: float,
    as_json: bool,
    threads: int | None,
    *,
    errors: int = 0,
    out: Path | None = None,
) -> None:
    """Every score of captions against all references, with how it was computed."""
    set_up(threads)
    check_beam(beam)
    check_rows_wanted(errors, out)
    captioner = load_run(run)
    photos = _read(data, columns)
    with predicting(len(photos)) as advance:
        found = evaluate(captioner, photos, beam=beam, length_penalty=length_penalty, on_predicted=advance)
    say_bad(found.bad)
    write_rows(found.rows(), out)
    if as_json:
        print_json({"beam": beam, "length_penalty": length_penalty} | found.to_json(errors))
        return
    _print_scores(found, beam, length_penalty)
    for number, error in enumerate(found.worst(errors), start=1):
        print(f"\n{number}. {error['image']}: CIDEr-D {error['cider_d']:.1f}, chrF {error['chrf']:.1f}")
        print(f"   caption     {error['prediction']}")
        for reference in error["references"]:
            print(f"   reference   {reference}")


def _read(data: str | None, columns: tuple[str, ...] | None) -> list[Photo]:
    """The images with their references; what was left out is said, because it changes what a score is a score of."""
    files = CaptionFile(given_data(data, DATA), _columns(columns))
    # A score is of all captions: only what no one could read is left out.
    photos, checked = read_photos(files, Limits(1_000_000, max_bad_share=1.0))
    checked.finish(photos)
    say_left_out(checked.report)
    return photos


def _print_scores(found: CaptionEvaluation, beam: int, length_penalty: float) -> None:
    table = plain_table("metric", "score", "how")
    for name, score in found.scores.items():
        table.add_row(PAPER_NAMES[name], f"{score.value:.2f}", score.signature)
    table.add_row("perplexity", f"{found.perplexity:.3f}", "per token")
    console().print(table)
    images, captions = len(found.photos), sum(map(len, found.references))
    print(f"{images:,} images with {captions:,} references, beam {beam}, length penalty {length_penalty:g}; ", end="")
    print(f"{images / max(found.seconds, 1e-9):.1f} images a second")
    if found.seen is not None and found.seen.any():
        print(f"{int(found.seen.sum()):,} of these images stand in the run's own data: scores on them flatter")


def compare_command(
    runs: Sequence[Path],
    data: str | None,
    columns: tuple[str, ...] | None,
    metrics: Sequence[str] | None,
    samples: int,
    seed: int,
    beam: int,
    length_penalty: float,
    out: Path | None,
    as_json: bool,
    threads: int | None,
) -> None:
    """Score, interval, difference to the first run and its p-value."""
    set_up(threads)
    check_beam(beam)
    check_seed(seed)
    check_runs(runs, check_caption_metrics(metrics), samples)
    refuse_picture(out, "images have none")
    captioners = {str(run): load_run(run) for run in runs}
    photos = _read(data, columns)
    options: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "samples": samples, "seed": seed}
    with predicting(len(runs) * len(photos)) as advance:
        found = compare(captioners, photos, metrics=metrics, on_predicted=advance, **options)
    say_bad(found.bad)
    if as_json:
        print_json(found.to_json())
        return
    _print_comparison(found)


def _print_comparison(found: CaptionComparison) -> None:
    rows = f"{found.images:,} images"
    print_resampled(found.found, PAPER_NAMES.__getitem__, rows, found.samples, found.seed)
    for metric, signature in found.signatures.items():
        print(f"{PAPER_NAMES[metric]}: {signature}")


def captioning_eye(run: Path, wanted: Wanted) -> Callable[[Any], Explanation]:
    """What explains an image, for `sightline view`."""
    captioner = load_run(run)
    return image_eye(run, lambda image: explain(captioner, image, wanted))
