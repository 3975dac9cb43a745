"""`capture(model)`: the attention of any model as plain records.

::

    with capture(model) as trace:
        model(inputs)
    trace.names                              # which mechanisms ran
    trace["decoder.attention"].weights       # example, head, row, column
    trace.records(rows=Tokens(...), columns=Tokens(...))

Outside the block nothing changes and nothing is slower; inside, the weights are exact. With ``top=k`` only the k
largest weights of each row are kept and the mechanisms work in blocks of rows, so memory stays linear in the length.
With ``change`` the weights are changed before they are used: the same hook serves viewing and intervention.
A layer that a model repeats has a map of each repeat: ``encoder.layer.attention@1``, ``@2`` and so on.

The model need not be made of our mechanisms: `sightline.explain.intercept` lists which attention is seen, and a module
of your own is seen after one call of `sightline.show_attention`.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention.tap import Look, Tap, open_tap, repeat_suffix
from sightline.records import Axis, Record, Slots, TopK

Change = Callable[["Site", Look], Tensor]
Axes = Axis | Mapping[str, Axis] | None
LOG = logging.getLogger(__name__)
BLOCK = 1 << 22  # weights at once in top-k mode: 16 MB of float32


@dataclass(frozen=True)
class Site:
    """Where in the model an attention is."""

    name: str
    layer: int


@dataclass
class _Selection:
    """Which layers and heads to keep: all where None. Unknown layers or heads raise an error."""

    layers: tuple[int | str, ...] | None
    heads: tuple[int, ...] | None
    matched: set[int | str] = field(default_factory=set)

    def of(self, site: Site, count: int | None) -> Sequence[int] | None:
        """The heads to keep of a mechanism with ``count`` heads (None: checked before); None for all."""
        if self.layers is not None:
            matching = [
                one
                for one in self.layers
                if one == site.layer or (isinstance(one, str) and fnmatchcase(site.name, one))
            ]
            self.matched.update(matching)
            if not matching:
                return ()
        missing = [head for head in self.heads or () if count is not None and not 0 <= head < count]
        if missing:
            raise ValueError(f"{site.name!r} has {count} heads; there is no head {missing[0]}")
        return self.heads

    def check(self, names: Collection[str]) -> None:
        for one in self.layers or ():
            if one not in self.matched:
                what = f"attention number {one}" if isinstance(one, int) else f"attention named {one!r}"
                raise ValueError(f"layers: no {what} ran; there is {', '.join(names)}")


@dataclass
class _Piece:
    """The rows of one call of a mechanism. ``weights`` are whole, or the largest k with their ``places``."""

    position: int
    columns: int
    weights: Float[Tensor, "b h t n"]
    places: Int[Tensor, "b h t n"] | None
    scores: Float[Tensor, "b h t s"] | None

    def grown(self, rows: int) -> "_Piece":
        """The same with room for more rows, for a call that is shown in blocks."""
        more: dict[str, Any] = {name: nn.functional.pad(part, (0, 0, 0, rows)) for name, part in self._parts().items()}
        return replace(self, **more)

    def fill(self, start: int, block: "_Piece") -> None:
        """Insert a block of rows."""
        rows = slice(start, start + block.weights.shape[2])
        for name, part in block._parts().items():
            getattr(self, name)[:, :, rows] = part

    def _parts(self) -> dict[str, Tensor]:
        parts = {"weights": self.weights, "places": self.places, "scores": self.scores}
        return {name: part for name, part in parts.items() if part is not None}


@dataclass
class AttentionMap:
    """The attention of one mechanism in one pass over a batch: `example, head, row, column`."""

    name: str
    layer: int
    heads: tuple[int, ...] = ()  # the numbers of the kept heads
    _passage: int = 0
    _pieces: list[_Piece] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return max(piece.columns for piece in self._pieces)

    @property
    def rows(self) -> int:
        return sum(piece.weights.shape[2] for piece in self._pieces)

    @property
    def weights(self) -> Float[Tensor, "b h t s"]:
        """All weights. Under ``top=k`` the ones that were not kept are zero. Computed at each access."""
        if self._pieces[0].places is None:
            return _stack([piece.weights for piece in self._pieces], self.columns, 0.0)
        values, places = self.largest
        # Rows with fewer than k keys have place −1: scatter those to a spare column, and drop it.
        spare = self.columns
        full = values.new_zeros(*values.shape[:3], spare + 1)
        full.scatter_(-1, torch.where(places < 0, spare, places).long(), values)
        return full[..., :spare]

    @property
    def largest(self) -> tuple[Float[Tensor, "b h t k"], Int[Tensor, "b h t k"]]:
        """Under ``top=k``: the largest weights of each row and their columns (−1: fewer than k)."""
        places = [piece.places for piece in self._pieces if piece.places is not None]
        if not places:
            raise ValueError(f"{self.name} was captured whole; use .weights, or capture with top=k")
        width = max(piece.weights.shape[-1] for piece in self._pieces)
        values = _stack([piece.weights for piece in self._pieces], width, 0.0)
        return values, _stack(places, width, -1)

    @property
    def scores(self) -> Float[Tensor, "b h t s"] | None:
        """The scores before the normaliser, −inf where masked, if ``scores`` were captured."""
        scores = [piece.scores for piece in self._pieces if piece.scores is not None]
        return _stack(scores, self.columns, -torch.inf) if scores else None

    def records(self, example: int = 0, rows: Axis | None = None, columns: Axis | None = None) -> list[Record]:
        """One plain record for each head, for one example of the batch; padding beyond the axes is removed."""
        rows = Slots(self.rows) if rows is None else rows
        columns = Slots(self.columns) if columns is None else columns
        if len(rows) > self.rows or len(columns) > self.columns:
            raise ValueError(
                f"{self.name} has {self.rows} rows and {self.columns} columns, and the axes {len(rows)}, {len(columns)}"
            )
        kept: list[np.ndarray | TopK]
        if self._pieces[0].places is None:
            kept = list(_numpy(self.weights[example])[:, : len(rows), : len(columns)])
        else:
            values, places = (_numpy(part[example])[:, : len(rows)] for part in self.largest)
            places = np.where(places < len(columns), places, -1).astype(np.int32)
            kept = [TopK(p, v, len(columns)) for p, v in zip(places, values, strict=True)]
        scores = self.scores
        cut = None if scores is None else _numpy(scores[example])[:, : len(rows), : len(columns)]
        return [
            Record(self.name, self.layer, head, rows, columns, weights, None if cut is None else cut[place])
            for place, (head, weights) in enumerate(zip(self.heads, kept, strict=True))
        ]


class Trace(Tap):
    """What `capture` fills."""

    def __init__(
        self, model: nn.Module, top: int | None, keep_scores: bool, change: Change | None, selection: _Selection
    ) -> None:
        if top is not None and top < 1:
            raise ValueError(f"top is {top}; it must be at least 1")
        self.maps: list[AttentionMap] = []
        self.largest = None if top is None else BLOCK
        self.changes = change is not None
        self._top, self._keep_scores, self._change = top, keep_scores, change
        self.mechanisms: dict[str, nn.Module] = {}  # by name, in the order of their first call
        self._names = {id(module): _site_name(name) for name, module in model.named_modules()}
        self._layers: dict[str, int] = {}
        self._selection = selection
        self._model = model  # keeps the ids valid

    def sees(self, mechanism: nn.Module) -> bool:
        return id(mechanism) in self._names

    def heads(self, mechanism: nn.Module, count: int) -> Sequence[int]:
        heads = self._selection.of(self._site(self._names[id(mechanism)] + repeat_suffix()), count)
        # A change applies to the whole model, whatever is kept of it.
        return range(count) if heads is None or self._change is not None else heads

    def _site(self, name: str) -> Site:
        return Site(name, self._layers.setdefault(name, len(self._layers)))

    def __call__(self, look: Look) -> Float[Tensor, "*b t s"]:
        name = self._names.get(id(look.mechanism))
        if name is None:  # a mechanism of another model
            return look.weights
        site, weights = self._site(name + repeat_suffix()), look.weights
        if self._change is not None:
            weights = self._change(site, look)
            if weights.shape != look.weights.shape:
                raise ValueError(
                    f"change returned weights of shape {tuple(weights.shape)} for {name!r}; expected "
                    f"{tuple(look.weights.shape)}"
                )
        self._keep(site, look, weights.detach())
        return weights

    def _keep(self, site: Site, look: Look, weights: Tensor) -> None:
        shape = weights.shape
        count = shape[len(shape) - 2 - look.heads : -2].numel()
        numbers = tuple(range(count)) if look.numbers is None else look.numbers
        # A mechanism that shows its heads by number got them from `heads`, which checked the count.
        selected = self._selection.of(site, count if look.numbers is None else None)
        heads = tuple(number for number in numbers if selected is None or number in selected)
        if not heads:
            return
        self.mechanisms.setdefault(site.name, look.mechanism)
        places, columns = None, weights.shape[-1]
        if self._top is not None:
            weights, places = weights.topk(min(self._top, columns), dim=-1)
            places = places.masked_fill(weights == 0, -1).to(torch.int32)
        scores = None
        if self._keep_scores:
            scores = look.scores.detach()
            scores = scores if look.allowed is None else scores.masked_fill(~look.allowed, -torch.inf)
        own = slice(None) if heads == numbers else [numbers.index(head) for head in heads]
        shaped = [None if part is None else _four_axes(part, look.heads)[:, own] for part in (weights, places, scores)]
        assert shaped[0] is not None
        piece = _Piece(look.position, columns, shaped[0], shaped[1], shaped[2])
        pieces = self._map_of(site, piece, look, heads)._pieces
        if look.shown:
            pieces[-1].fill(look.shown, piece)
        else:
            pieces.append(piece.grown(look.to_come) if look.to_come else piece)

    def _map_of(self, site: Site, piece: _Piece, look: Look, heads: tuple[int, ...]) -> AttentionMap:
        """The map that a call continues, or a new one: calls that share one carry make one map.

        A module that shows itself without a passage is matched by position: a call continues where the newest map
        ended.
        """
        for newest in reversed(self.maps):
            if newest.name != site.name or newest._passage != look.passage:
                continue
            last = newest._pieces[-1]
            continues = look.shown or piece.position == last.position + last.weights.shape[2]
            if continues and piece.position > 0 and piece.weights.shape[:2] == last.weights.shape[:2]:
                return newest
            break
        self.maps.append(AttentionMap(site.name, site.layer, heads, look.passage))
        return self.maps[-1]

    @property
    def ran(self) -> list[str]:
        """All mechanisms that ran, kept or not."""
        return list(self._layers)

    @property
    def names(self) -> list[str]:
        """The mechanisms that were kept, in the order of their first call."""
        return list(dict.fromkeys(one.name for one in self.maps))

    def __getitem__(self, name: str) -> AttentionMap:
        """The map of a mechanism; of several passes, the last."""
        for one in reversed(self.maps):
            if one.name == name:
                return one
        raise KeyError(f"no attention named {name!r} was captured; there is {', '.join(self.names) or 'none'}")

    def records(self, example: int = 0, rows: Axes = None, columns: Axes = None) -> list[Record]:
        """The records of every map, one for each head.

        The axes are the same for all maps, or given by the maps' names: self- and cross-attention have different ones.
        """
        return [
            record
            for one in self.maps
            for record in one.records(example, _axis_of(rows, one.name), _axis_of(columns, one.name))
        ]


def _axis_of(axes: Axes, name: str) -> Axis | None:
    return axes.get(name) if isinstance(axes, Mapping) else axes


@contextmanager
def capture(
    model: nn.Module,
    *,
    top: int | None = None,
    scores: bool = False,
    change: Change | None = None,
    layers: Collection[int | str] | None = None,
    heads: Collection[int] | None = None,
) -> Iterator[Trace]:
    """Record the attention of ``model`` inside the block, in this thread only.

    ``top`` keeps the k largest weights of each row, ``scores`` keeps the scores as well, ``change`` replaces the
    weights before they are used: `uniform`, `cut(name, head)`, or any function of the site and the `Look`. ``layers``
    and ``heads`` keep only some: layers by number, in the order in which they run, or by name, where * matches
    anything. For a model that is not ours, other weights are not computed, unless there is a ``change``, which sees all
    of them.

    In training, the weights are those before dropout.
    """
    selection = _Selection(None if layers is None else tuple(layers), None if heads is None else tuple(heads))
    trace = Trace(model, top, scores, change, selection)
    # Only where it may be needed: interception costs a little for every call of PyTorch.
    from sightline.explain.intercept import intercepting, may_be_foreign

    with open_tap(trace), intercepting() if may_be_foreign(model) else nullcontext():
        yield trace
    selection.check(trace.ran)
    if not trace.ran and not type(model).__module__.startswith("sightline."):  # our commands know their own models
        LOG.warning("no attention ran that capture can record; sightline.explain.intercept lists what it can")
    if isinstance(change, _Cut) and trace.ran and not change.matched:
        raise ValueError(f"cut: no attention named {change.name!r} ran; there is {', '.join(trace.ran)}")


def uniform(site: Site, look: Look) -> Tensor:
    """The same weight for every key that may be attended to: the model without its attention."""
    ones = torch.ones_like(look.weights)
    if look.allowed is not None:
        ones = ones.masked_fill(~look.allowed, 0.0)
    return ones / ones.sum(dim=-1, keepdim=True).clamp(min=1.0)


def cut(name: str, head: int) -> Change:
    """Ablate one head: its context is zero."""
    return _Cut(name, head)


@dataclass
class _Cut:
    name: str
    head: int
    matched: bool = False  # a name that never runs is an error

    def __call__(self, site: Site, look: Look) -> Tensor:
        if site.name != self.name:
            return look.weights
        self.matched = True
        weights = _four_axes(look.weights, look.heads)
        if not 0 <= self.head < weights.shape[1]:
            raise ValueError(f"{self.name!r} has {weights.shape[1]} heads; there is no head {self.head}")
        keep = torch.ones(weights.shape[1], dtype=weights.dtype, device=weights.device)
        keep[self.head] = 0.0
        return (weights * keep[:, None, None]).reshape(look.weights.shape)


def _site_name(module_name: str) -> str:
    """A mechanism inside a wrapper (multi-head, pooling) has the wrapper's name; a whole model is 'attention'."""
    parts = [part for part in module_name.split(".") if part != "_orig_mod"]  # added by torch.compile
    while parts and parts[-1] in ("inner", ""):
        parts.pop()
    return ".".join(parts) or "attention"


def _four_axes(x: Tensor, head_axes: int) -> Tensor:
    """``*batch *heads t s`` → ``batch, heads, t, s``."""
    split = x.dim() - 2 - head_axes
    heads = x.shape[split : x.dim() - 2].numel()
    return x.reshape(x.shape[:split].numel(), heads, *x.shape[-2:])


def _stack(parts: list[Tensor], columns: int, empty: float | int) -> Tensor:
    """Along the rows; a memory that grows while decoding has fewer columns in its first rows."""
    padded = [nn.functional.pad(part, (0, columns - part.shape[-1]), value=empty) for part in parts]
    return torch.cat(padded, dim=2)


def _numpy(tensor: Tensor) -> np.ndarray:
    tensor = tensor.cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
