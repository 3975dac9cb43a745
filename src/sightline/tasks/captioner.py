"""A trained model from images to captions: caption, explain, score, save and load."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from sightline.config import Config
from sightline.data.images import LIMITS, ImageLimits
from sightline.data.tokenise import Tokeniser
from sightline.errors import UserError
from sightline.evidence.subject import evaluating
from sightline.explanation import Explanation
from sightline.layers.image import ImageEncoder, ImageEncoderConfig
from sightline.machine import one_thread
from sightline.models.image_to_text import ImageToText, ImageToTextConfig, Places
from sightline.search import Step
from sightline.tasks.classifier import TOKENISER
from sightline.tasks.image_encoding import load_encoder, places_of, save_encoder
from sightline.tasks.image_sources import AT_ONCE, SeesImages, Some, Source, check_several, named, read_some
from sightline.tasks.loading import Saved
from sightline.tasks.predictor import SMALL, Prediction
from sightline.tasks.searching import SearchConfig, pad
from sightline.training.folder import MODEL, RunFolder, save_tensors
from sightline.vocabulary import END, START, UNKNOWN

CAPTION = "caption"


class Sources(NamedTuple):
    """Images as the model reads them, with their numbers among those asked for; the bad ones with what is wrong."""

    read: Num[Tensor, "n ..."]
    numbers: list[int]
    bad: dict[int, str]


class Captioner(SeesImages):
    """A model with its tokeniser, and how images come to it.

    ``longest`` is the most tokens of a caption; ``name`` is what errors call it: the folder that it comes from, which
    is ``run``.
    """

    model: ImageToText

    def __init__(
        self,
        model: ImageToText,
        tokeniser: Tokeniser,
        how: ImageEncoderConfig,
        encoder: ImageEncoder | None = None,
        *,
        longest: int = 50,
        name: str = "the model",
        run: Path | None = None,
    ) -> None:
        self.model, self.tokeniser, self.how, self.encoder = model, tokeniser, how, encoder
        self.longest, self.name, self.run = longest, name, run

    @property
    def places(self) -> Places:
        return self.model.places

    def read(self, images: Sequence[Source], *, limits: ImageLimits = LIMITS, workers: int | None = None) -> Sources:
        """Decode the images and, where the encoder does not learn, compute their features; all of them at once."""
        found = list(read_some(images, self.how, len(images), limits=limits, workers=workers))
        some = found[0] if found else Some(np.empty(0), [], {})
        return Sources(self.source_of(some.pixels) if some.numbers else torch.empty(0), some.numbers, some.bad)

    def caption(self, images: Sequence[Source], **options: Any) -> list[Prediction]:
        """The best caption of each image, in their order. Options are the fields of `SearchConfig`."""
        return [some[0] for some in self.search(images, SearchConfig(**options))]

    predict = caption

    def caption_best(self, images: Sequence[Source], best: int, **options: Any) -> list[list[Prediction]]:
        """The ``best`` captions of each image, likeliest first."""
        return self.search(images, SearchConfig(best=best, **options))

    def search(
        self, images: Sequence[Source], config: SearchConfig, *, going: Callable[[], None] | None = None
    ) -> list[list[Prediction]]:
        """The best captions of each image, likeliest first; an image that cannot be read is an error that names it."""
        check_several(images)
        found: list[list[Prediction]] = []
        for start in range(0, len(images), AT_ONCE):
            part = images[start : start + AT_ONCE]
            sources = self.read(part)
            for number, reason in sources.bad.items():
                raise UserError(f"{named(part[number], start + number)} cannot be used: {reason}")
            found += self.search_read(sources.read, config, going=going)
        return found

    @torch.inference_mode()
    def search_read(
        self,
        source: Num[Tensor, "n ..."],
        config: SearchConfig,
        *,
        prefix: str = "",
        going: Callable[[], None] | None = None,
    ) -> list[list[Prediction]]:
        """The same of images that were read. Every caption begins with ``prefix``; ``going`` is called before every
        step: what it raises ends the search."""
        forced = self.tokeniser.encode([prefix])[0]
        generator = config.generator(self.device)
        found: list[list[Prediction]] = []
        with evaluating(self.model):
            for part in source.split(AT_ONCE):
                with one_thread() if self._is_small(len(part) * config.width) else nullcontext():
                    found += self._search_batch(part, config, forced, generator, going)
        return found

    def _search_batch(
        self,
        source: Tensor,
        config: SearchConfig,
        forced: list[int],
        generator: torch.Generator,
        going: Callable[[], None] | None,
    ) -> list[list[Prediction]]:
        step, state = self.model.searching(source.to(self.device))
        # The limit is that of captions in training: an image has no length that it could grow with.
        config = replace(config, max_length=config.max_length or max(self.longest, config.min_length))
        rows = len(source)
        hypotheses = config.find(_known(step, going), state, [0] * rows, [forced] * rows, generator)
        texts = iter(self.tokeniser.decode([one.tokens for some in hypotheses for one in some]))
        return [
            [Prediction(next(texts), one.log_prob, one.score, tuple(one.tokens)) for one in some] for some in hypotheses
        ]

    def _is_small(self, hypotheses: int) -> bool:
        """Whether a step is so little work that one thread does it best: its largest product is the output layer."""
        weight = self.model.output.weight
        return weight.device.type == "cpu" and hypotheses * weight.numel() < SMALL

    @torch.inference_mode()
    def losses(self, source: Num[Tensor, "n ..."], captions: Sequence[Sequence[str]]) -> tuple[float, int]:
        """The loss of all captions of these images, summed over their tokens, without smoothing; and how many."""
        rows = [(row, text) for row, several in enumerate(captions) for text in several]
        ids = self.tokeniser.encode([text for _, text in rows])
        total, tokens = 0.0, 0
        order = sorted(range(len(rows)), key=lambda place: len(ids[place]))
        with evaluating(self.model):
            for start in range(0, len(order), AT_ONCE):
                part = order[start : start + AT_ONCE]
                target = pad([[START, *ids[place], END] for place in part]).to(self.device)
                looked_at = source[torch.tensor([rows[place][0] for place in part])].to(self.device)
                loss = self.model.loss(looked_at, target)
                total, tokens = total + float(loss.total), tokens + loss.tokens
        return total, tokens

    def explain(self, image: Source, output: str | None = None, **options: Any) -> Explanation:
        """Where the model looked while it wrote each word: of its own caption, or of the one given.

        Options are the other fields of `sightline.tasks.explaining.Wanted`.
        """
        from sightline.tasks.caption_explaining import explain
        from sightline.tasks.explaining import Wanted

        return explain(self, image, Wanted(output, **options))

    def looks(
        self, source: Num[Tensor, "n ..."], tokens: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, "t s"]] | None:
        """Where the model looked while it wrote these tokens and the end behind them; None without attention."""
        from sightline.tasks.caption_explaining import looks

        return looks(self, source, tokens)


def perplexity(total: float, tokens: int) -> float:
    """exp of the mean loss of a token."""
    return math.exp(min(total / max(tokens, 1), 700))


def _known(step: Step, going: Callable[[], None] | None) -> Step:
    """A step that never writes the unknown word: an image has nothing to copy instead."""

    def known(tokens: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        if going is not None:
            going()
        log_probs, state = step(tokens, state)
        log_probs[:, UNKNOWN] = -math.inf
        return log_probs, state

    return known


def save_captioner(folder: RunFolder, captioner: Captioner, config: Config, weights: str) -> None:
    """Everything that `load_captioner` needs; the encoder too, so that a run needs no package that it came from."""
    save_tensors(folder.path / MODEL, dict(captioner.model.state_dict()))
    save_encoder(folder, captioner.encoder)
    captioner.tokeniser.save(folder.path / TOKENISER)
    about = {"task": CAPTION, "weights": weights, "words": captioner.tokeniser.words}
    folder.write_config({**about, "places": list(captioner.places), "config": config.to_json()})


def load_captioner(path: Path) -> tuple[Captioner, dict[str, Any]]:
    """A trained model from its run folder, checked file by file; or as it was at one of the run's checkpoints."""
    saved = Saved.open(path, CAPTION)
    data = saved.about
    with saved.reading():
        how = ImageEncoderConfig.from_json(data["config"]["encoder"])
        config = ImageToTextConfig.from_json(data["config"]["model"])
        places, words, longest = Places(*data["places"]), data["words"], data["config"]["longest"]
        if not isinstance(longest, int) or longest < 1:
            raise ValueError(f"longest is {longest!r}; it is a number of tokens")
    encoder = load_encoder(saved, how)
    model = saved.model(lambda: config.build(places, words, how.build() if encoder is None else None))
    tokeniser = Tokeniser.load(saved.path / TOKENISER)
    with saved.reading():
        made_by: Any = encoder or model.encoder
        if places_of(how, made_by) != places or tokeniser.words != words:
            raise ValueError(f"{places} and {words} words do not fit the encoder or {TOKENISER}")
    model.requires_grad_(False)  # to be used, not to learn: search may keep what it makes of the weights
    return Captioner(model, tokeniser, how, encoder, longest=longest, name=saved.name, run=saved.path), data
