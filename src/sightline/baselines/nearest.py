"""The target of the training source that is most similar to a source: what memory alone gives.

Sources are vectors of length 1 over words, each weighed by how often it stands there and by how rare it is (TF-IDF);
the most similar one has the largest product. For each word, the sources that have it are kept, so that a product takes
only the words that both have. Of very many sources a part is kept, and of each its beginning: that bounds the file and
the time.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int16, Int32, Int64, UInt8

from sightline.data.ngrams import word_fingerprints
from sightline.errors import UserError
from sightline.metrics.texts import words_of
from sightline.training.folder import load_tensors, save_tensors

NEAREST = "nearest.safetensors"
MOST_SOURCES = 50_000
MOST_CHARACTERS = 2_000  # of a source
_MOST_TIMES = np.iinfo(np.int16).max  # that a word of one source counts


class NearestSources:
    """``words`` are fingerprints in order; word w stands in ``sources[starts[w] : starts[w + 1]]``, in each so many
    ``times``. ``texts`` are the bytes of all targets, and target t ends at ``ends[t]``."""

    def __init__(
        self,
        words: Int64[np.ndarray, " words"],
        starts: Int64[np.ndarray, " words_and_one"],
        sources: Int32[np.ndarray, " entries"],
        times: Int16[np.ndarray, " entries"],
        texts: UInt8[np.ndarray, " bytes"],
        ends: Int64[np.ndarray, " targets"],
    ) -> None:
        self.words, self.starts, self.sources, self.times, self.texts, self.ends = (
            words, starts, sources, times, texts, ends,
        )  # fmt: skip
        counts = np.diff(starts)
        self._rarity = (np.log((1 + len(ends)) / (1 + counts)) + 1).astype(np.float32)
        weights = times * np.repeat(self._rarity, counts)
        lengths = np.sqrt(np.bincount(sources, weights.astype(np.float64) ** 2, minlength=len(ends)))
        self._weights = (weights / np.maximum(lengths, 1e-12)[sources]).astype(np.float32)

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def fit(cls, pairs: Iterable[tuple[str, str]]) -> "NearestSources":
        """From sources and their targets, the first `MOST_SOURCES` of them."""
        words, times, owners, targets = [], [], [], list[bytes]()
        for number, (source, target) in zip(range(MOST_SOURCES), pairs, strict=False):
            known, counts = _counted(source)
            words.append(known)
            times.append(np.minimum(counts, _MOST_TIMES).astype(np.int16))
            owners.append(np.full(len(known), number, np.int32))
            targets.append(target.encode("utf-8", "surrogatepass"))
        every = np.concatenate(words) if words else np.zeros(0, np.int64)
        order = np.argsort(every, kind="stable")
        different, counts = np.unique(every, return_counts=True)
        return cls(
            different,
            np.concatenate(([0], np.cumsum(counts))),
            np.concatenate(owners)[order] if owners else np.zeros(0, np.int32),
            np.concatenate(times)[order] if times else np.zeros(0, np.int16),
            np.frombuffer(b"".join(targets), np.uint8),
            np.cumsum([len(one) for one in targets], dtype=np.int64),
        )

    def place(self, source: str) -> int:
        """The number of the most similar source; of several as similar, the first."""
        scores = np.zeros(len(self), np.float32)
        for word, count in zip(*_counted(source), strict=True):
            at = int(np.searchsorted(self.words, word))
            if at < len(self.words) and self.words[at] == word:
                chosen = slice(*self.starts[at : at + 2])
                scores[self.sources[chosen]] += self._weights[chosen] * (float(count) * self._rarity[at])
        return int(scores.argmax())

    def targets(self, sources: Sequence[str]) -> list[str]:
        """For each source the target of the most similar one."""
        places = [self.place(one) for one in sources]
        begins = [int(self.ends[place - 1]) if place else 0 for place in places]
        return [
            self.texts[begin : self.ends[place]].tobytes().decode("utf-8", "surrogatepass")
            for begin, place in zip(begins, places, strict=True)
        ]

    def save(self, folder: Path) -> list[str]:
        """Write the file into a folder; returns its name."""
        names = ("words", "starts", "sources", "times", "texts", "ends")
        save_tensors(folder / NEAREST, {name: torch.from_numpy(getattr(self, name).copy()) for name in names})
        return [NEAREST]

    @classmethod
    def load(cls, folder: Path) -> "NearestSources":
        """What `save` wrote. The file is not trusted: what does not fit together is refused."""
        try:
            tensors = load_tensors(folder / NEAREST)
            words, starts, sources, times, texts, ends = (
                tensors[name].numpy() for name in ("words", "starts", "sources", "times", "texts", "ends")
            )
            kinds = [one.dtype.str[1:] for one in (words, starts, sources, times, texts, ends)]
            if kinds != ["i8", "i8", "i4", "i2", "u1", "i8"] or any(
                one.ndim != 1 for one in (words, starts, sources, texts, ends)
            ):
                raise ValueError("its arrays are of other types")
            for one, most in ((starts, len(sources)), (ends, len(texts))):  # before differences, which could overflow
                if len(one) and (one.min() < 0 or one.max() > most):
                    raise ValueError("it names places that it does not have")
            if len(starts) != len(words) + 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
                raise ValueError("its words have no order")
            if (np.diff(words) <= 0).any() or starts[-1] != len(sources) or times.shape != sources.shape:
                raise ValueError("its words and sources do not belong together")
            if not len(ends) or (np.diff(ends, prepend=0) < 0).any() or ends[-1] != len(texts):
                raise ValueError("its targets do not belong together")
            if len(sources) and (sources.min() < 0 or sources.max() >= len(ends)):
                raise ValueError("it names sources that it does not have")
            texts.tobytes().decode("utf-8", "surrogatepass")
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise UserError(f"{folder / NEAREST} is damaged: {error}") from None
        return cls(words, starts, sources, times, texts, ends)


def _counted(source: str) -> tuple[Int64[np.ndarray, " words"], Int64[np.ndarray, " words"]]:
    """The fingerprints of the words of a source, each once, and how often it stands there."""
    words = word_fingerprints(words_of(source[:MOST_CHARACTERS])).view(np.int64)
    return np.unique(words, return_counts=True)
