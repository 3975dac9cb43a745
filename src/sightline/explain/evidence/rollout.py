"""Attention rollout (Abnar and Zuidema 2020): self-attention followed through the layers, back to the input.

Half of what a position holds behind a layer came past the attention, along the residual path: Ã = ½A + ½I, with rows
that sum to one, and R_l = Ã_l R_{l−1}. What people get wrong: it is bookkeeping of weights, not of what the values
hold, and the half is a guess; it is one more map to look at, with no more claim to be believed than the others.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from sightline.records import Record


def rollout(matrices: Sequence[Float[np.ndarray, "t t"]]) -> list[Float[np.ndarray, "t t"]]:
    """Of the layers' attention, heads averaged, first layer first: where each layer's positions looked in the input."""
    found: list[np.ndarray] = []
    for matrix in matrices:
        mixed = 0.5 * matrix.astype(np.float64) + 0.5 * np.eye(len(matrix))
        mixed /= mixed.sum(axis=1, keepdims=True)
        found.append(mixed @ found[-1] if found else mixed)
    return found


def rollout_records(records: Sequence[Record], name: str = "encoder.rollout") -> list[Record]:
    """Records of the self-attention of a stack of layers → one record for each layer: ``encoder.rollout.0`` and so on.

    The layers come in the order in which their names first occur.
    """
    layers: dict[str, list[Record]] = {}
    for record in records:
        if record.rows != record.columns:
            raise ValueError(
                f"{record.name} looks from {len(record.rows)} rows at {len(record.columns)} other columns; a rollout "
                f"is of self-attention"
            )
        layers.setdefault(record.name, []).append(record)
    means = [np.mean([head.matrix() for head in heads], axis=0) for heads in layers.values()]
    return [
        Record(f"{name}.{layer}", layer, 0, heads[0].rows, heads[0].columns, matrix.astype(np.float32))
        for layer, (heads, matrix) in enumerate(zip(layers.values(), rollout(means), strict=True))
    ]
