"""What the card of a run that gives labels says: baselines, labels, and how sure it is, with pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.outputs.label_baselines import LabelBaselines
from sightline.outputs.label_scores import Calibration, calibration, predictions_of, tables_of, values_of
from sightline.tasks.card import Wording, table_section
from sightline.tasks.prepare import Prepared
from sightline.tasks.run import Run
from sightline.view.confusion import confusion_matrix
from sightline.view.reliability import reliability

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
