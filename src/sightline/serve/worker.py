"""The one thread that uses the models. Whatever waits is predicted together.

Requests are cut into texts, and a turn takes texts of all requests that want the same, one of each in turn until there
are enough of them: a request of one text does not wait for the whole of a request of sixty. Predictions and
explanations take turns, so neither waits for all of the others.
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
from sightline.serve import asking
from sightline.serve.asking import TURN_TEXTS, TURN_TOKENS, How, Received
from sightline.serve.limits import Limits
from sightline.serve.problems import RefusedError, busy
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run

MODEL_THREAD = "sightline-model"
PAUSE, LONGEST_PAUSE = 0.01, 0.1  # seconds without a new request that end the gathering of a turn, and at most
PLACES = 8  # places of an image that take no longer to measure than a token: hiding one reads no image again


@dataclass(eq=False)
class Predicting:
    """A request for predictions of texts or images, and how far it has come."""

    how: How
    texts: Sequence[Any]
    answer: "Future[list[Any]]" = field(default_factory=Future)
    found: list[Any] = field(default_factory=list)
    costs: list[int] | None = None

    @property
    def over(self) -> bool:
        return self.answer.done()


@dataclass(eq=False)
class Explaining:
    """A request for an explanation."""

    run: str
    text: Any
    wanted: ExplainOptions
    answer: "Future[Explanation]" = field(default_factory=Future)
    seen: bool = False  # the map is made, and small enough for what is still to be measured


class _AbandonedError(Exception):
    """Nobody waits for this turn any more."""


class Worker:
    """Takes requests from any thread; answers come as futures. A future that is cancelled is left out."""

    def __init__(self, runs: Mapping[str, Run], limits: Limits) -> None:
        self.runs, self.limits = dict(runs), limits
        self._predictions: deque[Predicting] = deque()
        self._explanations: deque[Explaining] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._explained_last = False
        self._in_work = 0
        self._together = 0  # requests in the last turn
        self._thread = threading.Thread(target=self._work, name=MODEL_THREAD, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float | None = None) -> bool:
        """Finish what waits, take nothing new, and say whether that came to its end in time."""
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

    def submit(self, job: Predicting | Explaining) -> None:
        with self._changed:
            if self._stopping:
                raise busy("the server is stopping")
            if len(self._predictions) + len(self._explanations) >= self.limits.waiting:
                self._drop_what_is_over()  # a long turn may be going on, and clients have left meanwhile
            if len(self._predictions) + len(self._explanations) >= self.limits.waiting:
                raise busy(f"{self.limits.waiting} requests wait already; try again in a moment")
            if isinstance(job, Predicting):
                self._predictions.append(job)
            else:
                self._explanations.append(job)
            self._changed.notify()

    def _work(self) -> None:
        while (turn := self._next()) is not None:
            turn()
            del turn  # or an answer is kept until the next one is asked for
            with self._changed:
                self._in_work = 0

    def _next(self) -> Callable[[], None] | None:
        """What to do next; None when there is nothing more to come."""
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
                how = self._predictions[0].how
                together = [job for job in self._predictions if job.how == how]
            self._weigh(together)  # takes its time: nobody should have to wait for it to add a request
            with self._changed:
                together = [job for job in together if not job.over]
                if together:
                    chosen = self._turn(together)
                    jobs = {id(job): job for job, _ in chosen}.values()
                    self._together = len(jobs)
                    self._in_work = sum(job not in self._predictions for job in jobs)
                    return lambda: self._predict(chosen)

    def _gather(self) -> None:
        """Many clients that were answered together ask again together: without a pause they would be split in two."""
        until = time.monotonic() + LONGEST_PAUSE
        while self._together > 1 and not self._stopping and time.monotonic() < until:
            before = len(self._predictions)
            self._changed.wait(PAUSE)
            if len(self._predictions) <= before:
                return

    def _drop_what_is_over(self) -> None:
        """Those whose clients left or waited too long, and those that failed."""
        self._predictions = deque(job for job in self._predictions if not job.over)
        self._explanations = deque(job for job in self._explanations if not job.answer.done())

    def _weigh(self, jobs: list[Predicting]) -> None:
        """How many tokens of hypotheses each text keeps in work."""
        for job in jobs:
            if job.costs is None:
                try:
                    job.costs = asking.costs(self.runs[job.how.run], job.how, _items(job.texts))
                except BaseException as error:
                    _settle(job.answer, error=error)

    def _turn(self, together: list[Predicting]) -> list[tuple[Predicting, int]]:
        """Texts for one turn: (request, number of its text). Requests that are not through stay, behind the others."""
        how = together[0].how
        taken = {id(job): len(job.found) for job in together}
        chosen: list[tuple[Predicting, int]] = []
        room, open_jobs = TURN_TOKENS, deque(together)
        while open_jobs and len(chosen) < (1 if how.alone else TURN_TEXTS):
            job = open_jobs.popleft()
            place = taken[id(job)]
            cost = (job.costs or [])[place]
            if chosen and cost > room:
                break
            room -= cost
            chosen.append((job, place))
            taken[id(job)] += 1
            if taken[id(job)] < len(job.texts):
                open_jobs.append(job)
        through = {id(job) for job in together if taken[id(job)] == len(job.texts)}
        begun = {id(job) for job, _ in chosen} - through
        rest = [job for job in self._predictions if id(job) not in through]
        self._predictions = deque(sorted(rest, key=lambda job: id(job) in begun))  # sorting keeps the order otherwise
        return chosen

    def _predict(self, chosen: list[tuple[Predicting, int]]) -> None:
        how = chosen[0][0].how
        texts = _items([job.texts[place] for job, place in chosen])

        def going() -> None:
            if all(job.over for job, _ in chosen):
                raise _AbandonedError

        try:
            found: list[Any] = asking.predicted(self.runs[how.run], how, texts, going)
        except _AbandonedError:
            return
        except BaseException as error:  # one text may spoil it for all: each by itself, and it alone is refused
            found = [error] if len(texts) == 1 else [self._alone(how, text) for text in texts]
        for (job, _), outputs in zip(chosen, found, strict=True):
            if isinstance(outputs, BaseException):
                _settle(job.answer, error=outputs)
                continue
            job.found.append(outputs)
            if len(job.found) == len(job.texts):
                _settle(job.answer, job.found)

    def _alone(self, how: How, text: Any) -> Any:
        try:
            return asking.predicted(self.runs[how.run], how, [text])[0]
        except BaseException as error:
            return error

    def _explain(self, job: Explaining) -> None:
        """The map first; what it takes to measure it is a second turn, so that predictions come in between."""
        try:
            wanted = replace(job.wanted, measure=job.seen)
            found = self._checked(asking.explained(self.runs[job.run], job.text, wanted))
        except BaseException as error:
            _settle(job.answer, error=error)
            return
        if not job.wanted.measure or job.seen or not self.runs[job.run].output.measures:
            _settle(job.answer, found)
            return
        longest = max((max(len(one.rows), _columns(one)) for one in found.records), default=0)
        if longest > self.limits.measured:
            note = f"{longest:,} tokens are too many to measure what to make of the map"
            note += f", which this server does up to {self.limits.measured:,}"
            _settle(job.answer, replace(found, notes=(*found.notes, note)))
            return
        job.seen = True
        with self._changed:
            self._explanations.append(job)

    def _checked(self, found: Explanation) -> Explanation:
        weights = sum(_size(record.weights) for record in found.records)
        if weights > self.limits.weights:
            raise RefusedError(
                413,
                f"the maps have {weights:,} weights, more than the {self.limits.weights:,} that are sent; explain a "
                f"shorter text or a smaller image, or ask with top for the largest weights of each row only",
            )
        return found


def _items(given: Sequence[Any]) -> list[Any]:
    return [one.item if isinstance(one, Received) else one for one in given]


def _columns(record: Record) -> int:
    """How long it takes to hide the columns one by one, in tokens of a text."""
    return -(-len(record.columns) // PLACES) if isinstance(record.columns, Grid) else len(record.columns)


def _size(weights: Any) -> int:
    return weights.size if hasattr(weights, "size") else weights.weights.size


def _settle(answer: "Future[Any]", result: Any = None, error: BaseException | None = None) -> None:
    """Answer, unless nobody waits any more."""
    if answer.done() or not answer.set_running_or_notify_cancel():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
