"""What the server takes at most. Each limit is in the schema or in the sentence that refuses."""

from dataclasses import dataclass, fields

from sightline.errors import UserError


@dataclass(frozen=True)
class Limits:
    """Sizes, lengths, times and numbers.

    ``body`` is bytes of a request; ``texts`` in one request and ``characters`` of each; ``depth`` of its JSON.
    ``tokens`` bounds the output that may be asked for. ``weights`` are those of one explanation; ``measured`` the
    tokens up to which it is measured whether to believe it: hiding each in turn grows with the cube, and predictions
    wait meanwhile. ``seconds`` is how long an answer may take, ``reading`` how long a client may take to send a request
    or to read an answer, ``stopping`` how long the server goes on answering when it is told to stop. ``waiting`` and
    ``connections`` are how many requests and clients there may be at once; beyond that they are refused, not dropped.

    Where a run reads images: ``images`` in one request, ``image_bytes`` of all of them together (a body may then be as
    much larger as these take in base64), ``pixels`` of each. ``held`` is how many bytes of bodies, and of images that
    wait, are in memory at once.
    """

    body: int = 1 << 20
    texts: int = 64
    characters: int = 2_000
    depth: int = 8
    beam: int = 16
    tokens: int = 1_024
    weights: int = 1_000_000
    measured: int = 64
    seconds: float = 60.0
    reading: float = 10.0
    stopping: float = 30.0
    waiting: int = 256
    connections: int = 1_024
    images: int = 8
    image_bytes: int = 16 << 20
    pixels: int = 50_000_000
    held: int = 1 << 29

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < 1 << 40:  # also refuses NaN
                raise UserError(f"the limit on {field.name} is {value}; it must be more than 0 and finite")

    @property
    def base64(self) -> int:
        """How many characters an image may have in base64."""
        return 4 * -(-self.image_bytes // 3)
