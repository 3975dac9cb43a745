"""What the configurations of labels have in common, be they of texts or of images."""

from typing import TYPE_CHECKING

from sightline.data.labelled import LabelKind
from sightline.errors import UserError
from sightline.tasks.classify_scores import METRICS_OF

if TYPE_CHECKING:
    from sightline.tasks.classify import ClassifyConfig
    from sightline.tasks.image_classify import ImageClassifyConfig


def check_label_options(config: "ClassifyConfig | ImageClassifyConfig", counted: str) -> None:
    """That metric, weights and smoothing are those of this kind of labels; ``counted`` is what has one."""
    if config.metric is not None and config.metric not in METRICS_OF[config.labels]:
        expected = ", ".join(METRICS_OF[config.labels])
        raise ValueError(f"metric is {config.metric}; with labels={config.labels} it is one of {expected}")
    if (config.labels == "number" and config.class_weights != "none") or (config.labels != "one" and config.smoothing):
        raise ValueError(f"class_weights are for labels, and smoothing for one label {counted} (labels=one)")


def check_kind(found: LabelKind, expected: LabelKind) -> None:
    """That labels are read as the configuration says."""
    if found != expected:
        raise UserError(
            f"the configuration is for --labels {expected}, and the data is read with {found}; say "
            f"--labels {expected}, or begin without that configuration"
        )
