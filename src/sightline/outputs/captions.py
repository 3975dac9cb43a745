"""Captions of images, each with several references: metrics of captions, and the attention of each word."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from sightline.data.captioned import CaptionReport
from sightline.data.checking import Report, RowLimits
from sightline.data.columns import TableRow
from sightline.data.source import Source
from sightline.data.splitting import normalise
from sightline.decoding.options import pad
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.explain.evidence.subject import evaluating
from sightline.inputs.base import Input
from sightline.inputs.files import StoredFile
from sightline.inputs.image import AT_ONCE, Image, ImageInput, ImagePart
from sightline.inputs.text import check_length, text_of
from sightline.metrics import Metric
from sightline.metrics.captions import CAPTION_METRICS, bleu_several
from sightline.metrics.texts import words_of
from sightline.models.image_to_text import ImageToText
from sightline.outputs.searched import Prediction, Scoring, Searched, SequenceOptions
from sightline.outputs.sequence import SequenceOutput
from sightline.outputs.simple_baselines import usual_text
from sightline.tasks.card import Wording
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, Table, path_name
from sightline.tasks.prepare import Prepared, Rows, Setting, validation_sample
from sightline.tasks.run import Run
from sightline.tasks.task import BadValueError, Column, Example
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import START

NO_WORDS = "empty caption"
Captions = str | tuple[str, ...]  # one as it is read; all of an image once they are grouped
SHOWN = 8  # captions in the card
PAPER_NAMES = {
    **{f"bleu{order}": f"BLEU-{order}" for order in range(1, 5)},
    **{f"bleu{order}_no_bp": f"BLEU-{order} without brevity penalty" for order in range(1, 5)},
    "cider_d": "CIDEr-D",
    "cider": "CIDEr",
    "rougeL": "ROUGE-L",
    "chrf": "chrF",
    "exact": "exact match",
    "sacrebleu": "sacreBLEU",
}


@dataclass(frozen=True)
class CaptionOptions(SequenceOptions):
    """Options of other texts, without those about a source of words. With ``looks``, the attention of each token."""

    split: bool = field(default=False, metadata={"internal": True})
    keep_unknown: bool = field(default=False, metadata={"internal": True})
    looks: bool = field(default=False, metadata={"internal": True})


CaptionEvaluation = Evaluation[Image, Captions, Searched, Prediction]


class CaptionOutput(SequenceOutput[Image, Captions, ImagePart, Tensor]):
    """Captions. A target is all captions of an image."""

    noun = "captions"
    grouped = True
    least_split = 2
    predict_options = CaptionOptions
    tokeniser_file = "tokenizer.json"
    words_field = "words"
    written = "caption"
    item_name = "image"
    compared: ClassVar[tuple[str, ...]] = ("bleu4", "bleu4_no_bp", "cider_d")
    each = ("cider_d", "chrf")
    names = PAPER_NAMES

    def __init__(
        self, config: TaskConfig, tokeniser: Tokeniser | None = None, shift: int = 0, remarks: Sequence[str] = ()
    ) -> None:
        super().__init__(config, tokeniser, shift, remarks)
        self.kept = self.too_long = self.images = 0  # captions that are trained on and that are not, and their images

    # -- reading and storing

    def stage(self, rows: Iterable[TableRow], source: Source, columns: Sequence[Column]) -> Iterable[TableRow]:
        """Several captions in one row are as many rows."""
        for row in rows:
            several = row.values[1] if row.problem is None and isinstance(row.values[1], list) else None
            if several is None:
                yield row
            elif not several:
                yield row._replace(problem="empty: found a list of no captions, expected a caption")
            else:
                yield from (row._replace(values=(row.values[0], one)) for one in several)

    def read(self, cells: Mapping[str, object], x: Image) -> str:
        caption = text_of(cells, "caption")
        if not words_of(caption):
            raise BadValueError(f"{NO_WORDS}: found no word in {caption.strip()!r}, expected a caption")
        return normalise(caption)

    def check(self, y: Captions, limits: RowLimits) -> None:
        check_length(len(y), "a caption", limits)

    def report(self) -> CaptionReport:
        return CaptionReport()

    def cannot_split(self, error: UserError, report: Report) -> UserError:
        assert isinstance(report, CaptionReport)
        if report.images > 1:
            return error
        images = f"{report.images} image"
        return UserError(f"validation: found {images}; expected two or more, to train on and to validate on")

    def pack(self, y: Captions) -> list[object]:
        return [list(y)]

    def unpack(self, row: Sequence[object]) -> tuple[str, ...]:
        return tuple(cast("list[str]", row[0]))

    def targets(self, y: Captions, training: bool = False) -> Sequence[str]:
        return y[:1] if training else y

    def write(self, input: Input[Image, ImagePart, Tensor], rows: Rows[Image, Captions], setting: Setting) -> object:
        self.images = rows.count
        try:
            return super().write(input, rows, setting)
        except UserError:
            if self.kept:
                raise
            raise UserError(
                f"all {self.too_long:,} captions have more than {self.config.max_length:,} tokens; raise max_length"
            ) from None

    def encode(self, x: Image, y: Captions, parts: Sequence[ImagePart]) -> Iterator[tuple[ImagePart, list[int]]]:
        for part, tokens in super().encode(x, y, parts):
            if len(tokens) > self.config.max_length:
                self.too_long += 1
            else:
                self.kept += 1
                yield part, tokens

    def notes(self, prepared: Prepared[Image, Captions]) -> list[str]:
        notes = super().notes(prepared)
        if self.too_long:
            notes.append(
                f"{self.too_long:,} captions have more than {self.config.max_length:,} tokens and are not trained on "
                "(raise max_length to train on them)"
            )
        return notes

    def counts(self, prepared: Prepared[Image, Captions]) -> str:
        images = f"of {self.images:,} images " if self.images else ""
        return f"{len(prepared.corpus):,} captions {images}to train on, {len(prepared.valid):,} images to validate"

    def summary_of_fit(self) -> str:
        return f"{self.tokeniser.words:,} tokens"

    def about_data(self, prepared: Prepared[Image, Captions]) -> dict[str, object]:
        images: Any = prepared.input
        return {
            "valid_pairs": sum(len(one.y) for one in prepared.valid),
            "images": len(images.features) - len(images.features.bad),
            "valid_images": len(prepared.valid),
            "images_per_second": images.per_second,
        }

    # -- predicting

    def cost(self, size: int, options: SequenceOptions) -> int:
        return options.width * size

    def budget(self, input: Input[Image, ImagePart, Tensor], options: SequenceOptions) -> int:
        return AT_ONCE * options.width

    def for_json(self, options: SequenceOptions) -> CaptionOptions:
        return replace(cast("CaptionOptions", options), looks=True)

    def outputs(
        self, run: Run, xs: Sequence[Image], parts: Sequence[ImagePart], batch: Tensor, options: SequenceOptions
    ) -> list[Searched]:
        searched = super().outputs(run, xs, parts, batch, options)
        if not getattr(options, "looks", False):
            return searched
        maps = looks(run, batch, [one.predictions[0].tokens for one in searched])
        return searched if maps is None else [self._aligned(run, *both) for both in zip(searched, maps, strict=True)]

    def _aligned(self, run: Run, one: Searched, weights: np.ndarray) -> Searched:
        """With the place of the most attention of each token of the best caption."""
        assert isinstance(run.input, ImageInput)
        height, width = run.input.places.height, run.input.places.width
        best, *others = one.predictions
        alignment = [
            {"token": token, "row": int(at) // width, "column": int(at) % width, "weight": float(row[at])}
            for token, row in zip(self.tokeniser.spell(best.tokens), weights, strict=False)
            for at in [row.argmax()]
        ]
        best = best._replace(more={"grid": [height, width], "alignment": alignment})
        return one._replace(predictions=[best, *others])

    # -- scores

    def metrics(self, references: Sequence[Captions]) -> Mapping[str, Metric[...]]:
        return CAPTION_METRICS

    def arguments(self, metric: str, references: Sequence[Captions]) -> tuple[object, ...]:
        return ()

    def scoring_options(self, given: dict[str, object]) -> tuple[Scoring, dict[str, object]]:
        return Scoring(), given  # images have no length, and references are cut in one way

    def finished(self, evaluation: CaptionEvaluation, scoring: object) -> CaptionEvaluation:
        super().finished(evaluation, scoring)
        score = bleu_several([one.text for one in evaluation.predictions], [one.y for one in evaluation.examples])
        evaluation.values["sacrebleu"] = score.value
        cast("dict[str, str]", evaluation.extra["signatures"])["sacrebleu"] = score.signature
        return evaluation

    def scores_json(self, evaluation: CaptionEvaluation) -> dict[str, object]:
        options, captions = cast("CaptionOptions", evaluation.options), sum(len(one.y) for one in evaluation.examples)
        counts = {"captions": captions, "beam": options.beam, "length_penalty": options.length_penalty}
        return {**counts, "seconds": round(evaluation.seconds, 2), **super().scores_json(evaluation)}

    def tables(self, evaluation: CaptionEvaluation) -> list[Table | str]:
        images, options = len(evaluation.examples), cast("CaptionOptions", evaluation.options)
        captions = sum(len(one.y) for one in evaluation.examples)
        return [
            f"{images:,} images with {captions:,} references, beam {options.beam}, length penalty "
            f"{options.length_penalty:g}; {images / max(evaluation.seconds, 1e-9):.1f} images a second"
        ]

    def row(self, example: Example[Image, Captions], prediction: Prediction) -> dict[str, object]:
        return {
            "image": cast("StoredFile", example.x).file,
            "prediction": prediction.text,
            "references": list(example.y),
        }

    def badness(self, evaluation: CaptionEvaluation) -> list[float]:
        """The lowest CIDEr-D, and of equal ones the lowest chrF, is the worst; all are shown."""
        each = cast("dict[str, list[float]]", evaluation.extra["each"])
        order = sorted(range(len(evaluation.examples)), key=lambda row: tuple(each[name][row] for name in self.each))
        return (len(order) - np.argsort(order)).astype(float).tolist()

    def shown_error(self, row: Mapping[str, object]) -> str:
        head = f"{row['image']}: CIDEr-D {row['cider_d']:.1f}, chrF {row['chrf']:.1f}"
        references = (f"   reference   {one}" for one in cast("list[str]", row["references"]))
        return "\n".join((head, f"   caption     {row['prediction']}", *references))

    def baseline_facts(self, input: Input[Image, ImagePart, Tensor], rows: Rows[Image, Captions]) -> dict[str, object]:
        return {"text": usual_text([one.y[0] for one in rows], self.config.seed)}

    def baseline_predictions(
        self, run: Run, examples: Sequence[Example[Image, Captions]], facts: Mapping[str, object]
    ) -> dict[str, list[Prediction]]:
        if not facts:
            return {}
        return {"one caption for every image": [Prediction(cast("str", facts["text"]), 0.0, 0.0)] * len(examples)}

    # -- for people

    def card(self, run: Run, prepared: Prepared[Image, Captions], raws: Sequence[Searched], folder: Path) -> Wording:
        """With captions of a few validation images."""
        chosen = validation_sample(len(prepared.valid), run.config.validated, run.config.seed)[:SHOWN]
        examples = [prepared.valid[row] for row in chosen]
        searched = cast("list[Searched]", run.raw([one.x for one in examples], options=CaptionOptions()))
        texts = [one.predictions[0].text for one in searched]
        rows = [
            f"| {_cell(cast('StoredFile', one.x).file)} | {_cell(text)} | {_cell(one.y[0])} |"
            for one, text in zip(examples, texts, strict=True)
        ]
        signature = CAPTION_METRICS[run.config.metric](texts, [one.y for one in examples]).signature
        head = ("| image | caption | one of its references |", "| --- | --- | --- |")
        return Wording(
            "from images to captions",
            "captions",
            "On validation data, decoded greedily, against all references of each image.",
            "captions it saw have at most {longest:,} characters.",
            (
                "It has words for what is in its training data, and writes something fluent for any image.",
                "Where it looked is not why it wrote: a map is a picture of the computation, not an explanation.",
            ),
            (f"`{run.config.metric}`: {signature}", "", "## Captions", "", *head, *rows, ""),
        )

    def line(self, x: Image, prediction: Prediction) -> str:
        return f"{path_name(cast('str', x))}\t{prediction.text}"

    def to_json(self, x: Image, prediction: Prediction) -> dict[str, object]:
        data = {"image": str(x), "caption": prediction.text, "log_prob": prediction.log_prob, "score": prediction.score}
        if prediction.others is not None:
            data["captions"] = self.served(x, prediction)
        return {**data, **(prediction.more or {})}


def looks(run: Run, source: Tensor, tokens: Sequence[Sequence[int]]) -> list[np.ndarray] | None:
    """The attention of each token and the end: the mean over the heads of the last attention to the image; None
    without attention."""
    model = run.model
    assert isinstance(model, ImageToText)
    words = pad([[START, *some] for some in tokens]).to(run.device)
    with evaluating(model), torch.no_grad(), capture(model) as trace:
        model.decode(words, model.begin(source))
    names = [name for name in trace.names if model.attends_to_source(name)]
    if not names:
        return None
    weights = trace[names[-1]].weights.mean(dim=1).float().cpu().numpy()
    return [weights[row, : len(some) + 1] for row, some in enumerate(tokens)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
