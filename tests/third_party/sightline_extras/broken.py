"""Tasks that break one law each."""

from dataclasses import replace
from typing import Any

from sightline.tasks.task import Task
from sightline_extras import VECTORS


def broken(name: str, **classes: str) -> Task:
    """The task of vectors with another input or output."""
    named: dict[str, Any] = {side: f"sightline_extras.broken_parts:{one}" for side, one in classes.items()}
    return replace(VECTORS, name=name, variants=(replace(VECTORS.variants[0], stored=name, **named),))


FITS_ITS_CLASS = broken("fits_its_class", input="FitsItsClass")
CENTRES_BATCHES = broken("centres_batches", input="CentresBatches")
COUNTS_ITS_BATCHES = broken("counts_its_batches", output="CountsItsBatches")
READS_TWICE = broken("reads_twice", input="ReadsTwice")
BREAKS_DOWN = broken("breaks_down", input="BreaksDown")

# By the law that names the fault.
BROKEN = {
    "nothing_fitted_on_the_declaration": FITS_ITS_CLASS,
    "batches_do_not_matter": CENTRES_BATCHES,
    "resumes_bit_for_bit": COUNTS_ITS_BATCHES,
    "data_is_read_once": READS_TWICE,
    "bad_rows_are_named": BREAKS_DOWN,
}
