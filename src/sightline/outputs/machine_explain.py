"""What is shown of machines: the slots that heads wrote and read, how often steps were repeated, and what they need.

A slot is hidden while a machine answers: heads find it as before, and read zeros there. What people get wrong: what a
head reads at one step may be written at the next, for the controller gets it then; so hiding begins one step before the
first answer, and the map is compared with what hiding costs the next step where that fits better.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.explain.capture import capture
from sightline.explain.evidence import believe, leave_one_out
from sightline.explain.evidence.hiding import HidingSubject
from sightline.explain.evidence.measures import chosen_rows
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief, Stack
from sightline.explain.thinking import Repeated, fixed_repeats, repeats_map
from sightline.inputs.image import of_images
from sightline.inputs.series_subject import numbers_change
from sightline.models.memory_machine import MemoryMachine
from sightline.models.stepping import Schedule, StepFeatures, Stepping
from sightline.nn.series import SeriesBatch
from sightline.outputs.encoder_maps import HIDING, kept_note, too_many_note, top_for
from sightline.records import Record, Slots, Tokens
from sightline.tasks.explain import ExplainOptions

WRITE, READ = "write", "read"  # the names of a machine's heads, as `capture` gives them
HEADS = {WRITE: "write heads", READ: "read heads"}
MOST_FIXED = 8  # numbers of repeats that are tried
Maps = tuple[list[Record], list[Stack], Belief | None]


def explain_machine(
    model: Stepping, batch: SeriesBatch, count: int, options: ExplainOptions, most_measured: int, notes: list[str]
) -> Maps:
    """The maps of a machine that answered one item with ``count`` vectors, step by step; what to know goes to
    ``notes``."""
    memory = model if isinstance(model, MemoryMachine) else None
    schedule = model.schedule(batch, torch.full_like(batch.lengths, count))
    steps, slots = schedule.inputs.shape[1], 0 if memory is None else memory.slots
    top = options.top or top_for(model, max(steps, slots))
    with torch.no_grad(), evaluating(model), capture(model, top=top) as trace:
        made = model.run(schedule)
    start = int(schedule.starts[0])
    rows = step_names(start, steps)
    columns = rows if memory is None else Slots(slots, "slot")
    alone = memory is None and steps == 1  # a step that has only itself to attend to
    names = () if alone else tuple(trace.names)
    records = [one for name in names for one in trace[name].records(rows=rows, columns=columns)]
    stacks = list[Stack]()
    if memory is not None:
        stacks.append(Stack("Slots of the memory", "cross", names, tuple(HEADS[name] for name in names)))
    elif names:
        stacks.append(Stack("From step to step", "self", names))
    notes += [kept_note(top)] if top is not None and names else []
    repeated, ways, about_repeats = repeats_map(_repeated(made), rows, names)
    records, stacks = records + repeated, stacks + ways
    notes += about_repeats
    if not records:
        what = "one step, which attends to itself alone" if alone and trace.names else "no attention"
        notes.append(f"{model.config.kind} has {what}: there is no map")
    belief = None
    if options.measure and max(steps, slots) > most_measured:
        notes.append(too_many_note(max(steps, slots), most_measured))
    elif options.measure:
        if memory is not None:
            subject = (MachineSubject if memory.bits else NumbersSubject)(memory, schedule, count)
            read = np.stack([one.matrix()[start : start + count] for one in records if one.name == READ])
            costs = leave_one_out(subject, range(count)).clip(min=0).astype(np.float32)
            shift, when = _steps_ahead(read, costs)
            notes.append(when)
            about = f"read heads{', moved down by 1' if shift else ''}"
            belief = of_images(believe(subject, read.mean(axis=0), about=about, shift=shift, special=()))
            answers = Tokens(rows.texts[start : start + count], name=rows.name)
            records.append(Record(HIDING, len(names), 0, answers, columns, costs))
            title = "What hiding each slot costs each vector"
            stacks.append(Stack(title, "cross", (HIDING,), unit="nats" if memory.bits else "squared deviations"))
            notes += _without_heads(subject)
        if made.repeats is not None:
            notes.append(_with_fixed_repeats(model, schedule, count, made))
    return records, stacks, belief


def step_names(frames: int, count: int) -> Tokens:
    """StepFeatures that read a frame, then those that answer; where each frame has an answer, there are only such."""
    reading = [f"in {number}" for number in range(1, frames + 1)]
    return Tokens(tuple(reading + [f"out {number}" for number in range(1, count - frames + 1)]), name="step")


def _repeated(steps: StepFeatures) -> Repeated | None:
    """Of a machine that decides how often to repeat."""
    if steps.weights is None or steps.repeats is None:
        return None
    return Repeated(steps.weights, steps.repeats)


# --- Evidence: a machine without a slot, without a head, and with repeats that are fixed.


def read_without(
    machine: MemoryMachine, schedule: Schedule, keep: Float[Tensor, "#b #h #s"], start: int = 0
) -> Float[Tensor, "b t f"]:
    """Features of all steps where heads read, from step ``start`` on, only the share ``keep`` of what slots hold.

    Step by step, as the machine always runs: where heads are and what they write follows from what they read.
    """
    state, features = machine.begin(len(schedule.inputs)), list[Tensor]()
    for number, x in enumerate(schedule.inputs.unbind(dim=1)):
        made, state = machine.step(x, state)
        if number >= start:
            assert state.reading.weights is not None
            reads = ((state.reading.weights * keep) @ state.memory).flatten(1)
            state = state._replace(reads=reads)
            made = torch.cat([made[:, : machine.config.size], reads], dim=-1)
        features.append(made)
    return torch.stack(features, dim=1)


class MachineSubject(HidingSubject):
    """A machine with a memory, one item, and the bits that it wrote. Rows are answered vectors, columns are slots.

    A cost is the fall of the log-probability of a vector's bits. The gradient is that of the share that is read.
    """

    row_name, column_name = "vector", "slot"

    def __init__(self, machine: MemoryMachine, schedule: Schedule, count: int) -> None:
        self.machine, self.schedule, self.count = machine, schedule, count
        super().__init__(machine)
        self.before = self.written()  # before the sigmoid
        self.true = (self.before > 0).to(self.before.dtype) if machine.bits else self.before

    @property
    def rows(self) -> int:
        return self.count

    @property
    def columns(self) -> int:
        return self.machine.slots

    def attends_to_columns(self, name: str) -> bool:
        return name == READ

    @torch.no_grad()
    def written(self, without: int | None = None) -> Float[Tensor, "u e"]:
        """What the machine writes, before the sigmoid of bits; ``without`` is a head that reads zeros, always."""
        keep = self.schedule.inputs.new_ones(1, self.machine.read_heads, 1)
        if without is not None:
            keep[:, without] = 0.0
        with evaluating(self.machine):
            return self.machine.output(self._features(1, keep, 0))[0]

    def measured(self, features: Float[Tensor, "n u h"], perturbed: bool) -> Float[Tensor, "n u"]:
        """What is measured of each row: without ``perturbed``, a gradient is taken of it."""
        return -self.machine.errors(features, self.true)

    def _features(self, copies: int, keep: Tensor, start: int) -> Float[Tensor, "n u h"]:
        inputs, there, starts = (one.expand(copies, *one.shape[1:]) for one in self.schedule)
        with torch.random.fork_rng():  # a memory that begins at random begins with the same numbers
            torch.manual_seed(0)
            made = read_without(self.machine, Schedule(inputs, there, starts), keep, start)
        return self.machine.answered(made, starts, self.count)

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        like = self.schedule.inputs
        seen = like.new_ones(copies, self.columns).requires_grad_() if keep is None else keep.to(like.dtype)
        features = self._features(copies, seen.unsqueeze(1), int(self.schedule.starts[0]) - 1)
        return self.measured(features, keep is not None), seen

    def _products(self, gradient: Tensor, seen: Tensor) -> Float[Tensor, "n s"]:
        return gradient * seen


class NumbersSubject(MachineSubject):
    """The same of numbers. A cost is the mean squared change of the standardised numbers of a vector."""

    def measured(self, features: Float[Tensor, "n u h"], perturbed: bool) -> Float[Tensor, "n u"]:
        if perturbed:
            return super().measured(features, perturbed)
        return (self.machine.output(features) * self.before).mean(dim=-1)  # a square has no gradient at its least

    def effect(self, cost: float) -> str:
        return numbers_change(cost)


def _steps_ahead(read: Float[np.ndarray, "h u s"], costs: Float[np.ndarray, "u s"]) -> tuple[int, str]:
    """Whether the slot that an answer needs most is read at its own step (0) or at the one before (1); in words.

    Rank agreement says little of a head that has all weight on one slot: the order of the others is chance.
    """
    needed, looked = costs.argmax(axis=1), read.argmax(axis=2)  # of any head
    own = int((needed == looked).any(axis=0).sum())
    before = int((needed[1:] == looked[:, :-1]).any(axis=0).sum())
    return int(before > own), (
        f"the slot that costs most to hide has the highest weight at the same step in {own:,} of {len(needed):,} "
        f"answers, at the step before in {before:,} of {len(needed) - 1:,}"
    )


def _without_heads(subject: MachineSubject) -> list[str]:
    """A sentence for each read head."""
    machine = subject.machine
    return [
        f"without read head {head + 1}, {_changes(machine, subject.before, subject.written(head))}"
        for head in range(machine.read_heads)
    ]


def _with_fixed_repeats(model: Stepping, schedule: Schedule, count: int, made: StepFeatures) -> str:
    """What is written when every step is repeated once, twice, … up to the mean number."""
    assert made.repeats is not None
    mean = max(1, round(float(made.repeats[schedule.there].mean())))
    tried = [number + 1 for number in chosen_rows(mean, MOST_FIXED)]

    def written(features: Tensor) -> Tensor:
        return model.output(model.answered(features, schedule.starts, count))[0]

    with torch.no_grad(), evaluating(model):
        before, after = written(made.features), list[Tensor]()
        for number in tried:
            with fixed_repeats(model, number):
                after.append(written(model.run(schedule).features))
    each = (f"{_times(number)}, {_changes(model, before, one)}" for number, one in zip(tried, after, strict=True))
    return f"with every step repeated the same number of times: {'; '.join(each)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _changes(model: Stepping, before: Tensor, after: Tensor) -> str:
    """What of the written vectors is another one."""
    if model.bits:
        return f"{int(((after > 0) != (before > 0)).sum()):,} of {before.numel():,} bits change"
    return f"the numbers change by {float((after - before).square().mean().sqrt()):.2f} deviations"
