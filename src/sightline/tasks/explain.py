"""What to explain and how far: options that every output takes, and what explanations of texts share."""

from dataclasses import dataclass

from sightline.errors import UserError

LIKELIEST = 5  # choices shown for each step
WHOLE = 1 << 24  # weights, over all heads; above that only the largest of each row are kept
LARGEST = 64


@dataclass(frozen=True)
class ExplainOptions:
    """The model's own output is explained unless ``output`` is given.

    ``alternatives`` is how many other outputs of the beam to name. ``top`` keeps that many weights of each row; left
    out, all are kept unless the input is long. ``shift`` is the run's own unless given. ``measure`` says whether to
    believe the map (`sightline.evidence`), which takes many more passes than the map itself.
    """

    output: str | None = None
    beam: int = 5
    alternatives: int = 3
    top: int | None = None
    shift: int | None = None
    measure: bool = True

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise UserError(f"top is {self.top}; it must be at least 1")
        if self.beam < 1 or self.alternatives < 0:
            raise UserError("beam must be at least 1 and alternatives at least 0")
