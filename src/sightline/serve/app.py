"""The application: its addresses, the worker that computes the answers, and the guard that checks requests."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from sightline import __version__
from sightline.errors import SightlineError, UserError
from sightline.explain.explanation import Explanation
from sightline.serve import refusals, schema
from sightline.serve.adapter import FileDecoder, TurnKey, described, field_of, files_of
from sightline.serve.guard import Guard
from sightline.serve.limits import Limits
from sightline.serve.refusals import RefusedError
from sightline.serve.worker import ExplainJob, PredictJob, Worker
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run
from sightline.tasks.task import PredictOptions
from sightline.view.page.live import Document, documentation_page, front_page
from sightline.view.page.packing import pack

T = TypeVar("T")
LAST = 5.0  # seconds of the time to stop that are left for the last batch
ITEMS = frozenset({"run", "texts", "texts2", schema.QUESTIONS})
FOR_TEXTS = frozenset({"prefix", "split", "keep_unknown"})  # options of /predict that only runs that read texts take
FOR_WRITING = frozenset({"beam", "alternatives", "shift"})  # options of /explain that only runs that search take
REFUSALS = {
    400: "not JSON, not UTF-8, nested too deeply, or no valid Host",
    401: "no token, or a wrong one",
    403: "a page of another site, or another Host",
    408: "the body was sent too slowly",
    411: "sent in chunks, without Content-Length",
    413: "too large",
    415: "not sent as application/json",
    422: "does not follow the schema",
    503: "too many requests wait; Retry-After says when to try again",
    504: "no answer in time",
}
ABOUT = (
    "Predictions and explanations of the served runs. Simultaneous requests are predicted in one batch; the answers "
    "are those of sightline predict."
)


class Service:
    """The runs and their worker, as requests use them."""

    def __init__(self, runs: Mapping[str, Run], limits: Limits) -> None:
        if not runs:
            raise UserError("there is no run to serve; name at least one")
        self.runs, self.limits = dict(runs), limits
        self.worker = Worker(runs, limits)
        self.decoder = FileDecoder(limits)
        self.described = [described(name, run) for name, run in self.runs.items()]
        self.pairs = any(run.input.two_texts for run in self.runs.values())
        self.files = {name: files_of(run) for name, run in self.runs.items() if run.input.reads_files}
        self.tables = {name for name, run in self.runs.items() if run.input.reads_table}
        self.writing = asyncio.Semaphore(1)  # explanations are large: one is serialised at a time

    async def predict(self, request: schema.Predict) -> Response:
        async with self._in_time():
            return await self._predict(request)

    async def _predict(self, request: schema.Predict) -> Response:
        run = self.runs[request.run]
        self._check_input(run, request, "texts", "texts2")
        key = self._key(run, request)
        if run.input.reads_files:
            field = files_of(run)
            async with self.decoder.decoded(run, getattr(request, field), field, shown=False) as files:
                return await self._predicted(PredictJob(key, files))
        if run.input.reads_table:
            return await self._predicted(PredictJob(key, self._asked(run, getattr(request, schema.QUESTIONS))))
        return await self._predicted(PredictJob(key, _items(run, request, request.texts, "texts2")))

    def _asked(self, run: Run, questions: list[Any]) -> list[Any]:
        """Questions with their tables, as the run reads them. A table is never a path: the schema has no such thing."""
        cells, most = sum(one.table.cells for one in questions), self.limits.table_cells
        if cells > most:
            raise RefusedError(
                413, f"the tables have {cells:,} cells, more than the limit of {most:,}; send fewer rows"
            )
        try:
            return [run.input.item(one.model_dump()) for one in questions]
        except UserError as error:
            raise RefusedError(422, str(error)) from None

    def _check_input(self, run: Run, request: Any, texts: str, second: str) -> None:
        """Check that a run that reads images gets images, and a run that reads texts gets texts."""
        plural = "s" if texts.endswith("s") else ""
        named = {noun: noun.removesuffix("s") + plural for noun in {"images", *self.files.values(), schema.QUESTIONS}}
        what = field_of(run)
        expected = named.get(what, texts)
        others = {texts, *named.values(), *(() if what == "texts" else (second,))}
        for other in sorted(others | (set() if run.input.reads_table else {"table"})):
            if other == expected:
                continue
            if getattr(request, other, None) is not None:
                raise RefusedError(422, f"{request.run} reads {what}: leave {other} out, and give {expected}")
        needed = (expected, "table") if run.input.reads_table and not plural else (expected,)
        for one in needed:
            if getattr(request, one, None) is None:
                raise RefusedError(422, f"{request.run} reads {what}: give {' and '.join(needed)}")

    def _key(self, run: Run, request: schema.Predict) -> TurnKey:
        """The run and options of a request; options that do not apply to the run are refused, not ignored."""
        given = sorted(request.model_fields_set - ITEMS - {*self.files.values()})
        for name in given:
            if not run.output.searches:
                raise RefusedError(422, _not_for(run, request, name, "for runs that write texts"))
            if run.input.reads_files and name in FOR_TEXTS:
                raise RefusedError(422, _not_for(run, request, name, "for runs that read texts"))
        names = {*given, "beam"} if run.output.searches else ()
        try:
            options = run.output.options({name: getattr(request, name) for name in names})
            return TurnKey(request.run, cast("PredictOptions", options))
        except UserError as error:
            raise RefusedError(422, str(error)) from None

    async def _predicted(self, job: PredictJob) -> Response:
        return _json({"run": job.key.run, "predictions": await self._answer(job, job.answer)})

    async def explain(self, request: schema.Explain) -> Response:
        async with self._in_time():
            return await self._explain(request)

    async def _explain(self, request: schema.Explain) -> Response:
        run = self.runs[request.run]
        self._check_input(run, request, "text", "text2")
        for name in sorted(request.model_fields_set & (FOR_WRITING | run.output.explains_without)):
            if name in run.output.explains_without:
                raise RefusedError(422, _not_for(run, request, name, "not for it"))
            if not run.output.searches:
                raise RefusedError(422, _not_for(run, request, name, "for runs that write texts"))
        options = ExplainOptions(
            request.output, request.beam, request.alternatives, request.top, request.shift, request.measure
        )
        if run.input.reads_files:
            field = files_of(run).removesuffix("s")
            async with self.decoder.decoded(run, [getattr(request, field)], field, shown=True) as (file,):
                return await self._explained(ExplainJob(request.run, file, options), request.form)
        if run.input.reads_table:
            (item,) = self._asked(run, [schema.SentQuestion.model_construct(**_fields(request, "question", "table"))])
        else:
            (item,) = _items(run, request, [request.text], "text2")
        return await self._explained(ExplainJob(request.run, item, options), request.form)

    async def _explained(self, job: ExplainJob, form: str) -> Response:
        explanation = await self._answer(job, job.answer)
        async with self.writing:
            return await asyncio.to_thread(_written, explanation, form)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Refuse a request that takes too long, from the decoding of its files to its answer."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                yield
        except TimeoutError:
            sentence = f"there was no answer within {self.limits.seconds:g} seconds; send less, or try later"
            raise RefusedError(504, sentence) from None

    async def _answer(self, job: PredictJob | ExplainJob, answer: "Future[T]") -> T:
        """Wait for the worker; cancel the job when the wait ends for any reason."""
        self.worker.submit(job)
        try:
            return await asyncio.wrap_future(answer)
        except SightlineError as error:
            raise RefusedError(422, str(error)) from None
        finally:
            answer.cancel()

    def health(self) -> schema.Health:
        answer: type[schema.Health] = schema.Health
        more: dict[str, Any] = {}
        if self.files:
            answer = schema.FileHealth
            limits = self.limits
            more = {"most_images": limits.images, "most_image_bytes": limits.image_bytes, "most_pixels": limits.pixels}
            more["most_sound_seconds"] = limits.sound_seconds
        return answer(
            ready=self.worker.alive,
            runs=self.described,
            waiting=self.worker.waiting,
            most_waiting=self.limits.waiting,
            most_characters=self.limits.characters,
            most_beam=self.limits.beam,
            most_table_cells=self.limits.table_cells,
            **more,
        )


def application(
    runs: Mapping[str, Run],
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
) -> Guard:
    """The server as an ASGI application, for uvicorn or any other. Models run in a separate thread.

    If there is a ``token``, every request must send it. ``hosts`` are the host names, besides those of the machine
    itself, that requests may use.
    """
    limits = limits or Limits()
    service, last = Service(runs, limits), min(LAST, limits.stopping)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        service.decoder.stop()  # all requests are answered, or have taken too long
        await asyncio.to_thread(service.worker.stop, last)

    app = FastAPI(
        title="Sightline",
        version=__version__,
        description=ABOUT,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(RefusedError, refusals.from_problem)
    app.add_exception_handler(HTTPException, refusals.from_http)
    app.add_exception_handler(RequestValidationError, refusals.from_validation)
    app.add_exception_handler(Exception, refusals.from_anything)
    _add_addresses(app, service, token is not None)
    if service.files:  # they come in base64, inside the JSON
        limits = replace(limits, body=limits.body + limits.base64)
    if service.tables:
        limits = limits.with_tables()
    return Guard(app, limits, token, hosts)


def _add_addresses(app: FastAPI, service: Service, guarded: bool) -> None:
    names = list(service.runs)
    predict_request = schema.predict_request(names, service.limits, service.pairs, service.files, service.tables)
    explain_request = schema.explain_request(names, service.limits, service.pairs, service.files, service.tables)

    async def predict(request: predict_request) -> Response:  # type: ignore[valid-type]
        return await service.predict(request)

    async def explain(request: explain_request) -> Response:  # type: ignore[valid-type]
        return await service.explain(request)

    healthy: type[schema.Health] = schema.FileHealth if service.files else schema.Health

    async def health() -> healthy:  # type: ignore[valid-type]
        return service.health()

    posts: dict[int | str, dict[str, Any]] = {
        status: {"model": schema.Error, "description": text} for status, text in REFUSALS.items()
    }
    gets: dict[int | str, Any] = {status: posts[status] for status in (400, 401, 403)}
    explained = {"description": "The explanation", "content": {"application/json": {"schema": schema.EXPLANATION}}}
    app.post(
        "/predict",
        summary=_summary(service),
        response_description=_described(service),
        response_model=schema.predictions([run.output.answer for run in service.runs.values()]),
        responses={**posts},
    )(predict)
    app.post("/explain", summary="What a model attends to", responses={**posts, 200: explained})(explain)
    app.get(
        "/health",
        summary="Whether it is ready, and its runs",
        response_description="The state",
        responses=gets,
    )(health)
    front, documentation = front_page(), documentation_page()

    async def front_end() -> Response:
        return _page(front)

    async def docs() -> Response:
        return _page(documentation)

    app.get("/", include_in_schema=False)(front_end)
    app.get("/docs", include_in_schema=False)(docs)
    if guarded:
        openapi = app.openapi()  # made once; FastAPI serves the same object at /openapi.json
        openapi["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        openapi["security"] = [{"token": []}]


def _summary(service: Service) -> str:
    asked = ["questions about tables"] if service.tables else []
    return f"The predictions of {' or '.join(dict.fromkeys(['texts', *service.files.values(), *asked]))}"


def _described(service: Service) -> str:
    """The description of the answers, task by task."""
    tasks = {run.task.name: str(run.output.answer["description"]) for run in service.runs.values()}
    return (
        " ".join(f"Of {name}: {text}" for name, text in tasks.items()) if len(tasks) > 1 else next(iter(tasks.values()))
    )


def _items(run: Run, request: Any, texts: list[str], second: str) -> list[Any]:
    """The items: texts, or pairs of texts for a run that reads two."""
    given = getattr(request, second, None)
    others = [given] if isinstance(given, str) else given
    pairs: list[Any] = texts
    if run.input.two_texts:
        if others is None or len(others) != len(texts):
            many = f"texts has {len(texts)}, texts2 {'none' if others is None else len(others)}; give as many"
            raise RefusedError(422, f"{request.run} reads two texts: {'give text2' if second == 'text2' else many}")
        pairs = list(zip(texts, others, strict=True))
    elif others is not None:
        raise RefusedError(422, f"{request.run} reads one text: leave {second} out")
    try:
        return [run.input.item(one) for one in pairs]
    except UserError as error:
        raise RefusedError(422, str(error)) from None


def _fields(request: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(request, name) for name in names}


def _not_for(run: Run, request: Any, option: str, kind: str) -> str:
    return f"{request.run} is a run of {run.task.name}, and {option} is {kind}; leave it out"


def _page(document: Document) -> Response:
    return HTMLResponse(document.html, headers={"content-security-policy": document.policy})


def _written(explanation: Explanation, form: str) -> Response:
    return _json(pack([explanation], explanation.title) if form == "page" else explanation.to_json())


def _json(data: Any) -> Response:
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        body = text.encode("utf-8")
    except ValueError:  # a model with broken weights: NaN, or half a character
        body = json.dumps(_plain(data), allow_nan=False).encode("ascii")
    return Response(body, media_type="application/json")


def _plain(data: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
