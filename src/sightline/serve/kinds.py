"""The kinds of runs that are served, and what is asked of each: the one place that knows them apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from sightline.data.grids import Raw
from sightline.data.images import ImageLimits, read_fitted, read_image
from sightline.explanation import Explanation
from sightline.picture import Picture
from sightline.serve import schema
from sightline.tasks.caption_explaining import explain as explain_caption
from sightline.tasks.captioner import Captioner
from sightline.tasks.classifier import Classifier, LabelPrediction
from sightline.tasks.classify_explaining import explain_label
from sightline.tasks.explaining import Wanted, explain
from sightline.tasks.gridder import Gridder, GridPrediction
from sightline.tasks.image_classifier import ImageClassifier
from sightline.tasks.image_explaining import explain_image
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import SearchConfig
from sightline.tasks.translator import Translator

TURN_TEXTS, TURN_TOKENS = 64, 8192  # more at once is hardly faster, and everyone waits for the last
CAPTION_TOKENS, LABEL_TOKENS = 24, 8  # of a caption, about; and what a label is as much work as
CELL_TOKENS = 4  # cells of an image that are as much work as a token
Served = Translator | Classifier | Captioner | Gridder  # a classifier of images is one of texts that reads them
SEEING = (Captioner, Gridder, ImageClassifier)
SEARCHING = frozenset({"beam", "alternatives", "shift"})  # what only runs that write can be asked for
Found = list[Prediction] | list[LabelPrediction] | list[dict[str, Any]]  # of one text or image


@dataclass(frozen=True)
class How:
    """What the texts or images of one turn have in common."""

    run: str
    search: SearchConfig
    split: bool = False
    keep_unknown: bool = False


class Seen(NamedTuple):
    """An image as a run reads it, and a small picture of it where it is to be shown."""

    pixels: np.ndarray
    picture: Picture | None = None


def sees(run: Served) -> bool:
    """Whether a run reads images, not texts."""
    return isinstance(run, SEEING)


def pairs(run: Served) -> bool:
    """Whether a run reads two texts."""
    return isinstance(run, Classifier) and run.labels.pairs


def writes(run: Served) -> bool:
    """Whether a run searches for what it writes: whether there is a beam."""
    return isinstance(run, Translator | Captioner)


def unused(run: Served) -> frozenset[str]:
    """What a request to explain an image must not bring, because the run has no use for it."""
    if isinstance(run, Gridder):
        return SEARCHING | {"text2", "output"}
    return frozenset({"text2"}) if writes(run) else SEARCHING | {"text2"}


def measures(run: Served) -> bool:
    """Whether it can be measured what to make of its maps."""
    return not isinstance(run, Gridder)


def see(run: Served, content: bytes, limits: ImageLimits, *, shown: bool) -> Seen:
    """A stranger's image, in no more memory than the run needs; a `BadImage` says what is wrong with it."""
    if isinstance(run, Gridder):
        whole = read_image(content, limits)
        raw = Raw("the image", whole, None)
        run.check(raw)
        run.check_whole(raw)  # a photo in many parts takes minutes, which nobody should wait for here
        return Seen(whole)
    assert isinstance(run, Captioner | ImageClassifier)
    side, fit = run.how.size, run.how.fit
    pixels = read_fitted(content, side, side, fit, limits)  # as `predict` reads it
    picture = None
    if shown:
        picture = Picture.of(read_image(content, limits), fit=fit, shape=(side, side))
    return Seen(pixels, picture)


def described(name: str, run: Served) -> schema.Run:
    """What the server says of a run."""
    parameters = sum(one.numel() for one in run.model.parameters())
    if isinstance(run, Captioner | ImageClassifier) and run.encoder is not None:
        parameters += sum(one.numel() for one in run.encoder.parameters())
    if isinstance(run, Classifier) and not isinstance(run, ImageClassifier):
        kind = type(run.model.model).__name__
        labels = list(run.labels.names)
        return schema.ClassifyingRun(name=name, model=kind, parameters=parameters, pairs=pairs(run), labels=labels)
    kind = type(run.model).__name__
    if isinstance(run, SEEING):
        task: Literal["caption", "grid", "classify"] = "caption" if isinstance(run, Captioner) else "classify"
        task = "grid" if isinstance(run, Gridder) else task
        return schema.SeeingRun(name=name, model=kind, parameters=parameters, task=task)
    return schema.Run(name=name, model=kind, parameters=parameters)


def costs(run: Served, items: Sequence[Any], search: SearchConfig) -> list[int]:
    """How many tokens of hypotheses each text or image keeps in work."""
    if isinstance(run, Captioner):
        lengths = [CAPTION_TOKENS] * len(items)
    elif isinstance(run, ImageClassifier):
        lengths = [LABEL_TOKENS] * len(items)
    elif isinstance(run, Gridder):
        area = (run.facts.cell or 1) ** 2 * CELL_TOKENS
        lengths = [one.pixels[:, :, 0].size // area for one in items]
    elif isinstance(run, Classifier):
        lengths = [len(row) for row in run.reader.read(items, run.longest).rows]
    else:
        lengths = [len(row) for row in run.source.encode(list(items))]
    return [search.width * max(length + 8, search.min_length) for length in lengths]


def predicted(
    run: Served, how: How, items: list[Any], prefixes: list[str], going: Callable[[], None] | None = None
) -> Sequence[Found]:
    """What a run makes of texts or images, all of them asked for in the same way."""
    if isinstance(run, Captioner):
        return run.search([one.pixels for one in items], how.search, going=going)
    if isinstance(run, Gridder):
        return [[_cells(run, one)] for one in run.predict([one.pixels for one in items])]
    if isinstance(run, ImageClassifier):
        return [[one] for one in run.predict([one.pixels for one in items])]
    if isinstance(run, Classifier):
        return [[one] for one in run.predict(items, batch_tokens=TURN_TOKENS)]
    options: dict[str, Any] = {"batch_tokens": TURN_TOKENS, "keep_unknown": how.keep_unknown, "going": going}
    if how.split:
        search = {name: getattr(how.search, name) for name in SearchConfig.__dataclass_fields__}
        return [[one] for one in run.predict_documents(items, **options, **search)]
    return run.search(items, how.search, prefixes=prefixes, **options)


def explained(run: Served, item: Any, wanted: Wanted) -> Explanation:
    """Where a run looked; over an image as it was sent, not as the run reads it."""
    if isinstance(run, Captioner):
        return replace(explain_caption(run, item.pixels, wanted), image=item.picture)
    if isinstance(run, Gridder):
        return run.explain(item.pixels, top=wanted.top)
    if isinstance(run, ImageClassifier):
        return replace(explain_image(run, item.pixels, wanted), image=item.picture)
    return explain_label(run, item, wanted) if isinstance(run, Classifier) else explain(run, item, wanted)


def _cells(run: Gridder, found: GridPrediction) -> dict[str, Any]:
    """The labels of the cells; what the image is called, nobody has told the server."""
    data = found.to_json(run.facts)
    return {name: data[name] for name in ("cell", "classes", "labels", "probabilities")}
