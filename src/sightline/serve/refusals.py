"""Refusals: a status and one sentence, as small JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

BROKEN = "the server failed; its log says why"
SENTENCES = {
    404: "there is nothing at this address; /docs lists the addresses",
    405: "this address does not accept {method}; /docs lists what it accepts",
    400: "the body could not be read as JSON",
}


class RefusedError(Exception):
    """A request that is refused: the HTTP status, and the reason."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})

    def response(self) -> Response:
        body = json.dumps({"error": self.sentence}, ensure_ascii=True)
        return Response(body, self.status, self.headers, media_type="application/json")


def busy(sentence: str) -> RefusedError:
    return RefusedError(503, sentence, {"retry-after": "1"})


async def from_anything(request: Request, error: Exception) -> Response:
    """An error of the server itself: the guard logs it."""
    return RefusedError(500, BROKEN).response()


async def from_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RefusedError)
    return problem.response()


async def from_http(request: Request, error: Exception) -> Response:
    """Refusals of the framework: an unknown address or method, a body that is not JSON."""
    assert isinstance(error, HTTPException)
    sentence = SENTENCES.get(error.status_code, str(error.detail)).format(method=request.method)
    return RefusedError(error.status_code, sentence, error.headers).response()


async def from_validation(request: Request, error: Exception) -> Response:
    """The first violation of the schema. What was sent is not repeated: it may be large or hostile."""
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    first, more = errors[0], len(errors) - 1
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        return RefusedError(400, f"the body is not JSON: {_small(str(reason))}").response()
    others = "" if not more else " (and one more error)" if more == 1 else f" (and {more} more errors)"
    sentence = f"{_place(first['loc'])}: {_small(first['msg'])}{others}; /docs describes what is expected"
    return RefusedError(422, sentence).response()


def _place(location: Sequence[Any]) -> str:
    """body, texts, 3 → texts[3]. Unknown names come from the client and are shortened."""
    name = ""
    for part in location[1:]:
        shown = ascii(str(part))[1:-1][:60]
        name += f"[{part}]" if isinstance(part, int) else f".{shown}" if name else shown
    return name or "the body"


def _small(message: str) -> str:
    return message[:1].lower() + message[1:300].rstrip(".")
