"""NB-SVM on n-grams of words (Wang and Manning 2012): a linear model, which is solved and not trained step by step.

A text is the n-grams that it has. Each has a weight for every label, and the score of a label is the sum of those
weights and a bias; so what a word contributes to a score is known exactly. The weights come from
`sightline.baselines.texts`, where the paper's method is explained. What people get wrong: an n-gram that stands in a
text twice counts once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from sightline.data.ngrams import Words, find_ngrams, ngram_places, of_second
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.vocabulary import OURS, Specials


def bag_sums(
    places: Int[Tensor, " entries"], values: Float[Tensor, "n outputs"], starts: Int[Tensor, " bags_and_one"]
) -> Float[Tensor, "bags outputs"]:
    """For each bag, the sum of the values at its places, which lie from its start to the next one."""
    if not len(places) or not len(values):  # of which embedding_bag makes no sums
        return values.new_zeros(len(starts) - 1, values.shape[1])
    return embedding_bag(places, values, starts.to(places.dtype), mode="sum", include_last_offset=True)


class NBSVM(nn.Module):
    """Weights of n-grams, none before `put`. ``fingerprints`` has a number for each token: 0 is in no n-gram."""

    solved: ClassVar[bool] = True  # nothing to train
    fingerprints: Tensor
    ngrams: Tensor

    def __init__(self, longest: int, words: int, classes: int, specials: Specials = OURS) -> None:
        super().__init__()
        self.longest, self.specials = longest, specials
        self.register_buffer("fingerprints", torch.zeros(words, dtype=torch.int64))
        self.bias = nn.Parameter(torch.zeros(classes), requires_grad=False)
        self.resize(0)

    def resize(self, features: int) -> None:
        """Make room for so many n-grams."""
        self.register_buffer("ngrams", torch.zeros(features, dtype=torch.int64))
        self.weights = nn.Parameter(torch.zeros(features, len(self.bias)), requires_grad=False)

    def make_room(self, tensors: dict[str, Tensor]) -> None:
        """As many n-grams as these weights have, which may be anybody's; refuse those that cannot be ours."""
        ngrams, prints = tensors["ngrams"], tensors["fingerprints"]
        if ngrams.dtype != torch.int64 or prints.dtype != torch.int64 or ngrams.dim() != 1:
            raise ValueError("its n-grams are not a list of numbers")
        if bool((ngrams[1:] <= ngrams[:-1]).any()):
            raise ValueError("its n-grams are not in order")
        self.resize(len(ngrams))

    def put(
        self,
        ngrams: Int64[np.ndarray, " features"],
        weights: Float32[np.ndarray, "features classes"],
        bias: Float32[np.ndarray, " classes"],
    ) -> None:
        """Set what was fitted."""
        self.resize(len(ngrams))
        self.ngrams.copy_(torch.from_numpy(ngrams))
        self.weights.copy_(torch.from_numpy(weights))
        self.bias.copy_(torch.from_numpy(bias))

    def words_of(self, texts: Texts) -> Sequence[Words]:
        """The words of each text as fingerprints."""
        words = self.fingerprints.cpu().numpy().view(np.uint64)[texts.words.cpu().numpy()]
        if texts.parts is not None:
            words = np.where(texts.parts.cpu().numpy() == 1, of_second(words), words)
        return list(words)

    def scores(self, texts: Texts) -> Float[Tensor, "b c"]:
        bags = find_ngrams(self.words_of(texts), self.ngrams.cpu().numpy(), self.longest)
        columns, starts = (torch.from_numpy(one).to(self.bias.device) for one in (bags.columns, bags.starts))
        return bag_sums(columns, self.weights.detach(), starts) + self.bias.detach()

    def contributions(self, texts: Texts) -> Float[np.ndarray, "s c"]:
        """What each token of one text adds to the scores: with the bias they sum to the scores.

        The weight of an n-gram is shared among its places, and at each place among its words.
        """
        (words,) = self.words_of(texts)
        first, lengths, columns = ngram_places(words, self.ngrams.cpu().numpy(), self.longest)
        _, which, times = np.unique(columns, return_inverse=True, return_counts=True)
        weights = self.weights.detach().cpu().double().numpy()[columns]
        shares = weights / (times[which] * lengths)[:, None]
        added = np.zeros((len(words), len(self.bias)))
        for more in range(self.longest):
            here = lengths > more
            np.add.at(added, first[here] + more, shares[here])
        return added


@dataclass(frozen=True)
class NBSVMConfig(TextModelConfig):
    """``max_ngram``: n-grams have one to so many words."""

    max_ngram: int = 3
    kind: ClassVar[str] = "nb_svm"

    def __post_init__(self) -> None:
        if not 1 <= self.max_ngram <= 8:
            raise ValueError(f"max_ngram is {self.max_ngram}; it must be from 1 to 8")

    def build(self, words: int, specials: Specials = OURS) -> NoReturn:
        raise ValueError("nb_svm gives labels to whole texts and has no vectors of words; it is for classify only")

    def build_for(self, words: int, classes: int, specials: Specials = OURS) -> NBSVM:
        """The model for a vocabulary of this size and so many labels."""
        return NBSVM(self.max_ngram, words, classes, specials)
