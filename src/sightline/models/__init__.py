"""One paper, one file: each puts the layers together, with its configuration beside it."""
