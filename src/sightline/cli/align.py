"""`sightline align`: pairs in, links between their words out, line by line."""

import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from sightline.align.aligning import LONGEST, Aligner, Alignment, Cuttings, MapSelector, Pair
from sightline.align.choosing import TUNED, Chosen, choose, cuttings_of
from sightline.align.links import AlignmentScore, GoldLinks, Symmetrising, parse_links, score
from sightline.cli.common import load_run, set_up, writing
from sightline.cli.output import progress_bar
from sightline.data.checking import RowLimits
from sightline.data.columns import TableRow
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.data.tables import decode, json_object, lines_of, read_as
from sightline.errors import UserError
from sightline.files import check_writable, write_text
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.text.words import word_spans

BLOCK = 2048  # pairs aligned together: enough to sort by length, few enough to stream
BLOCK_CELLS = 100_000_000  # source × target characters of a block: bounds the memory of its weights
SAMPLED = 1000  # rows from which pairs are taken to choose a map
MOST_GOLD = 100_000
NAMED = 3  # rows with a problem that are named


@dataclass(frozen=True)
class AlignOptions:
    """How to align and what to write."""

    symmetrise: Symmetrising
    threshold: float
    words: Literal["auto", "spaces", "characters"]
    use: str | None
    reverse_use: str | None
    format: Literal["pharaoh", "jsonl"]
    out: Path | None
    report: Path | None

    def check(self, reverse: Path | None, inputs: Iterable[Any]) -> None:
        """Before the long work: what is written can be written, and replaces neither an input nor the other file."""
        read = {Path(name).resolve() for name in inputs if name not in (None, "-")}
        for path in (self.out, self.report):
            if path is not None:
                if path.is_dir():
                    raise UserError(f"{path} is a folder; name a file to write to")
                if path.resolve() in read:
                    raise UserError(f"{path} is one of the files that are read; write to another")
                check_writable(path.parent)
        if self.out is not None and self.report is not None and self.out.resolve() == self.report.resolve():
            raise UserError(f"--out and --report are both {self.out}; one would replace the other")
        if self.reverse_use is not None and reverse is None:
            raise UserError("--reverse-use selects a map of the run given by --reverse; give both or neither")
        if not 0 <= self.threshold < 1:
            raise UserError(f"--threshold is {self.threshold}; it is a weight, at least 0 and below 1")


class GoldPair(NamedTuple):
    """A pair with links that people made; ``where`` names it in errors."""

    pair: Pair
    links: GoldLinks
    where: str

    def check(self, cuttings: Cuttings) -> None:
        """Refuse links of words that do not exist: gold of other pairs, or counted from 1."""
        counts = [len(word_spans(text, cutting)) for text, cutting in zip(self.pair, cuttings, strict=True)]
        for link in sorted(self.links.possible):
            for side, count, number in zip(("source", "target"), counts, link, strict=True):
                if number >= count:
                    raise UserError(
                        f"{self.where}: the link {link[0]}-{link[1]} has {side} word {number}, but the {side} has "
                        f"{count} words; expected numbers from 0 to {count - 1}, and gold of these very pairs "
                        "(--gold-base 1 if the words of the gold are counted from 1)"
                    )


@dataclass
class _Tally:
    """Counts for the report."""

    pairs: int = 0
    empty: int = 0
    links: int = 0
    too_long: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    agreement: AlignmentScore = field(default_factory=AlignmentScore)


def align_command(
    run: Path,
    data: str | None,
    source: str | None,
    target: str | None,
    columns: tuple[str, str] | None,
    reverse: Path | None,
    gold: Path | None,
    gold_base: int,
    encoding: str | None,
    threads: int | None,
    **given: Any,
) -> None:
    """Links for every pair, a line each, in the order of the pairs; an empty side gives a line without links."""
    options = AlignOptions(**given)
    set_up(threads)
    read_as(encoding)
    if gold_base not in (0, 1):
        raise UserError(f"--gold-base is {gold_base}; words are counted from 0 or from 1")
    options.check(reverse, (data, source, target, gold))
    selectors = [None if text is None else MapSelector.parse(text) for text in (options.use, options.reverse_use)]
    loaded = load_run(run)
    files = Source.of(data, columns, source=source, target=target)
    loaded.task.check_source(files)
    other = None if reverse is None else load_run(reverse)
    lines = [] if gold is None else _read_gold(gold, gold_base)
    rows = pair_cells(files)
    first = list(itertools.islice(rows, max(SAMPLED, len(lines))))
    pairs: list[Pair] = [row.values for row in first if row.problem is None]
    cuttings: Cuttings = cuttings_of(pairs) if options.words == "auto" else (options.words, options.words)
    truth = _gold_pairs(lines, first, gold)
    for one in truth:
        one.check(cuttings)
    tuning = truth[:TUNED]
    chosen = choose(
        loaded,
        [one.pair for one in tuning] if gold is not None else pairs,
        reverse=other,
        gold=[one.links for one in tuning] if gold is not None else None,
        use=selectors[0],
        reverse_use=selectors[1],
        cuttings=cuttings,
    )
    _say(f"reading {chosen}")
    for side, cutting in zip(("source", "target"), cuttings, strict=True):
        if cutting == "characters":
            _say(f"the {side} is written without spaces: each of its characters counts as a word")
    if other is not None:
        _warn_of_direction(other, pairs)
    aligner = Aligner(loaded, chosen.selector, other, chosen.reverse, options.symmetrise, options.threshold, cuttings)
    scores = None if gold is None else _score(aligner, truth, chosen)
    started, tally = time.perf_counter(), _Tally()
    hidden = options.out is None and sys.stdout.isatty()
    with writing(options.out) as stream, progress_bar("aligning", None, hidden) as advance:
        for block in _blocks(itertools.chain(first, rows)):
            for line in _align_block(aligner, block, chosen, options.format == "jsonl", tally):
                stream.write(line + "\n")
            stream.flush()
            advance(len(block))
        _check_unreadable(tally)
    seconds = time.perf_counter() - started
    _say_summary(tally, seconds, other is not None)
    if options.report is not None:
        report = _report(tally, seconds, chosen)
        if other is not None:
            report |= {"symmetrise": options.symmetrise, "agreement": tally.agreement.f1}
        report |= {} if scores is None else {"gold": scores}
        write_text(options.report, json.dumps(report, indent=2) + "\n")


def _say(sentence: str) -> None:
    print(f"sightline: {sentence}", file=sys.stderr)


def _blocks(rows: Iterable[TableRow]) -> Iterator[list[TableRow]]:
    block: list[TableRow] = []
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
    aligner: Aligner, rows: Sequence[TableRow], chosen: Chosen, as_json: bool, tally: _Tally
) -> Iterator[str]:
    """A line for each row, also for a bad one: line n of the output belongs to row n."""
    for row, alignment in zip(rows, aligner.align([row.values for row in rows]), strict=True):
        tally.pairs += 1
        if row.problem is not None:
            tally.unreadable.append(f"{row.file}:{row.line}: {row.problem}")
        elif alignment is None:
            tally.too_long.append(f"{row.file}:{row.line}")
        else:
            tally.empty += not (alignment.source and alignment.target)
            tally.links += len(alignment.links)
            if aligner.reverse is not None:
                tally.agreement += alignment.agreement
        yield _json_line(row, alignment, chosen) if as_json else ("" if alignment is None else alignment.pharaoh)


def _json_line(row: TableRow, alignment: Alignment | None, chosen: Chosen) -> str:
    data: dict[str, Any] = dict(zip(("source", "target"), row.values, strict=True))
    if alignment is None or row.problem is not None:
        data |= {"links": [], "problem": row.problem or f"more than {LONGEST:,} tokens"}
    else:
        data |= {
            name: [round(weight, 4) for weight in value] if name.endswith("weights") else value
            for name, value in cast("dict[str, Any]", alignment.to_json()).items()
        }
    return json.dumps({**data, "choice": chosen.to_json()}, ensure_ascii=False)


def _check_unreadable(tally: _Tally) -> None:
    """Refuse data with more bad rows than training accepts: it is probably in another format."""
    if len(tally.unreadable) > RowLimits().max_bad_share * tally.pairs:
        raise UserError(
            f"{len(tally.unreadable):,} of {tally.pairs:,} rows are bad ({'; '.join(tally.unreadable[:NAMED])}), more "
            f"than {RowLimits().max_bad_share:.0%}; correct them"
        )


def _say_summary(tally: _Tally, seconds: float, two: bool) -> None:
    for some, what in ((tally.unreadable, "cannot be read"), (tally.too_long, f"have more than {LONGEST:,} tokens")):
        if some:
            more = f" and {len(some) - NAMED:,} more" if len(some) > NAMED else ""
            _say(f"{len(some):,} rows {what} and have no links: {'; '.join(some[:NAMED])}{more}")
    agreed = f"; both directions agree with F1 {tally.agreement.f1:.3f}" if two else ""
    speed = f"{tally.pairs / max(seconds, 1e-9):,.0f} pairs per second"
    _say(f"{tally.pairs:,} pairs, {tally.links:,} links, {speed}{agreed}")


def _report(tally: _Tally, seconds: float, chosen: Chosen) -> dict[str, Any]:
    return {
        "choice": chosen.to_json(),
        "pairs": tally.pairs,
        "links": tally.links,
        "empty": tally.empty,
        "too_long": len(tally.too_long),
        "unreadable": len(tally.unreadable),
        "seconds": round(seconds, 3),
        "pairs_per_second": round(tally.pairs / max(seconds, 1e-9), 1),
    }


def _warn_of_direction(reverse: Run, pairs: Sequence[Pair]) -> None:
    """A run of the same direction gives links too, but bad ones: its perplexity shows it."""
    some = [pair for pair in pairs if all(side.strip() for side in pair)][:50]
    if not some:
        return
    written, turned = ([Example(*one) for one in side] for side in (some, [(b, a) for a, b in some]))
    output: Any = reverse.output
    if output.perplexity(reverse, written) < 0.5 * output.perplexity(reverse, turned):
        _say(
            f"{reverse.name} gives the targets a lower perplexity than the sources: --reverse expects a run that was "
            "trained the other way round, from target to source"
        )


def _score(aligner: Aligner, truth: Sequence[GoldPair], chosen: Chosen) -> dict[str, Any]:
    """The scores of what will be written, on gold pairs that did not choose the map if there are any."""
    fresh = chosen.by != "gold" or len(truth) > TUNED
    scored = truth[TUNED:] if chosen.by == "gold" and fresh else truth
    alignments = zip(aligner.align([one.pair for one in scored]), scored, strict=True)
    total = sum((score(frozenset(one.links), gold.links) for one, gold in alignments if one), AlignmentScore())
    which = f"on {len(scored):,} gold pairs"
    which += ", which did not choose" if fresh else ", the same that chose: on others expect somewhat more"
    rates = f"error rate {total.error_rate:.1%}, precision {total.precision:.1%}, recall {total.recall:.1%}"
    _say(f"{rates}, F1 {total.f1:.1%} {which}")
    return {"pairs": len(scored), "chose": not fresh, **total.to_json()}


# Gold links: a line of links for each of the first rows of the data, or .jsonl with pairs of its own.
GoldLine = tuple[Pair | None, GoldLinks | None, str]


def _read_gold(path: Path, base: int) -> list[GoldLine]:
    is_json = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))
    lines: list[GoldLine] = []
    for line in lines_of(str(path)):
        where = f"{path}:{line.number}"
        text, problem = decode(line)
        if problem is not None or line.number > MOST_GOLD:
            raise UserError(f"{where}: {problem or f'expected at most {MOST_GOLD:,} lines'}")
        if is_json and text.strip():
            lines.append((*_json_gold(text, where), where))
        elif not is_json:
            lines.append((None, _links(text, where) if text.strip() else None, where))
    if not any(links for _, links, _ in lines):
        expected = "pairs" if is_json else "links; expected a line such as 0-0 1-2 2p1 for each of the first pairs"
        raise UserError(f"{path} has no gold {expected}")
    if base and any(0 in link for _, links, _ in lines if links for link in links.possible):
        raise UserError(f"{path} has links of word 0, so its words are not counted from {base}; leave out --gold-base")
    return [(pair, links and links.shifted(-base), where) for pair, links, where in lines]


def _gold_pairs(lines: Sequence[GoldLine], rows: Sequence[TableRow], path: Path | None) -> list[GoldPair]:
    """Lines of links belong to the rows of the data in order; an empty line means that its row has no gold."""
    if lines and lines[0][0] is None:
        if len(lines) > len(rows):
            raise UserError(
                f"{path} has {len(lines):,} lines and the data {len(rows):,} rows; expected at most as many"
            )
        pairs = [None if row.problem else row.values for row in rows]
        lines = [(pair, links, where) for pair, (_, links, where) in zip(pairs, lines, strict=False)]
    return [GoldPair(pair, links, where) for pair, links, where in lines if pair and links]


def _links(text: str, where: str) -> GoldLinks:
    try:
        return parse_links(text)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _json_gold(text: str, where: str) -> tuple[Pair, GoldLinks]:
    expected = 'an object with the texts "source" and "target" and "links" such as "0-0 2p1" or [[0, 0], [2, 1]]'
    data, problem = json_object(text, expected)
    if problem is not None:
        raise UserError(f"{where}: {problem}")
    if not all(isinstance(data.get(side), str) for side in ("source", "target")):
        raise UserError(f"{where}: found no pair; expected {expected}")
    pair, gold = (data["source"], data["target"]), [data.get("links"), data.get("possible", [])]
    if isinstance(gold[0], str) and not gold[1]:
        return pair, _links(gold[0], where)
    for links in gold:
        if not isinstance(links, list) or not all(_is_link(link) for link in links):
            raise UserError(f"{where}: found links that are no pairs of numbers; expected {expected}")
    sure, possible = (frozenset((link[0], link[1]) for link in links) for links in gold)
    return pair, GoldLinks(sure, possible)


def _is_link(link: Any) -> bool:
    return isinstance(link, list) and len(link) == 2 and all(type(number) is int and number >= 0 for number in link)
