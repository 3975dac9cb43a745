"""Transcripts of series of frames: error rates of words and characters, and the times of words."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from sightline import metrics
from sightline.data.checking import RowLimits
from sightline.data.image_tables import free_name
from sightline.data.splitting import normalise
from sightline.data.transcribed import TranscriptReport
from sightline.decoding.search import Hypothesis
from sightline.errors import UserError
from sightline.explain.explanation import Explanation, Stack
from sightline.files import make_folder, write_text
from sightline.inputs.base import Input
from sightline.inputs.files import FileItem, StoredFile
from sightline.inputs.series import SeriesInput, SeriesPart, SeriesWindow, StoredPart
from sightline.inputs.text import check_length, text_of
from sightline.metrics import Metric
from sightline.metrics.error_rates import ERROR_RATES, error_counts, word_errors
from sightline.models.series_to_text import SeriesToText
from sightline.nn.series import SeriesBatch
from sightline.outputs.searched import Prediction, Scoring, Searched, SequenceOptions
from sightline.outputs.sequence import SequenceOutput
from sightline.outputs.simple_baselines import usual_text
from sightline.outputs.timed import TimedWord, cues, to_rows, to_srt, to_textgrid, to_vtt
from sightline.outputs.word_times import alignment, timed_words
from sightline.records import Frames, Record, Tokens
from sightline.tasks.evaluate import Evaluation, Table, path_name
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.prepare import Prepared, Rows
from sightline.tasks.run import Run
from sightline.tasks.task import BadValueError, Example
from sightline.training.steps import to_device

ALIGNED = "alignment"  # the name of CTC's map
CONFUSED = 10  # kinds of errors that are shown
TranscriptEvaluation = Evaluation[FileItem, str, Searched, Prediction]


@dataclass(frozen=True)
class TranscriptOptions(SequenceOptions):
    """Options of other texts, without those about a source of words. With ``times``, when each word was said."""

    split: bool = field(default=False, metadata={"internal": True})
    keep_unknown: bool = field(default=False, metadata={"internal": True})
    times: bool = field(default=False, metadata={"internal": True})

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
            raise BadValueError("empty: found no text in the transcript, expected a text")
        return text

    def check(self, y: str, limits: RowLimits) -> None:
        check_length(len(y), "a transcript", limits)

    def report(self) -> TranscriptReport:
        return TranscriptReport()

    too_fast = 0  # transcripts of the training data with more tokens than encoder states

    def encode(self, x: FileItem, y: str, parts: Sequence[SeriesPart]) -> Iterator[tuple[SeriesPart, list[int]]]:
        """CTC needs a state for each token, and one more between equal ones; CTC alone cannot learn from the others."""
        for part, tokens in super().encode(x, y, parts):
            repeats = sum(one == other for one, other in pairwise(tokens))
            frames = part.frames if isinstance(part, StoredPart) else len(part)
            fast = self.config.model.ctc and self.config.model.steps(frames) < len(tokens) + repeats
            self.too_fast += bool(fast)
            if not fast or self.config.model.ctc < 1:
                yield part, tokens

    def notes(self, prepared: Prepared[FileItem, str]) -> list[str]:
        notes = super().notes(prepared)
        if self.too_fast:
            notes.append(
                f"{self.too_fast:,} transcripts have more tokens than the encoder has states: CTC learns nothing from "
                "them; check them, or choose smaller model.reduces"
            )
        return notes

    def search(
        self,
        run: Run,
        sizes: Sequence[int],
        batch: SeriesBatch,
        options: SequenceOptions,
        forced: Sequence[Sequence[int]],
    ) -> list[list[Hypothesis]]:
        return super().search(run, [run.config.model.steps(size) for size in sizes], batch, options, forced)

    def for_json(self, options: SequenceOptions) -> TranscriptOptions:
        return replace(cast("TranscriptOptions", options), times=True)

    def outputs(
        self,
        run: Run,
        xs: Sequence[FileItem],
        parts: Sequence[SeriesPart],
        batch: SeriesBatch,
        options: SequenceOptions,
    ) -> list[Searched]:
        searched = super().outputs(run, xs, parts, batch, options)
        if not getattr(options, "times", False):
            return searched
        seconds = cast("SeriesInput", run.input).shape.seconds
        tokens = [one.predictions[0].tokens for one in searched]
        model = cast("SeriesToText", run.model)
        timed = timed_words(model, batch, tokens, self.tokeniser, seconds * run.config.model.reduction)
        sizes = [run.input.size(part) for part in parts]
        return [self._timed(*one, seconds) for one in zip(searched, timed, parts, sizes, strict=True)]

    def _timed(
        self, one: Searched, words: Sequence[TimedWord], part: SeriesPart, frames: int, seconds: float
    ) -> Searched:
        """With the words of the best text, counted from the beginning of the recording."""
        before = part.start * seconds if isinstance(part, SeriesWindow) else 0.0
        best, *others = one.predictions
        moved = tuple(word._replace(start=word.start + before, end=word.end + before) for word in words)
        more = {"words": moved, "seconds": frames * seconds}
        return one._replace(predictions=[best._replace(more=more), *others])

    def merge(self, x: FileItem, parts: Sequence[SeriesPart], outputs: Sequence[Searched]) -> Searched:
        """The texts of the windows of a long recording, one behind the other."""
        if len(outputs) <= 1:
            return super().merge(x, parts, outputs)
        best = [one.predictions[0] for one in outputs]
        words = [word for one in best for word in cast("Sequence[TimedWord]", (one.more or {}).get("words", ()))]
        seconds = sum(cast("float", (one.more or {}).get("seconds", 0.0)) for one in best)
        return Searched(
            [
                Prediction(
                    " ".join(text for one in best if (text := one.text.strip())),
                    sum(one.log_prob for one in best),
                    sum(one.score for one in best),
                    more={"words": tuple(words), "seconds": seconds} if best[0].more else None,
                )
            ],
            sum(one.loss for one in outputs),
            sum(one.tokens for one in outputs),
        )

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
            data["texts"] = [one._replace(more=None)._asdict() for one in prediction.all]
        words = cast("Sequence[TimedWord]", (prediction.more or {}).get("words"))
        return {**data, "score": prediction.score, **({} if words is None else {"words": to_rows(words)})}

    formats = ("srt", "vtt", "textgrid")

    def write_format(
        self, format: str, run: Run, x: FileItem, prediction: Prediction, folder: Path, names: set[str]
    ) -> None:
        words = cast("Sequence[TimedWord]", (prediction.more or {}).get("words", ()))
        ending = ".TextGrid" if format == "textgrid" else f".{format}"
        name = free_name(Path(run.input.label(x)), folder, (ending,), names)
        if format == "textgrid":
            text = to_textgrid(words, cast("float", (prediction.more or {}).get("seconds", 0.0)))
        else:
            text = (to_srt if format == "srt" else to_vtt)(cues(words))
        make_folder(folder)
        write_text(folder / f"{name}{ending}", text)

    def explain(self, run: Run, x: FileItem, options: ExplainOptions) -> Explanation:
        """The attention of each token; of a model with CTC also its alignment, which is all that CTC alone has."""
        model = cast("SeriesToText", run.model)
        explanation = None if run.config.model.ctc >= 1 else super().explain(run, x, options)
        if model.ctc is None:
            assert explanation is not None
            return explanation
        (parts,) = run.encode([x])
        prediction = None
        if options.output is None:
            chosen = self.options({"beam": options.beam})
            (raw,) = run.raw([x], parts=[parts[:1]], options=chosen)
            prediction = cast("Searched", raw).predictions[0]
        text = prediction.text if prediction is not None else cast("str", options.output)
        tokens = prediction.tokens if prediction is not None else tuple(self.tokeniser.encode([text])[0])
        batch = to_device(run.input.collate(parts[:1]), run.device)
        weights = alignment(model, cast("SeriesBatch", batch), tokens)
        if weights is None or not len(weights):
            if explanation is None:
                raise UserError(f"{run.name} gives an empty transcript, so there is no alignment to show")
            return explanation
        rows = Tokens(tuple(self.tokeniser.spell(list(tokens))))
        columns = cast("Frames", run.input.axis(x, parts[0]))
        record = Record(ALIGNED, 0, 0, rows, columns, weights.astype(np.float32))
        stack = Stack(f"From the transcript to the {run.input.source_name}, by CTC's alignment", "cross", (ALIGNED,))
        if explanation is None:
            note = "this model has no attention: the map is CTC's alignment of the whole text"
            shown = run.input.shown(x)
            return Explanation(
                title=run.name,
                task=run.task.name,
                output=text,
                records=(record,),
                stacks=(stack,),
                notes=(note,),
                **shown,
            )
        return replace(explanation, records=(*explanation.records, record), stacks=(*explanation.stacks, stack))

    # -- evaluations

    def tables(self, evaluation: TranscriptEvaluation) -> list[Table | str]:
        counts = error_counts(evaluation.statistics["wer"])
        named = ", ".join(f"{count:,} {name}" for name, count in counts.items() if name != "words")
        wrong = Counter[tuple[str, str]]()
        for example, prediction in zip(evaluation.examples, evaluation.predictions, strict=True):
            for edit in word_errors(example.y, prediction.text):
                wrong[edit.reference or "(none)", edit.prediction or "(none)"] += 1
        rows = tuple((said, written, f"{count:,}") for (said, written), count in wrong.most_common(CONFUSED))
        parts: list[Table | str] = [f"{named}, of {counts['words']:,} words"]
        parts.append(self._by_length(evaluation))
        if rows:
            parts.append(Table(("said", "written", "times"), rows))
        return [*parts, *super().tables(evaluation)]

    def _by_length(self, evaluation: TranscriptEvaluation) -> Table:
        rows = []
        for bucket in metrics.buckets_by_length([one.y for one in evaluation.examples]):
            rates = (f"{evaluation.statistics[name].score(bucket.rows):.2f}" for name in ("wer", "cer"))
            rows.append((bucket.label, *rates, f"{len(bucket.rows):,}"))
        return Table(("words", "WER", "CER", "recordings"), tuple(rows))

    def summary(self, evaluation: TranscriptEvaluation) -> dict[str, object]:
        return {"errors": error_counts(evaluation.statistics["wer"])}
