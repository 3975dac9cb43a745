"""A trained task: `sightline.load(path)` gives one, `sightline.train(...)` too. The verbs are its methods."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from sightline.errors import UserError
from sightline.explain.evidence.subject import evaluating
from sightline.nn.lora import merge_lora
from sightline.tasks.loading import Saved
from sightline.tasks.task import BadValueError, Example, Task, Variant, imported
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder, save_tensors
from sightline.training.steps import to_device

if TYPE_CHECKING:
    from sightline.align.choosing import Aligned
    from sightline.align.links import Gold, Symmetrising
    from sightline.data.source import RowsLike
    from sightline.explain.explanation import Explanation
    from sightline.inputs.base import Input
    from sightline.outputs.base import Output
    from sightline.tasks.configs.base import TaskConfig
    from sightline.tasks.evaluate import Comparison, Evaluation

__all__ = ["Run", "Saved"]


def _ignore(count: int) -> None:
    pass


@dataclass(frozen=True)
class Run:
    """A model with a fitted input and output.

    ``name`` is what errors call it: the folder it comes from, which is ``folder`` if there is one. ``about`` is what
    config.json says.
    """

    task: Task
    variant: Variant
    model: nn.Module
    input: "Input"
    output: "Output"
    config: "TaskConfig"
    name: str = "the model"
    folder: Path | None = None
    about: dict[str, object] | None = None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def with_model(self, model: nn.Module) -> "Run":
        """The same with another model."""
        return replace(self, model=model)

    # -- predicting

    def predict(
        self, items: Sequence[object], *, on_predicted: Callable[[int], None] = _ignore, **options: object
    ) -> list[Any]:
        """A prediction for each item, in their order. Options are those of the output, such as ``beam``."""
        self.input.check_several(items)
        chosen = self.output.options(options)
        xs = self.input.items(items)
        raws = self.raw(xs, options=chosen, on_predicted=on_predicted)
        return [self.output.decide(x, raw, chosen) for x, raw in zip(xs, raws, strict=True)]

    def encode(self, xs: Sequence[object]) -> list[list[Any]]:
        """Items as the parts that the model reads; one that cannot be used is an error that names it."""
        parts = self.input.encode(xs)
        for number, some in enumerate(parts):
            if is_bad(some):
                raise UserError(f"{self.input.named(xs[number], number)} cannot be used: {some[0]}")
        return parts

    def raw(
        self,
        xs: Sequence[object],
        *,
        parts: Sequence[list[Any]] | None = None,
        options: object = None,
        on_predicted: Callable[[int], None] = _ignore,
        bad: dict[int, str] | None = None,
    ) -> list[Any]:
        """Raw outputs of each item: parts of like size are read together, and those of an item are merged.

        Items that cannot be used are an error, or noted in ``bad`` by their number: their output is None.
        """
        divided = self.output.divided(xs, options)
        if divided is not None:
            joined = divided.join(self.raw(divided.items, options=divided.options))
            on_predicted(len(xs))
            return joined
        found: list[Any] = []
        step = len(xs) if parts is not None else self.input.at_once
        for start in range(0, len(xs), max(1, step)):
            some = xs[start : start + step]
            encoded: Sequence[list[Any] | None]
            if bad is None:
                encoded = self.encode(some) if parts is None else parts
            else:
                encoded = self.input.encode(some)
                bad |= {start + row: str(one[0]) for row, one in enumerate(encoded) if is_bad(one)}
                encoded = [None if is_bad(one) else one for one in encoded]
            found += self._raw(some, encoded, options, on_predicted, start, len(xs))
        return found

    @torch.inference_mode()
    def _raw(
        self,
        xs: Sequence[Any],
        parts: Sequence[list[Any] | None],
        options: Any,
        on_predicted: Callable[[int], None],
        first: int,
        items: int,
    ) -> list[Any]:
        jobs = [(item, part) for item, some in enumerate(parts) for part in some or ()]
        outputs: list[list[Any]] = [[None] * len(some or ()) for some in parts]
        places = [place for some in parts for place in range(len(some or ()))]
        sizes = [self.output.cost(self.input.size(part), options) for _, part in jobs]
        with evaluating(self.model):
            for chosen in batches_by_size(sizes, self.output.budget(self.input, options)):
                batch = to_device(self.input.collate([jobs[job][1] for job in chosen]), self.device)
                numbers = [jobs[job][0] for job in chosen]
                own = self.output.options_of(options, [first + number for number in numbers], items)
                some = [xs[number] for number in numbers]
                made = self.output.outputs(self, some, [jobs[job][1] for job in chosen], batch, own)
                for job, one in zip(chosen, made, strict=True):
                    outputs[jobs[job][0]][places[job]] = one
                on_predicted(sum(places[job] == 0 for job in chosen))
        on_predicted(sum(not some for some in parts))
        merged = zip(xs, parts, outputs, strict=True)
        return [None if some is None else self.output.merge(x, some, made) for x, some, made in merged]

    # -- scoring and looking

    def evaluate(
        self,
        data: "RowsLike | Sequence[Example]",
        *,
        columns: Sequence[str] | None = None,
        on_predicted: Callable[[int], None] = _ignore,
        **options: object,
    ) -> "Evaluation":
        """Every score on data with targets: a path, rows, a DataFrame, or a list of `Example`s.

        Options are those of `sightline.tasks.evaluate.evaluate`.
        """
        from sightline.tasks.evaluate import evaluate, examples_for

        return evaluate(self, examples_for(self, data, columns)[0], on_predicted=on_predicted, **options)

    def compare(
        self,
        others: Sequence["Run"],
        data: "RowsLike | Sequence[Example]",
        *,
        metrics: Sequence[str] | None = None,
        samples: int = 1000,
        seed: int = 0,
        on_predicted: Callable[[int], None] = _ignore,
        **options: object,
    ) -> "Comparison":
        """This run and others on the same data: a paired bootstrap with so many ``samples`` for each metric.

        Options are those of `predict`.
        """
        from sightline.tasks.evaluate import compare, examples_for

        runs, rows = {one.name: one for one in (self, *others)}, examples_for(self, data)[0]
        return compare(runs, rows, metrics=metrics, samples=samples, seed=seed, on_predicted=on_predicted, **options)

    def explain(
        self,
        item: object,
        output: str | None = None,
        *,
        beam: int = 5,
        alternatives: int = 3,
        top: int | None = None,
        shift: int | None = None,
        measure: bool = True,
    ) -> "Explanation":
        """Where the model looked while it made its prediction, or for the output that is given.

        Options are those of `sightline.tasks.explain.ExplainOptions`. The explanation shows itself in a
        notebook; its `save` writes pictures and pages.
        """
        from sightline.tasks.explain import ExplainOptions

        options = ExplainOptions(output, beam, alternatives, top, shift, measure)
        return self.output.explain(self, self.input.item(item), options)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        reverse: "Run | None" = None,
        gold: "Sequence[Gold] | None" = None,
        symmetrise: "Symmetrising" = "grow-diag-final-and",
        threshold: float = 0.0,
        words: Literal["auto", "spaces", "characters"] = "auto",
        use: str | None = None,
        reverse_use: str | None = None,
    ) -> "Aligned":
        """Which words of pairs belong together, by attention (`sightline.align.align` describes the options)."""
        from sightline.align.choosing import align

        return align(
            self,
            sources,
            targets,
            reverse=reverse,
            gold=gold,
            symmetrise=symmetrise,
            threshold=threshold,
            words=words,
            use=use,
            reverse_use=reverse_use,
        )

    # -- saving and loading

    def save(self, folder: RunFolder, weights: str) -> list[str]:
        """Everything that `load` needs; gives the names of the files to seal."""
        save_tensors(folder.path / MODEL, dict(self.model.state_dict()))
        about, names = self.input.save(folder.path)
        more, others = self.output.save(folder.path)
        fields = {"task": self.variant.stored, "weights": weights, **about, **more}
        folder.write_config({**fields, "config": self.config.to_json()})
        return [CONFIG, MODEL, METRICS, *names, *others]

    @classmethod
    def load(cls, path: str | Path, task: Task | None = None) -> "Run":
        """A run folder, checked file by file, or as it was at one of its checkpoints; of any task unless one is named.

        The folder may be anybody's: nothing in it can run code.
        """
        from sightline.tasks.registry import stored_task

        saved = Saved.open(Path(path))
        stored = str(saved.about.get("task"))
        found = stored_task(stored, saved.path)
        if task is not None and found.name != task.name:
            raise UserError(f"{path} is a run of the task {found.name!r}; expected {task.name!r}")
        variant = found.variant_of(stored)
        found = found.of(variant)
        with saved.reading():
            config = imported(variant.config).from_json(saved.about["config"])
        input = imported(variant.input).load(saved, config)
        output = imported(variant.output).load(saved, config, input)
        model = saved.model(lambda: config.build(input, output), getattr(config, "before_loading", None))
        merge_lora(model)
        if output.freezes:
            model.requires_grad_(False)  # to be used, not to learn: search may keep what it makes of the weights
        return cls(found, variant, model, input, output, config, saved.name, saved.path, saved.about)


def is_bad(parts: Sequence[Any]) -> bool:
    """Whether these are the parts of an item that cannot be used."""
    return bool(parts) and isinstance(parts[0], BadValueError)


def batches_by_size(sizes: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Parts of like size together, the largest first: a batch is as wide as its widest."""
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    start = 0
    while start < len(order):
        rows = max(1, budget // max(1, sizes[order[start]]))
        yield order[start : start + rows]
        start += rows


def examples(rows: Sequence[Any]) -> list[Example]:
    """Pairs of item and target as examples."""
    return [one if isinstance(one, Example) else Example(*one) for one in rows]
