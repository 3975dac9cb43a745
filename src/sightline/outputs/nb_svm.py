"""NB-SVM as a model of labels: how it is fitted to the training texts, and what each word contributes to a label."""

import logging
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.baselines.texts import fit_ngrams, sample
from sightline.data.ngrams import Words, word_fingerprints
from sightline.explain.evidence.subject import label_effect
from sightline.inputs.text import TextInput
from sightline.models.nb_svm import NBSVM
from sightline.models.text_to_labels import Texts
from sightline.tasks.prepare import SomePrepared
from sightline.text.encoding import TextEncoder
from sightline.text.tokeniser import Tokeniser

LOG = logging.getLogger(__name__)
MOST_TOKENS = 20_000_000  # of training texts; of more, a sample is taken
AT_ONCE = 256  # texts


def fit_nb_svm(model: NBSVM, prepared: SomePrepared) -> None:
    """Solve for the weights, on the texts of the training corpus; the same texts and seed give the same weights."""
    input, output, config, corpus = prepared.input, prepared.output, prepared.config, prepared.corpus
    assert isinstance(input, TextInput)
    kind, classes = output.labels.kind, output.labels.classes  # type: ignore[attr-defined]
    model.fingerprints.copy_(token_fingerprints(input.reader))
    chosen = sample(corpus.lengths()[0].astype(np.int64), MOST_TOKENS, config.seed)
    if len(chosen) < len(corpus):
        LOG.warning(f"nb_svm is fitted to {len(chosen):,} of {len(corpus):,} texts, drawn at random")
    gold = output.collate([corpus[int(row)][1] for row in chosen], None).numpy()  # type: ignore[attr-defined]

    def words() -> Iterator[Words]:
        for start in range(0, len(chosen), AT_ONCE):
            rows = [corpus[int(row)][0] for row in chosen[start : start + AT_ONCE]]
            yield from model.words_of(input.collate(rows))

    fitted = fit_ngrams(words(), gold, kind, classes, model.longest, config.seed, by_ratio=True)
    weights, bias = fitted.weights, fitted.bias
    if kind == "one" and classes == 2:  # the one margin, half for the second label and half against the first
        weights, bias = np.concatenate([-weights, weights], axis=1) / 2, np.concatenate([-bias, bias]) / 2
    model.put(fitted.ngrams, weights, bias)


def token_fingerprints(reader: TextEncoder) -> Tensor:
    """A number for each token: the same for a word with a space before it and without; 0 for blanks and no words."""
    tokeniser, specials = reader.tokeniser, reader.specials
    assert isinstance(tokeniser, Tokeniser)
    tokens = [[token] for token in range(reader.words)]
    pieces = [one.strip() for one in tokeniser.decode(tokens)] if tokeniser.of_words else list(map(str, tokens))
    prints = np.where([bool(piece) for piece in pieces], word_fingerprints(pieces), np.uint64(0))
    prints[[specials.padding, specials.start, specials.end, specials.unknown]] = 0
    return torch.from_numpy(prints.view(np.int64))


class ContributionSubject:
    """NB-SVM, one text and a label (`sightline.explain.evidence.Subject`). A hidden word is in no n-gram."""

    row_name, weight_name = "label", "contribution"
    rows = 1

    def __init__(
        self, model: NBSVM, texts: Texts, label: int, temperature: float, several: bool, column_name: str
    ) -> None:
        self.model, self.texts, self.label, self.column_name = model, texts, label, column_name
        self.temperature, self.several = temperature, several
        specials = model.specials
        tokens = texts.words[0].cpu()
        self.hideable = ~torch.isin(tokens, torch.tensor([specials.padding, specials.start, specials.end])).numpy()
        self.before = math.exp(float(self.log_probs(torch.ones(1, self.columns, dtype=torch.bool))))

    @property
    def columns(self) -> int:
        return self.texts.words.shape[1]

    def attends_to_columns(self, name: str) -> bool:
        return False

    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        words, parts = self.texts
        hidden = words.expand(len(keep), -1).masked_fill(~keep.to(words.device), self.model.specials.unknown)
        some = [
            self.model.scores(Texts(one, None if parts is None else parts.expand(len(one), -1)))
            for one in hidden.split(AT_ONCE)
        ]
        logits = torch.cat(some).double() / self.temperature
        log_probs = F.logsigmoid(logits) if self.several else torch.log_softmax(logits, dim=-1)
        return log_probs[:, self.label].unsqueeze(1)

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        """Of the label's score: the contributions themselves, so they say nothing more about them."""
        own = self.model.contributions(self.texts)[:, self.label]
        return torch.from_numpy(own).expand(len(rows), -1)

    def effect(self, cost: float) -> str:
        return label_effect(self.before, cost)
