"""The simple models that a score is compared with."""
