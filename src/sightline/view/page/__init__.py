"""The page: one HTML file that shows explanations, alone or side by side, and needs nothing but a browser.

It loads nothing: its scripts, its style and its data are inside, and a content security policy that names them by their
hash forbids everything else. Texts are untrusted: they are compressed data and only ever set as text.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.files import write_text
from sightline.view.page.packing import pack

# A module comes after those that it imports; `joined` checks that.
MODULES = (
    "text", "dom", "colour", "pen", "data", "axis", "copied", "look", "over", "table", "legend", "captioned", "player",
    "heard", "sight", "geometry", "heatmap", "lines", "heads", "calculation", "replay", "belief", "about", "marked",
    "labelled", "asked", "exporting", "controls", "app",
)  # fmt: skip
IMPORT = re.compile(r'^import \{([^}]*)\} from "\.{1,2}/(\w+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async function|function|class|const) (\w+)", re.MULTILINE)
HOLE = re.compile(r"\{\{(\w+)\}\}")
UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def page(explanations: Sequence[Explanation], *, title: str | None = None) -> str:
    """The whole document. Several explanations (two inputs, two models, two checkpoints) are shown side by side."""
    if not explanations:
        raise UserError("there is nothing to show: give the page at least one explanation")
    if title is None:
        title = " · ".join(dict.fromkeys(one.title for one in explanations))
    style, script = _asset("style.css"), joined()
    parts = {
        "title": escape(UNWRITABLE.sub("\ufffd", title)),
        "policy": policy(style, script),
        "style": style,
        "script": script,
        "data": "\n".join(
            f'<script type="application/octet-stream" id="{name}">{content}</script>'
            for name, content in pack(explanations, title).items()
        ),
    }
    # One pass, so that nothing inside a part is replaced.
    return HOLE.sub(lambda hole: parts[hole[1]], _asset("template.html"))


def write_page(explanations: Sequence[Explanation], path: str | Path) -> Path:
    """Write the page to a file, atomically."""
    return write_text(Path(path), page(explanations))


def fragment(explanation: Explanation) -> str:
    """The page in a frame for a notebook. The frame may run its own script and save files, nothing else."""
    return (
        '<iframe title="Sightline" sandbox="allow-scripts allow-downloads" width="100%" height="820" '
        f'style="border:0" srcdoc="{escape(page([explanation]))}"></iframe>'
    )


def joined(modules: Sequence[str] | None = None) -> str:
    """The modules as one script: a page opened from a disk cannot import files beside it.

    Each becomes a function that returns the exports of the module, so that their names do not clash.
    """
    exports: dict[str, list[str]] = {}
    parts = []
    for path in MODULES if modules is None else modules:
        code, module = _asset(f"{path}.js"), path.rpartition("/")[2]
        for names, source in IMPORT.findall(code):
            unknown = set(names.replace(",", " ").split()) - set(exports.get(source, ()))
            if unknown:
                raise ValueError(f"{module}.js imports {', '.join(sorted(unknown))}, which {source}.js does not export")
        exports[module] = EXPORT.findall(code)
        body = EXPORT.sub(lambda match: match[0].removeprefix("export "), IMPORT.sub(r"const {\1} = from_\2;\n", code))
        parts.append(f"const from_{module} = (() => {{\n{body}return {{ {', '.join(exports[module])} }};\n}})();\n")
    return '"use strict";\n(() => {\n' + "".join(parts) + "})();\n"


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def policy(style: str, script: str) -> str:
    """Nothing may be loaded; only this style and this script may be used."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
