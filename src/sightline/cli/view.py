"""`sightline view`: what a run or a Hugging Face model attends to, as a picture, an animation, a page or plain data."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from sightline.cli.common import load_run, set_up
from sightline.cli.lines import Lines, items_of, named_files
from sightline.cli.options import FILE_OPTIONS
from sightline.data.tables import read_as
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.files import check_writable, write_text
from sightline.tasks.explain import ExplainOptions

PICTURES = (".png", ".svg", ".pdf", ".gif", ".jpg", ".jpeg", ".webp")
SHOWN_ENDINGS = (".png", ".svg", ".pdf", ".gif", ".html", ".json")
FOREIGN = "hf:"
SHOWN = 2_000  # characters of a text on the terminal
Files = Mapping[str, Sequence[Path]]  # by the option that named them
MOST = 50  # explanations in one page: each takes tens of kilobytes


@dataclass(frozen=True)
class Drawing:
    """The part of an explanation that a picture shows; the page shows everything."""

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
        shown = {"layout": self.layout, "name": self.attention, "head": self.head, "merge": not self.pieces}
        return {**shown, "width": self.width, "title": self.title}


def view_command(
    runs: Sequence[Path],
    out: Path,
    text: Sequence[str],
    text2: Sequence[str],
    files: Files,
    input: str | None,
    encoding: str | None,
    output: str | None,
    top: int | None,
    quick: bool,
    threads: int | None,
    beam: int | None,
    shift: int | None,
    table: str | None = None,
    **drawn: Any,
) -> None:
    """Explain each item with each run, and write the format that the extension of ``out`` names."""
    read_as(encoding)
    drawing, lines = Drawing(**drawn), Lines(input, text)
    lines.refuse(encoding=encoding, table=table)
    _check_out(out, drawing)
    if not runs:
        raise UserError("name the run folder to view")
    if shift not in (None, -1, 0, 1):
        raise UserError(f"--shift is {shift}; it is -1, 0 or 1")
    options = ExplainOptions(output, beam or 5, top=top, shift=shift, measure=not quick)
    _check_seconds(lines, text2)
    set_up(threads)
    explainers = [_explainer(run, options, beam, shift, table) for run in runs]
    items = [explainer.items(lines, text2, files) for explainer in explainers]
    count = sum(map(len, items))
    if not count:
        raise UserError(f"{lines.path or 'the text'} is empty: there is nothing to view")
    if out.suffix.lower() in PICTURES and count > 1:
        raise UserError(f"{count} explanations do not go into one picture; write a page (--out NAME.html) instead")
    if count > MOST:
        raise UserError(f"there are too many for one file, which takes {MOST} explanations; choose fewer texts")
    if output is not None and len(items[0]) > 1:
        raise UserError("--output explains one text; give one")
    check_writable(out.parent)
    if out.suffix.lower() in explainers[0].pictures and drawing == Drawing():
        print(explainers[0].picture(items[0][0], out))
        print(out)
        return
    explanations = list(_explained(explainers, items))
    if out.suffix.lower() == ".html":
        from sightline.view.page import write_page

        write_page(explanations, out)
    elif out.suffix.lower() == ".json" and count > 1:
        write_text(out, json.dumps([one.to_json() for one in explanations], ensure_ascii=False, allow_nan=False))
    else:
        explanations[0].save(out, **(drawing.options() if out.suffix.lower() in PICTURES else {}))
    _print(explanations, out)


def _check_out(out: Path, drawing: Drawing) -> None:
    if out.suffix.lower() not in (*PICTURES, ".html", ".json"):
        raise UserError(f"--out is {out}; it must end in one of {', '.join(SHOWN_ENDINGS)}")
    if out.suffix.lower() not in PICTURES and drawing != Drawing():
        raise UserError("--layout, --attention, --head, --pieces, --width and --title are for pictures, not for a page")
    if out.suffix.lower() == ".gif" and drawing.layout != "alignment":
        raise UserError(f"a .gif replays one map; for all {drawing.layout} choose .png, .svg or .pdf")
    if out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")


def _check_seconds(lines: Lines, seconds: Sequence[str]) -> None:
    if seconds and (lines.path is not None or len(seconds) != len(lines.texts)):
        given = f"{len(lines.texts)} --text" if lines.path is None else "--input"
        raise UserError(f"found {len(seconds)} --text2 and {given}; expected one --text2 for each --text")


def _check_any(lines: Lines, files: Sequence[Path]) -> None:
    if lines.path is None and not lines.texts and not files:
        raise UserError("there is no text to view: give one with --text, or a file of lines with --input")


@dataclass(frozen=True)
class Explainer:
    """How to explain items with a run, or with a Hugging Face model."""

    items: Callable[[Lines, Sequence[str], Files], list[Any]]
    explain: Callable[[Any], Explanation]
    pictures: tuple[str, ...] = ()  # extensions of pictures that show a prediction without maps
    picture: Callable[[Any, Path], str] = lambda item, path: ""  # writes one; returns the prediction as a line


def _explainer(
    run: Path, options: ExplainOptions, beam: int | None, shift: int | None, table: str | None = None
) -> Explainer:
    if str(run).startswith(FOREIGN):
        if table is not None:
            raise UserError(f"{run} reads texts, and --table is for runs that answer questions about tables")
        return _foreign(run, options)
    loaded = load_run(run).about_table(table)
    loaded.output.check_explained(loaded, {"--beam": beam, "--shift": shift})

    def items(lines: Lines, seconds: Sequence[str], files: Files) -> list[Any]:
        paths, option, one = named_files(loaded, files), loaded.input.column, loaded.input.noun.removesuffix("s")
        for path in paths:
            if path.is_dir() and not loaded.input.reads_folders:
                raise UserError(f"--{option} is {path}, which is a folder; name one {one}, or several for a page")
            if not path.is_file() and not path.is_dir():
                raise UserError(f"there is no {one} {path}")
        if loaded.input.reads_files and not (paths or lines.path or lines.texts):
            raise UserError(f"{run} reads {loaded.input.noun}; name one with --{option}")
        _check_any(lines, paths)
        if seconds and not loaded.input.reads_files:
            return [
                loaded.input.pair(first, second, str(run)) for first, second in zip(lines.texts, seconds, strict=True)
            ]
        if loaded.input.two_texts and not all("\t" in text for text in lines.texts):
            raise UserError(f"{run} reads two texts: give the second with --text2, or after a tab")
        return items_of(loaded, lines, paths, MOST)

    def picture(item: Any, path: Path) -> str:
        (prediction,) = loaded.predict([item])
        loaded.output.save_picture(loaded, item, prediction, path)
        if (remark := loaded.output.remark(item, prediction)) is not None:
            print(f"sightline: {remark}", file=sys.stderr)
        return loaded.output.line(item, prediction)

    return Explainer(items, lambda item: loaded.output.explain(loaded, item, options), loaded.output.pictures, picture)


def _foreign(run: Path, options: ExplainOptions) -> Explainer:
    from sightline.interop.huggingface import load

    model = load(str(run))

    def items(lines: Lines, seconds: Sequence[str], files: Files) -> list[Any]:
        for option in (name for name, paths in files.items() if paths):
            raise UserError(f"{run} reads texts; --{option} is for runs that read {FILE_OPTIONS[option]}")
        if seconds:
            raise UserError(f"{run} reads one text; --text2 is for runs that classify pairs of texts")
        _check_any(lines, ())
        return [text for block, _ in lines.blocks() for text in block if text.strip()][: MOST + 1]

    def explain(text: str) -> Explanation:
        explanation = model.explain(text, options.output, top=options.top, measure=options.measure)
        return explanation if options.shift is None else replace(explanation, shift=options.shift)

    return Explainer(items, explain)


def _explained(explainers: Sequence[Explainer], items: Sequence[list[Any]]) -> Iterator[Explanation]:
    """Item by item, each with all runs, so that the runs can be compared side by side."""
    pairs = [pair for some in zip(*items, strict=True) for pair in zip(explainers, some, strict=True)]
    hidden = len(pairs) == 1 or not sys.stderr.isatty()
    for explainer, item in track(pairs, "explaining", console=Console(stderr=True), transient=True, disable=hidden):
        yield explainer.explain(item)


def _print(explanations: Sequence[Explanation], out: Path) -> None:
    for one in explanations:
        shown = _printable(_short(one.input))  # an encoder has no output
        print(f"{shown}  →  {_printable(_with_probability(one))}" if one.output else shown)
    belief = explanations[0].belief if len(explanations) == 1 else None
    if belief is not None:
        print(f"  measured on {belief.about}:")
    for finding in () if belief is None else belief.findings:
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
    """Replace control characters: untrusted text must not control the terminal."""
    spaced = text.replace("\t", "  ")  # between the columns of an item
    return "".join(character if character.isprintable() else "\ufffd" for character in spaced)
