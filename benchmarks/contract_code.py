"""Figures of the code as text: its size, and its names, cycles and jobs (`contract.py`)."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract_data import Figures, Options

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

TASKS = {"translate", "summarise", "classify", "classify_images", "tag", "span", "pretrain", "caption", "grid"}
KINDS = {
    *("Translator", "Classifier", "ImageClassifier", "Captioner", "Tagger", "Answerer", "Reader", "Gridder"),
    *("Run", "Predictor"),
}
VERBS = ("cli", "commands", "serve", "api", "tasks")  # where the kind of a run must not matter

# Jobs that several definitions do, by the dotted names of these below the package. Each pattern takes the whole name:
# a function inside another, or a method of a class that is counted already, does not count again.
JOBS = {
    "train orchestration": r"tasks\.\w+\.train(_(?!together)\w+)?",
    "build model, prepare new": r"tasks\.\w+\.((\w+\.)?(build_model|_prepare_new|new_model|building)|Course\.build)",
    "dry-run trial": r"tasks\.\w+\.(\w+_trial|trial|timed_validation|_validation_seconds)",
    "task factory": r"tasks\.table\._\w+",
    "prepare data": r"tasks\.\w+\.((?!Course\.)(\w+\.)?(prepare(_\w+)?|preparation)|\w*Preparation)",
    "prepared data": r"(data|tasks)\.\w+\.Prepared\w*",
    "reopen": r"tasks\.\w+\.(\w+_before|(\w+\.)?reopen|read_valid)",
    "lesson": r"tasks\.\w+\.\w*Lesson",
    "save, load": r"tasks\.\w+\.((save|load)_(?!engine|encoder)\w+|Run\.(save|load))",
    "evaluation": r"(tasks|outputs|metrics)\.\w+\.(\w*Evaluation|evaluate(_\w+)?)",
    "comparison": r"(tasks|outputs|metrics)\.(?!exporting\.)\w+\.(\w*Comparison|compare(_\w+)?)",
    "commands": r"(commands|cli)\.((?!images\.)\w+\.((predict|evaluate|compare)_command|load_run|_load|training_files|"
    r"check_train_options|\w*_eye)|gridding\.view_command)",
    "dispatch": r"cli\.(using|training)\._\w+|api\._\w+|serve\.kinds\.[a-z]\w*",
    "file, row, report, checked, read": r"(data|inputs|outputs|tasks)\.(?!(image_)?tables\.|spool\.|shards\.)\w+\."
    r"(\w+Files?|(\w*[a-z])?Row|\w+Report|Checked[A-Z]\w*)|(data|inputs)\.\w+\.read_(rows|labelled|tagged|answers|plain)",
    "configuration": r"tasks\.\w+\.(?!Search)\w+Config",
}

# The same jobs under the contract of tasks: what is written once, and what each input, output and configuration adds.
OWN = r"(inputs|outputs)\.\w+\.\w+\."
JOBS_OF_THE_CONTRACT = {
    "train orchestration": r"tasks\.train\.(train_task|train_together|plan|started|untrained|finish)",
    "build model, prepare new": r"tasks\.train\.build(ing)?|tasks\.configs\.\w+\.\w+\.build",
    "dry-run trial": r"tasks\.dry_run\.\w+",
    "task factory": r"tasks\.task\.(Task|Variant)",
    "prepare data": r"tasks\.prepare\.(?!Prepared|Rows|Row|Setting|Vocab|reopened|read_valid)\w+|"
    + OWN
    + r"(fit|prepare|store)",
    "prepared data": r"tasks\.prepare\.(Prepared|Rows|Setting|VocabularyTexts)",
    "reopen": r"tasks\.prepare\.(reopened|read_valid)|" + OWN + r"(open_valid|reopen\w*)",
    "lesson": r"tasks\.(train\.TaskLesson|prepare\.RowBatches)|" + OWN + r"(batches|loss|collate)",
    "save, load": r"tasks\.run\.Run\.(save|load)|tasks\.loading\.\w+|" + OWN + r"(save|load)",
    "evaluation": r"tasks\.evaluate\.(?!Comparison|compare)\w+|" + OWN + r"(statistics|validate|evaluat\w+)",
    "comparison": r"tasks\.evaluate\.(Comparison|compare)|" + OWN + r"compar\w+",
    "commands": r"cli\.(predict|evaluate|compare|view)\.\w+",
    "dispatch": r"tasks\.registry\.\w+",
    "file, row, report, checked, read": r"data\.\w+\.(\w*Report|Checked|\w+_cells|_?answers\w*)|" + OWN + r"read",
    "configuration": r"tasks\.configs\.\w+\.(\w+Config|LabelChoices)",
}


def parsed(package: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every file of the package: its path below the package, and its syntax tree."""
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


# Size


def lines_of_code(text: str) -> int:
    """The lines that hold a token of code; a docstring is not code, any other string is."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def size(options: Options) -> Figures:
    """Files, lines and lines of code, of all and of each package."""
    texts = {path.relative_to(options.package): path.read_text("utf-8") for path in options.package.rglob("*.py")}
    code = {path: lines_of_code(text) for path, text in texts.items()}
    yield "files", len(texts)
    yield "lines", sum(text.count("\n") for text in texts.values())
    yield "code", sum(code.values())
    packages: Counter[str] = Counter()
    for path, count in code.items():
        packages[path.parts[0] if len(path.parts) > 1 else "(top)"] += count
    yield "code_by_package", dict(sorted(packages.items()))


# Names


def task_literals(tree: ast.Module) -> list[int]:
    """The lines of strings that are the name of a task, a line for each string; pieces of f-strings are none."""
    pieces = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in pieces)
    return [node.lineno for node in strings if isinstance(node.value, str) and node.value in TASKS]


def kind_tests(tree: ast.Module) -> int:
    """Calls of isinstance that ask for a kind of run, by its name or by a constant of the module that holds it."""
    named = set(KINDS)
    for node in tree.body:
        if isinstance(node, ast.Assign) and _names(node.value) & KINDS:
            named |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2)
    return sum(ast.unparse(call.func) == "isinstance" and bool(_names(call.args[1]) & named) for call in calls)


def _names(node: ast.AST) -> set[str]:
    """The names in an expression, the last part of dotted ones."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


class Imports(ast.NodeVisitor):
    """The modules of the package that a module imports, at its top or in a function, but not for type checkers."""

    def __init__(self, package: str, modules: set[str]) -> None:
        self.package, self.modules = package, modules
        self.imported: set[str] = set()
        self.lazy = self.depth = 0

    def visit_If(self, node: ast.If) -> None:
        """Leave out what stands under TYPE_CHECKING."""
        for child in node.orelse if "TYPE_CHECKING" in _names(node.test) else [*node.body, *node.orelse]:
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        self._add([alias.name for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])])
        self._add([f"{base}.{alias.name}" for alias in node.names])

    def _add(self, names: list[str]) -> None:
        """A name is a module, or stands in one."""
        known = {name if name in self.modules else name.rpartition(".")[0] for name in names} & self.modules
        self.imported |= known
        self.lazy += bool(known and self.depth)


def import_graph(package: Path) -> tuple[dict[str, set[str]], int]:
    """What each module imports, lazy imports too, and how many statements are lazy."""
    trees: dict[str, tuple[bool, ast.Module]] = {}
    for path, tree in parsed(package):
        name = ".".join([package.name, *path.removesuffix(".py").split("/")])
        trees[name.removesuffix(".__init__")] = (name.endswith(".__init__"), tree)
    graph, lazy = {}, 0
    for name, (is_package, tree) in trees.items():
        imports = Imports(name if is_package else name.rpartition(".")[0], set(trees))
        imports.visit(tree)
        graph[name], lazy = imports.imported - {name}, lazy + imports.lazy
    return graph, lazy


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that each reach all others of the group, the largest first."""
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen: set[str] = set()
        ahead = list(graph[name])
        while ahead:
            if (module := ahead.pop()) not in seen:
                seen.add(module)
                ahead.extend(graph[module])
        reached[name] = seen
    groups = {tuple(sorted(m for m in reached[name] if name in reached[m])) for name in graph if name in reached[name]}
    return [list(group) for group in sorted(groups, key=lambda group: (-len(group), group)) if len(group) > 1]


def definitions(package: Path) -> Iterator[tuple[str, int]]:
    """Every class and function: its dotted name below the package, and its lines with those of its decorators."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Definition):
                own = f"{name}.{child.name}"
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                yield own, (child.end_lineno or first) - first + 1
                yield from inside(child, own)

    for path, tree in parsed(package):
        yield from inside(tree, path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def jobs(package: Path) -> dict[str, Any]:
    """How many definitions do each job, and in how many lines."""
    every = list(definitions(package))
    table: dict[str, Any] = {}
    patterns = JOBS_OF_THE_CONTRACT if (package / "tasks" / "task.py").exists() else JOBS
    for job, pattern in patterns.items():
        matched = {name: lines for name, lines in every if re.fullmatch(pattern, name)}
        table[job] = {"definitions": len(matched), "lines": sum(matched.values()), "names": sorted(matched)}
    total = {figure: sum(row[figure] for row in table.values()) for figure in ("definitions", "lines")}
    return {**table, "sum": total}


def names(options: Options) -> Figures:
    """Strings, tests of kinds, cycles and jobs."""
    trees = dict(parsed(options.package))
    literals = {path: lines for path, tree in trees.items() if (lines := task_literals(tree))}
    by_file = {path: len(lines) for path, lines in literals.items()}
    places = sum(len(set(lines)) for lines in literals.values())
    yield "task_literals", {"count": sum(by_file.values()), "lines": places, "files": len(by_file), "by_file": by_file}
    verbs = {path: tree for path, tree in trees.items() if re.split(r"[/.]", path)[0] in VERBS}
    tests = {path: count for path, tree in verbs.items() if (count := kind_tests(tree))}
    yield "isinstance", {"count": sum(tests.values()), "by_file": tests}
    graph, lazy = import_graph(options.package)
    cycles = import_cycles(graph)
    yield "import_cycles", {"sizes": [len(one) for one in cycles], "members": cycles, "lazy_imports": lazy}
    yield "jobs", jobs(options.package)
