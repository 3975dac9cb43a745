"""Baselines: what a linear model on words, and on their n-grams, reaches on the same texts.

A model with attention that does not beat them has learnt nothing that counting words does not give. So every run of
`classify` trains both and shows their scores beside its own.

- ``linear``: logistic regression (ridge regression for numbers) on the words that a text has, weighed by how rare they
  are, each text as a vector of length 1.
- ``nb-svm``: Wang and Manning (2012), *Baselines and Bigrams*, on n-grams of one to three words: a text's n-grams, each
  weighed by its log-count ratio r = log((p / |p|) / (q / |q|)), where p and q count (and 1 more) in how many texts of
  the class, and of all others, it stands; then a linear classifier of each class against the rest, its weights drawn
  towards their mean size. Here its loss is the logistic one: as good on IMDB, and its margins say how sure it is. For
  numbers there is no class to count in, and the baseline is ridge regression on the same n-grams: ``ngrams``.

How strongly they are held to small weights is chosen on a tenth of the texts that they are not fitted to; then they are
fitted to all. What people get wrong: a comparison with untuned baselines proves little.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, Shaped
from torch import Tensor

from sightline.baselines.linear import Loss, Matrix, fit_linear, rarities, ratios
from sightline.data.ngrams import Bags, Text, Words, find_ngrams, fingerprints, learn_ngrams
from sightline.errors import UserError
from sightline.files import read_json, write_text
from sightline.metrics import accuracy, macro_f1, micro_f1
from sightline.training.folder import load_tensors, save_tensors

Kind = Literal["one", "several", "number"]  # one label for a text, any number of them, a number
FORMAT = 1
WEIGHTS, FACTS = "floors.safetensors", "floors.json"
_MOST_CHARACTERS = 100_000_000  # read at most; of more texts, a sample is taken
_MOST_WEIGHTS = 1 << 23  # of a baseline: features times classes
_FEW = 1000  # texts: of fewer, words that stand in only one are kept too
_STRENGTHS, _RATIO_STRENGTHS = (3.0, 1.0, 10.0), (1.0, 0.1, 10.0)  # the first is taken where all are as good
_OWN = (1.0, 0.5)
_MOST_HELD = 5000
_AT_ONCE = 20_000  # texts scored at a time


@dataclass(frozen=True)
class LinearBaseline:
    """A linear model on n-grams.

    ``strength`` is what the errors weigh against the size of the weights, and ``own`` how much of each weight is left
    as it was found, the rest being the mean size of all (Wang and Manning's β).
    """

    longest: int
    strength: float
    own: float
    ngrams: Int64[np.ndarray, " features"]
    weights: Float32[np.ndarray, "features outputs"]
    bias: Float32[np.ndarray, " outputs"]
    rarity: Float32[np.ndarray, " features"] | None = None  # texts become vectors of length 1 where it is given

    def outputs(self, texts: Sequence[Text]) -> Float32[np.ndarray, "texts outputs"]:
        outputs = [np.zeros((0, len(self.bias)), dtype=np.float32)]
        for start in range(0, len(texts), _AT_ONCE):
            rows = find_ngrams(fingerprints(texts[start : start + _AT_ONCE]), self.ngrams, self.longest)
            matrix = Matrix(rows, len(self.ngrams), self.rarity)
            outputs.append(matrix.times(torch.from_numpy(self.weights)).numpy() + self.bias)
        return np.concatenate(outputs)


@dataclass(frozen=True)
class LinearBaselines:
    """The baselines of a run: fitted to ``used`` of the ``texts`` that it was trained on."""

    kind: Kind
    texts: int
    used: int
    floors: dict[str, LinearBaseline]

    def scores(self, texts: Sequence[Text]) -> dict[str, Float[np.ndarray, "texts ..."]]:
        """Of each baseline: margins of every class (the largest, or those over 0, are predicted), or the numbers."""
        scores = {}
        for name, baseline in self.floors.items():
            outputs = baseline.outputs(texts)
            if self.kind == "number":
                scores[name] = outputs[:, 0]
            elif self.kind == "one" and outputs.shape[1] == 1:  # of two classes the second; the first is its opposite
                scores[name] = np.concatenate((np.zeros_like(outputs), outputs), axis=1)
            else:
                scores[name] = outputs
        return scores

    def save(self, folder: Path) -> list[str]:
        """Write both files into a folder, and say how they are named."""
        tensors = {
            f"{name}.{part}": torch.from_numpy(values)
            for name, baseline in self.floors.items()
            for part in ("ngrams", "weights", "bias", "rarity")
            if (values := getattr(baseline, part)) is not None
        }
        save_tensors(folder / WEIGHTS, tensors)
        facts = {
            "format": FORMAT,
            "kind": self.kind,
            "texts": self.texts,
            "used": self.used,
            "floors": {
                name: {"longest": baseline.longest, "strength": baseline.strength, "own": baseline.own}
                for name, baseline in self.floors.items()
            },
        }
        write_text(folder / FACTS, json.dumps(facts, indent=2) + "\n")
        return [WEIGHTS, FACTS]

    @classmethod
    def load(cls, folder: Path) -> "LinearBaselines":
        """What `save` wrote. The files are not trusted: what does not fit together is refused."""
        path = folder / FACTS
        try:
            facts = read_json(path)
            if facts["format"] > FORMAT:
                raise UserError(f"{path} was written by a newer Sightline: its format is {facts['format']}")
            tensors = load_tensors(folder / WEIGHTS)
            floors = {str(name): _checked(name, one, tensors) for name, one in facts["floors"].items()}
            if facts["kind"] not in get_args(Kind) or not floors:
                raise ValueError(f"its kind is {facts['kind']!r}, with {len(floors)} baselines")
            return cls(facts["kind"], int(facts["texts"]), int(facts["used"]), floors)
        except FileNotFoundError:
            raise UserError(f"{path} is missing: these baselines were not saved, or not whole") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UserError(f"{path} and {WEIGHTS} are damaged or do not belong together: {error}") from None


def _checked(name: str, facts: dict[str, Any], tensors: dict[str, Tensor]) -> LinearBaseline:
    ngrams, weights, bias = (tensors[f"{name}.{part}"].numpy() for part in ("ngrams", "weights", "bias"))
    kept = tensors.get(f"{name}.rarity")
    rarity = None if kept is None else kept.numpy()
    if ngrams.dtype != np.int64 or ngrams.ndim != 1 or (np.diff(ngrams) <= 0).any():
        raise ValueError(f"the n-grams of {name} are not in order")
    numbers = [weights, bias, *([] if rarity is None else [rarity])]
    if any(one.dtype != np.float32 or not np.isfinite(one).all() for one in numbers):
        raise ValueError(f"the weights of {name} are not numbers")
    if weights.shape != (len(ngrams), *bias.shape) or (rarity is not None and rarity.shape != ngrams.shape):
        raise ValueError(f"{name} has {len(ngrams)} n-grams and weights of shape {weights.shape}")
    longest = facts["longest"]
    if not isinstance(longest, int) or not 1 <= longest <= 8:
        raise ValueError(f"{name} has n-grams of {longest!r} words")
    return LinearBaseline(longest, float(facts["strength"]), float(facts["own"]), ngrams, weights, bias, rarity)


def fit_baselines(
    texts: Sequence[Text],
    gold: Shaped[np.ndarray, "texts ..."],
    kind: Kind,
    classes: int = 0,
    seed: int = 0,
    without: Collection[str] = (),
) -> LinearBaselines:
    """Both baselines for these texts (or pairs of texts), or those that are not ``without``.

    ``gold`` is a class from 0 for each text (``one``), a row of 0 and 1 (``several``) or a number. Far too many texts
    are sampled: their first 100 million characters in an order that the seed says.
    """
    _check(texts, gold, kind, classes)
    lengths = np.array([len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts], dtype=np.int64)
    chosen = sample(lengths, _MOST_CHARACTERS, seed)
    some, truth = (texts, gold) if len(chosen) == len(texts) else ([texts[place] for place in chosen], gold[chosen])
    plans = {"linear": 1, "ngrams" if kind == "number" else "nb-svm": 3}
    floors = {
        name: fit_ngrams(fingerprints(some), truth, kind, classes, longest, seed)
        for name, longest in plans.items()
        if name not in without
    }
    return LinearBaselines(kind, len(texts), len(chosen), floors)


def _check(texts: Sequence[Text], gold: np.ndarray, kind: Kind, classes: int) -> None:
    if not len(texts) or len(texts) != len(gold):
        raise ValueError(f"{len(texts)} texts with {len(gold)} labels; expected as many of both, and at least one")
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; it can be {', '.join(get_args(Kind))}")
    if kind == "one" and (gold.ndim != 1 or classes < 2 or gold.min() < 0 or gold.max() >= classes):
        raise ValueError(f"labels are not all from 0 to {classes - 1}")
    if kind == "several" and gold.shape != (len(texts), classes):
        raise ValueError(f"labels of shape {gold.shape}; expected {len(texts)} rows of {classes}")
    if kind == "number" and (gold.ndim != 1 or not np.isfinite(gold).all()):
        raise ValueError("numbers have to be finite, one for each text")


def sample(lengths: Int64[np.ndarray, " texts"], most: int, seed: int) -> Int64[np.ndarray, " chosen"]:
    """All texts, or where their lengths sum to more than ``most``, as many as that allows, drawn by the seed."""
    if lengths.sum() <= most:
        return np.arange(len(lengths))
    order = np.random.default_rng(seed).permutation(len(lengths))
    count = int(np.searchsorted(np.cumsum(lengths[order]), most, side="right"))
    return np.sort(order[: max(count, 1)])


def fit_ngrams(
    texts: Iterable[Words],
    gold: Shaped[np.ndarray, "texts ..."],
    kind: Kind,
    classes: int,
    longest: int,
    seed: int,
    by_ratio: bool | None = None,
) -> LinearBaseline:
    """A linear model on n-grams of up to ``longest`` words; ``by_ratio``: NB-SVM, which is the default of labels where
    n-grams have more than one word. Of two classes it has one output: that of the second."""
    draw = np.random.default_rng(seed)
    by_ratio = longest > 1 and kind != "number" if by_ratio is None else by_ratio
    outputs = 1 if kind == "number" or (by_ratio and kind == "one" and classes == 2) else classes
    at_least = 2 if len(gold) >= _FEW else 1
    ngrams, rows = learn_ngrams(texts, longest, at_least, max(_MOST_WEIGHTS // outputs, 1))
    problem = _Problem(kind, outputs, by_ratio, rarities(rows, len(ngrams)))
    strength, own = problem.choose(rows, gold, draw)
    fitted, bias = problem.fit(rows, gold, strength)
    weights = fitted(own)
    return LinearBaseline(longest, strength, own, ngrams, weights, bias, None if by_ratio else problem.rarity)


@dataclass(frozen=True)
class _Problem:
    """What a baseline is fitted to."""

    kind: Kind
    outputs: int
    by_ratio: bool
    rarity: Float32[np.ndarray, " features"]

    def choose(self, rows: Bags, gold: np.ndarray, draw: np.random.Generator) -> tuple[float, float]:
        """The strength and the share of own weights that are best on a tenth of the texts, fitted to the others."""
        strengths = _RATIO_STRENGTHS if self.by_ratio else _STRENGTHS
        shares = _OWN if self.by_ratio else (1.0,)
        order = draw.permutation(len(rows))
        tenth = min(len(rows) // 10, _MOST_HELD)
        if tenth < 2:
            return strengths[0], shares[0]
        held, others = np.sort(order[:tenth]), np.sort(order[tenth:])
        matrix = self._matrix(rows.take(held))
        tried: dict[tuple[float, float], float] = {}
        for strength in strengths:
            weights, bias = self.fit(rows.take(others), gold[others], strength)
            for own in shares:
                outputs = matrix.times(torch.from_numpy(weights(own))).numpy() + bias
                tried[strength, own] = self._goodness(outputs, gold[held])
        return max(tried, key=tried.__getitem__)  # of equal ones the first

    def fit(
        self, rows: Bags, gold: np.ndarray, strength: float
    ) -> tuple[Callable[[float], Float32[np.ndarray, "features outputs"]], Float32[np.ndarray, " outputs"]]:
        """The bias, and the weights as a function of the share that is their own."""
        matrix, members = self._matrix(rows), self._members(gold)
        if self.kind == "number":
            centre, spread = float(gold.mean()), float(gold.std()) or 1.0
            target: np.ndarray = ((gold - centre) / spread)[:, None].astype(np.float32)
            loss: Loss = "squares"
        elif self.kind == "one" and not self.by_ratio:
            target, loss = gold, "softmax"
        else:
            target, loss = np.where(members, 1.0, -1.0).astype(np.float32), "logistic"
        scales = ratios(matrix, members) if self.by_ratio else self.rarity[:, None]
        weights, bias = fit_linear(matrix, scales, target, self.outputs, loss, strength)
        if self.kind == "number":
            weights, bias = weights * np.float32(spread), (bias * spread + centre).astype(np.float32)
        size = np.abs(weights).mean(axis=0) if len(weights) else np.zeros(self.outputs, np.float32)

        def drawn(own: float) -> Float32[np.ndarray, "features outputs"]:
            return (((1 - own) * size + own * weights) * scales).astype(np.float32)

        return drawn, bias

    def _matrix(self, rows: Bags) -> Matrix:
        return Matrix(rows, len(self.rarity), None if self.by_ratio else self.rarity)

    def _members(self, gold: np.ndarray) -> Bool[np.ndarray, "texts outputs"]:
        if self.kind == "one":
            return gold[:, None] == (np.arange(self.outputs) if self.outputs > 1 else 1)
        return gold.reshape(len(gold), -1) > 0

    def _goodness(self, outputs: np.ndarray, gold: np.ndarray) -> float:
        """Rare classes count: where one text in a hundred is of a class, to never name it is right 99 times."""
        if self.kind == "number":
            return -float(((outputs[:, 0] - gold) ** 2).mean())
        if self.kind == "several":
            return micro_f1(outputs > 0, gold > 0).value
        predicted = outputs.argmax(axis=1) if self.outputs > 1 else (outputs[:, 0] > 0).astype(np.int64)
        classes = max(self.outputs, 2)
        return accuracy(predicted, gold).value + macro_f1(predicted, gold, classes).value
