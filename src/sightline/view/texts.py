"""What a picture shows of a user's text."""

import unicodedata

LONGEST = 24  # characters of a text that are shown
BLANK = "␣"  # what is shown of blanks alone
# They would turn the text around them; a label shows that they are there.
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def shown(text: str, longest: int = LONGEST) -> str:
    """What a picture shows of a text: never nothing, nothing that breaks a file, and no more than fits.

    Blanks alone are ␣, control characters their signs (␀), what is no character at all �, and what cannot be seen is
    written as its number.
    """
    if len(text) > longest:
        end = (longest - 1) // 2
        text = f"{text[: longest - 1 - end]}…{text[len(text) - end :]}"
    text = text.strip(" ")
    if not text:
        return BLANK
    if all(unseen(character) for character in text):
        return "".join(map(_number, text))
    text = "".join(map(_seen, text))
    # a mark that stands on the letter before it gets the dotted circle to stand on
    return f"◌{text}" if unicodedata.category(text[0]) in ("Mn", "Me", "Mc") else text


def _seen(character: str) -> str:
    code, category = ord(character), unicodedata.category(character)
    if code < 0x20 or code == 0x7F:
        return "␡" if code == 0x7F else chr(0x2400 + code)
    if category in ("Cc", "Cs") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
        return "�"
    if category in ("Zl", "Zp"):
        return "␤"
    return _number(character) if character in _TURNS else character


def unseen(character: str) -> bool:
    """Whether a character only changes others and has no shape of its own: a joiner, a mark of direction."""
    return unicodedata.category(character) == "Cf" or 0xFE00 <= ord(character) <= 0xFE0F


def _number(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def right_to_left(text: str) -> bool:
    """Whether a text runs from right to left: whether most of its letters do."""
    kinds = [unicodedata.bidirectional(character) for character in text]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)
