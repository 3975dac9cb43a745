"""What a run that classifies images leaves for people when training has ended: scores, pictures, the card."""

from typing import TYPE_CHECKING

import numpy as np

from sightline.files import write_text
from sightline.tasks.card import CARD, Wording, card
from sightline.tasks.classify_finish import calibration_section, floors_section, label_sections
from sightline.tasks.classify_scores import calibration, said_by, truth_of, values_of
from sightline.tasks.image_classifier import ImageClassifier
from sightline.tasks.image_data import PreparedImages
from sightline.tasks.image_floors import floor_scores
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome

if TYPE_CHECKING:
    from sightline.tasks.image_classify import ImageClassifyConfig

FLOOR = "A linear model on the same training images, scored on all validation data: what needs no attention."
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
    sections = floors_section("Beside the floor", FLOOR, systems, "The floor")
    sections += label_sections(folder, said, truth, "images")
    sections += calibration_section(folder, calibration(logits, truth, classifier.temperature))
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
