"""Series under perturbation: stretches of frames are hidden to measure the evidence of a map."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.explain.evidence.hiding import HidingSubject
from sightline.explain.evidence.subject import evaluating
from sightline.nn.series import SeriesBatch
from sightline.vocabulary import START


class SeriesHiding(HidingSubject):
    """A model that reads series, and one series. A column is the frames of one encoder state.

    Hidden frames get the mean of the series' frames: that is silence to a model that centres each series. What people
    get wrong: a state also hears its neighbours, so hiding its own frames hides less than all that it holds.
    """

    row_name, column_name = "token", "moment"

    def __init__(self, model: nn.Module, source: SeriesBatch, reduction: int) -> None:
        self.source, self.reduction = source, reduction
        super().__init__(model)
        self.values = source.values.to(self.device).float()

    @property
    def columns(self) -> int:
        return -(-int(self.source.lengths[0]) // self.reduction)

    def variants(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> SeriesBatch:
        """So many copies of the series; without ``keep`` their values are a leaf of gradients."""
        values = self.values.expand(copies, *self.values.shape[1:])
        if keep is None:
            values = values.clone().requires_grad_()
        else:
            frames = keep.repeat_interleave(self.reduction, dim=1)[:, : values.shape[1]]
            values = torch.where(frames.view(*frames.shape, *[1] * (values.dim() - 2)), values, self._mean())
        return SeriesBatch(values, self.source.lengths.to(self.device).expand(copies))

    def _mean(self) -> Tensor:
        return self.values.mean(dim=1, keepdim=True)

    def _products(self, gradient: Tensor, seen: Tensor) -> Float[Tensor, "n s"]:
        of_frames = (gradient * (seen - self._mean())).flatten(2).sum(dim=-1)
        missing = self.columns * self.reduction - of_frames.shape[1]
        return nn.functional.pad(of_frames, (0, missing)).unflatten(1, (self.columns, -1)).sum(dim=-1)


class SeriesSubject(SeriesHiding):
    """A model from series to text, one series, and what was written."""

    def __init__(self, model: nn.Module, source: SeriesBatch, written: Sequence[int], reduction: int) -> None:
        super().__init__(model, source, reduction)
        self.written = torch.tensor(list(written), device=self.device)

    @property
    def rows(self) -> int:
        return len(self.written)

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        model: Any = self.model
        batch = self.variants(copies, keep)
        words = torch.cat([torch.tensor([START], device=self.device), self.written[:-1]]).expand(copies, -1)
        features, _ = model.decode(words, model.begin(batch))
        log_probs = torch.log_softmax(model.output(features), dim=-1)
        return log_probs.gather(-1, self.written.expand(copies, -1).unsqueeze(-1)).squeeze(-1), batch.values


class SeriesVectorsSubject(SeriesHiding):
    """A model from series to vectors, one series, and the vectors that were written, which it is given again.

    A cost is the mean squared change of the standardised numbers of a vector. The gradient is that of a vector's
    component along itself: a change that is squared has no gradient where nothing has changed yet.
    """

    row_name = "vector"

    def __init__(self, model: nn.Module, source: SeriesBatch, written: Float[Tensor, "1 u e"], reduction: int) -> None:
        super().__init__(model, source, reduction)
        self.written = written.to(self.device)
        with torch.no_grad(), evaluating(model):
            self.before = self._again(1, torch.ones(1, self.columns, dtype=torch.bool, device=self.device))[0]

    @property
    def rows(self) -> int:
        return self.written.shape[1]

    def effect(self, cost: float) -> str:
        return numbers_change(cost)

    def _again(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        model: Any = self.model
        batch = self.variants(copies, keep)
        return model.again(model.annotate(batch), self.written.expand(copies, -1, -1)), batch.values

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        vectors, values = self._again(copies, keep)
        measured = vectors * self.before if keep is None else -(vectors - self.before).square()
        return measured.mean(dim=-1), values


class SeriesPositionsSubject(SeriesHiding):
    """A model from series to positions, one series, and the positions that were chosen, which it is given again.

    The end is the last column, which is no part of the input and is not hidden; where it was chosen, it is the last
    row.
    """

    row_name, column_name = "choice", "position"

    def __init__(
        self, model: nn.Module, source: SeriesBatch, places: Int[Tensor, "1 u"], complete: bool, once: bool
    ) -> None:
        super().__init__(model, source, 1)
        self.hideable[-1] = False
        end = torch.full((1, int(complete)), self.columns - 1)
        self.written = torch.cat([places.to(self.device), end.to(self.device)], dim=1)
        self.once = once

    @property
    def rows(self) -> int:
        return self.written.shape[1]

    @property
    def columns(self) -> int:
        return super().columns + 1

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        model: Any = self.model
        batch = self.variants(copies, keep)
        weights = model.follow(model.annotate(batch), self.written[:, :-1].expand(copies, -1), self.once)
        own = weights.gather(-1, self.written.expand(copies, -1).unsqueeze(-1)).squeeze(-1)
        return own.clamp(min=torch.finfo(own.dtype).tiny).log(), batch.values


def numbers_change(cost: float) -> str:
    """What a mean squared change of standardised numbers is, in words."""
    return f"the numbers of a vector change by {max(cost, 0.0) ** 0.5:.2f} deviations"


class SeriesLabelSubject(SeriesHiding):
    """A model from series to labels, one series, and what is measured of its scores."""

    row_name = "label"

    def __init__(
        self, model: nn.Module, source: SeriesBatch, reduction: int, measure: Callable[[Tensor, bool], Tensor]
    ) -> None:
        super().__init__(model, source, reduction)
        self.measure = measure

    @property
    def rows(self) -> int:
        return 1

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        model: Any = self.model
        batch = self.variants(copies, keep)
        return self.measure(model.scores(batch), keep is None).unsqueeze(1), batch.values
