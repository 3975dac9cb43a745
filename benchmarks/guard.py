"""A guard on the hot paths: how many tensor operations they take and how many elements those write.

    python benchmarks/guard.py            # what it is now, beside what is kept
    python benchmarks/guard.py --write    # keep what it is now

Both are exact and the same on every machine with the same version of PyTorch, where times are not. What they show is
what slips: a copy more in every step, zeros filled in for every gradient, a projection inside the loop. A test holds
them to `guard.json`; who makes one larger for a reason writes it anew, and the reason with it.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sightline.decoding.search import Rules, beam_search, greedy
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig, additive
from sightline.models.text_to_text import TextToText, TextToTextConfig
from sightline.models.transformer import TransformerConfig
from sightline.vocabulary import END, PADDING, START

KEPT = Path(__file__).parent / "guard.json"
WORDS, ROWS, SOURCE, TARGET = 400, 6, 9, 11
MODELS: dict[str, TextToTextConfig] = {
    "transformer": TransformerConfig(32, 4, 64, 2, 2),
    "rnnsearch": RNNSearchConfig(32, 32, attention=additive(32)),
    "luong": LuongConfig(32, 32, 32),
}


class Counted(TorchDispatchMode):
    """Counts what reaches PyTorch's kernels inside the block; views cost nothing and do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        is_view = bool(returned) and returned[0].alias_info is not None and not returned[0].alias_info.is_write
        if not is_view:
            self.operations += 1
            self.elements += sum(part.numel() for part in tree_leaves(found) if isinstance(part, torch.Tensor))
        return found


def counts_of(call: Callable[[], object]) -> dict[str, int]:
    """Operations and elements of one call, after one that does not count."""
    with patch("sightline.kernels.softmax.LANES", 16):  # what a machine's registers hold decides what is filled up
        call()
        with Counted() as counted:
            call()
    return {"operations": counted.operations, "elements": counted.elements}


def hot_paths() -> dict[str, Callable[[], object]]:
    """Training and searching with each model, small and always the same."""
    torch.manual_seed(0)
    source = torch.randint(4, WORDS, (ROWS, SOURCE))
    target = torch.randint(4, WORDS, (ROWS, TARGET))
    source[:, -1], target[:, 0], target[:, -1] = END, START, END
    source[0, -3:] = torch.tensor([END, PADDING, PADDING])
    found: dict[str, Callable[[], object]] = {}
    for name, config in MODELS.items():
        model = config.build(WORDS, WORDS)
        found[f"{name}: training"] = partial(_train, model, source, target)
        found[f"{name}: greedy"] = partial(_search, model, source, 1)
        found[f"{name}: beam 4"] = partial(_search, model, source, 4)
    return found


def _search(model: TextToText, source: torch.Tensor, beam: int) -> None:
    rules = Rules(START, END, min_length=8, max_length=8, forbidden=(PADDING,))
    if model.training:
        model.eval().requires_grad_(False)  # as a run that was loaded
    step, state = model.searching(source)
    if beam == 1:
        greedy(step, state, ROWS, rules)
    else:
        beam_search(step, state, ROWS, rules, beam=beam)


def _train(model: TextToText, source: torch.Tensor, target: torch.Tensor) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    model.train().requires_grad_(True).loss(source, target, smoothing=0.1).total.backward()


def version() -> str:
    """PyTorch's, whatever machines it was built for: they count alike."""
    return torch.__version__.partition("+")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep what it is now")
    options = parser.parse_args()
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["paths"] if KEPT.exists() else {}
    found = {name: counts_of(call) for name, call in hot_paths().items()}
    for name, now in found.items():
        before = kept.get(name, {})
        print(name, ", ".join(f"{count:,} {unit} (kept: {before.get(unit, 0):,})" for unit, count in now.items()))
    if options.write:
        KEPT.write_text(json.dumps({"torch": version(), "paths": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
