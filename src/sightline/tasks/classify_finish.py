"""What a run of `classify` leaves for people when training has ended: scores beside the floors, pictures, the card."""

from typing import TYPE_CHECKING

import numpy as np

from sightline.files import write_text
from sightline.tasks.card import CARD, Wording, card
from sightline.tasks.classifier import Classifier
from sightline.tasks.classify_data import PreparedTexts
from sightline.tasks.classify_scores import Calibration, Truth, calibration, floors_of, said_by, truth_of, values_of
from sightline.tasks.course import table_section
from sightline.tasks.floors import FACTS, WEIGHTS
from sightline.training import scores
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome
from sightline.view.confusion import confusion_matrix
from sightline.view.reliability import reliability

if TYPE_CHECKING:
    from sightline.tasks.classify import ClassifyConfig

CONFUSION, RELIABILITY = "confusion.png", "reliability.png"
FLOORS = "Linear models on the same training texts, scored on all validation data. What they reach needs no attention."
NO_FLOORS = "The floors, linear models on words, were left out or interrupted: what this model adds is not known."
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
    sections = [NO_FLOORS, ""]
    if beside:
        values = {name: values_of(one, truth) for name, one in systems.items()}
        sections = floors_section("Beside the floors", FLOORS, values, "A floor")
    sections += label_sections(folder, said, truth, "texts")
    sections += calibration_section(folder, calibration(held_out, truth, classifier.temperature))
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


def floors_section(title: str, about: str, systems: dict[str, dict[str, float]], floor: str) -> list[str]:
    """The scores of the model, which comes first, beside those of its floors; ``floor`` is what one is called."""
    names = list(next(iter(systems.values())))
    lines = [
        f"## {title}",
        "",
        about,
        "",
        f"| | {' | '.join(name.replace('_', ' ') for name in names)} |",
        f"| --- |{' --- |' * len(names)}",
    ]
    lines += [
        f"| {name} | {' | '.join(f'{values[metric]:.2f}' for metric in names)} |" for name, values in systems.items()
    ]
    own, *others = [values[names[0]] for values in systems.values()]
    if others and max(others) >= own:
        lines += ["", f"**{floor} is not below this model in {names[0].replace('_', ' ')}.**"]
    return [*lines, ""]


def label_sections(folder: RunFolder, said: np.ndarray, truth: Truth, counted: str) -> list[str]:
    """The table of the labels; of one label, also the picture of which was taken for which. Numbers have none."""
    if truth.kind == "several":
        return table_section("Labels", "label", counted, scores.several_per_class(said, truth.gold, truth.names))
    if truth.kind != "one":
        return []
    matrix = scores.confusion(said, truth.gold, len(truth.names))
    confusion_matrix(matrix, truth.names, folder.path / CONFUSION)
    table = table_section("Labels", "label", counted, scores.per_class(matrix, truth.names))
    return [*table, f"![Which label was taken for which]({CONFUSION})", ""]


def calibration_section(folder: RunFolder, found: Calibration | None) -> list[str]:
    """How sure the model is, with its picture; nothing where labels are numbers."""
    if found is None:
        return []
    reliability(
        found.bins,
        folder.path / RELIABILITY,
        ece=found.ece,
        before=found.bins_before,
        ece_before=found.ece_before,
        temperature=found.temperature,
    )
    return [
        "## How sure it is",
        "",
        f"Probabilities are made with the temperature {found.temperature:.3f}, fitted to the validation data: there "
        f"the expected calibration error is {found.ece_before:.2f} % before and {found.ece:.2f} % after it.",
        "",
        f"![How often it is right when it is how sure]({RELIABILITY})",
        "",
    ]
