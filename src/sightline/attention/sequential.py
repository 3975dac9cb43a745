"""Mechanisms in which one query needs the weights of the query before: they take queries one at a time, inside."""

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from sightline.attention.compose import Composed
from sightline.attention.contract import Carry, Memory


class Sequential(Composed):
    """The base of location-aware attention and memory addressing: the carry holds the last weights."""

    def begin(self, memory: Memory) -> Carry:
        """Nothing has been looked at yet."""
        batch = memory.values.shape[: memory.values.dim() - 2 - len(self.heads)]
        weights = memory.values.new_zeros(*batch, *self.heads, memory.values.shape[-2])
        return super().begin(memory)._replace(weights=weights)

    def rows_in_a_block(self, query: Float[Tensor, "*b t q"], memory: Memory) -> int:
        """One query at a time: each needs the weights of the one before."""
        return 1

    def next_carry(self, carry: Carry, weights: Float[Tensor, "*b t s"]) -> Carry:
        if weights.shape[-2] == 0:
            return carry
        return carry._replace(position=carry.position + weights.shape[-2], weights=weights[..., -1, :])

    def last_weights(self, carry: Carry, memory: Memory) -> Float[Tensor, "*b 1 s"]:
        """The weights of the query before, with zeros for keys that came into the memory since."""
        if carry.weights is None:
            raise ValueError("carry has no weights; start from begin(memory), and pass on the carry of each read")
        missing = memory.values.shape[-2] - carry.weights.shape[-1]
        if missing < 0:
            raise ValueError(
                f"carry.weights has shape {tuple(carry.weights.shape)}; expected at most {memory.values.shape[-2]} "
                f"keys, as many as the memory holds"
            )
        return pad(carry.weights, (0, missing)).unsqueeze(-2)


def row_visible(allowed: Bool[Tensor, "..."] | None, like: Float[Tensor, "*b t s"]) -> Bool[Tensor, "*b t s"]:
    """The mask of one query, whole."""
    if allowed is None:
        return like.new_ones(like.shape).bool()
    return allowed.expand(like.shape)
