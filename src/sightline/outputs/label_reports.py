"""What the server and `evaluate` say of predicted labels: as JSON, as tables, and the worst of them."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sightline.outputs.base import Output
from sightline.outputs.label_baselines import LabelBaselines
from sightline.outputs.label_scores import Calibration, calibration, predictions_of, tables_of, values_of
from sightline.outputs.reports import NUMBER, TEXT, class_table, structure
from sightline.tasks.card import Wording, table_section
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.prepare import Prepared
from sightline.tasks.run import Run
from sightline.view.charts import confusion_matrix, reliability

MOST_SHOWN = 12  # labels in a confusion matrix on a terminal
TEXT_SHOWN = 300  # characters of a text that was wrong
NONE = "none of the labels"


class ShownLabels(Output):
    """An output of labels; ``extra`` of an evaluation is what `LabelsOutput.finished` makes."""

    labels: Any
    input: Any
    compared_with: Any
    answer = structure(
        "Labelled",
        "A label (several, or a number), its probability, and those of all labels; a number has none.",
        label={"type": ["string", "array", "number", "null"], "items": TEXT},
        probability=NUMBER,
        probabilities={"type": ["object", "null"], "additionalProperties": NUMBER},
    )

    def served(self, x: Any, prediction: Any) -> dict[str, Any]:
        return prediction._asdict()

    def label_names(self) -> list[str]:
        return list(self.labels.names)

    def cut_line(self, count: int) -> str:
        """What there is to say of items that are read only in part."""
        return (
            f"{count:,} {self.input.noun} have more than {self.input.limit:,} tokens, of which the model reads the "
            "beginning and the end"
        )

    def badness(self, evaluation: Evaluation) -> list[float]:
        """The wrong answers that the model was surest of; the numbers that are furthest off."""
        predicted, truth = evaluation.extra["predicted"], evaluation.extra["truth"]
        if truth.kind == "number":
            return np.abs(predicted - truth.gold).tolist()
        if truth.kind == "several":
            return (predicted != truth.gold).sum(axis=1).astype(np.float64).tolist()
        sure = np.array([one.probability for one in evaluation.predictions])
        return np.where(predicted != truth.gold, sure, 0.0).tolist()

    def scores_json(self, evaluation: Evaluation) -> dict[str, Any]:
        sure = evaluation.extra["calibration"]
        measured = {} if sure is None else {"calibration": sure.to_json()}
        return {"labels": self.labels.kind, **evaluation.values, **measured, "floors": evaluation.extra["floors"]}

    def without_json(self, evaluation: Evaluation) -> dict[str, Any]:
        return {**super().without_json(evaluation), "floors": evaluation.extra["floors_without"]}

    def summary(self, evaluation: Evaluation) -> dict[str, Any]:
        extra, data = evaluation.extra, dict[str, Any]()
        if extra["unseen"]:
            data["unseen_labels"] = {
                "rows": extra["unseen_rows"],
                "labels": extra["unseen"],
                "without": extra["known"],
            }
        if extra["table"]:
            data["per_label"] = [vars(one) for one in extra["table"]]
        if extra["confusion"] is not None:
            data["confusion"] = {"labels": list(extra["truth"].names), "rows": extra["confusion"].tolist()}
        return data if extra["cut"] is None else {**data, "cut": extra["cut"]}

    def score_table(self, evaluation: Evaluation) -> Table:
        extra, total = evaluation.extra, len(evaluation.examples)
        names = ("", *map(self.metric_name, evaluation.values), "rows")
        systems = {"this model": (evaluation.values, evaluation.without)}
        systems |= {name: (one, extra["floors_without"].get(name)) for name, one in extra["floors"].items()}

        def row(name: str, values: Mapping[str, float], count: int) -> tuple[str, ...]:
            return name, *(f"{value:.2f}" for value in values.values()), f"{count:,}"

        rows = [row(name, values, total) for name, (values, _) in systems.items()]
        if evaluation.without is not None and evaluation.seen is not None:
            rows.append((f"without {self.input.noun} of the training data:", *("" for _ in names[1:])))
            left = total - int(evaluation.seen.sum())
            rows += [row(name, values, left) for name, (_, values) in systems.items() if values is not None]
        return Table(names, tuple(rows))

    def tables(self, evaluation: Evaluation) -> list[Table | str]:
        extra, total = evaluation.extra, len(evaluation.examples)
        parts: list[Table | str] = []
        if not extra["floors"] and self.compared_with.unknown:
            parts.append(self.compared_with.unknown)
        if extra["unseen"]:
            named = ", ".join(f"{name!r} ({count:,})" for name, count in islice(extra["unseen"].items(), 10))
            more = f" and {len(extra['unseen']) - 10:,} more" if len(extra["unseen"]) > 10 else ""
            known = ", ".join(f"{self.metric_name(one)} {value:.2f}" for one, value in (extra["known"] or {}).items())
            parts += [
                f"labels that training did not have, in {extra['unseen_rows']:,} of {total:,} rows: {named}{more}",
                f"  these rows count as wrong; the others by themselves: {known or 'there are none'}",
            ]
        if extra["cut"]:
            parts.append(self.cut_line(extra["cut"]))
        if (sure := extra["calibration"]) is not None:
            parts.append(
                f"calibration error {sure.ece_before:.2f} % before the temperature ({sure.temperature:.3f}), "
                f"{sure.ece:.2f} % after; Brier score {sure.brier:.4f}"
            )
        if extra["table"]:
            parts.append(class_table(extra["table"], "label", "rows"))
        names = extra["truth"].names
        if extra["confusion"] is not None and len(names) <= MOST_SHOWN:
            counts = ((name, *(f"{one:,}" for one in row)) for name, row in zip(names, extra["confusion"], strict=True))
            parts.append(Table(("right ╲ given", *names), tuple(counts)))
        return [*parts, f"{total:,} {self.input.noun}, {total / max(evaluation.seconds, 1e-9):.1f} a second"]

    def shown_error(self, row: Mapping[str, Any]) -> str:
        sure = f", {row['probability']:.1%} sure" if "probability" in row else ""
        lines = [f"{_quoted(row['prediction'])}{sure}; right is {_quoted(row['label'])}"]
        known = ("label", "prediction", "probability", "probabilities", "in_training")
        return "\n".join([*lines, *(f"   {name:<6} {_short(str(row[name]))}" for name in row if name not in known)])


def _quoted(label: Any) -> str:
    if isinstance(label, float):
        return f"{label:.6g}"
    return repr(label) if isinstance(label, str) else ", ".join(map(repr, label)) or NONE


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_SHOWN else f"{line[: TEXT_SHOWN // 2]} … {line[-TEXT_SHOWN // 2 :]}"


# What the card of a run that gives labels says: baselines, labels, and how sure it is, with pictures.


CONFUSION, RELIABILITY = "confusion.png", "reliability.png"
WHAT = {"one": "one label", "several": "several labels", "number": "a number"}


def label_card(output: Any, run: Run, prepared: Prepared, raws: Sequence[Any], folder: Path) -> Wording:
    """The wording of a `LabelsOutput`, from raw outputs of the validation examples; pictures go into the folder."""
    xs, outputs, noun = [one.x for one in prepared.valid], np.array(raws), output.input.noun
    predictions = [output.decide(x, raw) for x, raw in zip(xs, raws, strict=True)]
    predicted, truth = output.answers(prepared.valid, predictions)
    beside, baselines = output.compared_with, output.compared_with.scores(folder, xs, prepared)
    systems = {f"**this model** (`{run.config.model.kind}`)": values_of(predicted, truth)}
    systems |= {
        beside.names.get(name, name): values_of(predictions_of(one, truth), truth) for name, one in baselines.items()
    }
    sections = _beside(beside, systems) if baselines else [beside.missing, ""] if beside.missing else []
    table, matrix = tables_of(predicted, truth)
    if table:
        sections += table_section("Labels", "label", noun, table)
    if matrix is not None:
        confusion_matrix(matrix, truth.names, folder / CONFUSION)
        sections += [f"![Which label was taken for which]({CONFUSION})", ""]
    sections += _sureness(calibration(outputs, truth, output.temperature), folder)
    return Wording(
        f"from {noun.replace('texts', 'text')} to {WHAT[truth.kind]}",
        noun,
        "On validation data.",
        f"{noun} it saw have at most {{longest:,}} characters.",
        (
            f"It gives one of its labels to any {output.item}, also to one that none of them is right for.",
            "Where it looked is not why it decided: attention is a picture of the computation, not an explanation.",
        ),
        tuple(sections),
    )


def _beside(baselines: LabelBaselines, systems: dict[str, dict[str, float]]) -> list[str]:
    """The scores of the model, which comes first, beside those of its baselines."""
    names = list(next(iter(systems.values())))
    lines = [
        f"## {baselines.title}",
        "",
        baselines.about,
        "",
        f"| | {' | '.join(name.replace('_', ' ') for name in names)} |",
        f"| --- |{' --- |' * len(names)}",
    ]
    lines += [
        f"| {name} | {' | '.join(f'{values[metric]:.2f}' for metric in names)} |" for name, values in systems.items()
    ]
    own, *others = [values[names[0]] for values in systems.values()]
    if others and max(others) >= own:
        lines += ["", f"**{baselines.one} is not below this model in {names[0].replace('_', ' ')}.**"]
    return [*lines, ""]


def _sureness(measured: Calibration | None, folder: Path) -> list[str]:
    """How sure the model is, with its picture; nothing where labels are numbers."""
    if measured is None:
        return []
    reliability(
        measured.bins,
        folder / RELIABILITY,
        ece=measured.ece,
        before=measured.bins_before,
        ece_before=measured.ece_before,
        temperature=measured.temperature,
    )
    return [
        "## How sure it is",
        "",
        f"Probabilities are made with the temperature {measured.temperature:.3f}, fitted to the validation data: there "
        f"the expected calibration error is {measured.ece_before:.2f} % before and {measured.ece:.2f} % after it.",
        "",
        f"![How often it is right when it is how sure]({RELIABILITY})",
        "",
    ]
