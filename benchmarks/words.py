"""Count names and words that the project does not use, in this tree or another: `benchmarks/words.py [--src TREE]`.

Counted are names that say nothing of what they hold (`found`, `result`, …), public class names and file names that
occur twice, words of an older dialect in the texts that users read, `Any` in public signatures, and `print(` in the
library. A tree is the root of a repository: with `--src` an earlier checkout can be counted by the same rules.
"""

import argparse
import ast
import json
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("found", "result", "res", "out", "ret")
PUBLIC = (
    *("", "align", "attention", "baselines", "data", "decoding", "explain", "export", "inputs", "interop", "metrics"),
    *("models", "nn", "outputs", "saliency", "serve", "synthetic", "tasks", "testing", "text", "view"),
)
# A word, what it looks like in a text, and uses of it that are the right ones.
DIALECT = {
    "look": (
        r"look(?:s|ed|ing)?",
        r"look(?:s|ed|ing)?(?: it| them)? (?:up|for|like)\b|look alike\b|(?:where|what) people look(?:ed)?\b",
    ),
    "line of sight": (r"lines? of sight", None),
    "floor": (r"floors?", r"\b(?:math|np|torch)\.floor|floor (?:division|of the logarithm)|⌊"),
    "go on": (r"(?:go|goes|going|gone|went) on", None),
    "anew": (r"anew", None),
    "stranger": (r"strangers?(?:['’]s?)?", None),
    "nobody": (r"nobody(?:['’]s)?", None),
    "whoever": (r"whoever", None),
    "for want of": (r"for want of", None),
    "stands": (r"(?:stand|stands|stood|standing) (?:in|behind|beside|there|before|above|below)", r"stands? in for\b"),
    "is said": (r"(?:is|are|was|were) said", None),
    "left in peace": (r"(?:left|leave|leaves) \w* ?in peace|in peace", None),
    "come about": (r"(?:come|comes|came|coming) about", None),
    "kin": (r"kin", None),
    "in vain": (r"in vain", None),
    "hear": (r"hears?|heard", None),
}
_PATTERNS = {
    word: (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.I), allowed and re.compile(allowed, re.I))
    for word, (pattern, allowed) in DIALECT.items()
}
_CODE_SPAN = re.compile(r"`[^`\n]+`")
_JS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)""", re.DOTALL
)
_JS_VALUE = re.compile(r"\$\{[^}]*\}")
_JS_PATH = re.compile(r"\.{1,2}/[\w./-]+|[#.]?[\w-]+(?:[.#][\w-]+)*")


class Place(NamedTuple):
    """Where something was counted, and what."""

    file: str
    line: int
    text: str


class Tree:
    """The files of a repository, parsed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "src" / "sightline"
        if not self.package.is_dir():
            raise SystemExit(f"{root} has no src/sightline; name the root of a repository with --src")
        self.files = sorted(self.package.rglob("*.py"))
        self.parsed = {path: ast.parse(path.read_text(encoding="utf-8")) for path in self.files}

    def inside(self, path: Path) -> str:
        """The path as seen from the package."""
        return path.relative_to(self.package).as_posix()

    def module(self, name: str) -> Path | None:
        """The file of a module such as ``attention.dot`` or ``sightline.attention``."""
        stem = self.package.joinpath(*name.removeprefix("sightline").strip(".").split("."))
        return next((one for one in (stem.with_suffix(".py"), stem / "__init__.py") if one in self.parsed), None)

    def text_file(self, path: Path) -> Iterator[Place]:
        """The lines of a text, without what is marked as code."""
        if path.is_file():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                yield Place(path.relative_to(self.root).as_posix(), number, _CODE_SPAN.sub("", line))


def names(tree: Tree) -> dict[str, list[Place]]:
    """Uses of names that do not say what they hold: variables, arguments, keywords, attributes, functions."""
    uses: dict[str, list[Place]] = {name: [] for name in NAMES}
    for path, module in tree.parsed.items():
        for node in ast.walk(module):
            name = next((getattr(node, field) for field in ("id", "attr", "arg", "name") if hasattr(node, field)), None)
            if name in uses:
                uses[name].append(Place(tree.inside(path), getattr(node, "lineno", 0), name))
    return uses


def twice(places: Iterable[Place]) -> list[Place]:
    """Texts that occur in two files."""
    files: dict[str, dict[str, Place]] = defaultdict(dict)
    for place in places:
        files[place.text].setdefault(place.file, place)
    return [place for _, group in sorted(files.items()) if len(group) > 1 for place in group.values()]


def classes(tree: Tree) -> list[Place]:
    """Public classes whose name occurs in two modules."""
    return twice(
        Place(tree.inside(path), node.lineno, node.name)
        for path, module in tree.parsed.items()
        for node in module.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def modules(tree: Tree) -> list[Place]:
    """Modules whose file name occurs in two packages."""
    return twice(Place(tree.inside(path), 1, path.name) for path in tree.files if not path.stem.startswith("__"))


def strings(path: str, node: ast.AST) -> Iterator[Place]:
    """The texts inside a piece of code; what is put into one is three dots."""
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in one.values]
            yield Place(path, one.lineno, "".join(parts))
            for part in one.values:
                if isinstance(part, ast.Constant):
                    part.value = ""  # already counted
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value:
            yield Place(path, one.lineno, one.value)


def help_texts(tree: Tree) -> Iterator[Place]:
    """What --help shows: the texts of the parsers and of the declarations of tasks."""
    registry = tree.package / "tasks" / "registry.py"
    text = registry.read_text(encoding="utf-8") if registry.is_file() else ""
    declared = [tree.module(name) for name in re.findall(r'"(sightline\.tasks\.[\w.]+):[A-Z_]+"', text)]
    parsers = [path for path in tree.files if re.match(r"cli/(parser|options|__init__)", tree.inside(path))]
    for path in sorted({*parsers, *filter(None, declared)}):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if ast.get_docstring(module) is not None:
            del module.body[0]  # of the file, not of a command
        for place in strings(tree.inside(path), module):
            yield place._replace(text=_CODE_SPAN.sub("", place.text))


def errors(tree: Tree) -> Iterator[Place]:
    """The sentences of errors."""
    for path in tree.files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                yield from strings(tree.inside(path), node.exc)


def page(tree: Tree) -> Iterator[Place]:
    """What a reader of the page sees: its HTML, and the texts of its scripts."""
    for path in sorted((tree.package / "view" / "page").rglob("*")):
        if path.suffix == ".html":
            yield from tree.text_file(path)
        elif path.suffix == ".js":
            source = path.read_text(encoding="utf-8")
            for text in _JS.finditer(source):
                words = _JS_VALUE.sub("…", (text["text"] or "")[1:-1])
                if words and not _JS_PATH.fullmatch(words):
                    yield Place(tree.inside(path), source.count("\n", 0, text.start()) + 1, words)


def docs(tree: Tree) -> Iterator[Place]:
    for path in sorted((tree.root / "docs").rglob("*.md")):
        yield from tree.text_file(path)


def dialect(texts: Iterable[Place]) -> list[Place]:
    """Words of the dialect in texts, but for uses that are allowed."""
    uses = []
    for place in texts:
        for word, (pattern, allowed) in _PATTERNS.items():
            right = [use.span() for use in allowed.finditer(place.text)] if allowed else []
            for use in pattern.finditer(place.text):
                if not any(start <= use.start() < end for start, end in right):
                    line = place.line + place.text.count("\n", 0, use.start())
                    uses.append(Place(place.file, line, f"{word}: {_around(place.text, use.span())}"))
    return uses


def _around(text: str, span: tuple[int, int]) -> str:
    piece = text[max(0, span[0] - 30) : span[1] + 30]
    return textwrap.shorten(piece, 90, placeholder="…")


def prints(tree: Tree) -> list[Place]:
    """Uses of `print` in everything but the command line."""
    return [
        Place(tree.inside(path), node.lineno, "print")
        for path, module in tree.parsed.items()
        if not tree.inside(path).startswith(("cli/", "__main__"))
        for node in ast.walk(module)
        if isinstance(node, ast.Name) and node.id == "print"
    ]


def exported(tree: Tree) -> set[tuple[str, str]]:
    """Module and name of everything in `__all__` of the public packages."""
    public = set()
    for package in PUBLIC:
        path = tree.module(package)
        if path is None:
            continue
        listed: list[str] = []
        homes: dict[str, tuple[str, str]] = {}
        for node in ast.walk(tree.parsed[path]):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if [ast.unparse(one) for one in targets] == ["__all__"]:
                    listed += ast.literal_eval(node.value)
            elif isinstance(node, ast.ImportFrom) and node.module:
                homes |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        own = f"sightline.{package}".rstrip(".")
        public |= {homes.get(name, (own, name)) for name in listed}
    return public


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public_any(tree: Tree, public: Iterable[tuple[str, str]]) -> list[Place]:
    """`Any` in the signatures of public functions, of the methods of public classes, and of their fields."""
    everywhere: dict[str, list[tuple[Path, Definition]]] = defaultdict(list)
    for path, module in tree.parsed.items():
        typed = [inner for node in module.body if isinstance(node, ast.If) for inner in node.body]  # if TYPE_CHECKING
        for node in (*module.body, *typed):
            if isinstance(node, Definition):
                everywhere[node.name].append((path, node))
    uses = []
    for module_name, name in sorted(public):
        home = tree.module(module_name)
        definitions = [one for one in everywhere[name] if one[0] == home] or everywhere[name][:1]  # moved since
        for path, node in definitions:
            uses += [Place(tree.inside(path), line, text) for line, text in _signatures(node) if _is_any(text)]
    return uses


def _signatures(node: Definition, owner: str = "") -> Iterator[tuple[int, str]]:
    """The annotations of a definition: line and ``name: annotation``."""
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.AnnAssign) and not ast.unparse(inner.target).startswith("_"):
                yield inner.lineno, f"{node.name}.{ast.unparse(inner.target)}: {ast.unparse(inner.annotation)}"
            elif isinstance(inner, Definition) and (inner.name[0] != "_" or inner.name in ("__init__", "__call__")):
                yield from _signatures(inner, f"{node.name}.")
    else:
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        for one in filter(None, given):
            if one.annotation is not None:
                yield one.lineno, f"{owner}{node.name}({one.arg}: {ast.unparse(one.annotation)})"
        if node.returns is not None:
            yield node.lineno, f"{owner}{node.name}() -> {ast.unparse(node.returns)}"


def _is_any(annotation: str) -> bool:
    return re.search(r"\bAny\b", annotation) is not None


def count(tree: Tree, others: Sequence[Tree] = ()) -> dict[str, list[Place]]:
    """Everything that is counted, by what it is. Public names are those of this tree and of the others."""
    public = {one for some in (tree, *others) for one in exported(some)}
    return {
        **{f"name {name}": places for name, places in names(tree).items()},
        "classes in two modules": classes(tree),
        "modules in two packages": modules(tree),
        "dialect in README": dialect(tree.text_file(tree.root / "README.md")),
        "dialect in help": dialect(help_texts(tree)),
        "dialect in errors": dialect(errors(tree)),
        "dialect in page": dialect(page(tree)),
        "dialect in docs": dialect(docs(tree)),
        "Any in public signatures": public_any(tree, public),
        "print in the library": prints(tree),
    }


def amount(name: str, places: Sequence[Place]) -> int:
    """How many uses; of names that occur twice, how many names."""
    return len({place.text for place in places}) if " in two " in name else len(places)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--src", type=Path, default=ROOT, help="root of the repository to count (default: this one)")
    parser.add_argument("--json", action="store_true", help="print JSON, with every place")
    parser.add_argument("--list", metavar="TEXT", help="list the places of the counts whose name contains TEXT")
    given = parser.parse_args(arguments)
    tree = Tree(given.src.resolve())
    counts = count(tree, [Tree(ROOT)] if tree.root != ROOT else [])
    if given.json:
        data = {name: {"count": amount(name, some), "places": some} for name, some in counts.items()}
        print(json.dumps(data, indent=1, ensure_ascii=False))
        return
    for name, places in counts.items():
        words = Counter(place.text.partition(":")[0] for place in places) if name.startswith("dialect") else {}
        most = ", ".join(f"{word} {times}" for word, times in Counter(words).most_common(5))
        print(f"{name:<26}{amount(name, places):>6,}  {most}".rstrip())
    for name, places in counts.items():
        if given.list and given.list in name:
            print(f"\n{name}")
            for place in places:
                print(f"  {place.file}:{place.line}: {place.text}")


if __name__ == "__main__":
    main()
