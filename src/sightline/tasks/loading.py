"""From a run folder, which may be untrusted, to a model with its weights: the loader of every task."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sightline.errors import UserError
from sightline.text.tokeniser import Tokeniser
from sightline.training.checkpoint import verify_checkpoint
from sightline.training.folder import METRICS, MODEL, RunFolder, load_tensors

M = TypeVar("M", bound=nn.Module)
_DRAWS = {getattr(nn.init, name) for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")} | {
    Tensor.normal_,
    Tensor.uniform_,
}


class SavedRun(NamedTuple):
    """A run folder: the file of its weights, its name in errors, and the content of config.json."""

    path: Path
    weights: Path
    name: str
    about: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> "SavedRun":
        """A run folder, checked file by file, or one of its checkpoints."""
        weights, name = path / MODEL, str(path)
        if path.parent.name == "checkpoints" and weights.exists():
            verify_checkpoint(path)
            path = path.parent.parent
            folder = RunFolder.open(path, without=(MODEL, METRICS))
        else:
            folder = RunFolder.open(path)
        return cls(path, weights, name, folder.read_config())

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Report files that do not fit together in one sentence."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(f"{self.path} is damaged: {reason}") from None

    def vocabulary(self, file: str, field: str, dropout: float) -> Tokeniser:
        """A tokeniser of the folder, whose vocabulary size must be that in this field of config.json."""
        tokeniser, words = Tokeniser.load(self.path / file, dropout), self.about.get(field)
        if words != tokeniser.words:
            raise UserError(f"{self.path} is damaged: {field} is {words!r}, and {file} has {tokeniser.words:,} words")
        return tokeniser

    def model(
        self, build: Callable[[], M], finish: Callable[[M, dict[str, Tensor]], None] = lambda model, tensors: None
    ) -> M:
        """The model with its weights, in evaluation mode.

        Shapes are compared with those of the weights before the model is built: a configuration of a few bytes can
        describe a model that fills the memory. ``finish`` changes a model before the weights are loaded into it.
        """
        with self.reading():
            tensors = load_tensors(self.weights)
            _check_layers(self.about.get("config"), len(tensors))
            with torch.device("meta"), _NoDraws():
                described = build()
                finish(described, tensors)
            _check_shapes({name: tensor.shape for name, tensor in described.state_dict().items()}, tensors)
            model = build()
            finish(model, tensors)
            model.load_state_dict(tensors)
            _check_numbers(model)
        return model.eval()


class _NoDraws(TorchFunctionMode):
    """Skip random initialisation: for meta tensors, PyTorch would import its compiler, which takes seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def _check_layers(config: Any, tensors: int) -> None:
    """Building on the meta device takes time too: a model has no more layers or blocks than tensors of weights."""
    if not isinstance(config, dict):
        return
    for name, value in config.items():
        if name.endswith(("layers", "blocks")) and isinstance(value, int) and value > tensors:
            raise ValueError(f"{name} is {value:,}, and there are {tensors:,} tensors of weights")
        _check_layers(value, tensors)


def _check_numbers(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise ValueError(f"the weights {name} are no longer numbers (NaN or infinite); train it again")


def _check_shapes(described: dict[str, torch.Size], tensors: dict[str, Tensor]) -> None:
    missing = sorted(described.keys() - tensors.keys())
    if missing or len(described) != len(tensors):
        name = missing[0] if missing else min(tensors.keys() - described.keys())
        raise ValueError(f"the weights {'have no' if missing else 'have a'} {name}, unlike the model that is described")
    for name, shape in described.items():
        if tensors[name].shape != shape:
            raise ValueError(f"{name} has the shape {tuple(tensors[name].shape)}, not {tuple(shape)} as described")
