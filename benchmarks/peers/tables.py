"""What was measured, as tables for the screen and for RESULTS.md, and as pictures."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import HF, LIMIT, OURS, Job
from matplotlib.figure import Figure
from rich.table import Table

from sightline.files import whole_file

COLOURS = {OURS: "#0072B2", HF: "#D55E00"}
OTHER = "#999999"
Found = Callable[[Job], list[dict[str, Any]]]


@dataclass(frozen=True)
class Sheet:
    """A table: the first columns are words, the others numbers."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    words: int = 1

    def markdown(self) -> str:
        rule = "|" + "---|" * self.words + "--:|" * (len(self.head) - self.words)
        lines = [f"| {' | '.join(row)} |" for row in (self.head, *self.rows)]
        return "\n".join([lines[0], rule, *lines[1:]])

    def rich(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for place, name in enumerate(self.head):
            table.add_column(name, justify="left" if place < self.words else "right")
        for row in self.rows:
            table.add_row(*row)
        return table


def median(results: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [result[name] for result in results if result.get(name) is not None]
    return statistics.median(values) if values else None


def ratio(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> float | None:
    """How much faster we are: the median over rounds of ours ÷ theirs, both from the same round."""
    pairs = [(a["rate"], b["rate"]) for a, b in zip(ours, theirs, strict=False)]
    return statistics.median(a / b for a, b in pairs) if pairs else None


def _number(value: float | None, form: str = ",.0f") -> str:
    return "–" if value is None else format(value, form)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _spread(results: Sequence[dict[str, Any]]) -> str:
    rates = [result["rate"] for result in results]
    return f"{_rate(min(rates))}–{_rate(max(rates))}"


def _ours(job: Job, jobs: Sequence[Job]) -> Job | None:
    same = (one for one in jobs if one.tool == OURS and (one.group, one.label) == (job.group, job.label))
    return next(same, None)


def speeds(group: str, unit: str, jobs: Sequence[Job], of: Found) -> Sheet:
    """One row for each job of the group: speed, spread, how we compare, memory."""
    labels = list(dict.fromkeys(job.label for job in jobs if job.group == group))
    many = len(labels) > 1
    head: tuple[str, ...] = ("tool", f"{unit}, median", "least–most", "ours ÷ it", "peak, MB", "anonymous, MB")
    head = ("work", *head, "tokens written") if many else (*head, "parameters")
    rows = []
    for job in jobs:
        if job.group != group:
            continue
        results, ours = of(job), _ours(job, jobs)
        if not results:  # it failed: that is a result too
            missing = [job.label, job.tool] if many else [job.tool]
            rows.append((*missing, *["–"] * (len(head) - len(missing))))
            continue
        against = "" if ours is None or job is ours else _number(ratio(of(ours), results), ".2f")
        cells = [job.tool, _rate(median(results, "rate") or 0.0), _spread(results), against]
        cells += ["", ""] if job.tool == LIMIT else [_number(median(results, name)) for name in ("peak", "anonymous")]
        if many:
            cells = [job.label, *cells, _number(median(results, "mean_length"), ".1f")]
        else:
            cells.append(_number(median(results, "parameters")))
        rows.append(tuple(cells))
    return Sheet(group, head, rows, words=2 if many else 1)


def limits(jobs: Sequence[Job], of: Found) -> list[str]:
    """How far our step is from its matrix products alone."""
    lines = []
    for job in jobs:
        ours = _ours(job, jobs)
        if job.tool != LIMIT or ours is None or not of(job) or not of(ours):
            continue
        far = 1 / (ratio(of(ours), of(job)) or 1.0)
        speed = _number(median(of(job), "gigaflops"))
        count = _number(median(of(job), "products"))
        lines.append(
            f"{job.label}: a step takes {far:.2f} times as long as its {count} matrix products alone, which run at "
            f"{speed} GFLOP/s."
        )
    return lines


def same_outputs(jobs: Sequence[Job], of: Found) -> list[str]:
    """How often the tools with our weights wrote what we wrote."""
    lines = []
    for job in jobs:
        ours = _ours(job, jobs)
        # Where a length is forced, the last token that beams choose depends on how a tool counts the end.
        if job.kind != "decode" or job.group != "decoding" or job.length or ours is None or job is ours:
            continue
        if of(job) and of(ours):
            pairs = list(zip(of(job)[0]["outputs"], of(ours)[0]["outputs"], strict=False))
            same = sum(a == b for a, b in pairs)
            lines.append(f"{job.label}: {job.tool} wrote the same as ours for {same} of {len(pairs)} sentences.")
    return lines


def growth(jobs: Sequence[Job], of: Found) -> Sheet:
    """Ours and Hugging Face side by side at every place."""
    head = ("what grows", "ours, tokens or sentences/s", f"{HF}", "ours ÷ it", "ours, peak MB", f"{HF}, peak MB")
    rows = []
    for job in jobs:
        if job.tool != OURS or job.group not in ("length", "vocabulary", "beam") or not of(job):
            continue
        other = next((one for one in jobs if one.tool == HF and (one.group, one.at) == (job.group, job.at)), None)
        theirs = [] if other is None else of(other)
        speed = _rate(median(theirs, "rate") or 0.0) if theirs else "–"
        against = _number(ratio(of(job), theirs), ".2f")
        memory = [_number(median(found, "peak")) for found in (of(job), theirs)]
        rows.append((job.label, _rate(median(of(job), "rate") or 0.0), speed, against, *memory))
    return Sheet("growth", head, rows)


def draw_speeds(jobs: Sequence[Job], of: Found, path: Path) -> Path | None:
    """Bars, one panel for each piece of work."""
    shown = [job for job in jobs if job.group in ("training", "rnnsearch", "decoding") and of(job)]
    shown = [job for job in shown if job.tool != LIMIT]
    panels = list(dict.fromkeys((job.group, job.label) for job in shown))
    if not panels:
        return None
    columns = 2
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 1.9 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for place, (group, label) in enumerate(panels):
        axis, some = axes[place], [job for job in shown if (job.group, job.label) == (group, label)][::-1]
        rates = [[result["rate"] for result in of(job)] for job in some]
        middle = [statistics.median(values) for values in rates]
        spread = [[m - min(v) for m, v in zip(middle, rates, strict=True)]]
        spread.append([max(v) - m for m, v in zip(middle, rates, strict=True)])
        colours = [COLOURS.get(job.tool, OTHER) for job in some]
        axis.barh([job.tool for job in some], middle, xerr=spread, color=colours, error_kw={"linewidth": 0.8})
        unit = "sentences/s" if group == "decoding" else "target tokens/s"
        axis.set_title(f"{label}, {unit}", loc="left", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    return _save(figure, path)


def draw_growth(jobs: Sequence[Job], of: Found, path: Path) -> Path | None:
    """Speed above, memory below; the axes of what grows are logarithmic, those of memory begin at nothing."""
    groups = [name for name in ("length", "vocabulary", "beam") if any(job.group == name and of(job) for job in jobs)]
    if not groups:
        return None
    figure = Figure(figsize=(3.4 * len(groups), 4.6), layout="constrained")
    axes = figure.subplots(2, len(groups), squeeze=False)
    for column, group in enumerate(groups):
        for line, (name, unit) in enumerate((("rate", "tokens/s"), ("peak", "peak memory, MB"))):
            axis = axes[line, column]
            for tool, marker in ((OURS, "o"), (HF, "s")):
                some = [job for job in jobs if (job.group, job.tool) == (group, tool) and median(of(job), name)]
                values = [median(of(job), name) for job in some]
                axis.plot([job.at for job in some], values, marker=marker, color=COLOURS[tool], label=tool)
            places = sorted({job.at for job in jobs if job.group == group})
            axis.set_xscale("log")
            axis.set_xticks(
                places, [f"{at // 1000}k" if at >= 1000 and group == "vocabulary" else str(at) for at in places]
            )
            axis.minorticks_off()
            axis.set_ylim(0, 1.08 * max((*axis.dataLim.intervaly, 1e-9)))
            axis.set_ylabel("sentences/s" if (group, name) == ("beam", "rate") else unit, fontsize=9)
            axis.tick_params(labelsize=8)
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
        axes[1, column].set_xlabel({"length": "tokens of a sentence", "vocabulary": "words", "beam": "beam"}[group])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=2, frameon=False)
    return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    with whole_file(path) as part:
        figure.savefig(part, dpi=150, metadata={"Software": None})
    return path
