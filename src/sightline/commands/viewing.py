"""`sightline view`: where a run or a Hugging Face model looked, as a picture, a film, a page or plain data."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from sightline.commands.common import load_run, set_up
from sightline.commands.prediction import Lines
from sightline.data.texts import Text
from sightline.errors import UserError
from sightline.explanation import Explanation
from sightline.files import check_writable, write_text
from sightline.tasks.explaining import Wanted, explain
from sightline.tasks.table import IMAGES, task_of

Seen = Text | Path  # what is looked at
PICTURES = (".png", ".svg", ".pdf", ".gif")
ENDINGS = (*PICTURES, ".html", ".json")
FOREIGN = "hf:"
SHOWN = 2_000  # characters of a text on the terminal
MOST = 50  # explanations in one page: each is some tens of kilobytes


@dataclass(frozen=True)
class Drawing:
    """What of an explanation a picture shows; the page shows everything."""

    layout: str = "alignment"
    attention: str | None = None
    head: int | None = None
    pieces: bool = False
    width: float | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        if self.width is not None and not 1 <= self.width <= 50:
            raise UserError(f"--width is {self.width:g} inches; it must be at least 1 and at most 50")

    def options(self) -> dict[str, Any]:
        how = {"layout": self.layout, "name": self.attention, "head": self.head, "merge": not self.pieces}
        return {**how, "width": self.width, "title": self.title}


def view_command(
    runs: Sequence[Path],
    lines: Lines,
    out: Path,
    wanted: Wanted,
    drawing: Drawing,
    threads: int | None,
    seconds: Sequence[str] = (),
    images: Sequence[Path] = (),
) -> None:
    """Explain each text, or image, by each run, and write what the ending of ``out`` says.

    ``seconds`` are the second texts of pairs to classify, one for each text.
    """
    if out.suffix not in ENDINGS:
        raise UserError(f"--out is {out}; it must end in one of {', '.join(ENDINGS)}")
    if out.suffix not in PICTURES and drawing != Drawing():
        raise UserError("--layout, --attention, --head, --pieces, --width and --title are for pictures, not for a page")
    if out.suffix == ".gif" and drawing.layout != "alignment":
        raise UserError(f"a .gif replays one map; for all {drawing.layout} choose .png, .svg or .pdf")
    if out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    if not runs:
        raise UserError("name the run folder to view")
    seeing = next((run for run in runs if task_of(run) in IMAGES), None)
    if seeing is not None and not images:
        raise UserError(f"{seeing} reads images; name one with --image")
    texts = _images(lines, images) if images else _texts(lines, seconds)
    count = len(texts) * len(runs)
    if out.suffix in PICTURES and count > 1:
        raise UserError(f"{count} explanations do not go into one picture; write a page (--out NAME.html) instead")
    if count > MOST:
        raise UserError(f"{count:,} explanations are too many for one file, which takes {MOST}; choose fewer texts")
    if wanted.output is not None and len(texts) > 1:
        raise UserError("--output goes with one text")
    check_writable(out.parent)
    set_up(threads)
    found = list(_explained(runs, texts, wanted))
    if out.suffix == ".html":
        from sightline.view.page import write_page

        write_page(found, out)
    elif out.suffix == ".json" and count > 1:
        write_text(out, json.dumps([one.to_json() for one in found], ensure_ascii=False, allow_nan=False))
    else:
        found[0].save(out, **(drawing.options() if out.suffix in PICTURES else {}))
    _say(found, out)


def _images(lines: Lines, images: Sequence[Path]) -> list[Seen]:
    if lines.path is not None or lines.texts:
        raise UserError("give --image, or --text or --input, not both")
    for path in images:
        if path.is_dir():
            raise UserError(f"--image is {path}, which is a folder; name one image, or several for a page")
        if not path.is_file():
            raise UserError(f"there is no image {path}")
    return list(images)


def _texts(lines: Lines, seconds: Sequence[str] = ()) -> list[Seen]:
    texts: list[Seen] = []
    if seconds:
        if lines.path is not None or len(seconds) != len(lines.texts):
            found = f"{len(lines.texts)} --text" if lines.path is None else "--input"
            raise UserError(f"found {len(seconds)} --text2 and {found}; expected one --text2 for each --text")
        return list(zip(lines.texts, seconds, strict=True))
    if lines.path is None and not lines.texts:
        raise UserError("there is no text to view: give one with --text, or a file of lines with --input")
    for some, _ in lines.blocks():
        texts += [text for text in some if text.strip()]
        if len(texts) > MOST:
            break
    if not texts:
        raise UserError(f"{lines.path or 'the text'} is empty: there is nothing to view")
    return texts


def _explained(runs: Sequence[Path], texts: Sequence[Seen], wanted: Wanted) -> Iterator[Explanation]:
    """Text by text, each by all runs: what is to be compared stands side by side."""
    eyes = [_eye(run, wanted) for run in runs]
    pairs = [(eye, text) for text in texts for eye in eyes]
    console = Console(stderr=True)
    hidden = len(pairs) == 1 or not sys.stderr.isatty()
    for eye, text in track(pairs, "looking", console=console, transient=True, disable=hidden):
        yield eye(text)


def _eye(run: Path, wanted: Wanted) -> Callable[[Any], Explanation]:
    """What explains a text: a run of ours, or with hf: before it, the folder of a Hugging Face model."""
    if not str(run).startswith(FOREIGN):
        task = task_of(run)
        if task in IMAGES:
            return _image_eye(run, task, wanted)
        if task == "classify":
            return _classifying_eye(run, wanted)
        return partial(_one_text, partial(explain, load_run(run), wanted=wanted), str(run))
    from sightline.interop.huggingface import load

    model = load(str(run))

    def look(text: str) -> Explanation:
        found = model.explain(text, wanted.output, top=wanted.top, measure=wanted.measure)
        return found if wanted.shift is None else replace(found, shift=wanted.shift)

    return partial(_one_text, look, str(run))


def _image_eye(run: Path, task: str, wanted: Wanted) -> Callable[[Any], Explanation]:
    from sightline.commands.captioning import captioning_eye
    from sightline.commands.gridding import gridding_eye
    from sightline.commands.image_classifying import image_classifying_eye

    eyes = {"caption": captioning_eye, "grid": gridding_eye, "classify_images": image_classifying_eye}
    return eyes[task](run, wanted)


def _one_text(look: Callable[[str], Explanation], name: str, text: Any) -> Explanation:
    if isinstance(text, Path):
        raise UserError(f"{name} reads texts; --image is for runs that read images")
    if not isinstance(text, str):
        raise UserError(f"{name} reads one text; --text2 is for runs that classify pairs of texts")
    return look(text)


def _classifying_eye(run: Path, wanted: Wanted) -> Callable[[Text], Explanation]:
    from sightline.commands.classifying import load_run as load_classifying
    from sightline.tasks.classify_explaining import explain_label

    if wanted.shift is not None:
        raise UserError(f"{run} classifies texts, and --shift is for runs that write them; leave it out")
    classifier = load_classifying(run)

    def look(text: Text) -> Explanation:
        if classifier.labels.pairs and isinstance(text, str):
            first, tab, second = text.partition("\t")
            if not tab:
                raise UserError(f"{run} reads two texts: give the second with --text2, or behind a tab")
            text = first, second
        if not classifier.labels.pairs and not isinstance(text, str):
            raise UserError(f"{run} reads one text; --text2 is for runs that classify pairs of texts")
        return explain_label(classifier, text, wanted)

    return look


def _say(found: Sequence[Explanation], out: Path) -> None:
    for one in found:
        # A model that only reads writes nothing.
        said = _printable(_short(one.input))
        print(f"{said}  →  {_printable(_with_probability(one))}" if one.output else said)
    for finding in () if len(found) != 1 or found[0].belief is None else found[0].belief.findings:
        print(f"  {finding.title}: {finding.sentence}")
    print(out)


def _with_probability(one: Explanation) -> str:
    marked = one.highlights
    if marked is None or marked.probability is None:
        return one.output
    if marked.label == one.output:
        return f"{one.output} ({marked.probability:.1%})"
    return f"{one.output} (the map is about {marked.label}, {marked.probability:.1%})"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} … {text[-SHOWN // 2 :]}"


def _printable(text: str) -> str:
    """A stranger's text must not steer the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
