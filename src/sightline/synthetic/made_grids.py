"""Made grids, whose labels follow a rule that no cell can follow alone.

``y_ij = x_ij ⊕ y_up ⊕ y_left``, with labels behind the edge 0: who knows the labels above and to the left has one bit
to add; who sees only the cell has a fair coin.
"""

import numpy as np


def parity_grid(height: int, width: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features ``h w 1`` of zeros and ones, and the labels."""
    x = draw.integers(2, size=(height, width))
    y = np.zeros((height + 1, width + 1), dtype=np.int64)
    for i in range(height):
        for j in range(width):
            y[i + 1, j + 1] = x[i, j] ^ y[i, j + 1] ^ y[i + 1, j]
    return x[:, :, None].astype(np.float32), y[1:, 1:]


def parity_grids(
    count: int, seed: int, least: tuple[int, int] = (6, 6), most: tuple[int, int] = (10, 10)
) -> list[tuple[np.ndarray, np.ndarray]]:
    """As many grids, of sizes between ``least`` and ``most``."""
    draw = np.random.default_rng(seed)
    sizes = [(draw.integers(least[0], most[0] + 1), draw.integers(least[1], most[1] + 1)) for _ in range(count)]
    return [parity_grid(int(height), int(width), draw) for height, width in sizes]
