"""A trained task, as `sightline.load(path)` and `sightline.train(...)` return it. The verbs are its methods."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, overload

import torch
from torch import nn

from sightline.errors import UserError
from sightline.explain.evidence.subject import evaluating
from sightline.nn.lora import merge_lora
from sightline.tasks.loading import SavedRun
from sightline.tasks.task import BadValueError, PredictOptions, SomeExample, Task, Variant, imported
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder, save_tensors
from sightline.training.steps import to_device

if TYPE_CHECKING:
    from sightline.align.choosing import Alignments
    from sightline.align.links import GoldLinks, Symmetrising
    from sightline.data.source import RowsLike
    from sightline.explain.explanation import Explanation
    from sightline.inputs.base import SomeInput
    from sightline.outputs.base import SomeOutput
    from sightline.tasks.configs.base import TaskConfig
    from sightline.tasks.evaluate import Comparison, SomeEvaluation

__all__ = ["Run", "SavedRun"]


def _ignore(count: int) -> None:
    pass


@dataclass(frozen=True, repr=False)
class Run:
    """A model with a fitted input and output.

    ``name`` is its name in errors: the path that it was loaded from. ``folder`` is the run folder, if there is one.
    ``about`` is the content of config.json.
    """

    task: Task
    variant: Variant
    model: nn.Module
    input: "SomeInput"
    output: "SomeOutput"
    config: "TaskConfig"
    name: str = "the model"
    folder: Path | None = None
    about: dict[str, object] | None = None

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"<Run of {self.task.name}: {self.config.model.kind}, {parameters:,} parameters, {self.name}>"

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def with_model(self, model: nn.Module) -> "Run":
        """The same run with another model."""
        return replace(self, model=model)

    def about_table(self, table: str | None) -> "Run":
        """The same run with the table in a file that all items are about, for runs that answer questions about one."""
        return self if table is None else replace(self, input=self.input.about_table(table, self.name))

    # -- predicting

    @overload
    def predict(  # type: ignore[overload-overlap]
        self, items: str | bytes | Path, *, on_predicted: Callable[[int], None] = _ignore, **options: object
    ) -> object: ...

    @overload
    def predict(
        self, items: Sequence[object], *, on_predicted: Callable[[int], None] = _ignore, **options: object
    ) -> list[object]: ...

    def predict(
        self,
        items: str | bytes | Path | Sequence[object],
        *,
        on_predicted: Callable[[int], None] = _ignore,
        **options: object,
    ) -> object:
        """A prediction for each item, in their order; of one text or one image by itself, its prediction.

        Options are those of the output, such as ``beam``.
        """
        if isinstance(items, self.input.single):
            return self.predict([items], on_predicted=on_predicted, **options)[0]
        self.input.check_items(items)
        chosen = self.output.options(options)
        items = list(cast("Sequence[object]", items))
        for one in items:
            self.input.check_item(one)
        xs = self.input.items(items)
        raws = self.raw(xs, options=chosen, on_predicted=on_predicted)
        return [self.output.decide(x, raw, chosen) for x, raw in zip(xs, raws, strict=True)]

    def encode(self, xs: Sequence[object]) -> Sequence[Sequence[object]]:
        """Items as the parts that the model reads; an item that cannot be used is an error that names it."""
        parts = self.input.encode(xs)
        for number, some in enumerate(parts):
            if is_bad(some):
                raise UserError(f"{self.input.named(xs[number], number)} cannot be used: {some[0]}")
        return parts

    def raw(
        self,
        xs: Sequence[object],
        *,
        parts: Sequence[Sequence[object]] | None = None,
        options: PredictOptions | None = None,
        on_predicted: Callable[[int], None] = _ignore,
        bad: dict[int, str] | None = None,
    ) -> list[object]:
        """The raw output of each item: parts of similar size share a batch, and the outputs of an item are merged.

        Items that cannot be used are an error; with ``bad``, they are noted there by number and their output is None.
        """
        divided = self.output.divided(xs, options)
        if divided is not None:
            joined = divided.join(self.raw(divided.items, options=divided.options))
            on_predicted(len(xs))
            return joined
        raws: list[object] = []
        step = len(xs) if parts is not None else self.input.at_once
        for start in range(0, len(xs), max(1, step)):
            some = xs[start : start + step]
            encoded: Sequence[Sequence[object] | None]
            if bad is None:
                encoded = self.encode(some) if parts is None else parts
            else:
                encoded = self.input.encode(some)
                bad |= {start + row: str(one[0]) for row, one in enumerate(encoded) if is_bad(one)}
                encoded = [None if is_bad(one) else one for one in encoded]
            raws += self._raw(some, encoded, options, on_predicted, start, len(xs))
        return raws

    @torch.inference_mode()
    def _raw(
        self,
        xs: Sequence[object],
        parts: Sequence[Sequence[object] | None],
        options: PredictOptions | None,
        on_predicted: Callable[[int], None],
        first: int,
        items: int,
    ) -> list[object]:
        jobs = [(item, place, part) for item, some in enumerate(parts) for place, part in enumerate(some or ())]
        outputs: list[list[object]] = [[None] * len(some or ()) for some in parts]
        sizes = [self.output.cost(self.input.size(part), options) for *_, part in jobs]
        with evaluating(self.model):
            for chosen in batches_by_size(sizes, self.output.budget(self.input, options)):
                numbers, places, own_parts = zip(*(jobs[job] for job in chosen), strict=True)
                batch = to_device(self.input.collate(list(own_parts)), self.device)
                own = self.output.options_of(options, [first + number for number in numbers], items)
                raws = self.output.outputs(self, [xs[number] for number in numbers], list(own_parts), batch, own)
                for number, place, raw in zip(numbers, places, raws, strict=True):
                    outputs[number][place] = raw
                on_predicted(places.count(0))
        on_predicted(sum(not some for some in parts))
        of_items = zip(xs, parts, outputs, strict=True)
        return [None if some is None else self.output.merge(x, some, raws) for x, some, raws in of_items]

    # -- scoring and explaining

    def evaluate(
        self,
        data: "RowsLike | Sequence[SomeExample]",
        *,
        columns: Sequence[str] | None = None,
        encoding: str | None = None,
        on_predicted: Callable[[int], None] = _ignore,
        **options: object,
    ) -> "SomeEvaluation":
        """Every score on data with targets: a path, rows, a DataFrame, or a list of `Example`s.

        ``encoding`` is that of text files, UTF-8 by default. Options are those of `sightline.tasks.evaluate.evaluate`.
        """
        from sightline.data.tables import reading_as
        from sightline.tasks.evaluate import evaluate, examples_for

        with reading_as(encoding):
            examples, _ = examples_for(self, data, columns)
        return evaluate(self, examples, on_predicted=on_predicted, **options)

    def compare(
        self,
        others: Sequence["Run"],
        data: "RowsLike | Sequence[SomeExample]",
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

        runs, rows = by_name([self, *others]), examples_for(self, data)[0]
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
        """What the model attended to for its prediction, or for the output that is given.

        Options are the other fields of `sightline.tasks.explain.ExplainOptions`. A notebook displays the explanation;
        its `save` writes pictures and pages.
        """
        from sightline.tasks.explain import ExplainOptions

        options = ExplainOptions(output, beam, alternatives, top, shift, measure)
        self.input.check_item(item)
        return self.output.explain(self, self.input.item(item), options)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        reverse: "Run | None" = None,
        gold: "Sequence[GoldLinks] | None" = None,
        symmetrise: "Symmetrising" = "grow-diag-final-and",
        threshold: float = 0.0,
        words: Literal["auto", "spaces", "characters"] = "auto",
        use: str | None = None,
        reverse_use: str | None = None,
    ) -> "Alignments":
        """Which words of pairs belong together, by attention. Options: `sightline.align.choosing.align`."""
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
        """Write everything that `load` needs; returns the names of the files to seal."""
        save_tensors(folder.path / MODEL, dict(self.model.state_dict()))
        about, names = self.input.save(folder.path)
        more, others = self.output.save(folder.path)
        fields = {"task": self.variant.stored, "weights": weights, **about, **more}
        folder.write_config({**fields, "config": self.config.to_json()})
        return [CONFIG, MODEL, METRICS, *names, *others]

    @classmethod
    def load(cls, path: str | Path, task: Task | None = None) -> "Run":
        """A run folder, checked file by file, or one of its checkpoints; of any task unless one is given.

        An untrusted folder is safe to load: nothing in it can run code.
        """
        from sightline.tasks.registry import stored_task

        saved = SavedRun.open(Path(path))
        stored = str(saved.about.get("task"))
        own = stored_task(stored, saved.path)
        if task is not None and own.name != task.name:
            raise UserError(f"{path} is a run of the task {own.name!r}; expected {task.name!r}")
        variant = own.variant_of(stored)
        with saved.reading():
            config = imported(variant.config).from_json(saved.about["config"])
        input = imported(variant.input).load(saved, config)
        output = imported(variant.output).load(saved, config, input)
        model = saved.model(lambda: config.build(input, output), config.before_loading)
        merge_lora(model)
        if output.freezes:
            model.requires_grad_(False)  # not to be trained: search may cache what it computes from the weights
        return cls(own.of(variant), variant, model, input, output, config, saved.name, saved.path, saved.about)


def by_name(runs: Iterable[Run]) -> dict[str, Run]:
    """Runs by their names; a number tells runs of the same name apart."""
    named: dict[str, Run] = {}
    for run in runs:
        number, name = 1, run.name
        while name in named:
            number += 1
            name = f"{run.name} ({number})"
        named[name] = replace(run, name=name)
    return named


def is_bad(parts: Sequence[object]) -> bool:
    """Whether these are the parts of an item that cannot be used."""
    return bool(parts) and isinstance(parts[0], BadValueError)


def batches_by_size(sizes: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Parts of similar size together, the largest first: a batch is padded to its longest part."""
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    start = 0
    while start < len(order):
        rows = max(1, budget // max(1, sizes[order[start]]))
        yield order[start : start + rows]
        start += rows
