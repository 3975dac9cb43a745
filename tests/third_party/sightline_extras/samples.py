"""Made data of both tasks."""

import random
from typing import Any

from sightline_extras.morse import CODE, signal


def vectors(count: int = 40, seed: int = 0) -> list[dict[str, Any]]:
    """Sequences of vectors, and the same in reverse."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        some = [[round(draw.gauss(0, 1), 3) for _ in range(3)] for _ in range(draw.randint(2, 6))]
        rows.append({"vectors": some, "target": some[::-1]})
    return rows


def morse(count: int = 40, seed: int = 0) -> list[dict[str, Any]]:
    """Signals, and what they spell."""
    draw = random.Random(seed)
    texts = ["".join(draw.choices(list(CODE), k=draw.randint(1, 4))) for _ in range(count)]
    return [{"frames": signal(text), "text": text} for text in texts]
