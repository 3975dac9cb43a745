"""Align: pairs in, links between their words out, line by line."""

import contextlib
import gzip
import itertools
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sightline.align.aligning import LONGEST, Aligner, Alignment, Cuttings, Pair, Place
from sightline.align.choosing import TUNED, Chosen, choose, cuttings_of
from sightline.align.links import AlignmentScore, Gold, Symmetrising, parse_links, score
from sightline.cli.common import load_run, set_up, writing
from sightline.data.checking import Limits
from sightline.data.columns import Cells
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.data.tables import LINE_LIMIT
from sightline.errors import UserError
from sightline.files import check_writable, write_text
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.text.words import word_spans

BLOCK = 2048  # pairs aligned together: enough to sort by length, few enough to stream
BLOCK_CELLS = 100_000_000  # source × target characters of a block: bounds what its weights can take
LOOKED_AT = 1000  # rows from which the pairs to choose by are taken
MOST_GOLD = 100_000
NAMED = 3  # places of a problem that are named


@dataclass(frozen=True)
class Wanted:
    """How to align and what to write."""

    symmetrise: Symmetrising
    threshold: float = 0.0
    words: Literal["auto", "spaces", "characters"] = "auto"
    use: str | None = None
    reverse_use: str | None = None
    as_json: bool = False
    out: Path | None = None
    report: Path | None = None

    @property
    def places(self) -> tuple[Place | None, Place | None]:
        use, reverse_use = (None if text is None else Place.parse(text) for text in (self.use, self.reverse_use))
        return use, reverse_use

    def check(self, reverse: Path | None) -> None:
        """Before the long work."""
        for path in (self.out, self.report):
            if path is not None:
                if path.is_dir():
                    raise UserError(f"{path} is a folder; name a file to write to")
                check_writable(path.parent)
        if self.out is not None and self.report is not None and self.out.resolve() == self.report.resolve():
            raise UserError(f"--out and --report are both {self.out}; one would replace the other")
        if self.reverse_use is not None and reverse is None:
            raise UserError("--reverse-use says where to read the run given by --reverse; give both or neither")
        if not 0 <= self.threshold < 1:
            raise UserError(f"--threshold is {self.threshold}; it is a weight, at least 0 and below 1")
        _ = self.places


@dataclass
class _Tally:
    """What is said in the end."""

    pairs: int = 0
    empty: int = 0
    links: int = 0
    too_long: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    agreement: AlignmentScore = field(default_factory=AlignmentScore)


@dataclass(frozen=True)
class GoldPairs:
    """Gold links with their pairs; ``where`` names each in errors."""

    pairs: list[Pair]
    links: list[Gold]
    where: list[str]

    def check(self, cuttings: Cuttings) -> None:
        """Every link must join words that are there: gold for other pairs, or counted from 1, is found here."""
        for pair, gold, where in zip(self.pairs, self.links, self.where, strict=True):
            counts = [len(word_spans(text, cutting)) for text, cutting in zip(pair, cuttings, strict=True)]
            for link in sorted(gold.possible):
                for side, count, number in zip(("source", "target"), counts, link, strict=True):
                    if number >= count:
                        raise UserError(
                            f"{where}: the link {link[0]}-{link[1]} has {side} word {number}, but the {side} has "
                            f"{count} words; expected numbers from 0 to {count - 1}, and gold of these very pairs"
                        )


def align_command(
    run: Path, reverse: Path | None, source: Source, gold: Path | None, wanted: Wanted, threads: int | None
) -> None:
    """Links for every pair, a line each, in the order of the pairs; an empty side gives a line without links."""
    set_up(threads)
    wanted.check(reverse)
    _check_inputs_stay(wanted, source, gold)
    loaded = load_run(run)
    loaded.task.check_source(source)
    other = None if reverse is None else load_run(reverse)
    given = None if gold is None else _read_gold(gold)
    rows = pair_cells(source)
    first = list(itertools.islice(rows, max(LOOKED_AT, len(given) if isinstance(given, list) else 0)))
    pairs: list[Pair] = [row.values for row in first if row.problem is None]
    cuttings: Cuttings = cuttings_of(pairs) if wanted.words == "auto" else (wanted.words, wanted.words)
    truth = _gold_of_rows(given, first, gold) if isinstance(given, list) else given
    chosen = _choose(loaded, other, pairs, truth, wanted, cuttings)
    _say(f"reading {chosen}")
    for side, cutting in zip(("source", "target"), cuttings, strict=True):
        if cutting == "characters":
            _say(f"the {side} is written without spaces: each of its characters counts as a word")
    if other is not None:
        _warn_of_direction(other, pairs)
    aligner = Aligner(loaded, chosen.place, other, chosen.reverse, wanted.symmetrise, wanted.threshold, cuttings)
    scored = None if truth is None else _score(aligner, truth, chosen)
    started, tally = time.perf_counter(), _Tally()
    with writing(wanted.out) as stream, _progress(wanted.out) as advance:
        for block in _blocks(itertools.chain(first, rows)):
            for line in _align_block(aligner, block, chosen, wanted.as_json, tally):
                stream.write(line + "\n")
            stream.flush()
            advance(len(block))
        _check_unreadable(tally)
    seconds = time.perf_counter() - started
    _say_what_was_done(tally, seconds, other is not None)
    if wanted.report is not None:
        write_text(wanted.report, json.dumps(_report(tally, seconds, chosen, scored, wanted, other), indent=2) + "\n")


def _check_inputs_stay(wanted: Wanted, source: Source, gold: Path | None) -> None:
    """What is written must not replace what is read."""
    names = (source.data, source.options.get("source"), source.options.get("target"), gold)
    read = {Path(name).resolve() for name in names if name not in (None, "-")}
    for path in (wanted.out, wanted.report):
        if path is not None and path.resolve() in read:
            raise UserError(f"{path} is one of the files that are read; write to another")


def _choose(
    run: Run,
    other: Run | None,
    pairs: Sequence[Pair],
    truth: GoldPairs | None,
    wanted: Wanted,
    cuttings: Cuttings,
) -> Chosen:
    use, reverse_use = wanted.places
    options: dict[str, Any] = {"reverse": other, "use": use, "reverse_use": reverse_use, "cuttings": cuttings}
    if truth is None:
        return choose(run, pairs, **options)
    truth.check(cuttings)
    return choose(run, truth.pairs[:TUNED], gold=truth.links[:TUNED], **options)


def _say(sentence: str) -> None:
    print(f"sightline: {sentence}", file=sys.stderr)


def _blocks(rows: Iterator[Cells]) -> Iterator[list[Cells]]:
    block: list[Cells] = []
    cells = 0
    for row in rows:
        block.append(row)
        cells += len(row.values[0]) * len(row.values[1])
        if len(block) == BLOCK or cells > BLOCK_CELLS:
            yield block
            block, cells = [], 0
    if block:
        yield block


def _align_block(
    aligner: Aligner, rows: Sequence[Cells], chosen: Chosen, as_json: bool, tally: _Tally
) -> Iterator[str]:
    """A line for each row, whatever it holds: line n of the output belongs to row n."""
    for row, found in zip(rows, aligner.align([row.values for row in rows]), strict=True):
        tally.pairs += 1
        if row.problem is not None:
            tally.unreadable.append(f"{row.file}:{row.line}: {row.problem}")
        elif found is None:
            tally.too_long.append(f"{row.file}:{row.line}")
        else:
            tally.empty += not (found.source and found.target)
            tally.links += len(found.links)
            if aligner.reverse is not None:
                tally.agreement += found.agreement
        yield _json_line(row, found, chosen) if as_json else ("" if found is None else found.pharaoh)


def _json_line(row: Cells, found: Alignment | None, chosen: Chosen) -> str:
    data: dict[str, Any] = dict(zip(("source", "target"), row.values, strict=True))
    if found is None or row.problem is not None:
        data |= {"links": [], "problem": row.problem or f"more than {LONGEST:,} tokens"}
    else:
        rounded = {
            name: [round(weight, 4) for weight in value] if name.endswith("weights") else value
            for name, value in found.to_json().items()
        }
        data |= rounded
    return json.dumps({**data, "choice": chosen.to_json()}, ensure_ascii=False)


def _check_unreadable(tally: _Tally) -> None:
    """More bad rows than training takes are no accident: the file is not what it was taken for."""
    if len(tally.unreadable) > Limits().max_bad_share * tally.pairs:
        raise UserError(
            f"{len(tally.unreadable):,} of {tally.pairs:,} rows are bad ({'; '.join(tally.unreadable[:NAMED])}), more "
            f"than {Limits().max_bad_share:.0%}; mend them"
        )


def _say_what_was_done(tally: _Tally, seconds: float, two: bool) -> None:
    for some, what in ((tally.unreadable, "cannot be read"), (tally.too_long, f"have more than {LONGEST:,} tokens")):
        if some:
            more = f" and {len(some) - NAMED:,} more" if len(some) > NAMED else ""
            _say(f"{len(some):,} rows {what} and have no links: {'; '.join(some[:NAMED])}{more}")
    agreed = f"; both directions agree with F1 {tally.agreement.f1:.3f}" if two else ""
    _say(
        f"{tally.pairs:,} pairs, {tally.links:,} links, {tally.pairs / max(seconds, 1e-9):,.0f} pairs a second{agreed}"
    )


def _report(
    tally: _Tally, seconds: float, chosen: Chosen, scored: Any, wanted: Wanted, other: Run | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "choice": chosen.to_json(),
        "pairs": tally.pairs,
        "links": tally.links,
        "empty": tally.empty,
        "too_long": len(tally.too_long),
        "unreadable": len(tally.unreadable),
        "seconds": round(seconds, 3),
        "pairs_per_second": round(tally.pairs / max(seconds, 1e-9), 1),
    }
    if other is not None:
        found |= {"symmetrise": wanted.symmetrise, "agreement": tally.agreement.f1}
    return found if scored is None else {**found, "gold": scored}


def _warn_of_direction(reverse: Run, pairs: Sequence[Pair]) -> None:
    """A run of the same direction would also give links, but bad ones: its loss tells."""
    some = [pair for pair in pairs if all(side.strip() for side in pair)][:50]
    if not some:
        return
    written, turned = ([Example(*one) for one in side] for side in (some, [(b, a) for a, b in some]))
    output: Any = reverse.output
    if output.perplexity(reverse, written) < 0.5 * output.perplexity(reverse, turned):
        _say(
            f"{reverse.name} is surer of the targets than of the sources: --reverse expects a run that was trained the "
            f"other way round, from target to source"
        )


def _score(aligner: Aligner, truth: GoldPairs, chosen: Chosen) -> dict[str, Any]:
    """The scores of what will be written, on gold that did not choose where there is such."""
    fresh = chosen.by != "gold" or len(truth.pairs) > TUNED
    start = TUNED if chosen.by == "gold" and fresh else 0
    found = zip(aligner.align(truth.pairs[start:]), truth.links[start:], strict=True)
    total = sum((score(frozenset(one.links), gold) for one, gold in found if one is not None), AlignmentScore())
    which = f"on {len(truth.pairs) - start:,} gold pairs"
    which += ", which did not choose" if fresh else ", the same that chose: on others expect somewhat more"
    rates = f"error rate {total.error_rate:.1%}, precision {total.precision:.1%}, recall {total.recall:.1%}"
    _say(f"{rates}, F1 {total.f1:.1%} {which}")
    return {"pairs": len(truth.pairs) - start, "chose": not fresh, **total.to_json()}


def _read_gold(path: Path) -> list[tuple[Gold | None, str]] | GoldPairs:
    """Lines of links for the first rows of the data, or .jsonl with pairs of its own."""
    lines = list(_gold_lines(path))
    if path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        found = [_json_gold(text, where) for text, where in lines if text.strip()]
        if not found:
            raise UserError(f"{path} has no gold pairs")
        return GoldPairs([pair for pair, _, _ in found], [gold for _, gold, _ in found], [where for *_, where in found])
    if not any(text.strip() for text, _ in lines):
        raise UserError(f"{path} has no gold links; expected a line such as 0-0 1-2 2p1 for each of the first pairs")
    return [(_links(text, where) if text.strip() else None, where) for text, where in lines]


def _gold_lines(path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_file():
        raise UserError(f"--gold is {path}: there is no such file")
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number in itertools.count(1):
            try:
                line = file.readline(LINE_LIMIT + 1)
            except (EOFError, OSError, zlib.error) as error:
                raise UserError(f"{path}:{number}: cannot be read ({error})") from None
            if not line:
                return
            where = f"{path}:{number}"
            if len(line) > LINE_LIMIT or number > MOST_GOLD:
                raise UserError(f"{where}: expected at most {MOST_GOLD:,} lines of at most {LINE_LIMIT:,} bytes")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"), where
            except UnicodeDecodeError as error:
                raise UserError(f"{where}: byte 0x{line[error.start]:02x} is not UTF-8") from None


def _links(text: str, where: str) -> Gold:
    try:
        return parse_links(text)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _json_gold(text: str, where: str) -> tuple[Pair, Gold, str]:
    expected = (
        'expected an object with the texts "source" and "target" and "links" such as "0-0 2p1" or [[0, 0], [2, 1]]'
    )
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{where}: found no JSON; {expected}") from None
    if not isinstance(data, dict) or not all(isinstance(data.get(side), str) for side in ("source", "target")):
        raise UserError(f"{where}: found no pair; {expected}")
    gold = [data.get("links"), data.get("possible", [])]
    if isinstance(gold[0], str) and not gold[1]:
        return (data["source"], data["target"]), _links(gold[0], where), where
    for links in gold:
        if not isinstance(links, list) or not all(_is_link(link) for link in links):
            raise UserError(f"{where}: found links that are no pairs of numbers; {expected}")
    sure, possible = (frozenset((link[0], link[1]) for link in links) for links in gold)
    return (data["source"], data["target"]), Gold(sure, possible), where


def _is_link(link: Any) -> bool:
    return isinstance(link, list) and len(link) == 2 and all(type(number) is int and number >= 0 for number in link)


def _gold_of_rows(gold: list[tuple[Gold | None, str]], rows: Sequence[Cells], path: Path | None) -> GoldPairs:
    """Line n belongs to row n; an empty line says that its row has no gold."""
    if len(gold) > len(rows):
        raise UserError(f"{path} has {len(gold):,} lines and the data {len(rows):,} rows; expected at most as many")
    there = [(row, links, where) for row, (links, where) in zip(rows, gold, strict=False) if links and not row.problem]
    pairs: list[Pair] = [row.values for row, _, _ in there]
    return GoldPairs(pairs, [links for _, links, _ in there], [where for *_, where in there])


@contextlib.contextmanager
def _progress(out: Path | None) -> Iterator[Callable[[int], None]]:
    """How many pairs there were, on standard error, where somebody sees it and no links run through it."""
    if (out is None and sys.stdout.isatty()) or not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = (SpinnerColumn(), TextColumn("aligning"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.update(task, advance=count)
