"""What a run that classifies images leaves for people when training has ended: scores, pictures, the card."""

from typing import TYPE_CHECKING

import numpy as np

from sightline.files import write_text
from sightline.tasks.card import CARD, Wording, card
from sightline.tasks.classify_finish import CONFUSION, RELIABILITY
from sightline.tasks.classify_scores import Calibration, calibration, said_by, truth_of, values_of
from sightline.tasks.course import table_section
from sightline.tasks.image_classifier import ImageClassifier
from sightline.tasks.image_data import PreparedImages
from sightline.tasks.image_floors import floor_scores
from sightline.training import scores
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome
from sightline.view.confusion import confusion_matrix
from sightline.view.reliability import reliability

if TYPE_CHECKING:
    from sightline.tasks.image_classify import ImageClassifyConfig

WHAT = {
    "one": "from images to one label",
    "several": "from images to several labels",
    "number": "from images to a number",
}


def finish(
    folder: RunFolder,
    config: "ImageClassifyConfig",
    classifier: ImageClassifier,
    prepared: PreparedImages,
    logits: np.ndarray,
    outcome: Outcome,
) -> None:
    """Write card and pictures from the logits of the validation data."""
    truth = truth_of(classifier.labels, [one.label for one in prepared.valid])
    said = said_by(logits, truth, classifier.least_margin)
    systems = {f"**this model** (`{config.model.kind}`)": values_of(said, truth)}
    systems |= {
        name: values_of(said_by(one, truth), truth) for name, one in floor_scores(prepared, config.seed).items()
    }
    sections = _floors_section(systems)
    if truth.kind == "one":
        matrix = scores.confusion(said, truth.gold, len(truth.names))
        sections += table_section("Labels", "label", "images", scores.per_class(matrix, truth.names))
        confusion_matrix(matrix, truth.names, folder.path / CONFUSION)
        sections += [f"![Which label was taken for which]({CONFUSION})", ""]
    elif truth.kind == "several":
        sections += table_section("Labels", "label", "images", scores.several_per_class(said, truth.gold, truth.names))
    measured = calibration(logits, truth, classifier.temperature)
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
        "images",
        "On validation data.",
        "",
        (
            "It gives one of its labels to any image, also to one that none of them is right for.",
            "Where it looked is not why it decided: a map is a picture of the computation, not an explanation.",
        ),
        tuple(sections),
    )
    write_text(folder.path / CARD, card(folder, config, classifier.model, outcome, wording))


def _floors_section(systems: dict[str, dict[str, float]]) -> list[str]:
    names = list(next(iter(systems.values())))
    lines = [
        "## Beside the floor",
        "",
        "A linear model on the same training images, scored on all validation data: what needs no attention.",
        "",
        f"| | {' | '.join(name.replace('_', ' ') for name in names)} |",
        f"| --- |{' --- |' * len(names)}",
    ]
    lines += [
        f"| {name} | {' | '.join(f'{values[metric]:.2f}' for metric in names)} |" for name, values in systems.items()
    ]
    own, *others = [values[names[0]] for values in systems.values()]
    if others and max(others) >= own:
        lines += ["", f"**The floor is not below this model in {names[0].replace('_', ' ')}.**"]
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
