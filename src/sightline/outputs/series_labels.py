"""Labels of series of frames, such as words that are spoken: evidence over the frames."""

from typing import cast

from sightline.inputs.series import SeriesPart
from sightline.inputs.series_subject import SeriesLabelSubject
from sightline.models.series_to_labels import SeriesToLabels
from sightline.nn.series import SeriesBatch
from sightline.outputs.file_labels import FileLabelsOutput, LabelMeasure
from sightline.outputs.label_baselines import SeriesBaselines
from sightline.tasks.run import Run


class SeriesLabelsOutput(FileLabelsOutput[SeriesPart, SeriesBatch]):
    """Labels of recordings, of arrays of features or of clips."""

    part_name = "moment"
    baseline_models = SeriesBaselines

    def subject(self, run: Run, source: SeriesBatch, measure: LabelMeasure) -> SeriesLabelSubject:
        return SeriesLabelSubject(cast("SeriesToLabels", run.model), source, run.config.model.reduction, measure)
