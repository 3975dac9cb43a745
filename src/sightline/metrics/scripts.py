"""Which scripts a text is written in: those without spaces are counted, and scored, character by character."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

BleuTokeniser = Literal["13a", "zh", "char", "intl", "none"]

_HAN = ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF),
        (0x20000, 0x3FFFF))  # fmt: skip
_KANA = ((0x3040, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F))
# Thai and Lao, Burmese, Khmer. Korean and Tibetan mark the ends of words or syllables, and are not here.
_SOUTH_EAST = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F))


def _is_in(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


class _WordTable(dict[int, str]):
    """For `str.translate`: what is no letter, digit or mark becomes a space, and some characters stand alone."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        # A mark belongs to its letter: without it, Hindi would fall apart at every vowel.
        if unicodedata.category(character)[0] not in "LNM":
            found = " "
        elif _is_in(code, _HAN) or _is_in(code, _KANA) or _is_in(code, _SOUTH_EAST):
            found = f" {character} "
        else:
            found = character
        self[code] = found
        return found


_WORD_TABLE = _WordTable()


def words_of(text: str) -> list[str]:
    """Lower-cased runs of letters and digits; in scripts without spaces, every character."""
    return text.lower().translate(_WORD_TABLE).split()


@dataclass(frozen=True)
class Letters:
    """How many letters there are of which scripts."""

    total: int
    han: int
    kana: int
    south_east: int

    @property
    def mostly_without_spaces(self) -> bool:
        return 2 * (self.han + self.kana + self.south_east) > self.total


def count_letters(texts: Iterable[str]) -> Letters:
    """Digits and punctuation say nothing of a script and are not counted."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    letters = {ord(one): count for one, count in counts.items() if unicodedata.category(one)[0] == "L"}
    han, kana, south_east = (
        sum(count for code, count in letters.items() if _is_in(code, ranges)) for ranges in (_HAN, _KANA, _SOUTH_EAST)
    )
    return Letters(sum(letters.values()), han, kana, south_east)


def bleu_tokeniser(references: Iterable[str]) -> BleuTokeniser:
    """sacreBLEU's tokeniser for the script of the references: zh for Chinese, char for Japanese, Thai and their like.

    13a splits at spaces, and takes a Chinese sentence for a word or two: BLEU is then close to 0, whatever the model.
    """
    letters = count_letters(references)
    if not letters.mostly_without_spaces:
        return "13a"
    # Japanese has kana in every sentence; in Chinese a stray one (の in a name of a shop) makes no Japanese.
    chinese = letters.han > letters.south_east and letters.kana * 20 < letters.han
    return "zh" if chinese else "char"
