"""The simple models that a score is compared with."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.baselines.linear import fit_linear
    from sightline.baselines.texts import LinearBaseline, LinearBaselines, fit_baselines
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "baselines.linear": "fit_linear",
            "baselines.texts": "LinearBaseline LinearBaselines fit_baselines",
        },
    )

__all__ = ["LinearBaseline", "LinearBaselines", "fit_baselines", "fit_linear"]
