"""From images and captions to a trained model: what is to be seen, in words, with a look at the image for each word."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from sightline.config import Config
from sightline.data.batches import BatchPlan, BatchRows, collate
from sightline.data.checking import Limits
from sightline.data.tokenise import TokeniserConfig
from sightline.files import write_text
from sightline.layers.image import ImageEncoderConfig, default_encoder
from sightline.models.image_to_text import ImageToText, ImageToTextConfig
from sightline.models.show_attend_tell import ShowAttendTellConfig
from sightline.models.writer import Loss
from sightline.tasks.caption_data import (
    CaptionFile,
    CaptionPreparation,
    Photo,
    PreparedCaptions,
    captions_before,
    prepare_captions,
)
from sightline.tasks.caption_inputs import OnImages
from sightline.tasks.captioner import Captioner, load_captioner, perplexity, save_captioner
from sightline.tasks.card import ABOUT, CARD, CURVES, Wording, card, describe
from sightline.tasks.checks import check_counts, check_seed, check_shares
from sightline.tasks.classifier import TOKENISER
from sightline.tasks.image_encoding import ENCODER, new_encoder, places_of
from sightline.tasks.image_sources import AT_ONCE
from sightline.tasks.running import building, train_by_seed, validated_rows
from sightline.tasks.searching import SearchConfig
from sightline.tasks.table import Trial
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import Outcome, TrainingConfig
from sightline.training.scores.several import CAPTION_METRICS, CaptionMetric
from sightline.view.curves import draw_curves
from sightline.vocabulary import PADDING

SHOWN = 8  # captions in the card
TRIED = 64  # images captioned to see how long validating takes


def _words() -> TokeniserConfig:
    # Words, lower-cased; in scripts that write without spaces, characters. What is met once or twice is not learnt.
    return TokeniserConfig(method="words", words=10_000, lower=True, minimum=3)


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=1000, patience=8, averaged=5)


@dataclass(frozen=True)
class CaptionConfig(Config):
    """Everything that decides a run, apart from the data.

    ``encoder`` makes annotations of an image. ``longest``: captions of more tokens are not trained on, and none longer
    is written. ``metric`` decides which checkpoint is best; it is that of greedy captions of at most ``validated``
    images of the validation data.
    """

    model: ImageToTextConfig = field(default_factory=ShowAttendTellConfig)
    encoder: ImageEncoderConfig = field(default_factory=default_encoder)
    tokeniser: TokeniserConfig = field(default_factory=_words)
    training: TrainingConfig = field(default_factory=_training)
    metric: CaptionMetric = "bleu4"
    smoothing: float = 0.1
    longest: int = 50
    batch_rows: int = 64
    batch_tokens: int = 2048
    valid_share: float = 0.05
    validated: int = 1000
    seed: int = 0
    family: ClassVar[str] = "task"

    def __post_init__(self) -> None:
        check_counts(self, "batch_rows", "batch_tokens", "validated", "longest")
        check_seed(self.seed)
        check_shares(self, "smoothing")
        if self.metric not in get_args(CaptionMetric):
            raise ValueError(f"metric is {self.metric!r}; it is one of {', '.join(get_args(CaptionMetric))}")


class CaptionLesson:
    """Batches, loss and score for the training loop."""

    def __init__(self, prepared: PreparedCaptions, config: CaptionConfig) -> None:
        self.prepared, self.config = prepared, config
        _, lengths = prepared.corpus.lengths()
        self.plan = BatchPlan(np.zeros_like(lengths), lengths, config.batch_tokens, config.seed, rows=config.batch_rows)
        rows = validated_rows(len(prepared.valid), config.validated, config.seed)
        self.valid = [prepared.valid[row] for row in rows]

    def epoch(self, number: int) -> Sequence[BatchRows]:
        return self.plan.epoch(number)

    def batch(self, handle: BatchRows) -> tuple[Tensor, Tensor]:
        pairs = [self.prepared.corpus[row] for row in handle.tolist()]
        images, target = collate(pairs)
        return torch.from_numpy(self.prepared.inputs.rows(images[:, 0])), torch.from_numpy(target)

    def tokens(self, batch: tuple[Tensor, Tensor]) -> int:
        return int((batch[1][:, 1:] != PADDING).sum())

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        return model.loss(*batch, smoothing=self.config.smoothing)  # type: ignore[operator]

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric of greedy captions against all references, and the perplexity of the first reference of each."""
        captioner = self.captioner(model)
        texts, total, tokens = [], 0.0, 0
        for photos, source in self.sources(self.valid):
            texts += [some[0].text for some in captioner.search_read(source, SearchConfig(beam=1))]
            loss, count = captioner.losses(source, [photo.captions[:1] for photo in photos])
            total, tokens = total + loss, tokens + count
        value = CAPTION_METRICS[self.config.metric](texts, [photo.captions for photo in self.valid]).value
        return {self.config.metric: round(value, 3), "perplexity": round(perplexity(total, tokens), 3)}

    def captioner(self, model: nn.Module) -> Captioner:
        assert isinstance(model, ImageToText)
        config = self.config
        frozen = self.prepared.encoder if config.encoder.frozen else None
        return Captioner(model, self.prepared.tokeniser, config.encoder, frozen, longest=config.longest)

    def sources(self, photos: list[Photo]) -> "list[tuple[list[Photo], Tensor]]":
        """What the model is given of these images, some at a time."""
        parts = [photos[start : start + AT_ONCE] for start in range(0, len(photos), AT_ONCE)]
        return [(part, torch.from_numpy(self.prepared.inputs.rows([photo.row for photo in part]))) for part in parts]


def train_caption(
    files: CaptionFile | None,
    out: Path,
    config: CaptionConfig,
    *,
    valid: CaptionFile | None = None,
    limits: Limits | None = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Callable[[PreparedCaptions, nn.Module], None] = lambda prepared, model: None,
    on_images: OnImages | None = None,
    **listeners: Any,
) -> tuple[Captioner, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None.

    ``start`` is an earlier run of this task, whose encoder, vocabulary and weights the new run begins with.
    ``on_images`` hears how the reading of the images goes on.
    """
    earlier = None if start is None else load_captioner(start)[0]
    if files is None:
        before, _ = load_captioner(out)
        folder = RunFolder.open(out)
        encoder = before.encoder or config.encoder.build()
        prepared = captions_before(folder.path, before.tokeniser, encoder)
    else:
        prepared, folder = _prepare_new(files, valid, out, config, limits, earlier, device, on_images)
    lesson = CaptionLesson(prepared, config)
    model = build_model(config, prepared, earlier)
    frozen = prepared.encoder if config.encoder.frozen else None
    captioner = Captioner(
        model, prepared.tokeniser, config.encoder, frozen, longest=config.longest, name=str(out), run=out
    )
    if files is not None:
        folder.write_json(ABOUT, _about(prepared, files, valid, start, command))
        save_captioner(folder, captioner, config, "untrained")
    on_report(prepared, model)
    outcome = train_by_seed(model, lesson, config.training, config.seed, folder, device, listeners)
    save_captioner(folder, captioner, config, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    draw_curves(folder.metrics(), folder.path / CURVES)
    write_text(folder.path / CARD, card(folder, config, model, outcome, _wording(captioner, lesson)))
    folder.seal([CONFIG, MODEL, TOKENISER, METRICS, *([ENCODER] if frozen is not None else [])])
    return captioner, outcome


def build_model(config: CaptionConfig, prepared: PreparedCaptions, earlier: Captioner | None) -> ImageToText:
    """A new model by the seed, or one that begins with the weights of an earlier run."""
    encoder = prepared.encoder
    with building(config.seed, going_on=earlier is not None):
        learning = None if config.encoder.frozen else encoder
        model = config.model.build(places_of(config.encoder, encoder), prepared.tokeniser.words, learning)
        if earlier is not None:
            model.load_state_dict(earlier.model.state_dict())
    return model


def preparation(config: CaptionConfig, limits: Limits | None, earlier: Captioner | None) -> CaptionPreparation:
    """How the data of a run is prepared: with the vocabulary of the earlier run, where it begins with one."""
    return CaptionPreparation(
        config.encoder,
        config.tokeniser,
        config.valid_share,
        config.seed,
        config.longest,
        limits or Limits(),
        None if earlier is None else earlier.tokeniser,
    )


def _prepare_new(
    files: CaptionFile,
    valid: CaptionFile | None,
    out: Path,
    config: CaptionConfig,
    limits: Limits | None,
    earlier: Captioner | None,
    device: str,
    on_images: OnImages | None,
) -> tuple[PreparedCaptions, RunFolder]:
    encoder = new_encoder(config, earlier)
    with RunFolder.creating(out) as folder:
        how = preparation(config, limits, earlier)
        prepared = prepare_captions(files, valid, how, encoder, folder.path, device, on_images)
        build_model(config, prepared, earlier)  # what cannot be built is said now, while nothing stands yet
        return prepared, folder


def _about(
    prepared: PreparedCaptions, files: CaptionFile, valid: CaptionFile | None, start: Path | None, command: str
) -> dict[str, Any]:
    found = describe(prepared, files, valid, start, command)
    images = {"images": len(prepared.inputs) - len(prepared.inputs.bad), "valid_images": len(prepared.valid)}
    speed = {"images_per_second": prepared.images_per_second}
    return found | {"valid_pairs": sum(len(photo.captions) for photo in prepared.valid)} | images | speed


def _wording(captioner: Captioner, lesson: CaptionLesson) -> Wording:
    """What the card says, with captions of a few validation images to look at."""
    photos = lesson.valid[:SHOWN]
    written = [one[0].text for _, source in lesson.sources(photos) for one in captioner.search_read(source, _SEARCH)]
    rows = [
        f"| {_cell(photo.image.name)} | {_cell(text)} | {_cell(photo.captions[0])} |"
        for photo, text in zip(photos, written, strict=True)
    ]
    how = CAPTION_METRICS[lesson.config.metric](written, [photo.captions for photo in photos]).signature
    head = ("| image | caption | one of its references |", "| --- | --- | --- |")
    return Wording(
        "from images to captions",
        "captions",
        "On validation data, decoded greedily, against all references of each image.",
        "captions it saw have at most {longest:,} characters.",
        (
            "It has words for what stands in its training data, and writes something fluent for any image.",
            "Where it looked is not why it wrote: a map is a picture of the computation, not an explanation.",
        ),
        (f"`{lesson.config.metric}`: {how}", "", "## Captions", "", *head, *rows, ""),
    )


_SEARCH = SearchConfig()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def caption_trial(
    files: CaptionFile,
    valid: CaptionFile | None,
    config: CaptionConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What training a captioner would begin with."""
    earlier = None if start is None else load_captioner(start)[0]
    how = preparation(config, limits, earlier)
    prepared = prepare_captions(files, valid, how, new_encoder(config, earlier), folder)
    lesson = CaptionLesson(prepared, config)
    model = build_model(config, prepared, earlier)

    def validating() -> float:
        """An untrained model does not know when to end: it is stopped where the references are."""
        captioner, some = lesson.captioner(model), lesson.valid[:TRIED]
        captions = [photo.captions for photo in some]
        longest = max(map(len, prepared.tokeniser.encode([text for several in captions for text in several])))
        began = time.perf_counter()
        for photos, source in lesson.sources(some):
            captioner.search_read(source, SearchConfig(beam=1, max_length=max(1, longest)))
            captioner.losses(source, [photo.captions[:1] for photo in photos])
        return (time.perf_counter() - began) * len(lesson.valid) / len(some)

    return Trial(prepared, lesson, model, validating)
