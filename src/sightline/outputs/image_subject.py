"""Images under perturbation: places are hidden to measure the evidence of captions and of labels."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief
from sightline.models.image_to_labels import ImageToLabels
from sightline.models.image_to_text import ImageToText
from sightline.vocabulary import START

VARIANTS = 4096  # places of variants that are in work together
OF_TEXTS = ("special", "first")  # findings that do not apply to images


class ImageSubject(ABC):
    """A model that reads places and one image, for `sightline.explain.evidence`. A subclass reads the variants.

    A place is hidden before the model normalises it: its features become those of `_blank`. Deleting it would change
    how many places there are. What people get wrong: the features of a place also hold some of its neighbours, so
    hiding a place hides less than covering that part of the image.
    """

    column_name = "place"

    def __init__(self, model: ImageToText | ImageToLabels, source: Num[Tensor, "1 ..."]) -> None:
        self.model, self.source = model, source
        self.device = next(model.parameters()).device
        self.hideable = np.ones(self.columns, dtype=bool)

    @property
    def columns(self) -> int:
        return self.model.places.count

    def looks_at_columns(self, name: str) -> bool:
        return self.model.looks_at_source(name)

    @property
    def at_once(self) -> int:
        """Variants of the image that are in work together."""
        return max(1, VARIANTS // self.columns)

    @torch.no_grad()
    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        with evaluating(self.model):
            parts = [self._read(len(part), part.to(self.device))[0] for part in keep.split(self.at_once)]
        return torch.cat(parts)

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        products = []
        with evaluating(self.model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for part in torch.tensor(list(rows), device=self.device).split(self.at_once):
                # One copy of the image for each row: the sum over copies has the gradients of all rows apart.
                log_probs, seen = self._read(len(part), None)
                (gradient,) = torch.autograd.grad(log_probs.gather(1, part.unsqueeze(1)).sum(), seen)
                products.append((gradient * seen.detach()).sum(dim=-1))
        return torch.cat(products)

    @abstractmethod
    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the rows `n t`, and the features of the places `n s d` that they were made from."""

    @abstractmethod
    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        """The features of a hidden place."""

    def _copies(self, count: int) -> Tensor:
        """The image so many times."""
        return self.source.to(self.device).expand(count, *[-1] * (self.source.dim() - 1))

    @contextmanager
    def _seen(self, keep: Bool[Tensor, "n s"] | None) -> Iterator[list[Tensor]]:
        """Hide places that are not kept from the model inside the block; the list gets the places that it normalises.

        Without ``keep`` no place is hidden, and the places are the leaf of gradients.
        """
        seen: list[Tensor] = []

        def hide(module: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor]:
            (places,) = given
            if keep is None:
                places = places.detach().requires_grad_()
            else:
                places = torch.where(keep.unsqueeze(-1), places, self._blank(places))
            seen.append(places)
            return (places,)

        handle = self.model.normalise.register_forward_pre_hook(hide)
        try:
            yield seen
        finally:
            handle.remove()


class PlaceSubject(ImageSubject):
    """A model from images to text, one image, and what was written.

    A hidden place gets the mean of the image's places: the image as a whole is left.
    """

    model: ImageToText
    row_name = "word"

    def __init__(self, model: ImageToText, source: Num[Tensor, "1 ..."], written: Sequence[int]) -> None:
        super().__init__(model, source)
        self.written = torch.tensor(list(written), device=self.device)

    @property
    def rows(self) -> int:
        return len(self.written)

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        words = torch.cat([torch.tensor([START], device=self.device), self.written[:-1]]).expand(copies, -1)
        with self._seen(keep) as seen:
            state = self.model.begin(self._copies(copies))
        features, _ = self.model.decode(words, state)
        log_probs = torch.log_softmax(self.model.output(features), dim=-1)
        return log_probs.gather(-1, self.written.expand(copies, -1).unsqueeze(-1)).squeeze(-1), seen[0]

    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        return places.mean(dim=1, keepdim=True)


class ImageLabelSubject(ImageSubject):
    """A model from images to labels, one image, and a label by its number.

    A hidden place gets the mean of the places of the training data; the mean of the image itself would show a little of
    what is hidden. Of a number, a cost is how far it moves, up or down alike.
    """

    model: ImageToLabels
    row_name = "label"

    def __init__(
        self, model: ImageToLabels, source: Tensor, label: int, *, kind: str = "one", temperature: float = 1.0
    ) -> None:
        super().__init__(model, source)
        self.label, self.kind, self.temperature = label, kind, temperature
        with evaluating(model), torch.no_grad():
            self.number = float(model.scores(source.to(self.device))[0]) if kind == "number" else 0.0

    @property
    def rows(self) -> int:
        return 1

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        with self._seen(keep) as seen:
            scores = self.model.scores(self._copies(copies))
        return self._measured(scores, keep).unsqueeze(1), seen[0]

    def _measured(self, scores: Tensor, keep: Tensor | None) -> Float[Tensor, " n"]:
        if self.kind == "number":  # a gradient cannot be taken of a distance that is 0
            return scores if keep is None else -(scores - self.number).abs()
        logits = scores.double() / self.temperature
        if self.kind == "several":
            return F.logsigmoid(logits[:, self.label])
        return torch.log_softmax(logits, dim=-1)[:, self.label]

    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        return self.model.blank.to(places.dtype)


def of_images(belief: Belief) -> Belief:
    """Without what is measured of texts: an image has no special places, and its first is a corner."""
    return replace(belief, findings=tuple(one for one in belief.findings if one.key not in OF_TEXTS))
