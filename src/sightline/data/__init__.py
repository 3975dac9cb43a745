"""From files to batches of numbers. Nothing here uses a model or torch."""
