"""The encoder of the Universal Transformer (Dehghani et al. 2018): one layer, repeated over all positions.

Every repeat has the same weights. Each position halts by itself (`sightline.nn.thinking`): a fixed number of repeats,
Adaptive Computation Time as in the paper, or PonderNet.

What people get wrong: the coordinate embeddings, of the position and of the repeat, are added before every repeat, not
only before the first; a position that has halted keeps its state, and the others still attend to it; and the number
of repeats belongs to a position, not to a sequence.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention import Allow
from sightline.attention.tap import repeat_number
from sightline.nn.annotating import sinusoids
from sightline.nn.thinking import State, ThinkingConfig, Thought
from sightline.nn.transformer import EncoderLayer, LayerShape


def coordinates(start: int, count: int, repeat: int, like: Float[Tensor, "b s d"]) -> Float[Tensor, "n d"]:
    """The embeddings of so many positions from ``start`` on, plus that of the number of the repeat, from 1 on."""
    size = like.shape[-1]
    return sinusoids(start, count, size, like) + sinusoids(repeat, 1, size, like)


def spread_weights(module: nn.Module) -> None:
    """Begin with the matrices of the Transformer's layers."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


class UniversalEncoder(nn.Module):
    """Vectors → as many vectors, by repeats of one layer. It takes any vectors: of words, of frames, of cells.

    ``allow`` says which positions a position may attend to, such as `Causal()`; all of them without it. The fast
    paths of `sightline.kernels` are for layers that run once, and are not used here.
    """

    def __init__(self, shape: LayerShape, thinking: ThinkingConfig, allow: Allow | None = None) -> None:
        super().__init__()
        if shape.size % 2:
            raise ValueError(f"size is {shape.size}; coordinate embeddings need an even one")
        self.layer = EncoderLayer(shape)
        self.thinking = thinking.build(shape.size)
        self.norm = nn.LayerNorm(shape.size, eps=shape.epsilon) if shape.norm == "pre" else nn.Identity()
        self.allow = allow
        spread_weights(self.layer)

    def forward(
        self,
        x: Float[Tensor, "b s d"],
        mask: Bool[Tensor, "b s"] | None = None,
        allow: Bool[Tensor, "..."] | None = None,
    ) -> Thought:
        """The states have one tensor, ``b s d``, normalised where layers are not. Padding is zero in all of them."""

        def step(state: State, number: int) -> State:
            placed = state[0] + coordinates(0, x.shape[1], number, x)
            with repeat_number(number):
                return (self.layer(placed, mask, self.allow if allow is None else allow),)

        thought = self.thinking(step, (x,), mask)
        states = None if thought.states is None else tuple(self._finish(one, mask) for one in thought.states)
        return thought._replace(state=self._finish(thought.state, mask), states=states)

    def _finish(self, state: State, mask: Bool[Tensor, "b s"] | None) -> State:
        x = self.norm(state[0])
        return (x if mask is None else x * mask.unsqueeze(-1),)


def mean_over_positions(values: Float[Tensor, "*n b s"], mask: Bool[Tensor, "b s"] | None) -> Float[Tensor, "*n b"]:
    """The mean over the positions that are there, such as the cost of a sequence from that of its positions."""
    if mask is None:
        return values.mean(dim=-1)
    real = mask.to(values.dtype)
    return (values * real).sum(dim=-1) / real.sum(dim=-1).clamp(min=1)
