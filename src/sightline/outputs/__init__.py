"""What comes out of a task: a sequence, labels, tags, a span, cells, masked words. One file for each kind of output."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.outputs.base import Output
    from sightline.outputs.captions import CaptionOptions, CaptionOutput
    from sightline.outputs.cell_scores import GridPrediction
    from sightline.outputs.cells import CellsOptions, CellsOutput
    from sightline.outputs.label_scores import LabelPrediction
    from sightline.outputs.labels import LabelsOutput
    from sightline.outputs.masked import Filling, MaskedOptions, MaskedOutput
    from sightline.outputs.searched import Prediction, SequenceOptions
    from sightline.outputs.sequence import SequenceOutput
    from sightline.outputs.span import AnswerPrediction, SpanOutput
    from sightline.outputs.tags import TagPrediction, TagsOutput
    from sightline.outputs.translation import TranslationOutput
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "outputs.base": "Output",
            "outputs.captions": "CaptionOptions CaptionOutput",
            "outputs.cell_scores": "GridPrediction",
            "outputs.cells": "CellsOptions CellsOutput",
            "outputs.label_scores": "LabelPrediction",
            "outputs.labels": "LabelsOutput",
            "outputs.masked": "Filling MaskedOptions MaskedOutput",
            "outputs.searched": "Prediction SequenceOptions",
            "outputs.sequence": "SequenceOutput",
            "outputs.span": "AnswerPrediction SpanOutput",
            "outputs.tags": "TagPrediction TagsOutput",
            "outputs.translation": "TranslationOutput",
        },
    )

__all__ = ["AnswerPrediction", "CaptionOptions", "CaptionOutput", "CellsOptions", "CellsOutput", "Filling"]
__all__ += ["GridPrediction", "LabelPrediction", "LabelsOutput", "MaskedOptions"]
__all__ += ["MaskedOutput", "Output", "Prediction", "SequenceOptions", "SequenceOutput", "SpanOutput"]
__all__ += ["TagPrediction", "TagsOutput", "TranslationOutput"]
