"""Made data for the demo, the tests and the benchmarks: dates, shapes, grids."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.synthetic.dates import DateSplit, held_out_language, make_dates, split_dates
    from sightline.synthetic.shapes import Made, Shape, made_shapes, parity_grids
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "synthetic.dates": "DateSplit held_out_language make_dates split_dates",
            "synthetic.shapes": "Made Shape made_shapes parity_grids",
        },
    )

__all__ = ["DateSplit", "Made", "Shape", "held_out_language", "made_shapes", "make_dates", "parity_grids"]
__all__ += ["split_dates"]
