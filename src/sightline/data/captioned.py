"""The report on images with captions. Rows are captions; those of one image belong together."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sightline.data.checking import Report
from sightline.data.disk import hash_of

BAD_IMAGE = "bad image"  # the kind of problem


@dataclass
class CaptionReport(Report):
    """The report on such data; ``pairs`` are captions.

    An image that cannot be read takes its captions with it, and is named once.
    """

    kept: ClassVar[str] = "captions"
    again: ClassVar[str] = "captions were there before, of the same image (kept)"
    measured: ClassVar[Mapping[str, str]] = {"characters": "characters"}
    bad_images: int = 0
    repeated: int = 0  # captions more of bad images that are named
    of_image: Counter[int] = field(default_factory=Counter)  # how many captions each image has, by its key
    different: set[int] = field(default_factory=set)  # captions of an image, as hashes
    named: str = ""  # the bad image that was named last

    def add(self, x: Any, y: str) -> None:
        self.measure(len(y))
        self.of_image[x.key] += 1
        self.different.add(hash_of(f"{x.key}\0{y}"))
        self.duplicates = self.pairs - len(self.different)

    def repeats(self, rows: int, different: int, items: int) -> None:
        """Counted on the way: rows of the same image are one example here."""

    def leave_out(self, kind: str, place: str, most: int) -> None:
        if kind == BAD_IMAGE:
            self.bad_images += place != self.named
            self.repeated += bool(self.places) and self.places[-1] == place
            self.named = place
        super().leave_out(kind, place, most)

    @property
    def images(self) -> int:
        return len(self.of_image)

    @property
    def captions(self) -> dict[int, int]:
        """How many images have so many captions."""
        return dict(Counter(self.of_image.values()))

    @property
    def same(self) -> int:
        """Files whose content is that of a file before."""
        return getattr(self.input, "same_files", 0)

    def to_json(self) -> dict[str, Any]:
        counts = {str(count): images for count, images in sorted(self.captions.items())}
        kept = {"images": self.images, "same_content": self.same, "bad_images": self.bad_images}
        return super().to_json() | kept | {"captions_of_an_image": counts}

    def heading(self) -> str:
        return f"{self.images:,} images with {self.pairs:,} captions, of {self.rows:,} rows"

    def more(self) -> list[str]:
        lines = []
        if len(self.captions) > 1:
            lines.append(f"captions of an image: from {min(self.captions):,} to {max(self.captions):,}")
        if self.same:
            lines.append(f"{self.same:,} files have the content of another: each of these is one image")
        return lines

    @property
    def unnamed(self) -> int:
        return super().unnamed - self.repeated
