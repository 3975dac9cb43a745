"""The model card of a run: data, scores, command, limits."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from sightline import __version__, metrics
from sightline.config import Config
from sightline.metrics.base import goodness
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome

ABOUT, CARD, CURVES = "about.json", "card.md", "curves.png"
MOST_LISTED = 200  # rows of a table in a card


@dataclass(frozen=True)
class Wording:
    """The sentences of a card that depend on the task. ``sections`` are lines of Markdown after the scores."""

    what: str = "from text to text"
    rows: str = "pairs"
    scored: str = "On validation data, decoded greedily."
    longest: str = "sources it saw have at most {longest:,} characters; split longer texts."
    limits: tuple[str, ...] = (
        "It has learnt its training data, and writes fluent text for any other input too.",
        "An attention map is a picture of the computation, not an explanation of the output.",
    )
    sections: tuple[str, ...] = ()
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # their scores on validation data
    own: Mapping[str, float] = field(default_factory=dict)  # those of the run on the same data
    offers: Mapping[str, str] = field(default_factory=dict)  # the models that baselines can be trained as


def verdict(
    own: Mapping[str, float],
    baselines: Mapping[str, Mapping[str, float]],
    first: str | None = None,
    offers: Mapping[str, str] | None = None,
) -> str:
    """Whether a baseline is as good as a run, in the metric that decides or the first that all have; "" for none.

    ``offers`` names the models that baselines can be trained as.
    """
    known = [
        name
        for name in own
        if baselines and all(math.isfinite(values.get(name, math.nan)) for values in (own, *baselines.values()))
    ]
    if not known:
        return ""
    metric = first if first in known else known[0]
    best = max(baselines, key=lambda name: goodness(metric, baselines[name][metric]))
    least, reached = goodness(metric, baselines[best][metric]), goodness(metric, own[metric])
    side = "above" if goodness(metric, 1.0) > 0 else "better than"
    won = "A BASELINE IS AS GOOD" if least == reached else f"the run is {side} its baselines"
    won = "A BASELINE WON" if least > reached else won
    shown = metric.replace("_", " ")
    model = (offers or {}).get(best) if least >= reached else None
    offer = f"; train it with --model {model}" if model else ""
    return f"{won}: {shown} {own[metric]:.2f}, and {baselines[best][metric]:.2f} of the baseline '{best}'{offer}"


def card(
    folder: RunFolder, config: Config, model: nn.Module, outcome: Outcome, wording: Wording, limits: str = ""
) -> str:
    """A page in Markdown; ``limits`` are those that training had."""
    about = folder.read_json(ABOUT) if (folder.path / ABOUT).exists() else {}
    data = config.to_json()
    progress = outcome.progress
    report = about.get("report") or {}
    longest = (report.get("source_characters") or report.get("characters") or {}).get("p95")
    scores = "\n".join(f"| {name.replace('_', ' ')} | {value:g} |" for name, value in outcome.scores.items())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    overlap = about.get("valid_pairs_in_training")
    sources = [
        f"{about.get('pairs', 0):,} {wording.rows} to train on, from {about.get('data') or 'unknown files'}.",
        f"{about.get('valid_pairs', 0):,} {wording.rows} to validate on, from {about.get('valid') or 'unknown files'}."
        + ("" if overlap is None else f" Of these, {overlap:,} are in the training data too."),
        *([f"Started from the weights and the vocabulary of the run `{about['from']}`."] if about.get("from") else []),
    ]
    folds = about.get("folds") or {}
    crossed = ", ".join(
        f"{name.replace('_', ' ')} {one['mean']:.2f} (95 % interval {one['low']:.2f} to {one['high']:.2f})"
        for name, one in folds.items()
    )
    decisive = next(iter(outcome.scores), None)
    compared = verdict(wording.own or outcome.scores, wording.baselines, decisive, wording.offers)
    of_model = list(wording.limits)
    of_model[1:1] = [f"95 % of the {wording.longest.format(longest=longest)}"] if longest else []
    command = about.get("command")
    paragraphs = [
        f"# {folder.path.name}",
        f"A `{data['model']['kind']}` {wording.what}, {parameters:,} parameters, trained with Sightline {__version__}.",
        "## Data",
        "\n".join(f"- {line}" for line in sources),
        "## Scores",
        f"{wording.scored} These data chose the weights, so a test on other data may be lower: `sightline evaluate` "
        "gives it.",
        f"| metric | score |\n| --- | --- |\n{scores}",
        *([f"Cross-validated, the mean of models that were trained on the other parts: {crossed}."] if crossed else []),
        *([f"**{compared[0].upper()}{compared[1:]}.**"] if compared else []),
        f"Weights: {outcome.source}. Training ended after {outcome.reason}"
        + (f" (limits: {limits})" if limits else "")
        + f": {progress.step:,} steps, "
        f"{progress.epoch:,} epochs, {progress.seconds / 60:.1f} minutes with {torch.get_num_threads()} threads "
        f"(PyTorch {torch.__version__.split('+')[0]}, Python {platform.python_version()}).",
        *([f"![Loss and scores during training]({CURVES})"] if (folder.path / CURVES).exists() else []),
        *(["\n".join(wording.sections).removesuffix("\n")] if wording.sections else []),
        "## Command",
        f"```{'bash' if command else ''}\n{command or 'trained from Python'}\n```",
        "## Limits",
        "\n".join(f"- {limit}" for limit in of_model),
        "## Configuration",
        f"```json\n{json.dumps(data, indent=2, ensure_ascii=False)}\n```",
    ]
    return "\n\n".join(paragraphs) + "\n"


def table_section(title: str, first: str, counted: str, rows: Sequence[metrics.OfClass]) -> list[str]:
    """A table of precision and recall for the card."""
    lines = [f"## {title}", "", f"| {first} | precision | recall | F1 | {counted} |", "| --- | --- | --- | --- | --- |"]
    for row in rows[:MOST_LISTED]:
        shares = " | ".join("–" if share is None else f"{share:.1f}" for share in (row.precision, row.recall, row.f1))
        lines.append(f"| {row.name.replace('|', chr(92) + '|') or '–'} | {shares} | {row.support:,} |")
    if len(rows) > MOST_LISTED:
        lines.append(f"| and {len(rows) - MOST_LISTED:,} more | | | | |")
    return [*lines, ""]
