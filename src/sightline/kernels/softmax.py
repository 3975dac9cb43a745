"""The softmax over few keys, as fast as over many.

PyTorch's kernel takes a row at a time, and a row that does not fill a vector register element by element: on a
processor with AVX-512 fifteen keys take fourteen times as long as sixteen. So a short row is padded with scores of
minus infinity, and the padding is cut off afterwards. Gain for 7 keys with AVX2: 1.4 (`benchmarks/kernel_gains.py`).
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sightline.kernels import enabled

LANES = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8  # numbers in a register, of float32
FEW = 1024  # numbers in all, below which filling up takes longer than it saves
SHORT = 96  # keys, up to which two products and this softmax are faster than PyTorch's fused attention


def supported(scores: Float[Tensor, "*b s"]) -> bool:
    is_short = scores.shape[-1] < LANES and scores.numel() >= FEW
    return is_short and scores.device.type == "cpu" and scores.dtype == torch.float32 and enabled()


def fast(scores: Float[Tensor, "*b s"]) -> Float[Tensor, "*b s"]:
    keys = scores.shape[-1]
    return torch.softmax(F.pad(scores, (0, LANES - keys), value=-math.inf), dim=-1)[..., :keys]


def reference(scores: Float[Tensor, "*b s"]) -> Float[Tensor, "*b s"]:
    return torch.softmax(scores, dim=-1)


def softmax_gradient(above: Float[Tensor, "*b s"], weights: Float[Tensor, "*b s"]) -> Float[Tensor, "*b s"]:
    """The gradient of the scores, from that of the weights: w · (d − Σ d · w)."""
    product = above * weights
    return product.addcmul_(weights, product.sum(dim=-1, keepdim=True), value=-1)


def softmax(scores: Float[Tensor, "*b s"]) -> Float[Tensor, "*b s"]:
    """exp(s_i) / Σ exp(s_j) over the last axis."""
    return fast(scores) if supported(scores) else reference(scores)
