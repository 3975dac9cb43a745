"""The pages of the server: the front end, which requests explanations and draws them, and its documentation.

They share modules and style with the page in one file, and have a few of their own. They hold no data and may connect
to their own server only.
"""

from typing import NamedTuple

from sightline.view.page import HOLE, MODULES, _asset, joined, policy

FIELDS = ("live/microphone", "live/dropping", "live/pasting")
FRONT = (*MODULES, "live/talk", "live/token", *FIELDS, "live/asking", "live/front")
DOCUMENTATION = ("text", "dom", "live/talk", "live/token", "live/schema", "live/documentation")


class Document(NamedTuple):
    """A page, and the content security policy to send with it."""

    html: str
    policy: str


def front_page() -> Document:
    """Type a text, drop a file, record one or ask about a table; see the prediction, its alternatives, the map and the
    evidence."""
    return _document("front", FRONT)


def documentation_page() -> Document:
    """The requests of the server, from its schema, with a form to try them."""
    return _document("documentation", DOCUMENTATION)


def _document(name: str, modules: tuple[str, ...]) -> Document:
    style, script = _asset("style.css") + _asset("live/live.css"), joined(modules)
    parts = {"style": style, "script": script}
    html = HOLE.sub(lambda hole: parts[hole[1]], _asset(f"live/{name}.html"))
    return Document(html, f"{policy(style, script)}; connect-src 'self'; frame-ancestors 'none'")
