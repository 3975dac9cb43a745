"""How good captioners are against several references of each image, and against each other. Nothing here prints."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from sightline.errors import UserError
from sightline.tasks.caption_data import Photo
from sightline.tasks.captioner import Captioner, perplexity
from sightline.tasks.image_sources import AT_ONCE
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import SearchConfig
from sightline.training import scores
from sightline.training.scores import Resampled, Score
from sightline.training.scores.bleu_orders import References
from sightline.training.scores.several import CAPTION_METRICS, bleu_several

COMPARED = ("bleu4", "bleu4_no_bp", "cider_d")
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
class CaptionEvaluation:
    """Captions of images, and every score of them. ``of_each`` is the CIDEr-D and the chrF of each by itself.

    ``seen`` says which of the images the run was trained on, where that is known.
    """

    photos: list[Photo]
    predictions: list[Prediction]
    scores: dict[str, Score]
    perplexity: float
    of_each: dict[str, list[float]]
    seconds: float  # of reading and captioning
    bad: dict[str, str]  # images that could not be read, with the reason
    seen: np.ndarray | None = None

    @property
    def references(self) -> References:
        return [photo.captions for photo in self.photos]

    def worst(self, count: int) -> list[dict[str, Any]]:
        """The captions with the lowest CIDEr-D, and of equal ones the lowest chrF; the worst first."""
        chosen = sorted(range(len(self.photos)), key=lambda row: tuple(one[row] for one in self.of_each.values()))
        return [self._row(row) for row in chosen[:count]]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every image with its caption, what the search gave it, and its scores."""
        for row, one in enumerate(self.predictions):
            yield self._row(row) | {"log_prob": one.log_prob, "score": one.score}

    def to_json(self, errors: int = 0) -> dict[str, Any]:
        """Everything but the captions; with ``errors``, that many of the worst."""
        found: dict[str, Any] = {"images": len(self.photos), "captions": sum(map(len, self.references))}
        found |= {"perplexity": self.perplexity, "seconds": round(self.seconds, 2)}
        found |= {name: {"value": one.value, "signature": one.signature} for name, one in self.scores.items()}
        if self.bad:
            found["bad_images"] = self.bad
        if self.seen is not None:
            found["in_training"] = int(self.seen.sum())
        return found | ({"errors": self.worst(errors)} if errors else {})

    def _row(self, row: int) -> dict[str, Any]:
        photo = self.photos[row]
        texts = {"image": str(photo.image), "prediction": self.predictions[row].text}
        scored = {name: values[row] for name, values in self.of_each.items()}
        return {**texts, "references": list(photo.captions), **scored}


@dataclass(frozen=True)
class CaptionComparison:
    """Captioners on the same images. ``found`` is by metric, then by run; differences are to the first run."""

    images: int
    samples: int
    seed: int
    signatures: dict[str, str]
    found: dict[str, dict[str, Resampled]]
    bad: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        metrics = {
            metric: {
                "signature": self.signatures[metric],
                "runs": {name: vars(one) for name, one in runs.items()},
            }
            for metric, runs in self.found.items()
        }
        return {
            "images": self.images,
            "samples": self.samples,
            "seed": self.seed,
            "bad_images": self.bad,
            "metrics": metrics,
        }


def evaluate(
    captioner: Captioner,
    photos: Sequence[Photo],
    *,
    on_predicted: Callable[[int], None] = lambda count: None,
    **options: Any,
) -> CaptionEvaluation:
    """Every metric of a captioner on images with references; images that cannot be read are left out, by name.

    Options are the fields of `sightline.tasks.searching.SearchConfig`.
    """
    search = SearchConfig(**options)
    kept: list[Photo] = []
    predictions: list[Prediction] = []
    bad: dict[str, str] = {}
    total, tokens, seconds = 0.0, 0, 0.0
    for part, sources in _blocks(captioner, photos, bad):
        started = time.perf_counter()
        predictions += [some[0] for some in captioner.search_read(sources.read, search)]
        seconds += sources.seconds + time.perf_counter() - started
        loss, count = captioner.losses(sources.read, [photo.captions for photo in part])
        total, tokens = total + loss, tokens + count
        kept += part
        on_predicted(len(part))
    if not kept:
        raise UserError(_nothing(bad))
    texts, references = [one.text for one in predictions], [photo.captions for photo in kept]
    found = {name: metric(texts, references) for name, metric in CAPTION_METRICS.items()}
    found["sacrebleu"] = bleu_several(texts, references)
    of_each = {name: CAPTION_METRICS[name].statistics(texts, references).of_each() for name in ("cider_d", "chrf")}
    seen = captioner.seen(photo.key for photo in kept)
    return CaptionEvaluation(kept, predictions, found, perplexity(total, tokens), of_each, seconds, bad, seen)


def compare(
    captioners: Mapping[str, Captioner],
    photos: Sequence[Photo],
    *,
    metrics: Sequence[str] | None = None,
    samples: int = 1000,
    seed: int = 0,
    on_predicted: Callable[[int], None] = lambda count: None,
    **options: Any,
) -> CaptionComparison:
    """Several captioners on the same images: paired bootstrap over images."""
    if len(captioners) < 2:
        raise UserError(f"there is {len(captioners)} to compare; expected two or more")
    chosen, search = check_caption_metrics(metrics), SearchConfig(**options)
    texts: dict[str, list[str]] = {}
    bad: dict[str, str] = {}
    references: list[tuple[str, ...]] = []
    for name, captioner in captioners.items():
        texts[name], references = [], []
        for part, sources in _blocks(captioner, photos, bad):
            texts[name] += [some[0].text for some in captioner.search_read(sources.read, search)]
            references += [photo.captions for photo in part]
            on_predicted(len(part))
    if not references:
        raise UserError(_nothing(bad))
    signatures, found = {}, {}
    for metric in chosen:
        statistics = [CAPTION_METRICS[metric].statistics(some, references) for some in texts.values()]
        found[metric] = dict(zip(texts, scores.paired_bootstrap(statistics, samples, seed), strict=True))
        signatures[metric] = CAPTION_METRICS[metric](next(iter(texts.values())), references).signature
    return CaptionComparison(len(references), samples, seed, signatures, found, bad)


class _Timed(NamedTuple):
    read: Tensor
    seconds: float


def _blocks(captioner: Captioner, photos: Sequence[Photo], bad: dict[str, str]) -> Iterator[tuple[list[Photo], _Timed]]:
    """Some images at a time, read; those that cannot be read are noted in ``bad``."""
    for start in range(0, len(photos), AT_ONCE):
        part = photos[start : start + AT_ONCE]
        began = time.perf_counter()
        sources = captioner.read([photo.image for photo in part])
        bad |= {str(part[number].image): reason for number, reason in sources.bad.items()}
        if sources.numbers:
            yield [part[number] for number in sources.numbers], _Timed(sources.read, time.perf_counter() - began)


def _nothing(bad: Mapping[str, str]) -> str:
    first = next(iter(bad.items()), None)
    reason = "" if first is None else f" ({first[0]}: {first[1]})"
    return f"there is no image to score{reason}; expected at least one, with a caption"


def check_caption_metrics(metrics: Sequence[str] | None) -> tuple[str, ...]:
    """Those of captions; BLEU-4 with and without its penalty and CIDEr-D where none was named."""
    for name in metrics or ():
        if name not in CAPTION_METRICS:
            raise UserError(f"--metrics {name} is not one of captions; expected some of {', '.join(CAPTION_METRICS)}")
    return COMPARED if metrics is None else tuple(dict.fromkeys(metrics))
