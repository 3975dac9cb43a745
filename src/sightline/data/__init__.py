"""From files to batches of numbers. Nothing here knows of a model, or needs torch."""
