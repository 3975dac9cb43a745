"""When words of a transcript were said: by CTC's alignment where a model has CTC, else by attention.

CTC aligns the whole text at once, and its times never go backwards. Attention was not trained to tell times: a token's
is the middle 80 % of its weights. What people get wrong: CTC places a token where it is sure of it, often a little
behind its beginning; times are exact to some hundredths of a second at best.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sightline.decoding.ctc import ctc_align, ctc_posteriors
from sightline.decoding.options import pad
from sightline.explain.capture import capture
from sightline.explain.evidence.subject import evaluating
from sightline.models.series_to_text import SeriesToText
from sightline.nn.series import SeriesBatch
from sightline.outputs.timed import TimedWord
from sightline.text.tokeniser import Tokeniser
from sightline.text.words import word_spans
from sightline.vocabulary import START

TAIL = 0.1  # of the weights on each side of a token's stretch
Stretch = tuple[float, float]  # from where to where, in encoder states


@torch.no_grad()
def timed_words(
    model: SeriesToText, batch: SeriesBatch, tokens: Sequence[Sequence[int]], tokeniser: Tokeniser, seconds: float
) -> list[list[TimedWord]]:
    """The words of each text with their times; ``seconds`` is how long an encoder state is."""
    with evaluating(model):
        stretches = _by_ctc(model, batch, tokens) if model.ctc is not None else _by_attention(model, batch, tokens)
        probs = _probabilities(model, batch, tokens)
    return [
        _words(tokeniser, some, own, sure, seconds) for some, own, sure in zip(tokens, stretches, probs, strict=True)
    ]


def _by_ctc(model: SeriesToText, batch: SeriesBatch, tokens: Sequence[Sequence[int]]) -> list[list[Stretch]]:
    annotations = model.annotate(batch)
    log_probs, lengths = model.ctc_log_probs(annotations), annotations.lengths.tolist()
    aligned: list[list[Stretch]] = []
    for row, some in enumerate(tokens):
        try:
            aligned.append(
                [(float(start), float(end)) for start, end in ctc_align(log_probs[row, : lengths[row]], some)]
            )
        except ValueError:  # more tokens than states: they share the time evenly
            places = np.linspace(0, lengths[row], len(some) + 1)
            aligned.append(list(zip(places[:-1].tolist(), places[1:].tolist(), strict=True)))
    return aligned


def _by_attention(model: SeriesToText, batch: SeriesBatch, tokens: Sequence[Sequence[int]]) -> list[list[Stretch]]:
    words = pad([[START, *some] for some in tokens]).to(batch.values.device)
    with capture(model) as trace:
        model.decode(words, model.begin(batch))
    name = [one for one in trace.names if model.attends_to_source(one)][-1]
    weights = trace[name].weights.mean(dim=1).double().cpu().numpy()
    return [[_middle(weights[row, place]) for place in range(len(some))] for row, some in enumerate(tokens)]


def _middle(weights: np.ndarray) -> Stretch:
    """Where the middle of the weights stands."""
    passed = weights.cumsum() / max(weights.sum(), 1e-12)
    return float(np.searchsorted(passed, TAIL)), float(np.searchsorted(passed, 1 - TAIL) + 1)


def _probabilities(
    model: SeriesToText, batch: SeriesBatch, tokens: Sequence[Sequence[int]]
) -> list[list[float] | None]:
    """What the decoder thinks of each token; None of a model without one."""
    if model.config.ctc >= 1 or not any(tokens):
        return [None] * len(tokens)
    words = pad([[START, *some] for some in tokens]).to(batch.values.device)
    features, _ = model.decode(words, model.begin(batch))
    log_probs: Tensor = torch.log_softmax(model.output(features), dim=-1)
    return [
        log_probs[row, torch.arange(len(some)), torch.tensor(some, dtype=torch.long)].exp().tolist()
        for row, some in enumerate(tokens)
    ]


def _words(
    tokeniser: Tokeniser,
    tokens: Sequence[int],
    stretches: Sequence[Stretch],
    probs: Sequence[float] | None,
    seconds: float,
) -> list[TimedWord]:
    """Tokens as words: a word is as sure as the least sure of its tokens."""
    ends = [len(text) for text in tokeniser.decode([list(tokens[: place + 1]) for place in range(len(tokens))])]
    text = tokeniser.decode([list(tokens)])[0]
    words, place = list[TimedWord](), 0
    for start, end in word_spans(text):
        own = []
        while place < len(ends) and ends[place] <= start:
            place += 1
        while place < len(ends):
            own.append(place)
            place += 1
            if ends[place - 1] >= end:
                break
        if not own:
            continue
        sure = None if probs is None else min(probs[one] for one in own)
        first, last = min(stretches[one][0] for one in own), max(stretches[one][1] for one in own)
        words.append(TimedWord(text[start:end], first * seconds, last * seconds, sure))
    return words


@torch.no_grad()
def alignment(model: SeriesToText, batch: SeriesBatch, tokens: Sequence[int]) -> Float[np.ndarray, "n s"] | None:
    """Of each token, how its time is divided among the encoder states, by CTC; None where CTC cannot align it."""
    with evaluating(model):
        annotations = model.annotate(batch)
        log_probs = model.ctc_log_probs(annotations)[0, : int(annotations.lengths[0])]
    try:
        shares = ctc_posteriors(log_probs, tokens).double().cpu().numpy()
    except ValueError:  # more tokens than states
        return None
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
