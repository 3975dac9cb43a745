"""Low-rank adaptation (Hu et al. 2022): a trained model stays as it is, and small products are learnt beside it.

A matrix W becomes W + (alpha / rank) · up · down, where ``down`` has few rows; ``up`` begins at zero, so that at first
nothing changes. The weight itself is parametrised (`torch.nn.utils.parametrize`), so all code that reads the weight
reads the sum, fast paths too. What people get wrong: the product is scaled by alpha / rank, so that the rank can be
changed without a new learning rate.

A run keeps the merged weights: it loads, predicts and exports like any other, and needs to know nothing of this. Only
the checkpoints for resuming hold the factors.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sightline.attention.checks import check_least
from sightline.config import Config


class LowRank(nn.Module):
    """What is added to a matrix."""

    def __init__(self, rows: int, columns: int, rank: int, alpha: float) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))
        self.scale = alpha / rank

    def forward(self, weight: Float[Tensor, "o i"]) -> Float[Tensor, "o i"]:
        return torch.addmm(weight, self.up, self.down, alpha=self.scale)


@dataclass(frozen=True)
class LoraConfig(Config):
    """``layers`` are the last parts of the names of linear layers: queries and values, as the paper recommends."""

    rank: int = 8
    alpha: float = 16.0
    layers: tuple[str, ...] = ("project_query", "project_values")
    family: ClassVar[str] = "lora"

    def __post_init__(self) -> None:
        check_least(self, 1, "rank")
        if not self.alpha > 0:
            raise ValueError(f"alpha is {self.alpha}; it must be above 0")
        if not self.layers:
            raise ValueError("layers is empty; name the linear layers to adapt, such as project_query")


def add_lora(model: nn.Module, config: LoraConfig, also: Iterable[nn.Module] = ()) -> list[str]:
    """Adapt the model's linear layers of these names and keep everything else of it as it is; the layers' names.

    ``also`` are modules inside the model that are new and have to be learnt whole, such as what pools.
    """
    adapted = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in config.layers
    }
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    for name in config.layers:
        if name not in names:
            raise ValueError(f"there is no linear layer {name!r}; there is {', '.join(sorted(names))}")
    if any(is_adapted(module) for module in adapted.values()):
        raise ValueError("the model is adapted already; merge first")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for module in also:
        for parameter in module.parameters():
            parameter.requires_grad_(True)
    for module in adapted.values():
        rows, columns = module.weight.shape
        adding = LowRank(rows, columns, config.rank, config.alpha).to(module.weight)
        parametrize.register_parametrization(module, "weight", adding)
    return sorted(adapted)


def is_adapted(module: nn.Module) -> bool:
    """Whether this layer's weight is a sum that is being learnt."""
    return parametrize.is_parametrized(module, "weight") and any(
        isinstance(one, LowRank)
        for one in module.parametrizations["weight"]  # type: ignore[index]
    )


def merge_lora(model: nn.Module) -> list[str]:
    """Make every sum the weight itself, under its old name, and let everything move again; the layers' names."""
    merged = [name for name, module in model.named_modules() if is_adapted(module)]
    for name in merged:
        parametrize.remove_parametrizations(model.get_submodule(name), "weight", leave_parametrized=True)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return sorted(merged)
