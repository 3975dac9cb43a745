"""Transcripts of series of frames: error rates of words and characters, and the times of words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from sightline.data.checking import RowLimits
from sightline.data.splitting import normalise
from sightline.data.transcribed import TranscriptReport
from sightline.decoding.search import Hypothesis
from sightline.inputs.base import Input
from sightline.inputs.files import FileItem, StoredFile
from sightline.inputs.series import SeriesPart
from sightline.inputs.text import check_length, text_of
from sightline.metrics import Metric
from sightline.metrics.error_rates import ERROR_RATES
from sightline.nn.series import SeriesBatch
from sightline.outputs.sequence import Prediction, Scoring, Searched, SequenceOptions, SequenceOutput
from sightline.outputs.simple_baselines import usual_text
from sightline.tasks.evaluate import Evaluation, path_name
from sightline.tasks.prepare import Rows
from sightline.tasks.run import Run
from sightline.tasks.task import BadValueError, Example

TranscriptEvaluation = Evaluation[FileItem, str, Searched, Prediction]


@dataclass(frozen=True)
class TranscriptOptions(SequenceOptions):
    """Options of other texts, without those about a source of words."""

    split: bool = field(default=False, metadata={"internal": True})
    keep_unknown: bool = field(default=False, metadata={"internal": True})

    def limits(self, lengths: Sequence[int], prefixes: Sequence[Sequence[int]]) -> list[int]:
        """No more tokens than encoder states: lengths are theirs."""
        return [
            max(min(self.max_length or length, length), self.min_length, len(prefix), 1)
            for length, prefix in zip(lengths, prefixes, strict=True)
        ]


class TranscriptOutput(SequenceOutput[FileItem, str, SeriesPart, SeriesBatch]):
    """Transcripts. Search is bounded by the states of the encoder."""

    noun = "transcripts"
    predict_options = TranscriptOptions
    tokeniser_file = "tokenizer.json"
    words_field = "words"
    written = "transcript"
    item_name = "recording"
    spelled = True
    compared: ClassVar[tuple[str, ...]] = ("wer", "cer")
    each = ("wer", "cer")
    less_is_better = ("wer", "cer", "sentence_error")
    names: ClassVar[Mapping[str, str]] = {"wer": "WER", "cer": "CER", "sentence_error": "sentence error"}

    def read(self, cells: Mapping[str, object], x: FileItem) -> str:
        text = normalise(text_of(cells, "text"))
        if not text:
            raise BadValueError("empty: found no text in the transcript, expected what was said")
        return text

    def check(self, y: str, limits: RowLimits) -> None:
        check_length(len(y), "a transcript", limits)

    def report(self) -> TranscriptReport:
        return TranscriptReport()

    def search(
        self, run: Run, sizes: Sequence[int], batch: SeriesBatch, options: SequenceOptions
    ) -> list[list[Hypothesis]]:
        return super().search(run, [run.config.model.steps(size) for size in sizes], batch, options)

    def validation_options(self) -> SequenceOptions:
        return TranscriptOptions(beam=1)

    def metrics(self, references: Sequence[str]) -> Mapping[str, Metric[...]]:
        return ERROR_RATES

    def arguments(self, metric: str, references: Sequence[str]) -> tuple[object, ...]:
        return ()

    def scoring_options(self, given: dict[str, object]) -> tuple[Scoring, dict[str, object]]:
        return Scoring(), given

    def row(self, example: Example[FileItem, str], prediction: Prediction) -> dict[str, object]:
        return {"recording": cast("StoredFile", example.x).file, "prediction": prediction.text, "reference": example.y}

    def badness(self, evaluation: TranscriptEvaluation) -> list[float]:
        """The highest rate of wrong words is the worst."""
        return list(cast("dict[str, list[float]]", evaluation.extra["each"])["wer"])

    def shown_error(self, row: Mapping[str, object]) -> str:
        texts = (f"   {name:<10}  {row[name]}" for name in ("prediction", "reference"))
        return "\n".join((f"{row['recording']}: WER {row['wer']:.1f}", *texts))

    def baseline_facts(
        self, input: Input[FileItem, SeriesPart, SeriesBatch], rows: Rows[FileItem, str]
    ) -> dict[str, object]:
        return {"text": usual_text([one.y for one in rows], self.config.seed)}

    def baseline_predictions(
        self, run: Run, examples: Sequence[Example[FileItem, str]], facts: Mapping[str, object]
    ) -> dict[str, list[Prediction]]:
        if not facts:
            return {}
        return {"one transcript for all": [Prediction(cast("str", facts["text"]), 0.0, 0.0)] * len(examples)}

    def line(self, x: FileItem, prediction: Prediction) -> str:
        return f"{path_name(str(x))}\t{prediction.text}"

    def to_json(self, x: FileItem, prediction: Prediction) -> dict[str, object]:
        data: dict[str, Any] = {"recording": str(x), "text": prediction.text, "log_prob": prediction.log_prob}
        if prediction.others is not None:
            data["texts"] = self.served(x, prediction)
        return {**data, "score": prediction.score, **(prediction.more or {})}
