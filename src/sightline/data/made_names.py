"""What the name of made data says (``made:copy:lengths=12``), whichever kind it is. Nothing here imports torch."""

from dataclasses import dataclass

from sightline.data.made import SCORED_ROWS
from sightline.data.made_tables import NAME as TABLES
from sightline.data.made_tables import read_options
from sightline.errors import UserError
from sightline.synthetic.made import MADE, PREFIX, SYMBOLS, MadeData


@dataclass(frozen=True)
class MadeName:
    """What the inputs are (vectors, symbols or questions), and how many, where the name says it."""

    inputs: str
    count: int | None

    @property
    def rows(self) -> int:
        """How many items are predicted."""
        return SCORED_ROWS if self.count is None else self.count


def inputs_of(name: str) -> str:
    """What the inputs of this made data are."""
    if name == TABLES:
        return "questions"
    return "symbols" if MADE[name].columns == SYMBOLS else "vectors"


def read_name(text: str) -> MadeName:
    """What a name says; raises a `UserError` where it is wrong."""
    name, *parts = text.removeprefix(PREFIX).split(":")
    if name == TABLES:
        return MadeName(inputs_of(name), read_options(text).get("count"))
    if name not in MADE:
        raise UserError(f"there is no made data {name!r}; there is {', '.join((*MADE, TABLES))}")
    made = MadeData.read(text)
    return MadeName(inputs_of(name), made.count if any(one.startswith("count=") for one in parts) else None)


def names_with(inputs: str) -> list[str]:
    """All made data with such inputs."""
    return [f"{PREFIX}{name}" for name in (*MADE, TABLES) if inputs_of(name) == inputs]
