"""The one thread that uses the models. Waiting requests are predicted in one batch.

Requests are divided into items. A turn takes items of all requests with the same run and options, one of each request
in rotation until the batch is full: a request of one text does not wait for a whole request of sixty. Predictions and
explanations alternate, so neither waits for all of the others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from sightline.explain.explanation import Explanation
from sightline.records import Grid, Record
from sightline.serve import MODEL_THREAD
from sightline.serve.adapter import TURN_TEXTS, TURN_TOKENS, Received, TurnKey, costs, explained, predicted
from sightline.serve.limits import Limits
from sightline.serve.refusals import RefusedError, busy
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run

PAUSE, LONGEST_PAUSE = 0.01, 0.1  # seconds without a new request that end the gathering of a turn, and at most
PLACES = 8  # places of an image that take as long to measure as a token: hiding one does not read the image again


@dataclass(eq=False)
class PredictJob:
    """A request for predictions of texts or images, and the predictions made so far."""

    key: TurnKey
    items: Sequence[Any]
    answer: "Future[list[Any]]" = field(default_factory=Future)
    predictions: list[Any] = field(default_factory=list)
    costs: list[int] | None = None

    @property
    def over(self) -> bool:
        return self.answer.done()


@dataclass(eq=False)
class ExplainJob:
    """A request for an explanation."""

    run: str
    item: Any
    options: ExplainOptions
    answer: "Future[Explanation]" = field(default_factory=Future)
    mapped: bool = False  # the map was computed, and is small enough to be measured


class _AbandonedError(Exception):
    """Every client of this turn has left."""


class Worker:
    """Takes requests from any thread; answers are futures. Cancelled ones are skipped."""

    def __init__(self, runs: Mapping[str, Run], limits: Limits) -> None:
        self.runs, self.limits = dict(runs), limits
        self._predictions: deque[PredictJob] = deque()
        self._explanations: deque[ExplainJob] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._explained_last = False
        self._in_work = 0
        self._together = 0  # requests in the last turn
        self._thread = threading.Thread(target=self._work, name=MODEL_THREAD, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float | None = None) -> bool:
        """Finish waiting requests, refuse new ones, and return whether the thread ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:  # it was started
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Requests that have no answer yet."""
        with self._changed:
            self._drop_what_is_over()
            return len(self._predictions) + len(self._explanations) + self._in_work

    def submit(self, job: PredictJob | ExplainJob) -> None:
        with self._changed:
            if self._stopping:
                raise busy("the server is stopping")
            if len(self._predictions) + len(self._explanations) >= self.limits.waiting:
                self._drop_what_is_over()  # clients may have left during a long turn
            if len(self._predictions) + len(self._explanations) >= self.limits.waiting:
                raise busy(f"{self.limits.waiting} requests wait already; try again in a moment")
            if isinstance(job, PredictJob):
                self._predictions.append(job)
            else:
                self._explanations.append(job)
            self._changed.notify()

    def _work(self) -> None:
        while (turn := self._next()) is not None:
            turn()
            del turn  # else the answer is kept until the next turn
            with self._changed:
                self._in_work = 0

    def _next(self) -> Callable[[], None] | None:
        """The next turn; None when the worker is stopped and nothing waits."""
        while True:
            with self._changed:
                self._drop_what_is_over()
                while not (self._predictions or self._explanations):
                    if self._stopping:
                        return None
                    self._changed.wait()
                self._gather()
                if not (self._predictions or self._explanations):
                    continue
                explaining = bool(self._explanations) and not (self._predictions and self._explained_last)
                self._explained_last = explaining
                if explaining:
                    one = self._explanations.popleft()
                    self._in_work = 1
                    return lambda: self._explain(one)
                key = self._predictions[0].key
                together = [job for job in self._predictions if job.key == key]
            self._weigh(together)  # outside the lock: this takes time, and requests must not wait for it
            with self._changed:
                together = [job for job in together if not job.over]
                if together:
                    chosen = self._turn(together)
                    jobs = {id(job): job for job, _ in chosen}.values()
                    self._together = len(jobs)
                    self._in_work = sum(job not in self._predictions for job in jobs)
                    return lambda: self._predict(chosen)

    def _gather(self) -> None:
        """Wait a little: clients answered together send their next requests together, and should share a turn."""
        until = time.monotonic() + LONGEST_PAUSE
        while self._together > 1 and not self._stopping and time.monotonic() < until:
            before = len(self._predictions)
            self._changed.wait(PAUSE)
            if len(self._predictions) <= before:
                return

    def _drop_what_is_over(self) -> None:
        """Drop requests whose clients left or waited too long, and those that failed."""
        self._predictions = deque(job for job in self._predictions if not job.over)
        self._explanations = deque(job for job in self._explanations if not job.answer.done())

    def _weigh(self, jobs: list[PredictJob]) -> None:
        """Compute the cost of each item, in tokens of hypotheses."""
        for job in jobs:
            if job.costs is None:
                try:
                    job.costs = costs(self.runs[job.key.run], job.key, _items(job.items))
                except BaseException as error:
                    _settle(job.answer, error=error)

    def _turn(self, together: list[PredictJob]) -> list[tuple[PredictJob, int]]:
        """Items for one turn: (request, number of its item). Unfinished requests stay, after the others."""
        taken = {id(job): len(job.predictions) for job in together}
        chosen: list[tuple[PredictJob, int]] = []
        room, open_jobs = TURN_TOKENS, deque(together)
        while open_jobs and len(chosen) < (1 if together[0].key.alone else TURN_TEXTS):
            job = open_jobs.popleft()
            place = taken[id(job)]
            cost = (job.costs or [])[place]
            if chosen and cost > room:
                break
            room -= cost
            chosen.append((job, place))
            taken[id(job)] += 1
            if taken[id(job)] < len(job.items):
                open_jobs.append(job)
        finished = {id(job) for job in together if taken[id(job)] == len(job.items)}
        begun = {id(job) for job, _ in chosen} - finished
        rest = [job for job in self._predictions if id(job) not in finished]
        self._predictions = deque(sorted(rest, key=lambda job: id(job) in begun))  # a stable sort
        return chosen

    def _predict(self, chosen: list[tuple[PredictJob, int]]) -> None:
        key = chosen[0][0].key
        items = _items([job.items[place] for job, place in chosen])

        def check() -> None:
            if all(job.over for job, _ in chosen):
                raise _AbandonedError

        try:
            predictions: list[Any] = predicted(self.runs[key.run], key, items, check)
        except _AbandonedError:
            return
        except BaseException as error:  # one item may fail the batch: predict each alone, and refuse only that one
            predictions = [error] if len(items) == 1 else [self._alone(key, item) for item in items]
        for (job, _), prediction in zip(chosen, predictions, strict=True):
            if isinstance(prediction, BaseException):
                _settle(job.answer, error=prediction)
                continue
            job.predictions.append(prediction)
            if len(job.predictions) == len(job.items):
                _settle(job.answer, job.predictions)

    def _alone(self, key: TurnKey, item: Any) -> Any:
        try:
            return predicted(self.runs[key.run], key, [item])[0]
        except BaseException as error:
            return error

    def _explain(self, job: ExplainJob) -> None:
        """Compute the map first, and measure its evidence in a second turn, so that predictions run in between."""
        run = self.runs[job.run]
        try:
            explanation = explained(run, job.item, replace(job.options, measure=job.mapped))
            self._check_size(explanation)
        except BaseException as error:
            _settle(job.answer, error=error)
            return
        if not job.options.measure or job.mapped or not run.output.measures:
            _settle(job.answer, explanation)
            return
        longest = max((max(len(one.rows), _columns(one)) for one in explanation.records), default=0)
        if longest > self.limits.measured:
            note = f"{longest:,} tokens are too many to measure whether to believe the map"
            note += f"; the limit of this server is {self.limits.measured:,}"
            _settle(job.answer, replace(explanation, notes=(*explanation.notes, note)))
            return
        job.mapped = True
        with self._changed:
            self._explanations.append(job)

    def _check_size(self, explanation: Explanation) -> None:
        weights = sum(_size(record.weights) for record in explanation.records)
        if weights > self.limits.weights:
            raise RefusedError(
                413,
                f"the maps have {weights:,} weights, more than the limit of {self.limits.weights:,}; explain a shorter "
                f"text or recording, or a smaller image, or set top to keep only the largest weights of each row",
            )


def _items(given: Sequence[Any]) -> list[Any]:
    return [one.item if isinstance(one, Received) else one for one in given]


def _columns(record: Record) -> int:
    """The time it takes to hide the columns one by one, in tokens of a text."""
    return -(-len(record.columns) // PLACES) if isinstance(record.columns, Grid) else len(record.columns)


def _size(weights: Any) -> int:
    return weights.size if hasattr(weights, "size") else weights.weights.size


def _settle(answer: "Future[Any]", result: Any = None, error: BaseException | None = None) -> None:
    """Set the answer, unless the client has left."""
    if answer.done() or not answer.set_running_or_notify_cancel():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
