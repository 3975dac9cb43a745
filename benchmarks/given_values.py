"""A command of sightline for which numbers and dates of cells are those that come with WikiTableQuestions.

    python benchmarks/given_values.py FOLDER train ask --data RUNS/train.tsv ...
    python benchmarks/given_values.py FOLDER evaluate RUN --data RUNS/valid.tsv --json

FOLDER has ``tables`` and ``cell-values.tsv.gz``. The given values decide what is ranked (max, min) and what compares
with a number of the question. All else is as without them: which cells are equal, which cells the question names, the
numbers of the question, and whether an answer is right. Of equal cells of a column, the values of the first are used.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sightline import cli
from sightline.data.table_files import BadTableError, read_table
from sightline.data.values import Value
from sightline.inputs import table_arrays
from sightline.inputs.table_arrays import ColumnFacts, column_facts, ranks_of
from sightline.table import DataTable
from sightline.tasks.configs.ask import AskConfig
from table_values import Given, given_date, read_given

_YEAR = re.compile(r"(\d{4})-xx-xx")
_HEADS = AskConfig().max_rows


def as_value(given: Given) -> Value:
    """A given value as our parser would write it."""
    date = given_date(given.date)
    if date is None and (year := _YEAR.fullmatch(given.date)):
        date = (int(year[1]), None, None)
    number, second = (float(one) if one else None for one in (given.number, given.second))
    return Value(number, second, date, ())


class GivenFacts:
    """The facts of the tables of a folder; tables are known by their cells, whole or cut for training."""

    def __init__(self, folder: Path) -> None:
        self.given, self.names = read_given(folder), dict[str, str]()
        for path in sorted((folder / "tables").glob("**/*.csv")):
            for table in self._tables(path):
                self.names[table.digest] = path.relative_to(folder / "tables").as_posix()

    @staticmethod
    def _tables(path: Path) -> Iterator[DataTable]:
        try:
            whole = read_table(path)
        except BadTableError:
            return
        yield from (whole, whole.head(_HEADS))

    def __call__(self, table: DataTable) -> ColumnFacts:
        facts = column_facts(table)
        name = self.names[table.digest]
        values = []
        for column, texts in enumerate(facts.texts):
            first: dict[int, int] = {}
            for row, entry in enumerate(facts.entries[:, column].tolist()):
                first.setdefault(entry, row)
            given = (self.given.get((name, first[entry], column), Given()) for entry in range(len(texts)))
            values.append(list(map(as_value, given)))
        return facts._replace(values=values, ranks=ranks_of(values, facts.entries))


def main() -> None:
    folder, *sys.argv[1:] = sys.argv[1:]
    table_arrays.column_facts = GivenFacts(Path(folder))
    cli.main()


if __name__ == "__main__":
    main()
