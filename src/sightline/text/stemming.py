"""The stem of an English word: the algorithm of Porter (1980), "An algorithm for suffix stripping".

A word is a chain [C](VC)^m[V] of consonants and vowels; its measure m says how much of it there is. A suffix is removed
or replaced where enough stays. People mean different things by "Porter": the paper, Porter's own program, which departs
from it in three rules, and NLTK's stemmer, which departs in more and which ROUGE is reported with. This is NLTK's: its
departures are marked below.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

Condition = Callable[[str], bool]  # on what stays of a word

# NLTK: words that the rules treat badly have their stems in a table.
_IRREGULAR: Mapping[str, str] = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
    "innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing",
    "cannings": "canning", "canning": "canning", "howe": "howe",
    "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip


@lru_cache(maxsize=100_000)
def porter_stem(word: str) -> str:
    """The stem of a word in small letters."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:  # Porter's program and NLTK
        return word
    for step in (_plural, _past, _final_y, _double_suffix, _single_suffix, _bare_suffix, _final_e, _final_l):
        word = step(word)
    return word


def _shape(word: str) -> str:
    """A "v" for each vowel and a "c" for each consonant; y is a vowel behind a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    return _shape(stem).count("vc")


def _has_some(stem: str) -> bool:
    return _measure(stem) > 0


def _has_more(stem: str) -> bool:
    return _measure(stem) > 1


def _ends_short(stem: str) -> bool:
    """Consonant, vowel, consonant, the last one not w, x or y: an e has been lost behind it (fil-ing, hop-ing).

    NLTK: also a vowel and a consonant that are the whole stem (us-ing).
    """
    shape = _shape(stem)
    return (shape.endswith("cvc") and stem[-1] not in "wxy") or shape == "vc"


def _ends_double(stem: str) -> bool:
    return len(stem) > 1 and stem[-1] == stem[-2] and _shape(stem).endswith("c")


def _replaced(word: str, rules: Sequence[tuple[str, str]], condition: Condition) -> str:
    """The word by the first rule whose suffix it has, where the condition holds of what stays; no other is tried."""
    for suffix, ending in rules:
        if word.endswith(suffix):
            stem = word[: len(word) - len(suffix)]
            return stem + ending if condition(stem) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]  # NLTK: dies, ties
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("ied"):  # NLTK: died, tried
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _has_some(word[:-3]) else word
    suffix = next((one for one in ("ed", "ing") if word.endswith(one) and "v" in _shape(word[: -len(one)])), None)
    if suffix is None:
        return word
    stem = word[: -len(suffix)]
    if stem.endswith(("at", "bl", "iz")):
        return f"{stem}e"
    if _ends_double(stem):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return f"{stem}e" if _measure(stem) == 1 and _ends_short(stem) else stem


def _final_y(word: str) -> str:
    """NLTK: behind a consonant that is not the first letter (by, say stay); in the paper, where there is a vowel."""
    stem = word[:-1]
    return f"{stem}i" if word.endswith("y") and len(stem) > 1 and _shape(stem).endswith("c") else word


_DOUBLE = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("bli", "ble"),  # Porter's program and NLTK; abli in the paper
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"),
    ("fulli", "ful"),  # NLTK
)  # fmt: skip


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _has_some(word[:-4]):  # NLTK: what is left may have another suffix of the list
        return _double_suffix(word[:-2])
    if word.endswith("logi"):  # Porter's program and NLTK, which counts the l as a part of what stays
        return word[:-1] if _has_some(word[:-3]) else word
    return _replaced(word, _DOUBLE, _has_some)


_SINGLE = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip


def _single_suffix(word: str) -> str:
    return _replaced(word, _SINGLE, _has_some)


_BARE = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def _bare_suffix(word: str) -> str:
    suffix = next((one for one in _BARE if word.endswith(one)), None)
    if suffix is None:
        return word
    stem = word[: -len(suffix)]
    return stem if _has_more(stem) and (suffix != "ion" or stem[-1] in "st") else word


def _final_e(word: str) -> str:
    stem = word[:-1]
    if not word.endswith("e") or not _has_some(stem):
        return word
    return word if _measure(stem) == 1 and _ends_short(stem) else stem


def _final_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _has_more(word[:-1]) else word
