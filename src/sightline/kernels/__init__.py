"""Hand-written fast paths of numerical code."""
