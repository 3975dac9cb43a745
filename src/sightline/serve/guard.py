"""Checks before every request: host, token, origin, size and time. Plain ASGI middleware."""

import asyncio
import hmac
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders

from sightline.serve.limits import Limits
from sightline.serve.refusals import BROKEN, RefusedError, busy

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("sightline.serve")
OPEN = ("/", "/docs")  # pages without private content: a browser that opens an address cannot send a token
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")  # an IPv6 address, or a name or address
POLICY = "default-src 'none'; frame-ancestors 'none'"
# A string that is never closed extends to the end, so every byte is read once.
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
BRACKETS = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Guard:
    """Refuses bad requests, reads bodies whole, and adds security headers."""

    def __init__(self, app: App, limits: Limits, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        self.app, self.limits = app, limits
        self.token = None if token is None else token.encode()
        self.hosts = {_given(host) for host in hosts} - {""}
        self.stopping = False
        self.active = 0
        self.held = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the server speaks HTTP, not {scope['type']}")
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._add_headers(message)
            await send(message)

        try:
            await self._handle(scope, receive, answer)
        except RefusedError as problem:
            await problem.response()(scope, receive, answer)
        except asyncio.CancelledError:  # a second signal to stop
            if begun or not self.stopping:
                raise
            await busy("the server is stopping").response()(scope, receive, answer)
        except Exception:
            log.exception("a request failed")
            if not begun:
                await RefusedError(500, BROKEN).response()(scope, receive, answer)

    def _add_headers(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in HEADERS.items():
            headers[name] = value
        headers.setdefault("content-security-policy", POLICY)
        if self.stopping:
            headers["connection"] = "close"

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_token(scope["path"], headers)
        if scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
            await self.app(scope, receive, send)
            return
        self._check_origin(headers)
        _check_type(headers)
        if self.active >= self.limits.waiting + 64:  # the queue is full, and more requests are being read
            raise busy("too many requests at once; try again in a moment")
        self.active += 1
        held = [0]  # bytes of this body
        try:
            body = await self._body(headers, receive, held)
            _check_json(body, self.limits)
            await self._run(scope, body, receive, send)
        finally:
            self.active -= 1
            self.held -= held[0]

    def _check_host(self, headers: Headers) -> None:
        """A name that resolves to this machine is not enough: any site may have one (DNS rebinding)."""
        host = _name(headers.get("host", ""))
        if not host:
            raise RefusedError(400, "the request names no valid host")
        if not (is_loopback(host) or host in self.hosts):
            raise RefusedError(403, "this server does not accept that host name; start it with --allow-host NAME")

    def _check_token(self, path: str, headers: Headers) -> None:
        if self.token is None or path in OPEN:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self.token)
        if kind.lower() != "bearer" or not right:
            missing = "requires a token" if not given else "has another token"
            sentence = f"this server {missing}: send it as Authorization: Bearer TOKEN"
            raise RefusedError(401, sentence, {"www-authenticate": "Bearer"})

    def _check_origin(self, headers: Headers) -> None:
        """A page of another site must not use this server through the browser of an authorised user."""
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2].lower() != headers["host"].lower()
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RefusedError(403, "requests from pages of other sites are refused")

    async def _body(self, headers: Headers, receive: Receive, held: list[int]) -> bytes:
        """The whole body; ``held[0]`` counts its bytes as they come."""
        most = self.limits.body
        too_large = RefusedError(413, f"the body is larger than the limit of {most:,} bytes")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > most:
            raise too_large
        parts = []
        try:
            async with asyncio.timeout(self.limits.reading):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the body ended too early")
                    parts.append(message.get("body", b""))
                    size = len(parts[-1])
                    if held[0] + size > most:
                        raise too_large
                    if self.held + size > self.limits.held:
                        raise busy("there are too many large requests at once; try again in a moment")
                    self.held += size
                    held[0] += size
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            sentence = f"the body did not arrive within {self.limits.reading:g} seconds"
            raise RefusedError(408, sentence, {"connection": "close"}) from None

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application with this body; cancel it when the client leaves."""
        given = False

        async def replay() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await asyncio.Future()  # if the client leaves, the application is cancelled

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        working = asyncio.ensure_future(self.app(scope, replay, send))
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
        finally:
            for task in (working, leaving):
                task.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)


def _check_type(headers: Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a form of another site cannot send this without a preflight request
        raise RefusedError(415, "the body must be JSON, sent as Content-Type: application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(415, "the body must not be compressed")


def _check_json(body: bytes, limits: Limits) -> None:
    """Check that it is UTF-8 and not nested too deeply, before any parser reads it."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"byte {error.start} of the body is not UTF-8") from None
    if b"\0" in body:  # JSON has none, but UTF-16 does, and parsers accept it
        raise RefusedError(400, "the body is not JSON in UTF-8: it has a byte 0")
    bare = STRING.sub(b"", body)
    if bare.count(b":") > limits.names:
        raise RefusedError(400, f"the body has more than {limits.names} fields")
    brackets = bare.translate(BRACKETS, NO_BRACKETS)
    lists = brackets.count(b"[")
    for _ in range(limits.depth):
        brackets = brackets.replace(b"[]", b"")  # exactly the innermost level
    if brackets:
        raise RefusedError(400, f"the body is not JSON, or is nested more than {limits.depth} deep")
    if lists > limits.lists:
        raise RefusedError(400, f"the body has more than {limits.lists:,} lists and objects")


def _name(host: str) -> str:
    """The name or address without its port; "" if it is not a valid host: `[::1].evil.com`, `127.0.0.1:9@evil.com`."""
    valid = HOST.fullmatch(host.lower())
    return "" if valid is None else (valid[1] or valid[2]).rstrip(".")


def _given(host: str) -> str:
    """The name of a host that an option gives: an IPv6 address may stand there without brackets."""
    return host.lower() if host.count(":") > 1 and not host.startswith("[") else _name(host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address always means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if "%" in host:  # the zone of an IPv6 address may be anything
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
