"""Whether the first line of a table names its columns. `docs/decisions.md`, 92, has the rule.

What people get wrong: a header that is read as a row is one bad example; a table of another task that is read because
nobody looked at its header is a model of nothing.
"""

import itertools
import re
from collections.abc import Sequence

from sightline.data.tables import NAME, listed
from sightline.errors import UserError

LEAST_ROWS = 5  # below a first line, before it is compared with them
# ISO 639-1 without id, which is the number of a row nearly always, and the languages that corpora have most.
_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_NAMES = (
    "arabic bengali bulgarian catalan chinese croatian czech danish dutch english estonian finnish french german greek "
    "hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian norwegian "
    "persian polish portuguese romanian russian serbian slovak slovenian spanish swahili swedish tamil thai turkish "
    "ukrainian urdu vietnamese"
)
LANGUAGES = frozenset(f"{_CODES} {_NAMES}".split())
# Names that tables of any task give to their columns.
_COLUMNS = (
    "answer answers article caption captions category class comment content context description document file "
    "filename file_name highlights id image image_path input label labels mask mask_path ner_tags output passage path "
    "pos_tags query question review score sentence sentence1 sentence2 sentiment source src summary tag tags target "
    "text text1 text2 tgt title tokens trg words"
)
KNOWN = frozenset(_COLUMNS.split())
_REGION = re.compile(r"[-_][A-Za-z]{2,4}$")


def is_language(column: str) -> bool:
    """Whether a column is called by a language: ``en``, ``English``, ``pt_BR``."""
    return _REGION.sub("", column.strip()).casefold() in LANGUAGES


def is_name(cell: object) -> bool:
    """Whether a cell may be the name of a column: one word of letters and digits."""
    return isinstance(cell, str) and NAME.fullmatch(cell.strip()) is not None


def refuse_header(name: str, first: Sequence[str], below: Sequence[Sequence[str]]) -> None:
    """Refuse a first line that is read as a row and looks like a header: of names that tables have, or of words where
    at most a tenth of the rows below are words alone."""
    if not all(map(is_name, first)):
        return
    alike = sum(all(map(is_name, cells)) for cells in itertools.islice(below, 100))
    if not {cell.strip().casefold() for cell in first} <= KNOWN and (
        len(below) < LEAST_ROWS or 10 * alike > len(below)
    ):
        return
    raise unknown_header(name, first, "If its first line is a row, put a line with names above it")


def unknown_header(name: str, columns: Sequence[str], otherwise: str = "") -> UserError:
    """The error about names that no column of the task has."""
    return UserError(
        f"{name}: found the columns {listed(columns)}, which are none of the task's; name the columns to use with "
        f"--columns{f'. {otherwise}' if otherwise else ''}"
    )
