"""Where people looked, from a table, and how well maps say it."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from sightline.data.columns import Columns, choose_columns, read_columns, text_problem
from sightline.errors import UserError
from sightline.saliency.scores import auc_judd, auc_shuffled, fixation_density, kl_divergence, nss, similarity

Places = Float[np.ndarray, "_ 2"]
SPREAD = 0.035  # of the longer side: what one degree of view is in the usual collections, 35 of 1,024 pixels
MOST_ELSEWHERE = 100_000  # fixations of other images that one image is compared with
METRICS = ("AUC-Judd", "shuffled AUC", "NSS", "similarity", "KL")


class Looked(NamedTuple):
    """Where people looked in one image: fixations in its pixels, and the height and width that those are of."""

    fixations: Places
    height: int
    width: int

    def within(self, height: int, width: int) -> Places:
        """The same places in an image of another size."""
        return self.fixations * np.array([width / self.width, height / self.height])

    def inside(self) -> "Looked":
        """Without fixations that lie outside the image."""
        fits = (self.fixations >= 0) & (self.fixations < np.array([self.width, self.height]))
        return self._replace(fixations=self.fixations[fits.all(axis=1)])


def read_fixations(data: str | Path) -> dict[Path, Places]:
    """The fixations of each image, from a table with the columns image, x and y.

    Paths are relative to the table's folder, and come back resolved. Other columns, such as the viewer, are not read.
    """
    base = Path(data).parent
    found: dict[Path, list[tuple[float, float]]] = defaultdict(list)
    resolved: dict[str, Path] = {}
    for values, file, line, problem in read_columns(str(data), _columns):
        problem = problem or text_problem(values[0], "the image") or _number_problem(values[1:])
        if problem is not None:
            raise UserError(f"{file}:{line}: {problem}")
        name, x, y = values
        if name not in resolved:
            resolved[name] = (base / name.strip()).resolve()
        found[resolved[name]].append((float(x), float(y)))
    if not found:
        raise UserError(f"{data} has no rows; expected fixations, with the columns image, x and y")
    return {path: np.array(places) for path, places in found.items()}


def _columns(name: str, found: Sequence[str]) -> Columns:
    return choose_columns(name, found, [("image",), ("x",), ("y",)], None, option=False)


def _number_problem(values: Sequence[Any]) -> str | None:
    for name, value in zip("xy", values, strict=True):
        try:
            good = not isinstance(value, bool) and math.isfinite(float(value))
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            return f"{name} is {str(value)[:40]!r}; expected a number of pixels"
    return None


def score_each(
    map_of: Callable[[int], np.ndarray], looked: Sequence[Looked], metrics: Iterable[str] = METRICS
) -> dict[str, list[float]]:
    """Every metric for every image. ``map_of`` gives the map of an image, at any size, when it is needed.

    An image's fixations elsewhere, for the shuffled AUC, are those of all other images, as shares of height and width.
    """
    shares = [one.within(1, 1) for one in looked]
    wanted = list(metrics)
    found: dict[str, list[float]] = {name: [] for name in wanted}
    for number, one in enumerate(looked):
        others = np.concatenate([share for other, share in enumerate(shares) if other != number] or [shares[0][:0]])
        every = math.ceil(len(others) / MOST_ELSEWHERE) or 1
        scores = score_one(map_of(number), one, others[::every], wanted)
        for name in wanted:
            found[name].append(scores[name])
    return found


def score_one(
    saliency: np.ndarray,
    looked: Looked,
    elsewhere: Places,
    metrics: Sequence[str] = METRICS,
    density: np.ndarray | None = None,
) -> Mapping[str, float]:
    """The metrics of one map; ``elsewhere`` are the fixations of other images as shares of width and height.

    ``density`` is that of the fixations at the size of the map, where it is known already.
    """
    height, width = saliency.shape
    here = looked.within(height, width)
    if density is None:
        density = fixation_density(here, height, width, SPREAD * max(height, width))
    ways: dict[str, Callable[[], float]] = {
        "AUC-Judd": lambda: auc_judd(saliency, here),
        "shuffled AUC": lambda: auc_shuffled(saliency, here, elsewhere * np.array([width, height])),
        "NSS": lambda: nss(saliency, here),
        "similarity": lambda: similarity(saliency, density),
        "KL": lambda: kl_divergence(saliency, density),
    }
    return {name: ways[name]() for name in metrics}
