"""The server as a process: its address, timeouts for slow clients, and a clean stop."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.errors import MachineError, UserError
from sightline.serve.app import LAST
from sightline.serve.guard import Guard
from sightline.serve.limits import Limits

IDLE = 15  # seconds that a connection is kept open for the next request
LINGER = 5  # seconds that a refused client may keep sending before it is disconnected: it reads the answer afterwards
CHUNKED = "the body was sent in chunks; send it whole, with a Content-Length"
GRACE = 0.3  # seconds after a signal to stop in which requests already sent still arrive


def bind(host: str, port: int) -> socket.socket:
    """A listening socket."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError, OverflowError):
        raise UserError(f"there is no address for --host {host} and --port {port}") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise UserError(f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port") from None
    return listening


def run(app: Guard, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; then answer the accepted requests, and return."""
    server = Server(app, ready)
    server.run([listening])
    if server.failed:
        raise MachineError("the server could not start; the reason is printed above")
    if server.unanswered:
        raise MachineError(f"stopped with {server.unanswered} requests unanswered: they took too long")


class _WholeBodies(h11.Connection):
    """Refuses bodies in chunks: each chunk takes time, however small, and a length besides them is ambiguous."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise h11.RemoteProtocolError(CHUNKED, error_status_hint=411)
        return event


class Server(uvicorn.Server):
    """uvicorn's server, which exits with 0 after a signal to stop, and accepts requests that were already sent."""

    def __init__(self, app: Guard, ready: Callable[[], None]) -> None:
        protocol = type("Patient", (_Patient,), {"limits": app.limits})
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=max(1, round(app.limits.stopping - LAST - 1)),
        )
        super().__init__(config)
        self.guard, self.ready, self.unanswered, self.failed = app, ready, 0, False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            self.failed = self.should_exit = True
            return
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self.guard.stopping = True  # from now on every answer closes its connection
        if self.server_state.connections and not self.force_exit:
            await asyncio.sleep(GRACE)
        await super().shutdown(sockets)
        self.unanswered = len(self.server_state.tasks)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a requested stop is a success: the signal is not raised again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._set_alarm(0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops gracefully, the second at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._set_alarm(self.guard.limits.stopping)

    @staticmethod
    def _set_alarm(seconds: float) -> None:
        """Let the system end this process after some seconds, whatever it does; 0 cancels that."""
        if hasattr(signal, "setitimer"):  # not on Windows
            signal.setitimer(signal.ITIMER_REAL, seconds)


class _Patient(H11Protocol):
    """One connection with timeouts. uvicorn waits forever for a first request, and for a client to read its answer."""

    limits: Limits

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.conn = _WholeBodies(h11.SERVER)
        self.dropped: int | None = None  # bytes after a refusal

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too many connections; try again in a moment")
            return
        self._set("head", self.limits.reading)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.dropped is not None:  # it was refused: nobody reads the rest
            self.dropped += len(data)
            if self.dropped > self.limits.body:
                self.transport.abort()
            return
        if self.conn.our_state is h11.IDLE and "head" not in self.timers:
            self._set("head", self.limits.reading)  # the next request on this connection has started
        super().data_received(data)
        if self.conn.our_state is not h11.IDLE:
            self._unset("head")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._set("linger", LINGER)
        self._unset("head")

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.SEND_BODY:
            self._unset("linger")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set("reading", 3 * self.limits.reading)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unset("reading")

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # close() would wait for a client that does not read
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        for name in list(self.timers):
            self._unset(name)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 411:
            self.dropped = 0
            self._refuse(411, CHUNKED)
        else:
            self._refuse(400, "this is not valid HTTP/1.1, or its head is too large")

    def _set(self, name: str, seconds: float) -> None:
        self._unset(name)
        self.timers[name] = self.loop.call_later(seconds, self._too_slow, name)

    def _unset(self, name: str) -> None:
        timer = self.timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _too_slow(self, name: str) -> None:
        self.timers.pop(name, None)
        if name == "head" and not self.transport.is_closing():
            self._refuse(408, f"no request came within {self.limits.reading:g} seconds")
        else:
            self.transport.abort()

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer without the application, and close."""
        body = json.dumps({"error": sentence}).encode()
        reason = HTTPStatus(status).phrase
        retry = "retry-after: 1\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"{retry}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.dropped is None:
            self.transport.close()
        else:
            self._unset("head")
            self._set("linger", LINGER)  # a client that is still sending would not see the answer
            self.transport.write_eof()
