"""Cut text into sentences, exactly: sentences and the blanks between them, put together, are the text.

Rules, not a model: they hold for languages in Latin, Greek and Cyrillic letters, for Chinese and Japanese, and for
scripts without capitals that end sentences with signs of their own (Hindi, Arabic). What people get wrong: a full stop
is the least of signs. Where it is in doubt (an abbreviation, an initial, "3. Mai"), the text is left whole: two
sentences in one are translated worse than one, half a sentence is translated wrongly.
"""

import re

# Scripts that write without spaces between words, with the punctuation of Chinese and Japanese.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
    r"\U00020000-\U0003ffff]"
)
_WIDE = "。！？｡．।॥؟۔።"  # these end a sentence whatever follows
_CLOSING = "\"'”’»«›‹)\\]}」』）】》〉］｝"
# What opens a quotation in one language closes it in another („Nein.“), and French puts a space before it (« Oui. »).
_CLOSING_BEFORE_BLANK = "[“‘]|[ \u00a0\u202f]»"
_MARKS = re.compile(
    rf"(?P<mark>[.!?…{_WIDE}]+)(?P<closing>(?:[{_CLOSING}]|(?:{_CLOSING_BEFORE_BLANK})(?=\s|\Z))*)(?P<blank>\s*)"
    r"|(?P<blanks>\s+)"
)
_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_OPENING = re.compile(r"[\"'“‘„‚«»‹›(\[{¿¡—–•*「『（【《\-]+\s?")
# A quotation inside a sentence that continues: 「はい。」と言った, “好！”，
_CONTINUES = re.compile(r"[、，,;；：:]|と|って|という|など|[のはがをにもで](?=[^ぁ-ん])")
_WORD_BEFORE = re.compile(r"[^\s\"'“”„‘’«»‹›(\[{/—–]+\Z")
_NEXT_WORD = re.compile(r"[^\W\d_]+")
_ROMAN = re.compile(r"[IVXLC]+")
_NO_VOWELS = re.compile(r"[b-df-hj-np-tv-xzß]+", re.IGNORECASE)
_DOTTED = re.compile(r"[^\W\d_]{1,2}(?:\.[^\W\d_]{1,3})+")  # e.g, z.B, U.S
_LONGEST_WORD = 40  # characters looked back for the word before a full stop


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words whose full stop does not end the sentence. Those without vowels (Dr, bzw) and with full stops inside (e.g) need
# not be here.
_ABBREVIATIONS = _words(
    "prof gen col capt lt sgt rev hon gov sen rep pres messrs mme mlle sra dra ing dipl univ ave approx est cf al ca "
    "viz incl excl resp ggf evtl sog bspw inkl exkl allg usf geb gest verh lfd einschl vergl bes insb abb kap anm hrsg "
    "jan feb aug sept okt oct nov dez dec ene abr dic janv févr avr juil déc "
    "fig figs vol vols nr abs eq chap eds bd bde seite pag núm tel "
    "ул им гг см тыс млн млрд руб стр проф акад др пр напр"
)
_BEFORE_NUMBERS = _words("no nos art par sec set ago tab ed")  # elsewhere they are words: "No. I stay."
_MAY_END = _words("etc usw jr sr ltd inc co corp bros a.m p.m km kg cm mm")
# Words that begin sentences and no names: "J. De Vries" and "J. E. Smith" stay whole.
_STARTERS = _words(
    "the this that these those there it he she we they you but and so then when what why how if as at in on for "
    "der die das er sie es wir ich ihr ein eine und aber dann wenn wie was dies diese dieser auch doch "
    "il elle ils elles nous vous je une mais et ce cette ella ellos ellas pero una este esta ele ela mas "
    "het hij zij wij een maar en dat dit он она они мы вы это но"
)


def split_sentences(text: str) -> list[tuple[str, str]]:
    """Sentences, each with the blanks behind it. Blanks before the first one follow an empty sentence.

    The end of a line is the end of a sentence.
    """
    sentences: list[tuple[str, str]] = []
    start = 0
    for match in _MARKS.finditer(text):
        blank = match["blanks"] or match["blank"] or ""
        end = match.end() - len(blank)
        if end == 0 or match.end() == len(text) or _LINE_END.search(blank) or _ends(text, start, match):
            sentences.append((text[start:end], blank))
            start = match.end()
    if start < len(text):
        sentences.append((text[start:], ""))
    return sentences


def joining_space(before: str) -> str:
    """What goes between two sentences that nothing stood between: a space, unless the script writes without."""
    last = before.rstrip("\"'”’)]…—")[-1:]
    return "" if not last or writes_without_spaces(last) else " "


def writes_without_spaces(character: str) -> bool:
    """Whether words of this character's script follow each other without spaces."""
    return _UNSPACED.match(character) is not None


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a sentence that began at ``start`` ends with this match of `_MARKS`."""
    mark = match["mark"]
    if mark is None:
        return False
    following = text[match.end()]
    if set(mark) & set(_WIDE):
        return _wide_ends(match, following)
    before = text[match.start() - 1 : match.start()]
    if writes_without_spaces(before):
        # "你好!你好?": here signs of Latin text are used without a space. An ellipsis may stand inside a sentence.
        told = bool(match["blank"] or match["closing"]) or (mark.strip(".…") != "" and writes_without_spaces(following))
        return told and _wide_ends(match, following)
    if not match["blank"] or not _begins(text, match.end()):
        return False
    return mark != "." or bool(match["closing"]) or not _is_inner_stop(text, start, match)


def _wide_ends(match: re.Match[str], following: str) -> bool:
    if match["blank"]:
        return True
    if match["mark"] == "．" and following.isdigit():
        return False
    behind = match.string[match.end() : match.end() + 3]
    return not (_CONTINUES.match(behind) if match["closing"] else behind[0] in "、，,;；：:")


def _begins(text: str, place: int) -> bool:
    """Whether what stands here can begin a sentence: anything but a small letter or a sign."""
    inside = _behind_opening(text, place)
    first = text[inside : inside + 1]
    return first != "" and not first.islower() and (first.isalnum() or inside > place)


def _is_inner_stop(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a full stop belongs to an abbreviation, an initial or an ordinal and not to the sentence."""
    before = _WORD_BEFORE.search(text, max(start, match.start() - _LONGEST_WORD), match.start())
    if before is None:
        return False
    word = before[0]
    small = word.lower()
    if word.isdigit() and len(word) > 2:  # a year, not an ordinal
        return False
    if len(word) == 1 and word.islower():  # "d. h. Sie", "г. Москва"
        return True
    if word.isdigit() or _ROMAN.fullmatch(word) or (len(word) == 1 and word.isupper()):
        # "1. The first", "3. Mai", "Karl V. Kaiser", "J. Smith"; but "I am 12. He is 10."
        numbers_a_line = _behind_opening(text, start) == before.start()
        return numbers_a_line or not _starter_follows(text, match.end())
    if small in _BEFORE_NUMBERS or small in _MAY_END:
        return text[match.end()].isdigit()
    if _DOTTED.fullmatch(word):
        return word.islower() or not _starter_follows(text, match.end())
    short = len(word) <= 4 and not word.isupper()
    return small in _ABBREVIATIONS or (short and _NO_VOWELS.fullmatch(word) is not None)


def _starter_follows(text: str, place: int) -> bool:
    following = _NEXT_WORD.match(text, _behind_opening(text, place))
    return following is not None and following[0].lower() in _STARTERS


def _behind_opening(text: str, place: int) -> int:
    """The place behind quotes, brackets and dashes that stand here."""
    opening = _OPENING.match(text, place)
    return opening.end() if opening else place
