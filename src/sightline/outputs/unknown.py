"""Unknown words of the output become words of the source: those that got the most attention when they were written.

Copying as in Jean et al. 2015 and Luong et al. 2015b, by attention: the mean of all layers and heads that attend to
the source. A name is a name in many languages; there is no dictionary for other words. What people get wrong: the end
of the source gets much attention and is no word.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from sightline.decoding.options import pad
from sightline.explain.capture import AttentionMap, capture
from sightline.models.text_to_text import TextToText
from sightline.text.copying import Word
from sightline.text.sentences import writes_without_spaces
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import SPELLINGS, START, UNKNOWN

ROOM = 1 << 20  # weights of one head seen at once: a long text is read again in stretches


def look_back(model: TextToText, words: Int[Tensor, "b t"], state: Any) -> tuple[list[AttentionMap], Any]:
    """Decode what was written once more under `capture`: the attention maps to the source, and the state after it."""
    with capture(model) as trace:
        _, state = model.decode(words, state)
    return [one for one in trace.maps if model.attends_to_source(one.name)], state


def attended_words(
    model: TextToText, outputs: Sequence[Sequence[int]], state: Any, sources: Sequence[Sequence[Word | None]]
) -> list[list[Word | None]]:
    """The word of its source that got the most attention when each token was written; empty without attention.

    ``state`` begins with the sources; their words are at the places of their tokens.
    """
    words = pad([[START, *tokens[:-1]] for tokens in outputs]).to(next(model.parameters()).device)
    longest = max(map(len, sources))
    stretch = max(1, ROOM // (len(words) * (longest + words.shape[1])))
    attended: list[list[Word | None]] = [[] for _ in outputs]
    for some in words.split(stretch, dim=1):
        maps, state = look_back(model, some, state)
        if not maps:
            break
        mean = torch.stack([one.weights.mean(dim=1) for one in maps]).mean(dim=0)
        no_word = torch.ones(len(words), mean.shape[-1], dtype=torch.bool)  # the end and padding are none either
        for row, source in enumerate(sources):
            no_word[row, : len(source)] = torch.tensor([word is None for word in source])
        places = mean.masked_fill(no_word.to(mean.device).unsqueeze(1), -1.0).argmax(dim=-1)
        for row, chosen in enumerate(places.tolist()):
            attended[row] += [sources[row][place] if place < len(sources[row]) else None for place in chosen]
    return attended


def written_out(target: Tokeniser, tokens: Sequence[int], words: Mapping[int, Word]) -> str:
    """The text of these tokens, with words at some of the places where they are unknown."""
    text, start = "", 0
    for place, word in sorted(words.items()):
        text += _behind_something(target, tokens[start:place])
        text += f" {word.text}" if _apart(text, word, target.of_words) else word.text
        start = place + 1
    text += _behind_something(target, tokens[start:])
    return text.removeprefix(" ") if target.of_words else text


JOINING = "-–—/'’"  # signs with which a word can go on


def _apart(text: str, word: Word, words: bool) -> bool:
    """Whether a space stands before a word that another text gives, where something else may stand before it."""
    last = text[-1:]
    if word.spaced or not words or not last:
        return word.spaced
    if writes_without_spaces(word.text[0]):  # a script without spaces has none before it
        return last.isalnum() and not writes_without_spaces(last)
    opened = not last.isalnum() and text[-2:-1] in ("", " ")  # such as a bracket or a quotation mark
    number = last in ".," and text[-2:-1].isdigit() and word.text[0].isdigit()
    return word.text[0].isalnum() and not (opened or number or last in JOINING or writes_without_spaces(last))


def _behind_something(target: Tokeniser, tokens: Sequence[int]) -> str:
    """Decoded with the space before the first word, which decoding takes away at the beginning of a text."""
    return target.decode([[UNKNOWN, *tokens]])[0].removeprefix(SPELLINGS[UNKNOWN])
