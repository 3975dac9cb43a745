"""The application: addresses, the worker behind them, the guard before them."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from sightline import __version__
from sightline.errors import SightlineError, UserError
from sightline.explanation import Explanation
from sightline.serve import kinds, problems, schema
from sightline.serve.guard import Guard
from sightline.serve.kinds import How, Served
from sightline.serve.limits import Limits
from sightline.serve.problems import RefusedError
from sightline.serve.seeing import Eyes
from sightline.serve.worker import Explaining, Predicting, Worker
from sightline.tasks.classifier import Classifier, LabelPrediction
from sightline.tasks.explaining import Wanted
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import SearchConfig
from sightline.view.page.live import Document, documentation_page, front_page
from sightline.view.page.packing import pack

T = TypeVar("T")
REFUSALS = {
    400: "not JSON, not UTF-8, too deep, or no Host",
    401: "no token, or another one",
    403: "another site's page, or another Host",
    408: "the body came too slowly",
    413: "too large",
    415: "not sent as application/json",
    422: "not as the schema says",
    503: "too many requests wait; Retry-After says when to ask again",
    504: "no answer in time",
}
ABOUT = (
    "Predictions and explanations of the runs that are served. Requests that come at the same time are predicted "
    "together; the answers are those of sightline predict."
)


class Service:
    """The runs with their worker, from the side of the requests."""

    def __init__(self, runs: Mapping[str, Served], limits: Limits) -> None:
        if not runs:
            raise UserError("there is nothing to serve: name at least one run")
        self.runs, self.limits = dict(runs), limits
        self.worker = Worker(runs, limits)
        self.eyes = Eyes(limits)
        self.described = [kinds.described(name, run) for name, run in self.runs.items()]
        self.classifies = any(isinstance(run, Classifier) for run in self.runs.values())
        self.pairs = any(map(kinds.pairs, self.runs.values()))
        self.sees = [name for name, run in self.runs.items() if kinds.sees(run)]
        self.writing = asyncio.Semaphore(1)  # explanations are large: one is made into JSON at a time

    async def predict(self, request: schema.Predict) -> Response:
        run = self.runs[request.run]
        _check_input(run, request, "texts", "images")
        if kinds.sees(run):
            return await self._predict_images(run, request)
        try:
            if isinstance(run, Classifier):
                job = Predicting(How(request.run, SearchConfig(beam=1)), _to_classify(run, request))
            else:
                _check_written(request.run, request)
                how = How(request.run, request.search(), request.split, request.keep_unknown)
                job = Predicting(how, request.texts, request.prefix)
        except UserError as error:
            raise RefusedError(422, str(error)) from None
        found = await self._answer(job, job.answer)
        answers = [[_output(one) for one in some] for some in found]
        return _json(
            {"run": request.run, "predictions": [one for (one,) in answers] if isinstance(run, Classifier) else answers}
        )

    async def _predict_images(self, run: Served, request: schema.Predict) -> Response:
        for_texts = {"texts2", "prefix", "split", "keep_unknown"}
        for given in sorted(request.model_fields_set - {"run", "images"}):
            if given in for_texts or not kinds.writes(run):
                kind = "read texts" if given in for_texts else "write"
                raise RefusedError(422, f"{request.run} reads images, and {given} is for runs that {kind}")
        try:
            how = How(request.run, request.search())
        except UserError as error:
            raise RefusedError(422, str(error)) from None
        images: list[str] = request.images  # type: ignore[attr-defined]
        async with self.eyes.seen(run, images, "images", shown=False) as seen:
            job = Predicting(how, seen)
            found = await self._answer(job, job.answer)
        answers = [[_output(one) for one in some] for some in found]
        return _json({"run": request.run, "predictions": answers if kinds.writes(run) else [one for (one,) in answers]})

    async def explain(self, request: schema.Explain) -> Response:
        run = self.runs[request.run]
        _check_input(run, request, "text", "image")
        wanted = Wanted(request.output, request.beam, request.alternatives, request.top, request.shift, request.measure)
        if kinds.sees(run):
            for given in sorted(request.model_fields_set & kinds.unused(run)):
                raise RefusedError(422, f"{request.run} reads images, and {given} is not for it; leave it out")
            image: str = request.image  # type: ignore[attr-defined]
            async with self.eyes.seen(run, [image], "image", shown=True) as (seen,):
                return await self._explained(Explaining(request.run, seen, wanted), request.form)
        return await self._explained(Explaining(request.run, self._text(request), wanted), request.form)

    async def _explained(self, job: Explaining, form: str) -> Response:
        found = await self._answer(job, job.answer)
        async with self.writing:
            return await asyncio.to_thread(_written, found, form)

    def _text(self, request: schema.Explain) -> Any:
        """What to explain: a text, or of a run that reads pairs two."""
        run = self.runs[request.run]
        second = getattr(request, "text2", None)
        reads_two = kinds.pairs(run)
        if reads_two != (second is not None):
            raise RefusedError(
                422, f"{request.run} reads {'two texts: give text2' if reads_two else 'one text: leave text2 out'}"
            )
        given = sorted(request.model_fields_set & {"beam", "alternatives", "shift"})
        if isinstance(run, Classifier) and given:
            raise RefusedError(422, _for_writing(request.run, given[0]))
        return request.text if second is None else (request.text, second)

    async def _answer(self, job: Predicting | Explaining, answer: "Future[T]") -> T:
        """Wait for the worker; whoever stops waiting, for whatever reason, takes the job back."""
        self.worker.submit(job)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            sentence = f"there was no answer within {self.limits.seconds:g} seconds; ask for less, or later"
            raise RefusedError(504, sentence) from None
        except SightlineError as error:
            raise RefusedError(422, str(error)) from None
        finally:
            answer.cancel()

    def health(self) -> schema.Health:
        answer: type[schema.Health] = schema.ClassifyingHealth if self.classifies else schema.Health
        more = {}
        if self.sees:
            answer = schema.SeeingHealth
            limits = self.limits
            more = {"most_images": limits.images, "most_image_bytes": limits.image_bytes, "most_pixels": limits.pixels}
        return answer(
            ready=self.worker.alive,
            runs=self.described,
            waiting=self.worker.waiting,
            most_waiting=self.limits.waiting,
            most_characters=self.limits.characters,
            most_beam=self.limits.beam,
            **more,
        )


def application(
    runs: Mapping[str, Served],
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
) -> Guard:
    """The server as an ASGI application, for uvicorn or any other. Models run in a thread of its own while it lives.

    ``token`` must then be sent with every request. ``hosts`` are the names, besides those of the machine itself, that
    the server may be asked by.
    """
    limits = limits or Limits()
    service = Service(runs, limits)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        await asyncio.to_thread(service.worker.stop, 5.0)  # everything was answered, or has taken too long
        service.eyes.stop()

    app = FastAPI(
        title="Sightline",
        version=__version__,
        description=ABOUT,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(RefusedError, problems.from_problem)
    app.add_exception_handler(HTTPException, problems.from_http)
    app.add_exception_handler(RequestValidationError, problems.from_validation)
    app.add_exception_handler(Exception, problems.from_anything)
    _add_addresses(app, service, token is not None)
    if service.sees:  # images come in base64, inside the JSON
        limits = replace(limits, body=limits.body + limits.base64)
    return Guard(app, limits, token, hosts)


def _add_addresses(app: FastAPI, service: Service, guarded: bool) -> None:
    names = list(service.runs)
    predict_request = schema.predict_request(names, service.limits, service.pairs, service.sees)
    explain_request = schema.explain_request(names, service.limits, service.pairs, service.sees)

    async def predict(request: predict_request) -> Response:  # type: ignore[valid-type]
        return await service.predict(request)

    async def explain(request: explain_request) -> Response:  # type: ignore[valid-type]
        return await service.explain(request)

    predictions: type[Any] = schema.LabelledPredictions if service.classifies else schema.Predictions
    predictions = schema.SeeingPredictions if service.sees else predictions
    healthy: type[schema.Health] = schema.ClassifyingHealth if service.classifies else schema.Health
    healthy = schema.SeeingHealth if service.sees else healthy

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
        response_description="The outputs",
        response_model=predictions,
        responses={**posts},
    )(predict)
    app.post("/explain", summary="Where a model looked", responses={**posts, 200: explained})(explain)
    app.get(
        "/health", summary="Whether it answers, and what it serves", response_description="How it is", responses=gets
    )(health)
    front, documentation = front_page(), documentation_page()

    async def front_end() -> Response:
        return _page(front)

    async def docs() -> Response:
        return _page(documentation)

    app.get("/", include_in_schema=False)(front_end)
    app.get("/docs", include_in_schema=False)(docs)
    if guarded:
        described = app.openapi()  # made once; FastAPI gives this same one at /openapi.json
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]


def _summary(service: Service) -> str:
    what = "of texts or images" if service.sees else "of texts"
    return f"The labels, or the best outputs, {what}" if service.classifies else f"The best outputs {what}"


def _check_input(run: Served, request: Any, texts: str, images: str) -> None:
    """That a run which reads images is given images, and one that reads texts texts."""
    wanted, other, what = (images, texts, "images") if kinds.sees(run) else (texts, images, "texts")
    if getattr(request, other, None) is not None:
        raise RefusedError(422, f"{request.run} reads {what}: leave {other} out, and give {wanted}")
    if getattr(request, wanted, None) is None:
        raise RefusedError(422, f"{request.run} reads {what}: give {wanted}")


def _to_classify(run: Classifier, request: schema.Predict) -> list[Any]:
    """The texts, or pairs of them; what is for runs that write is refused, not passed over."""
    given = sorted(request.model_fields_set - {"run", "texts", "texts2"})
    if given:
        raise UserError(_for_writing(request.run, given[0]))
    second = getattr(request, "texts2", None)
    if not run.labels.pairs:
        _check_written(request.run, request)
        return request.texts
    if second is None or len(second) != len(request.texts):
        found = "none" if second is None else f"{len(second)}"
        raise UserError(f"{request.run} reads two texts: texts has {len(request.texts)}, texts2 {found}; give as many")
    return list(zip(request.texts, second, strict=True))


def _for_writing(name: str, option: str) -> str:
    return f"{name} classifies texts, and {option} is for runs that write them; leave it out"


def _check_written(name: str, request: schema.Predict) -> None:
    if getattr(request, "texts2", None) is not None:
        raise UserError(f"{name} reads one text each; texts2 is for runs that read pairs: leave it out")


def _page(document: Document) -> Response:
    return HTMLResponse(document.html, headers={"content-security-policy": document.policy})


def _output(one: Prediction | LabelPrediction | dict[str, Any]) -> dict[str, Any]:
    if isinstance(one, dict):
        return one
    if isinstance(one, LabelPrediction):
        return one._asdict()
    return {"text": one.text, "log_prob": _finite(one.log_prob), "score": _finite(one.score)}


def _written(found: Explanation, form: str) -> Response:
    if form == "page":
        return _json(pack([found], found.title))
    return _json(found.to_json())


def _json(data: Any) -> Response:
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        body = text.encode("utf-8")
    except ValueError:  # a model with broken weights: NaN, or half a character
        body = json.dumps(_plain(data), allow_nan=False).encode("ascii")
    return Response(body, media_type="application/json")


def _plain(data: Any) -> Any:
    """JSON knows no NaN or infinity."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return _finite(data) if isinstance(data, float) else data


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
