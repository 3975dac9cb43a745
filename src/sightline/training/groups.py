"""Which parameters learn together: matrices decay and vectors do not, and layers further down may learn more slowly."""

from collections.abc import Sequence
from typing import Any

from torch import nn


def parameter_groups(model: nn.Module, weight_decay: float, layer_decay: float = 1.0) -> list[dict[str, Any]]:
    """Groups for the optimiser; the learning rate of each is multiplied by its ``scale``.

    With a ``layer_decay`` below 1 a layer's rate is that share of the rate of the layer above it (Howard & Ruder 2018;
    Clark et al. 2020): what was learnt before is most general at the bottom. A module that says how far down its
    parameters stand (``layer_depths()``, as `sightline.models.encoder.Encoder` has it) is taken at its word; all others
    learn at the full rate. A model may also give groups of its own (``parameter_groups()``).

    Parameters that do not learn are left out.
    """
    if not 0 < layer_decay <= 1:
        raise ValueError(f"layer_decay is {layer_decay}; it must be above 0 and at most 1")
    own = getattr(model, "parameter_groups", None)
    if callable(own):
        return _split([(list(group["params"]), float(group.get("scale", 1.0))) for group in own()], weight_decay)
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    depths = dict.fromkeys(learning, 0)
    if layer_decay != 1.0:
        for prefix, module in model.named_modules():
            if callable(getattr(module, "layer_depths", None)):
                own_depths = module.layer_depths().items()
                named = {f"{prefix}.{name}" if prefix else name: depth for name, depth in own_depths}
                depths |= {name: depth for name, depth in named.items() if name in learning}
    by_depth: dict[int, list[nn.Parameter]] = {}
    for name, parameter in learning.items():
        by_depth.setdefault(depths[name], []).append(parameter)
    return _split([(by_depth[depth], layer_decay**depth) for depth in sorted(by_depth)], weight_decay)


def _split(scaled: Sequence[tuple[list[nn.Parameter], float]], weight_decay: float) -> list[dict[str, Any]]:
    """Matrices first: optimisers of earlier versions counted their parameters in this order."""
    groups: list[dict[str, Any]] = []
    for parameters, scale in scaled:
        matrices = [one for one in parameters if one.requires_grad and one.dim() > 1]
        others = [one for one in parameters if one.requires_grad and one.dim() <= 1]
        groups.append({"params": matrices, "weight_decay": weight_decay, "scale": scale})
        groups.append({"params": others, "weight_decay": 0.0, "scale": scale})
    return [group for group in groups if group["params"]]
