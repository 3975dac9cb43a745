"""The limits of the server. Each limit is in the schema or in the sentence that refuses a request."""

from dataclasses import dataclass, fields, replace

from sightline.errors import UserError


@dataclass(frozen=True)
class Limits:
    """The largest sizes, lengths, times and numbers.

    ``body`` is bytes of a request; ``texts`` in one request and ``characters`` of each; ``depth`` of its JSON, and
    ``names`` of fields and ``lists`` (and objects) in it: no valid request has more, and naming each unknown one in an
    error would take time.
    ``tokens`` is the longest output of a request. ``weights`` are those of one explanation. ``measured`` is the number
    of tokens up to which its evidence is measured: the time grows with the cube, and predictions wait meanwhile.
    ``seconds`` is the time for an answer, ``reading`` the time for a client to send a request or to read an answer,
    ``decoding`` the time to decode a file, ``stopping`` the time until the server ends after a signal to stop, in
    which it answers open requests. ``waiting`` and ``connections`` are the
    numbers of requests and clients at once; more are refused, not dropped.

    For runs that read images or other files: ``images`` in one request, ``image_bytes`` of all of them together (a body
    may be larger by their size in base64), ``pixels`` of each image, ``sound_seconds`` of each recording. ``held`` is
    the bytes of bodies and of waiting files in memory. For runs that read tables: ``table_cells`` of all tables of a
    request, and ``table_bytes``, by which a body may be larger.
    """

    body: int = 1 << 20
    texts: int = 64
    characters: int = 2_000
    depth: int = 8
    names: int = 64
    lists: int = 1_000
    beam: int = 16
    tokens: int = 1_024
    weights: int = 1_000_000
    measured: int = 64
    seconds: float = 60.0
    reading: float = 10.0
    decoding: float = 4.0
    stopping: float = 30.0
    waiting: int = 256
    connections: int = 1_024
    images: int = 8
    image_bytes: int = 16 << 20
    pixels: int = 50_000_000
    sound_seconds: float = 300.0
    table_cells: int = 200_000
    table_bytes: int = 8 << 20
    held: int = 1 << 29

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < 1 << 40:  # also refuses NaN
                raise UserError(f"the limit on {field.name} is {value}; it must be more than 0 and finite")

    def with_tables(self) -> "Limits":
        """For requests with tables: larger bodies, a list for each row, and the fields of each question."""
        more = {"names": self.names + 4 * self.texts, "lists": self.lists + self.table_cells}
        return replace(self, body=self.body + self.table_bytes, **more)

    @property
    def base64(self) -> int:
        """The most characters of a file in base64."""
        return 4 * -(-self.image_bytes // 3)
