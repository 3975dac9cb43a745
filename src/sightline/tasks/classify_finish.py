"""What a run of `classify` leaves for people when training has ended: scores beside the floors, pictures, the card."""

from typing import TYPE_CHECKING

import numpy as np

from sightline.files import write_text
from sightline.tasks.card import CARD, Wording, card
from sightline.tasks.classifier import Classifier
from sightline.tasks.classify_data import PreparedTexts
from sightline.tasks.classify_scores import Calibration, calibration, floors_of, said_by, truth_of, values_of
from sightline.tasks.floors import FACTS, WEIGHTS
from sightline.training import scores
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome
from sightline.view.confusion import confusion_matrix
from sightline.view.reliability import reliability

if TYPE_CHECKING:
    from sightline.tasks.classify import ClassifyConfig

CONFUSION, RELIABILITY = "confusion.png", "reliability.png"
MOST_LISTED = 200  # labels in the card's table
WHAT = {"one": "from text to one label", "several": "from text to several labels", "number": "from text to a number"}


def finish(
    folder: RunFolder,
    config: "ClassifyConfig",
    classifier: Classifier,
    prepared: PreparedTexts,
    held_out: np.ndarray,
    outcome: Outcome,
) -> list[str]:
    """Write card and pictures from the logits of the validation data; the names of files that belong to the run."""
    labels, examples = classifier.labels, prepared.valid
    truth = truth_of(labels, [example.label for example in examples])
    said = said_by(held_out, truth, classifier.least_margin)
    floors = floors_of(folder.path, labels) if config.floors else None
    beside = {} if floors is None else floors.scores([example.texts for example in examples])
    systems = {f"**this model** (`{config.model.kind}`)": said}
    systems |= {_shown(name): said_by(one, truth) for name, one in beside.items()}
    sections = _floors_section({name: values_of(one, truth) for name, one in systems.items()}, bool(beside))
    measured = calibration(held_out, truth, classifier.temperature)
    if truth.kind == "one":
        matrix = scores.confusion(said, truth.gold, len(truth.names))
        sections += _table_section(scores.per_class(matrix, truth.names))
        confusion_matrix(matrix, truth.names, folder.path / CONFUSION)
        sections += [f"![Which label was taken for which]({CONFUSION})", ""]
    elif truth.kind == "several":
        sections += _table_section(scores.several_per_class(said, truth.gold, truth.names))
    if measured is not None:
        reliability(
            measured.bins,
            folder.path / RELIABILITY,
            ece=measured.ece,
            before=measured.bins_before,
            ece_before=measured.ece_before,
            temperature=measured.temperature,
        )
        sections += _calibration_section(measured)
    wording = Wording(
        WHAT[truth.kind],
        "texts",
        "On validation data.",
        "texts it saw have at most {longest:,} characters.",
        (
            "It gives one of its labels to any text, also to one that none of them is right for.",
            "Where it looked is not why it decided: attention is a picture of the computation, not an explanation.",
        ),
        tuple(sections),
    )
    write_text(folder.path / CARD, card(folder, config, classifier.model, outcome, wording))
    return [WEIGHTS, FACTS] if floors is not None else []


def _shown(floor: str) -> str:
    names = {"linear": "linear model on words", "nb-svm": "NB-SVM on word n-grams", "ngrams": "linear on word n-grams"}
    return names.get(floor, floor)


def _floors_section(systems: dict[str, dict[str, float]], beside: bool) -> list[str]:
    if not beside:
        return [
            "The floors, linear models on words, were left out or interrupted: what this model adds is not known.",
            "",
        ]
    names = list(next(iter(systems.values())))
    lines = [
        "## Beside the floors",
        "",
        "Linear models on the same training texts, scored on all validation data. What they reach needs no attention.",
        "",
        f"| | {' | '.join(name.replace('_', ' ') for name in names)} |",
        f"| --- |{' --- |' * len(names)}",
    ]
    lines += [
        f"| {name} | {' | '.join(f'{values[metric]:.2f}' for metric in names)} |" for name, values in systems.items()
    ]
    own, *others = [values[names[0]] for values in systems.values()]
    if max(others) >= own and names[0] != "rmse":
        lines += ["", f"**A floor is not below this model in {names[0].replace('_', ' ')}.**"]
    return [*lines, ""]


def _table_section(rows: list[scores.OfClass]) -> list[str]:
    lines = ["## Labels", "", "| label | precision | recall | F1 | texts |", "| --- | --- | --- | --- | --- |"]
    for row in rows[:MOST_LISTED]:
        shares = " | ".join("–" if share is None else f"{share:.1f}" for share in (row.precision, row.recall, row.f1))
        lines.append(f"| {row.name.replace('|', chr(92) + '|')} | {shares} | {row.support:,} |")
    if len(rows) > MOST_LISTED:
        lines.append(f"| and {len(rows) - MOST_LISTED:,} more | | | | |")
    return [*lines, ""]


def _calibration_section(found: Calibration) -> list[str]:
    return [
        "## How sure it is",
        "",
        f"Probabilities are made with the temperature {found.temperature:.3f}, fitted to the validation data: there "
        f"the expected calibration error is {found.ece_before:.2f} % before and {found.ece:.2f} % after it.",
        "",
        f"![How often it is right when it is how sure]({RELIABILITY})",
        "",
    ]
