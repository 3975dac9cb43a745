"""Hypotheses of a search that copied words of the source, or whose scores contain a penalty."""

from collections.abc import Sequence
from typing import Any

import torch

from sightline.decoding.options import pad
from sightline.decoding.search import Hypothesis
from sightline.state import select
from sightline.text.copying import SourceWords, Word
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import END, PADDING, START, UNKNOWN

SCORED = 1 << 22  # log-probabilities that are computed at once


def copied_words(
    vocabularies: Sequence[Tokeniser | SourceWords], beams: Sequence[Sequence[Hypothesis]], size: int
) -> tuple[list[list[Hypothesis]], list[dict[int, Word]]]:
    """The hypotheses with the unknown word for words behind a vocabulary of this size; and of each, those words.

    Each item has a vocabulary of its own (`sightline.text.copying`).
    """
    known, copied = list[list[Hypothesis]](), list[dict[int, Word]]()
    for vocabulary, beam in zip(vocabularies, beams, strict=True):
        known.append([])
        for one in beam:
            behind = [place for place, token in enumerate(one.tokens) if token >= size]
            words = dict[int, Word]()
            for place in behind:
                word = vocabulary.word(one.tokens[place]) if isinstance(vocabulary, SourceWords) else None
                if word is not None:
                    words[place] = word
            copied.append(words)
            tokens = [token if token < size else UNKNOWN for token in one.tokens] if behind else one.tokens
            known[-1].append(one._replace(tokens=tokens))
    return known, copied


@torch.no_grad()
def without_penalty(model: Any, batch: Any, beams: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """Hypotheses whose log-probabilities are the model's own: those of a search with a penalty contain it."""
    every = [(row, one) for row, beam in enumerate(beams) for one in beam]
    log_probs: list[float] = []
    device, words = model.output.weight.device, model.output.out_features
    rows = max(1, SCORED // (words * (1 + max((len(one.tokens) for _, one in every), default=0))))
    for start in range(0, len(every), rows):
        some = every[start : start + rows]
        tokens = pad([[START, *one.tokens, END] for _, one in some]).to(device)
        own = model.log_probs(select(batch, torch.tensor([row for row, _ in some], device=device)), tokens[:, :-1])
        following = tokens[:, 1:]
        chosen = own.gather(-1, following.unsqueeze(-1)).squeeze(-1).masked_fill(following == PADDING, 0.0)
        log_probs += chosen.sum(dim=-1).tolist()
    rescored = iter([one._replace(log_prob=value) for (_, one), value in zip(every, log_probs, strict=True)])
    return [[next(rescored) for _ in beam] for beam in beams]
