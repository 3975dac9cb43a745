"""The simple models that a score is compared with."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.baselines.linear import fit_linear
    from sightline.baselines.texts import Floor, Floors, fit_floors
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "baselines.linear": "fit_linear",
            "baselines.texts": "Floor Floors fit_floors",
        },
    )

__all__ = ["Floor", "Floors", "fit_floors", "fit_linear"]
