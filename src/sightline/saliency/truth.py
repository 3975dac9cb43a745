"""Human fixations from a table, and the scores of saliency maps by them."""

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
SPREAD = 0.035  # of the longer side: one degree of view in the usual collections, 35 of 1,024 pixels
MOST_ELSEWHERE = 100_000  # fixations of other images with which one image is compared
METRICS = ("AUC-Judd", "shuffled AUC", "NSS", "similarity", "KL")


class HumanFixations(NamedTuple):
    """Human fixations in pixels of one image, and the height and width of that image."""

    fixations: Places
    height: int
    width: int

    def within(self, height: int, width: int) -> Places:
        """The same fixations in an image of another size."""
        return self.fixations * np.array([width / self.width, height / self.height])

    def inside(self) -> "HumanFixations":
        """Without fixations outside the image."""
        fits = (self.fixations >= 0) & (self.fixations < np.array([self.width, self.height]))
        return self._replace(fixations=self.fixations[fits.all(axis=1)])


def read_fixations(data: str | Path) -> dict[Path, Places]:
    """The fixations of each image, from a table with the columns image, x and y.

    Paths are relative to the table's folder and returned resolved. Other columns, such as the viewer, are not read.
    """
    base = Path(data).parent
    fixations: dict[Path, list[tuple[float, float]]] = defaultdict(list)
    resolved: dict[str, Path] = {}
    for values, file, line, problem in read_columns(str(data), _columns):
        problem = problem or text_problem(values[0], "the image") or _number_problem(values[1:])
        if problem is not None:
            raise UserError(f"{file}:{line}: {problem}")
        name, x, y = values
        if name not in resolved:
            resolved[name] = (base / name.strip()).resolve()
        fixations[resolved[name]].append((float(x), float(y)))
    if not fixations:
        raise UserError(f"{data} has no rows; expected fixations, with the columns image, x and y")
    return {path: np.array(places) for path, places in fixations.items()}


def _columns(name: str, columns: Sequence[str]) -> Columns:
    return choose_columns(name, columns, [("image",), ("x",), ("y",)], None, option=False)


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
    maps: Iterable[np.ndarray], people: Sequence[HumanFixations], metrics: Sequence[str] = METRICS
) -> dict[str, list[float]]:
    """Every metric for every image. ``maps`` are read one by one, and may have any size.

    For the shuffled AUC of an image, fixations elsewhere are those of all other images, relative to height and width.
    """
    shares = [one.within(1, 1) for one in people]
    scores = []
    for number, (one, saliency) in enumerate(zip(people, maps, strict=True)):
        others = np.concatenate([share for other, share in enumerate(shares) if other != number] or [shares[0][:0]])
        every = math.ceil(len(others) / MOST_ELSEWHERE) or 1
        scores.append(score_one(saliency, one, others[::every], metrics))
    return {name: [of_image[name] for of_image in scores] for name in metrics}


def score_one(
    saliency: np.ndarray,
    people: HumanFixations,
    elsewhere: Places,
    metrics: Sequence[str] = METRICS,
    density: np.ndarray | None = None,
) -> Mapping[str, float]:
    """The metrics of one map; ``elsewhere`` are the fixations of other images relative to width and height.

    ``density`` is that of the fixations at the size of the map, if it is known already.
    """
    height, width = saliency.shape
    here = people.within(height, width)
    if density is None:
        density = fixation_density(here, height, width, SPREAD * max(height, width))
    metric_of: dict[str, Callable[[], float]] = {
        "AUC-Judd": lambda: auc_judd(saliency, here),
        "shuffled AUC": lambda: auc_shuffled(saliency, here, elsewhere * np.array([width, height])),
        "NSS": lambda: nss(saliency, here),
        "similarity": lambda: similarity(saliency, density),
        "KL": lambda: kl_divergence(saliency, density),
    }
    return {name: metric_of[name]() for name in metrics}
