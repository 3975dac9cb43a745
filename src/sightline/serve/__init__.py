"""The HTTP server: predictions and explanations for other programs, and the page as its front end.

::

    from sightline.serve import Limits, serve

    serve({"demo": sightline.load("runs/demo")}, port=8000)

FastAPI and uvicorn are an extra: `pip install 'sightline[serve]'`.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sightline.errors import UserError
from sightline.serve.limits import Limits

if TYPE_CHECKING:
    from sightline.serve.app import application
    from sightline.tasks.run import Run

__all__ = ["Limits", "application", "serve"]
LOG = logging.getLogger(__name__)
MODEL_THREAD = "sightline-model"
MISSING = "the server needs FastAPI and uvicorn: pip install 'sightline[serve]'"


def serve(
    runs: "Mapping[str, Run]",
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allow_hosts: tuple[str, ...] = (),
    limits: Limits | None = None,
    without_token: bool = False,
    ready: Callable[[str], None] = LOG.info,
) -> None:
    """Serve runs, by the names given, until SIGTERM or Ctrl-C. Port 0 takes a free one.

    ``ready`` gets the address; without it, the address is logged. Addresses that other machines can reach need a
    ``token``, or ``without_token`` to allow everyone who can reach the address.
    """
    check_installed()
    from sightline.serve.app import application
    from sightline.serve.guard import is_loopback
    from sightline.serve.server import bind, run

    if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
        raise UserError("the token must be printable ASCII without spaces, and not empty")
    if not 0 <= port < 65536:
        raise UserError(f"--port is {port}; it must be at least 0 and below 65,536")
    listening = bind(host, port)
    address, port = listening.getsockname()[:2]
    if not is_loopback(address) and token is None and not without_token:
        listening.close()
        raise UserError(
            f"--host {host} allows other machines to connect: give a --token that they must send, or --without-token"
        )
    shown = f"[{address}]" if ":" in address else address
    own = {address, host} - {"0.0.0.0", "::"}  # the address of all interfaces is not a host name
    app = application(runs, limits=limits, token=token, hosts=(*own, *allow_hosts))
    run(app, listening, lambda: ready(f"http://{shown}:{port}"))


def check_installed() -> None:
    """Refuse in one sentence if the extra is missing."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UserError(MISSING) from None


def __getattr__(name: str) -> object:
    if name == "application":
        check_installed()
        from sightline.serve.app import application

        return application
    raise AttributeError(f"module 'sightline.serve' has no attribute {name!r}")
