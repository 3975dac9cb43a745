"""Train, predict, evaluate and compare, for runs that classify texts."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.text import Text as Plain

from sightline.commands.common import say_unfinished, set_up
from sightline.commands.comparing import check_runs
from sightline.commands.evaluation import console, plain_table, predicting
from sightline.commands.prediction import Lines, write_predictions
from sightline.commands.scoring import (
    check_rows_wanted,
    given_data,
    print_classes,
    print_json,
    print_resampled,
    refuse_picture,
    say_left_out,
    spaced,
    write_rows,
)
from sightline.data.labelled import LabelKind, LabelledFile, find_columns
from sightline.data.tables import LINE_LIMIT
from sightline.data.texts import Text
from sightline.errors import UserError
from sightline.machine import check_seed
from sightline.tasks.classifier import Classifier, LabelPrediction, load_classifier
from sightline.tasks.classify_data import with_separator
from sightline.tasks.classify_scores import (
    LabelComparison,
    LabelEvaluation,
    LabelMetric,
    compare,
    evaluate,
    read_examples,
)
from sightline.tasks.presets import MODELS

DATA = "--data FILE: texts and labels"
MOST_SHOWN = 12  # labels in a confusion matrix on a terminal
TEXT_SHOWN = 300  # characters of a text that was wrong


def check_train_options(source: str | None, target: str | None, metric: str | None, model: str | None) -> None:
    """Options of another task are refused, not passed over."""
    if source is not None or target is not None:
        raise UserError("--source and --target are for pairs; give texts and labels in one file, with --data")
    if metric is not None and metric not in get_args(LabelMetric):
        raise UserError(f"--metric {metric} is for text; here it is one of {', '.join(get_args(LabelMetric))}")
    if model in MODELS:
        raise UserError(f"--model {model} writes text; to classify, choose attentive, han or encoder")


def training_files(
    data: str | None,
    valid: str | None,
    columns: tuple[str, ...] | None,
    labels: LabelKind | None,
    separator: str | None,
    no_floors: bool,
) -> tuple[LabelledFile, LabelledFile | None, tuple[str, ...]]:
    """The files that the options name, and what they say of the configuration."""
    found = given_data(data, DATA)
    kind: LabelKind = labels or ("several" if separator is not None else "one")
    options = [] if kind == "one" and labels is None else [f"labels={kind}"]
    options += ["floors=false"] if no_floors else []
    files = LabelledFile(found, columns, kind, separator)
    return files, None if valid is None else LabelledFile(valid, columns, kind, separator), tuple(options)


def load_run(run: Path) -> Classifier:
    """A trained model, with a word on standard error when its training has not ended."""
    classifier, about = load_classifier(run)
    say_unfinished(run, about)
    return classifier


def predict_command(
    run: Path,
    path: str | None,
    texts: Sequence[str],
    out: Path | None,
    as_json: bool,
    batch_tokens: int,
    threshold: float | None,
    threads: int | None,
) -> None:
    """One label a line, in the order of the input; with JSON, the probabilities of all labels."""
    set_up(threads)
    if out is not None and out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    if threshold is not None and not 0 <= threshold <= 1:
        raise UserError(f"--threshold is {threshold}; it is a probability, from 0 to 1")
    if batch_tokens < 1:
        raise UserError(f"--batch-tokens is {batch_tokens}; it must be at least 1")
    lines = Lines(path, texts)
    classifier = load_run(run)
    reading = _Reading(classifier, path)
    cut = 0

    def say(given: list[Text], number: int) -> list[str]:
        nonlocal cut
        cut += classifier.cut(given)
        found = classifier.predict(given, batch_tokens=batch_tokens, threshold=threshold)
        return [_line(text, one, as_json, classifier) for text, one in zip(given, found, strict=True)]

    write_predictions(lines, ((reading.texts(block), size) for block, size in _blocks(lines)), say, out)
    if cut:
        print(
            f"sightline: {cut:,} texts have more than {classifier.longest:,} tokens, of which the model reads the "
            "beginning and the end",
            file=sys.stderr,
        )


def _blocks(lines: Lines) -> Iterator[tuple[list[str], int]]:
    """Some lines at a time: fewer where they are long, so that memory stays flat."""
    for block, size in lines.blocks():
        start, taken = 0, 0
        while start < len(block):
            room = LINE_LIMIT
            end = start
            while end < len(block) and (end == start or room >= len(block[end])):
                room -= len(block[end])
                end += 1
            share = size * (end - start) // len(block)
            taken += share
            yield block[start:end], share + (size - taken if end == len(block) else 0)
            start = end


class _Reading:
    """Lines to texts: as they are, two with a tab between them, or the fields of JSON."""

    def __init__(self, classifier: Classifier, path: str | None) -> None:
        self.pairs = classifier.labels.pairs
        self.columns = None if classifier.labels.columns is None else classifier.labels.columns[:-1]
        self.as_json = path is not None and path.lower().endswith((".jsonl", ".ndjson"))
        self.number = 0

    def texts(self, lines: Sequence[str]) -> list[Text]:
        return [self._text(line) for line in lines]

    def _text(self, line: str) -> Text:
        self.number += 1
        if self.as_json:
            return self._fields(line)
        if not self.pairs:
            return line
        first, tab, second = line.partition("\t")
        if not tab:
            raise UserError(f"line {self.number:,} has no tab; the model reads two texts with a tab between them")
        return first, second

    def _fields(self, line: str) -> Text:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"line {self.number:,} is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise UserError(f"line {self.number:,} is no object with a text")
        names = self.columns if self.columns is not None and set(self.columns) <= set(found) else None
        if names is None:
            columns = find_columns(f"line {self.number:,}", [*found, "label"], None)
            names = () if columns is None else columns[:-1]
        names = names[: 1 + self.pairs]
        values = [found[name] for name in names]
        if len(values) != 1 + self.pairs or not all(isinstance(value, str) for value in values):
            expected = "'text' and 'text2'" if self.pairs else "'text'"
            raise UserError(
                f"line {self.number:,}: found the fields {', '.join(map(repr, found))}; expected {expected}"
            )
        return (values[0], values[1]) if self.pairs else values[0]


def _line(text: Text, found: LabelPrediction, as_json: bool, classifier: Classifier) -> str:
    """What is written for a line of the input."""
    if as_json:
        data: dict[str, Any] = {"text": text} if isinstance(text, str) else {"text": text[0], "text2": text[1]}
        return json.dumps(data | label_fields(found), ensure_ascii=False)
    return written_label(found, classifier)


def label_fields(found: LabelPrediction) -> dict[str, Any]:
    """A prediction as JSON has it; numbers have no probabilities."""
    data: dict[str, Any] = {"label": found.label}
    if found.probabilities is not None:
        data |= {"probability": found.probability, "probabilities": found.probabilities}
    return data


def written_label(found: LabelPrediction, classifier: Classifier) -> str:
    """A label, several or a number, as the training data has them."""
    if isinstance(found.label, tuple):
        return (classifier.labels.separator or "|").join(found.label)
    return f"{found.label:.6g}" if isinstance(found.label, float) else found.label


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
    """Every score on the rows, label by label, beside the floors."""
    set_up(threads)
    given = given_data(data, DATA)
    check_rows_wanted(errors, out)
    classifier = load_run(run)
    examples = _read(classifier, given, columns)
    with predicting(len(examples)) as advance:
        found = evaluate(classifier, examples, on_predicted=advance)
    write_rows(found.rows(), out)
    if as_json:
        print_json(found.to_json(errors))
        return
    _print_evaluation(found, classifier)
    print_wrong(found.worst(errors))


def _read(classifier: Classifier, data: str, columns: tuple[str, ...] | None) -> list[Any]:
    files = with_separator(classifier.file_of(data, columns))
    examples, report = read_examples(files)
    say_left_out(report)
    return examples


def print_wrong(rows: Iterable[Mapping[str, Any]]) -> None:
    """Wrong answers, with the right ones and what they are about."""
    for number, error in enumerate(rows, start=1):
        sure = f", {error['probability']:.1%} sure" if "probability" in error else ""
        print(f"\n{number}. {_shown_label(error['prediction'])}{sure}; right is {_shown_label(error['label'])}")
        if "image" in error:
            print(f"   image  {error['image']}")
        for name in ("text", "text2"):
            if name in error:
                print(f"   {name:<6} {_short(error[name])}")


def _shown_label(label: Any) -> str:
    if isinstance(label, float):
        return f"{label:.6g}"
    return repr(label) if isinstance(label, str) else ", ".join(map(repr, label)) or "none of the labels"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_SHOWN else f"{line[: TEXT_SHOWN // 2]} … {line[-TEXT_SHOWN // 2 :]}"


def _print_evaluation(found: LabelEvaluation, classifier: Classifier) -> None:
    table = plain_table("", *map(spaced, found.values), "rows")
    total = len(found.examples)
    seen = 0 if found.seen is None else int(found.seen.sum())
    named = [("this model", found.values, found.without)]
    named += [(name, values, found.floors_without.get(name)) for name, values in found.floors.items()]
    for name, values, _ in named:
        table.add_row(name, *(f"{value:.2f}" for value in values.values()), f"{total:,}")
    if found.without is not None:
        table.add_row("without texts of the training data:")
        for name, _, others in named:
            if others is not None:
                table.add_row(name, *(f"{value:.2f}" for value in others.values()), f"{total - seen:,}")
    console().print(table)
    if seen:
        print(f"{seen:,} of {total:,} texts stand in the training data: scores on them flatter")
    if not found.floors:
        print("the run was trained without floors (linear models on words): what it adds to them is not known")
    if found.unseen:
        labels = ", ".join(f"{name!r} ({count:,})" for name, count in itertools.islice(found.unseen.items(), 10))
        more = f" and {len(found.unseen) - 10:,} more" if len(found.unseen) > 10 else ""
        known = ", ".join(f"{spaced(name)} {value:.2f}" for name, value in (found.known or {}).items())
        print(f"labels that training did not have, in {found.unseen_rows():,} of {total:,} rows: {labels}{more}")
        print(f"  these rows count as wrong; the others by themselves: {known or 'there are none'}")
    if found.cut:
        print(f"{found.cut:,} texts have more than {classifier.longest:,} tokens: the model read beginning and end")
    print_details(found, "texts")


def print_details(found: LabelEvaluation, counted: str) -> None:
    """How sure the model is, label by label, and how many of what is ``counted`` it reads in a second."""
    if found.calibration is not None:
        one = found.calibration
        print(
            f"calibration error {one.ece_before:.2f} % before the temperature ({one.temperature:.3f}), {one.ece:.2f} % "
            f"after; Brier score {one.brier:.4f}"
        )
    if found.table:
        print_classes(found.table, "label", "rows")
    if found.confusion is not None and len(found.truth.names) <= MOST_SHOWN:
        _print_confusion(found)
    total = len(found.examples)
    print(f"{total:,} {counted}, {total / max(found.seconds, 1e-9):.1f} a second")


def _print_confusion(found: LabelEvaluation) -> None:
    assert found.confusion is not None
    table = plain_table("right ╲ given")
    for name in found.truth.names:
        table.add_column(Plain(name), justify="right", overflow="fold")
    for name, row in zip(found.truth.names, found.confusion.tolist(), strict=True):
        table.add_row(Plain(name), *(f"{count:,}" for count in row))
    print()
    console().print(table)


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
    """Score, interval, difference to the first run and its p-value."""
    set_up(threads)
    check_seed(seed)
    check_runs(runs, ("accuracy",) if metrics is None else metrics, samples)
    given = given_data(data, DATA)
    refuse_picture(out, "runs that classify have no such picture")
    classifiers = {str(run): load_run(run) for run in runs}
    first = next(iter(classifiers.values()))
    for name, one in classifiers.items():
        if one.labels.pairs != first.labels.pairs:
            raise UserError(f"{name} and {runs[0]} do not read alike: one of them reads pairs of texts")
    examples = _read(first, given, columns)
    with predicting(len(runs) * len(examples)) as advance:
        found = compare(classifiers, examples, metrics=metrics, samples=samples, seed=seed, on_predicted=advance)
    if as_json:
        print_json(found.to_json())
        return
    print_comparison(found)


def print_comparison(found: LabelComparison) -> None:
    print_resampled(found.found, spaced, f"{found.texts:,} texts", found.samples, found.seed)
