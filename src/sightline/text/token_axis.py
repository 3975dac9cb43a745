"""Tokens as the axis of a map, and which of them are one word."""

from collections.abc import Sequence

from sightline.records import Tokens
from sightline.text.sentences import writes_without_spaces
from sightline.text.tokenise import Tokeniser
from sightline.vocabulary import END, SPELLINGS

SPACE = "▁"  # as a tokeniser's labels write it


def token_axis(tokeniser: Tokeniser, tokens: Sequence[int]) -> Tokens:
    """Tokens as the labels of an axis, with the end behind them."""
    texts = [*tokeniser.spell(tokens), SPELLINGS[END]]
    special = tuple(place for place, token in enumerate([*tokens, END]) if token < len(SPELLINGS))
    return Tokens(tuple(texts), word_numbers(texts, special), special)


def word_numbers(texts: Sequence[str], special: Sequence[int]) -> tuple[int, ...] | None:
    """Which word each piece belongs to: a new one begins at a space, between letters and signs, and at a special token.

    Scripts without spaces keep their pieces, and so do vocabularies of characters: there is nothing to put together
    (None).
    """
    plain = [text for place, text in enumerate(texts) if place not in special]
    if all(len(text) == 1 for text in plain):
        return None
    numbers: list[int] = []
    before = ""
    for place, text in enumerate(texts):
        letters = text.lstrip(SPACE)
        alone = place in special or place - 1 in special
        goes_on = (
            bool(before)
            and not alone
            and not text.startswith(SPACE)
            and (_is_sign(before[-1]) == _is_sign(letters[0]))
            and not writes_without_spaces(before[-1] + letters[0])
        )
        numbers.append(numbers[-1] + (not goes_on) if numbers else 0)
        before = letters or before
    return tuple(numbers)


def _is_sign(character: str) -> bool:
    # "<0xE2>" is a byte of a character that has no piece of its own: part of a word.
    return not character.isalnum() and character not in "<>"
