"""Word alignment by attention: where a model attends while it is forced to write a given target."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.align.aligning import Aligner, Alignment
    from sightline.align.choosing import Alignments, align
    from sightline.align.links import AlignmentScore, GoldLinks, parse_links, pharaoh, symmetrised
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "align.aligning": "Aligner Alignment",
            "align.choosing": "Alignments align",
            "align.links": "AlignmentScore GoldLinks parse_links pharaoh symmetrised",
        },
    )

__all__ = ["Aligner", "Alignment", "AlignmentScore", "Alignments", "GoldLinks", "align", "parse_links", "pharaoh"]
__all__ += ["symmetrised"]
