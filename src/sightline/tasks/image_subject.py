"""Places of an image as what can be hidden: what the evidence of captions and of labels shares."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from sightline.evidence.subject import evaluating
from sightline.explanation import Belief
from sightline.models.image_to_labels import ImageToLabels
from sightline.models.image_to_text import ImageToText

VARIANTS = 4096  # places of variants that are in work together
OF_TEXTS = ("special", "first")  # findings that say nothing of images


class ImageSubject(ABC):
    """A model that reads places and one image, for `sightline.evidence`. A subclass says how variants are read.

    A place is hidden before the model normalises it, by putting there what `_blank` says: deleting it would change how
    many places there are. What people get wrong: the features of a place also hold some of what stands beside it, so
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

    @abstractmethod
    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the rows `n t`, and the features of the places `n s d` that they were made from."""

    @abstractmethod
    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        """What stands where a place is hidden."""

    def _copies(self, count: int) -> Tensor:
        """The image so many times."""
        return self.source.to(self.device).expand(count, *[-1] * (self.source.dim() - 1))

    @contextmanager
    def _seen(self, keep: Bool[Tensor, "n s"] | None) -> Iterator[list[Tensor]]:
        """Inside, what is not kept is hidden from the model; the list gets what it normalised.

        Without ``keep`` nothing changes, and what it normalises is the leaf that gradients go to.
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


def of_images(belief: Belief) -> Belief:
    """Without what is measured of texts: an image has no special places, and its first is a corner."""
    return replace(belief, findings=tuple(one for one in belief.findings if one.key not in OF_TEXTS))
