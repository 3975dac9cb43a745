"""From files to batches of numbers. Nothing here uses a model or torch."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.data.checking import RowLimits
    from sightline.data.images import ImageLimits, read_image
    from sightline.data.sound import SoundLimits, read_sound
    from sightline.data.source import Source
    from sightline.data.store import Corpus
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "data.checking": "RowLimits",
            "data.images": "ImageLimits read_image",
            "data.sound": "SoundLimits read_sound",
            "data.source": "Source",
            "data.store": "Corpus",
        },
    )

__all__ = ["Corpus", "ImageLimits", "RowLimits", "SoundLimits", "Source", "read_image", "read_sound"]
