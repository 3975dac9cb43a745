"""Train, predict, evaluate, compare and view, for runs that write captions of images."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.text import Text as Plain

from sightline.commands.common import say_unfinished, set_up, writing
from sightline.commands.comparing import check_runs
from sightline.commands.evaluation import check_beam, check_ending, console, plain_table, predicting
from sightline.data.checking import Limits
from sightline.data.image_tables import read_image_table
from sightline.data.images import ENDINGS
from sightline.errors import UserError
from sightline.explanation import Explanation
from sightline.files import whole_file
from sightline.machine import check_seed
from sightline.tasks.caption_data import CaptionFile, Photo, read_photos
from sightline.tasks.caption_scores import (
    PAPER_NAMES,
    CaptionComparison,
    CaptionEvaluation,
    check_caption_metrics,
    compare,
    evaluate,
)
from sightline.tasks.captioner import AT_ONCE, Captioner, Sources, load_captioner
from sightline.tasks.explaining import Wanted
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import SearchConfig
from sightline.training.scores.several import CaptionMetric

MODELS = ("show_attend_tell", "transformer")
MOST_NAMED = 20  # bad images on standard error
FORMS = "a table with the columns image and caption, or a folder of images, each with a .txt file beside it"
TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet", ".gz")


def check_train_options(others: Mapping[str, object], metric: str | None, model: str | None) -> None:
    """Options of another task are refused, not passed over."""
    for name, value in others.items():
        if value:
            raise UserError(f"{name} is not an option of caption; leave it out")
    if metric is not None and metric not in get_args(CaptionMetric):
        raise UserError(f"--metric {metric} is not one of captions; it is one of {', '.join(get_args(CaptionMetric))}")
    if model is not None and model not in MODELS:
        raise UserError(f"--model {model} does not write captions; choose {' or '.join(MODELS)}")


def training_files(
    data: str | None, valid: str | None, columns: tuple[str, ...] | None, features: Path | None = None
) -> tuple[CaptionFile, CaptionFile | None]:
    """The files that the options name."""
    if data is None:
        raise UserError(
            "give --data: a table with the columns image and caption, or a folder of images with .txt files"
        )
    names = _columns(columns)
    return CaptionFile(data, names, features), None if valid is None else CaptionFile(valid, names)


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


def image_paths(images: Sequence[str | Path], path: str | None = None) -> list[Path]:
    """The images that options name: files, folders of them (with those below), and with ``path`` (--input) a folder, an
    image, a table with a column of images, or a text file with a path a line (- is standard input)."""
    found: list[Path] = []
    for one in map(Path, images):
        found += _in_folder(one) if one.is_dir() else [one]
    if path is None:
        return found
    if path != "-" and Path(path).is_dir():
        return found + _in_folder(Path(path))
    if path != "-" and not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    suffix = Path(path).suffix.lower()
    if suffix in ENDINGS:
        return [*found, Path(path)]
    if suffix in TABLES:
        for row in read_image_table(path, ()):
            if row.problem is not None:
                raise UserError(f"{row.file}:{row.line}: {row.problem}")
            found.append(row.image)
        return list(dict.fromkeys(found))
    try:
        text = sys.stdin.buffer.read().decode("utf-8") if path == "-" else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is neither an image nor a list of images in UTF-8") from None
    base = Path() if path == "-" else Path(path).parent
    return found + [base / line.strip() for line in text.splitlines() if line.strip()]


def _in_folder(folder: Path) -> list[Path]:
    return [row.image for row in read_image_table(str(folder), ())]


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
    if not paths:
        raise UserError("there is no image to caption: name images or folders with --image, or a list with --input")
    captioner = load_run(run)
    bad: dict[str, str] = {}
    with writing(out) as stream, predicting(len(paths)) as advance:
        for number, start in enumerate(range(0, len(paths), AT_ONCE)):
            part = paths[start : start + AT_ONCE]
            # Each block draws anew: the same seed would give the same draws again.
            how = replace(search, seed=(search.seed + number) % 2**63)
            for line in _lines(captioner, part, how, prefix, as_json, bad):
                print(line, file=stream)
            stream.flush()
            advance(len(part))
    say_bad(bad)
    if len(bad) == len(paths):
        raise UserError("none of the images could be read")


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
            problem = {"image": str(path), "problem": sources.bad[number]}
            yield json.dumps(problem, ensure_ascii=False) if as_json else f"{_one_line(path)}\t"
            continue
        some, looks = found[written[number]], None if maps is None else maps[written[number]]
        if as_json:
            yield json.dumps(_fields(captioner, path, some, looks), ensure_ascii=False)
        else:
            yield f"{_one_line(path)}\t{some[0].text}"


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


def _one_line(path: Path) -> str:
    """A path that keeps to its line, whatever its name."""
    return str(path).replace("\t", " ").replace("\n", " ").replace("\r", " ")


def say_bad(bad: Mapping[str, str]) -> None:
    """Images that could not be read, on standard error."""
    for path, reason in list(bad.items())[:MOST_NAMED]:
        print(f"sightline: {path}: {reason}", file=sys.stderr)
    if len(bad) > MOST_NAMED:
        print(f"sightline: and {len(bad) - MOST_NAMED:,} more images that could not be read", file=sys.stderr)


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
    if errors < 0:
        raise UserError(f"--errors is {errors}; it must be at least 0")
    if out is not None:
        check_ending(out, (".jsonl",))
    captioner = load_run(run)
    photos = _read(data, columns)
    with predicting(len(photos)) as advance:
        found = evaluate(captioner, photos, beam=beam, length_penalty=length_penalty, on_predicted=advance)
    say_bad(found.bad)
    if out is not None:
        with whole_file(out) as part, part.open("w", encoding="utf-8") as file:
            for row in found.rows():
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    if as_json:
        searched = {"beam": beam, "length_penalty": length_penalty}
        print(json.dumps(searched | found.to_json(errors), indent=2, ensure_ascii=False))
        return
    _print_scores(found, beam, length_penalty)
    for number, error in enumerate(found.worst(errors), start=1):
        print(f"\n{number}. {error['image']}: CIDEr-D {error['cider_d']:.1f}, chrF {error['chrf']:.1f}")
        print(f"   caption     {error['prediction']}")
        for reference in error["references"]:
            print(f"   reference   {reference}")


def _read(data: str | None, columns: tuple[str, ...] | None) -> list[Photo]:
    """The images with their references; what was left out is said, because it changes what a score is a score of."""
    if data is None:
        raise UserError(
            "give --data: a table with the columns image and caption, or a folder of images with .txt files"
        )
    # A score is of all captions: only what no one could read is left out.
    photos, checked = read_photos(CaptionFile(data, _columns(columns)), Limits(1_000_000, max_bad_share=1.0))
    checked.finish(photos)
    for line in checked.report.left_out_lines():
        print(f"sightline: {line}", file=sys.stderr)
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
    if out is not None:
        raise UserError("--out draws scores by the length of the source; images have none")
    captioners = {str(run): load_run(run) for run in runs}
    photos = _read(data, columns)
    options: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "samples": samples, "seed": seed}
    with predicting(len(runs) * len(photos)) as advance:
        found = compare(captioners, photos, metrics=metrics, on_predicted=advance, **options)
    say_bad(found.bad)
    if as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return
    _print_comparison(found)


def _print_comparison(found: CaptionComparison) -> None:
    table = plain_table("metric", "run", "score", "95 % interval", "difference", "p")
    for metric, runs in found.found.items():
        for place, (name, one) in enumerate(runs.items()):
            low, high = one.interval
            table.add_row(
                "" if place else PAPER_NAMES[metric],
                Plain(name),  # a name in brackets is no markup
                f"{one.value:.2f}",
                f"{low:.2f} – {high:.2f}",
                "" if one.difference is None else f"{one.difference:+.2f}",
                "" if one.p is None else f"{one.p:.3f}",
            )
    console().print(table)
    print(f"\n{found.images:,} images; paired bootstrap with {found.samples:,} resamples, seed {found.seed}.")
    print("p: the share of resamples in which whichever of a run and the first scores higher overall does not.")
    for metric, signature in found.signatures.items():
        print(f"{PAPER_NAMES[metric]}: {signature}")


def captioning_eye(run: Path, wanted: Wanted) -> Callable[[Any], Explanation]:
    """What explains an image, for `sightline view`."""
    captioner = load_run(run)

    def look(image: Any) -> Explanation:
        if not isinstance(image, str | Path):
            raise UserError(f"{run} reads images; name one with --image")
        return captioner.explain(
            Path(image),
            wanted.output,
            beam=wanted.beam,
            alternatives=wanted.alternatives,
            top=wanted.top,
            shift=wanted.shift,
            measure=wanted.measure,
        )

    return look
