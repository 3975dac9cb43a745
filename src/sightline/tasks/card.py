"""What a run folder says of itself to people: data, scores, command, limits."""

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sightline import __version__, metrics
from sightline.config import Config
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome

ABOUT, CARD, CURVES = "about.json", "card.md", "curves.png"
MOST_LISTED = 200  # rows of a table in a card


@dataclass(frozen=True)
class Wording:
    """What a card says of its task. ``sections`` are more Markdown, behind the scores."""

    what: str = "from text to text"
    rows: str = "pairs"
    scored: str = "On validation data, decoded greedily."
    longest: str = "sources it saw have at most {longest:,} characters; split longer texts."
    limits: tuple[str, ...] = (
        "It knows what stands in its training data, and writes something fluent for anything else too.",
        "Where it looked is not why it wrote: an attention map is a picture of the computation, not an explanation.",
    )
    sections: tuple[str, ...] = ()


def card(folder: RunFolder, config: Config, model: nn.Module, outcome: Outcome, wording: Wording) -> str:
    """A page in Markdown."""
    about = folder.read_json(ABOUT) if (folder.path / ABOUT).exists() else {}
    data = config.to_json()
    progress = outcome.progress
    report = about.get("report") or {}
    longest = (report.get("source_characters") or report.get("characters") or {}).get("p95")
    scores = "\n".join(f"| {name.replace('_', ' ')} | {value:g} |" for name, value in outcome.scores.items())
    lines = [
        f"# {folder.path.name}",
        "",
        f"A `{data['model']['kind']}` {wording.what}, {_parameters(model):,} parameters, trained with Sightline "
        f"{__version__}.",
        "",
        "## Data",
        "",
        f"- {about.get('pairs', 0):,} {wording.rows} to train on, from {about.get('data') or 'unknown files'}.",
        f"- {about.get('valid_pairs', 0):,} {wording.rows} to validate on, "
        f"from {about.get('valid') or 'unknown files'}.{_overlap(about)}",
        *([f"- Began with the weights and the vocabulary of the run `{about['from']}`."] if about.get("from") else []),
        "",
        "## Scores",
        "",
        f"{wording.scored} These data chose the weights, so a test on other data may be lower: "
        "`sightline evaluate` gives it.",
        "",
        "| metric | score |",
        "| --- | --- |",
        scores,
        "",
        f"Weights: {outcome.source}. Training ended after {outcome.reason}: {progress.step:,} steps, "
        f"{progress.epoch:,} epochs, {progress.seconds / 60:.1f} minutes with {torch.get_num_threads()} threads "
        f"(PyTorch {torch.__version__.split('+')[0]}, Python {platform.python_version()}).",
        "",
        f"![How training went]({CURVES})",
        "",
        *wording.sections,
        "## Command",
        "",
        "```bash" if about.get("command") else "```",
        about.get("command") or "trained from Python",
        "```",
        "",
        "## Limits",
        "",
        f"- {wording.limits[0]}",
        *([f"- 95 % of the {wording.longest.format(longest=longest)}"] if longest else []),
        *(f"- {limit}" for limit in wording.limits[1:]),
        "",
        "## Configuration",
        "",
        "```json",
        json.dumps(data, indent=2, ensure_ascii=False),
        "```",
        "",
    ]
    return "\n".join(lines)


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _overlap(about: dict[str, Any]) -> str:
    found = about.get("valid_pairs_in_training")
    return "" if found is None else f" Of these, {found:,} stand in the training data too."


def table_section(title: str, first: str, counted: str, rows: Sequence[metrics.OfClass]) -> list[str]:
    """A table of precision and recall for the card."""
    lines = [f"## {title}", "", f"| {first} | precision | recall | F1 | {counted} |", "| --- | --- | --- | --- | --- |"]
    for row in rows[:MOST_LISTED]:
        shares = " | ".join("–" if share is None else f"{share:.1f}" for share in (row.precision, row.recall, row.f1))
        lines.append(f"| {row.name.replace('|', chr(92) + '|') or '–'} | {shares} | {row.support:,} |")
    if len(rows) > MOST_LISTED:
        lines.append(f"| and {len(rows) - MOST_LISTED:,} more | | | | |")
    return [*lines, ""]
