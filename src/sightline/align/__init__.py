"""Word alignment by attention: where a model attends while it is forced to write a given target."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.align.aligning import Aligner, Alignment
    from sightline.align.choosing import Aligned, align
    from sightline.align.links import AlignmentScore, Gold, parse_links, pharaoh, symmetrised
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "align.aligning": "Aligner Alignment",
            "align.choosing": "Aligned align",
            "align.links": "AlignmentScore Gold parse_links pharaoh symmetrised",
        },
    )

__all__ = ["Aligned", "Aligner", "Alignment", "AlignmentScore", "Gold", "align", "parse_links", "pharaoh"]
__all__ += ["symmetrised"]
