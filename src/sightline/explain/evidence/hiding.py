"""Models whose input has parts that are hidden by other numbers: places of an image, frames of a recording."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.explain.evidence.subject import evaluating

VARIANTS = 4096  # parts of variants that are in work together


class HidingSubject(ABC):
    """A model and one input, for `sightline.explain.evidence`. A subclass reads variants of it with parts hidden."""

    row_name: str = "token"
    column_name: str = "place"
    model: nn.Module

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.hideable = np.ones(self.columns, dtype=bool)

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many parts the output has."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """How many parts there are."""

    def attends_to_columns(self, name: str) -> bool:
        return self.model.attends_to_source(name)  # type: ignore[operator]

    @property
    def at_once(self) -> int:
        """Variants that are in work together."""
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
                # One copy of the input for each row: the sum over copies has the gradients of all rows apart.
                log_probs, seen = self._read(len(part), None)
                (gradient,) = torch.autograd.grad(log_probs.gather(1, part.unsqueeze(1)).sum(), seen)
                products.append(self._products(gradient, seen.detach()))
        return torch.cat(products)

    @abstractmethod
    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the rows `n t`, and the numbers that they were made from; without ``keep`` nothing is
        hidden, and these numbers are the leaf of gradients."""

    @abstractmethod
    def _products(self, gradient: Tensor, seen: Tensor) -> Float[Tensor, "n s"]:
        """The sum of gradient × number over each part."""
