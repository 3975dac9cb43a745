"""The tables of a run's data, each stored once however many questions there are about it."""

import json
from collections import OrderedDict
from io import RawIOBase
from pathlib import Path

from sightline.errors import UserError
from sightline.files import open_regular
from sightline.table import DataTable

TABLES = "tables.jsonl"
MOST_HELD = 1 << 25  # characters of the tables that are kept in memory


class TableStore:
    """A file with a table a line; in memory is where each begins. Tables are known by their digests."""

    def __init__(self, path: Path, writable: bool) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._held: OrderedDict[str, DataTable] = OrderedDict()
        self._characters = 0
        self._file: RawIOBase | None = None
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w+b", buffering=0)

    @classmethod
    def create(cls, folder: Path) -> "TableStore":
        return cls(folder / TABLES, writable=True)

    @classmethod
    def open(cls, folder: Path) -> "TableStore":
        """What `create` and `add` wrote, to read."""
        store = cls(folder / TABLES, writable=False)
        try:
            with open_regular(store.path) as file:
                place = 0
                for line in file:
                    store._places[line[:32].decode("ascii")] = (place + 33, len(line) - 33)
                    place += len(line)
        except FileNotFoundError:
            raise UserError(f"{store.path} is missing: without its data the run cannot be resumed") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{store.path} is damaged: {error}") from None
        return store

    @property
    def writable(self) -> bool:
        return self._file is not None

    def __contains__(self, digest: object) -> bool:
        return digest in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, table: DataTable) -> str:
        """The digest of a table, which is there from then on."""
        digest = table.digest
        if digest not in self._places:
            assert self._file is not None, "the store is to be read only"
            line = json.dumps(table.to_json(), ensure_ascii=False).encode("utf-8")
            start = self._file.seek(0, 2)
            self._file.write(f"{digest} ".encode("ascii") + line + b"\n")
            self._places[digest] = (start + len(digest) + 1, len(line) + 1)
        self._keep(digest, table)
        return digest

    def get(self, digest: str) -> DataTable:
        """The table of this digest; raises a `LookupError` or a `ValueError` where the file is damaged."""
        if digest not in self._held:
            start, size = self._places[digest]
            with open_regular(self.path) as file:
                file.seek(start)
                self._keep(digest, DataTable.from_value(json.loads(file.read(size))))
        self._held.move_to_end(digest)
        return self._held[digest]

    def _keep(self, digest: str, table: DataTable) -> None:
        if digest in self._held:
            return
        self._held[digest] = table
        self._characters += table.characters
        while self._characters > MOST_HELD and len(self._held) > 1:
            self._characters -= self._held.popitem(last=False)[1].characters

    def close(self) -> None:
        """End writing; what is there can be read further."""
        if self._file is not None:
            self._file.close()
            self._file = None
