"""How values are held to the types of signatures: as type checkers do, where an `int` may stand for a `float`."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
