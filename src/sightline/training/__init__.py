"""Training: the loop, checkpoints, the run folder."""
