"""Refusals: a status and one sentence, as small JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

BROKEN = "something went wrong in the server; its log says what"
SENTENCES = {
    404: "there is nothing at this address; /docs says what there is",
    405: "this address does not take {method}; /docs says what it takes",
    400: "the body could not be read as JSON",
}


class RefusedError(Exception):
    """Something that cannot be answered: the status to say so with, and why."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})

    def response(self) -> Response:
        body = json.dumps({"error": self.sentence}, ensure_ascii=True)
        return Response(body, self.status, self.headers, media_type="application/json")


def busy(sentence: str) -> RefusedError:
    return RefusedError(503, sentence, {"retry-after": "1"})


async def from_anything(request: Request, error: Exception) -> Response:
    """Our own mistake: the guard writes it to the log."""
    return RefusedError(500, BROKEN).response()


async def from_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RefusedError)
    return problem.response()


async def from_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: an unknown address or method, a body that is no JSON."""
    assert isinstance(error, HTTPException)
    sentence = SENTENCES.get(error.status_code, str(error.detail)).format(method=request.method)
    return RefusedError(error.status_code, sentence, error.headers).response()


async def from_validation(request: Request, error: Exception) -> Response:
    """The first thing that is not as the schema says. What was sent is not repeated: it may be large or hostile."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()[0]
    if found["type"] == "json_invalid":
        reason = found.get("ctx", {}).get("error", "")
        return RefusedError(400, f"the body is not JSON: {_small(str(reason))}").response()
    where = _place(found["loc"])
    more = len(error.errors()) - 1
    others = "" if not more else " (and one thing more)" if more == 1 else f" (and {more} things more)"
    return RefusedError(422, f"{where}: {_small(found['msg'])}{others}; /docs says what is expected").response()


def _place(location: Sequence[Any]) -> str:
    """body, texts, 3 → texts[3]. Names come from the client where they are unknown ones: no more than a few letters."""
    name = ""
    for part in location[1:]:
        shown = ascii(str(part))[1:-1][:60]
        name += f"[{part}]" if isinstance(part, int) else f".{shown}" if name else shown
    return name or "the body"


def _small(message: str) -> str:
    return message[:1].lower() + message[1:300].rstrip(".")
