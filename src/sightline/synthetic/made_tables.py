"""Made tables by name: ``made:tables`` with options behind it: ``made:tables:rows=5-10:kinds=count+max_print``."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sightline.errors import UserError
from sightline.synthetic.made import COUNT, OPTIONS, PREFIX, Range
from sightline.synthetic.tables import KINDS, MadeQuestion, made_questions

NAME = "tables"
OPTION_NAMES = ("count", "rows", "columns", "kinds", "seed")


@dataclass(frozen=True)
class MadeTables:
    """What to draw. ``scored``: drawn to be scored, others than those of training, by any seed."""

    count: int = COUNT
    rows: Range = field(default=Range(5, 20))
    columns: Range = field(default=Range(4, 8))
    kinds: tuple[str, ...] = KINDS
    seed: int = 0
    scored: bool = False

    @classmethod
    def read(cls, text: str, **options: object) -> "MadeTables":
        """What ``made:tables:option=value`` says; ``options`` are given beside it. Raises a `UserError`."""
        name, *parts = text.removeprefix(PREFIX).split(":")
        if name != NAME:
            raise UserError(f"the data is {text!r}; expected {PREFIX}{NAME}")
        made = cls()
        given: dict[str, str] = {}
        for part in parts:
            key, _, value = part.partition("=")
            if not value or key not in OPTION_NAMES:
                expected = ", ".join(f"{one}=…" for one in OPTION_NAMES)
                raise UserError(f"{text}: found {part!r}; expected one of {expected}")
            given[key] = value
        given |= {key: str(value) for key, value in options.items() if value is not None}
        for key, value in given.items():
            if key == "kinds":
                made = replace(made, kinds=tuple(value.split("+")))
            elif key in ("rows", "columns"):
                made = replace(made, **{key: OPTIONS["lengths"](key, value)})
            elif key in ("count", "seed"):
                made = replace(made, **{key: OPTIONS[key](key, value)})
            else:
                raise UserError(f"{PREFIX}{NAME} has no option {key!r}; there is {', '.join(OPTION_NAMES)}")
        made.questions()  # refuses kinds and ranges that there are not
        return made

    def questions(self) -> Iterator[MadeQuestion]:
        """All questions, the same each time. Raises a `UserError`."""
        try:
            seed = self.seed + (0 if self.scored else 10**6)
            rows, columns = (self.rows.least, self.rows.most), (self.columns.least, self.columns.most)
            return made_questions(seed, self.count, self.kinds, rows, columns)
        except ValueError as error:
            raise UserError(f"{PREFIX}{NAME}: {error}") from None


def is_made_tables(data: str | None) -> bool:
    """Whether data is named as made tables are."""
    return data is not None and data.removeprefix(PREFIX).split(":")[0] == NAME and data.startswith(PREFIX)
