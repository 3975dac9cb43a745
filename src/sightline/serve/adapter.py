"""A run of any task as the server uses it: its description, costs, predictions, explanations, and decoded files."""

import asyncio
import binascii
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from queue import SimpleQueue
from typing import Any, NamedTuple

from sightline.data.decoding import Decoding
from sightline.data.images import MOST_PIXELS, BadImage, ImageLimits
from sightline.data.sound import BadSound, SoundLimits
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.picture import Picture
from sightline.serve import schema
from sightline.serve.limits import Limits
from sightline.serve.refusals import RefusedError, busy
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run
from sightline.tasks.task import PredictOptions

DECODING = 2  # processes
TURN_TEXTS, TURN_TOKENS = 64, 8192  # larger batches are hardly faster, and every client waits for the last item


@dataclass(frozen=True)
class TurnKey:
    """What the items of one turn share: the run, and the options of its predictions."""

    run: str
    options: PredictOptions

    @property
    def alone(self) -> bool:
        """Whether each item is predicted alone: samples must not depend on other requests."""
        return getattr(self.options, "sample", False)


class Received(NamedTuple):
    """An item that was sent as a file: the item, its bytes in memory, and a small picture to show."""

    item: Any
    size: int
    picture: Picture | None = None


def described(name: str, run: Run) -> schema.ServedRun:
    """The description of a run for /health."""
    parameters = sum(one.numel() for one in run.model.parameters()) + run.input.encoder_parameters
    inner = getattr(run.model, "model", run.model)
    return schema.ServedRun(
        name=name,
        model=type(inner).__name__,
        parameters=parameters,
        task=run.task.name,
        searches=run.output.searches,
        pairs=run.input.two_texts,
        texts=_names_of_texts(run),
        tables=run.input.reads_table,
        images=files_of(run) == "images",
        files=files_of(run),
        labels=run.output.label_names(),
    )


def _names_of_texts(run: Run) -> list[str]:
    if run.input.two_texts:
        return list(run.input.text_names)
    return [] if run.input.reads_files else ["question" if run.input.reads_table else "text"]


def field_of(run: Run) -> str:
    """The field of a request that has the items of a run: its files, its questions, or texts."""
    return files_of(run) or (schema.QUESTIONS if run.input.reads_table else "texts")


def files_of(run: Run) -> str:
    """What kind of files a run reads, such as images: the name of their field in a request. Empty for texts."""
    return run.input.noun if run.input.reads_files else ""


def costs(run: Run, key: TurnKey, items: Sequence[Any]) -> list[int]:
    """The cost of each item, in tokens of hypotheses."""
    least = getattr(key.options, "min_length", 0)
    return [run.output.cost(max(work, least), key.options) for work in run.input.work(items)]


def predicted(run: Run, key: TurnKey, items: list[Any], check: Callable[[], None] | None = None) -> list[Any]:
    """The predictions of a turn; ``check`` is called before every step of a search, and may raise to end it."""
    more: dict[str, Any] = {} if run.input.reads_files else {"batch_tokens": TURN_TOKENS}
    if any(one.name == "going" for one in fields(key.options)):
        more["going"] = check
    options = replace(key.options, **more)
    raws = run.raw(items, options=options)
    return [run.output.served(x, run.output.decide(x, raw, options)) for x, raw in zip(items, raws, strict=True)]


def explained(run: Run, item: Any, options: ExplainOptions) -> Explanation:
    """The explanation of an item; it shows an image as it was sent, not as the run reads it."""
    if not isinstance(item, Received):
        return run.output.explain(run, item, options)
    explanation = run.output.explain(run, item.item, options)
    return explanation if item.picture is None else replace(explanation, image=item.picture)


class FileDecoder:
    """Decodes files from base64 in two processes, in bounded time and memory: one slow file delays no other."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held = 0  # bytes of files that wait for the model
        taken = ImageLimits(min(limits.pixels, MOST_PIXELS), limits.image_bytes)
        heard = SoundLimits(most_bytes=limits.image_bytes, most_seconds=limits.sound_seconds)
        self._all = [Decoding(taken, limits.decoding, heard) for _ in range(DECODING)]
        self._idle: SimpleQueue[Decoding] = SimpleQueue()
        for one in self._all:
            self._idle.put(one)
        self._threads = ThreadPoolExecutor(DECODING, thread_name_prefix="sightline-files")

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in self._all:
            one.end()

    @asynccontextmanager
    async def decoded(
        self, run: Run, files: Sequence[str], where: str, *, shown: bool
    ) -> AsyncIterator[list[Received]]:
        """Files in base64 as a run reads them, held inside the block; ``where`` is their field of the request."""
        loop = asyncio.get_running_loop()
        received: list[Received] = []
        size = 0
        try:
            for number, file in enumerate(files):
                place = f"{where}[{number}]" if len(files) > 1 or where.endswith("s") else where
                one = await loop.run_in_executor(self._threads, self._decode, run, file, place, shown)
                size += one.size
                self.held += one.size
                received.append(one)
                if self.held > self.limits.held:
                    raise busy(f"there are too many {run.input.noun} at once; try again in a moment")
            yield received
        finally:
            self.held -= size

    def _decode(self, run: Run, file: str, where: str, shown: bool) -> Received:
        try:
            content = binascii.a2b_base64(file, strict_mode=True)
        except (binascii.Error, ValueError):
            hint = "; leave out the part before the comma" if file.startswith("data:") else ""
            raise RefusedError(422, f"{where} is not base64{hint}") from None
        decoding = self._idle.get()
        try:
            return Received(*run.input.receive(content, decoding, shown))
        except UserError as error:
            raise RefusedError(422, f"{where} cannot be used: {error}") from None
        except (BadImage, BadSound) as error:
            too_large = "too large" in str(error) or "too long" in str(error)
            raise RefusedError(413 if too_large else 422, f"{where} cannot be used: {error}") from None
        finally:
            self._idle.put(decoding)
