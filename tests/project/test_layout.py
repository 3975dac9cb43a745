"""The direction of imports, the size of files, and what the project may say of itself."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sightline.tasks.registry import BUILT_IN, task_named, tasks

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "sightline"
FILES = sorted(SOURCE.rglob("*.py"))
# Each part imports only what stands before it. Inputs, outputs and tasks stand together: among them no module imports
# another in a circle (below).
# fmt: off
ORDER = [
    "lazy", "errors", "files", "config", "vocabulary", "state", "machine", "speed", "records", "picture", "recording",
    "table", "asked",
    "text", "synthetic", "data", "metrics", "kernels", "attention", "nn", "decoding", "models", "training", "baselines",
    "explain", "view", "interop", "align", "inputs", "outputs", "tasks", "export", "saliency", "serve", "testing",
    "cli", "api",
]
# fmt: on
TOGETHER = {"inputs", "outputs", "tasks"}
EXCEPTIONS = {
    ("explain.explanation", "view"),  # an explanation saves itself
    ("testing.task_contract", "cli"),  # the laws try every verb as a user does
}
MODEL_FREE = {"view", "records", "picture", "recording", "table", "asked", "text", "data", "metrics", "decoding"}
MODEL_FREE |= {"explain.explanation"}
PLAIN = {*ORDER[: ORDER.index("kernels")], "decoding", "view", "explain.explanation", "explain"}
TASKS = list(BUILT_IN)


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def run_time(path):
    """What runs of a file: without the imports that only type checkers see."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    return tree


def imports_of(path):
    """The modules of the package that a file imports, at the top or inside a function, without the package's name."""
    imported = set()
    for node in ast.walk(run_time(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module]
        imported |= {name.removeprefix("sightline.") for name in names if name.startswith("sightline.")}
    return imported


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    part = part_of(path)
    module = path.relative_to(SOURCE).as_posix().removesuffix(".py").replace("/", ".")
    imported = imports_of(path)
    if part not in ORDER:  # __init__ and __main__: what the package exports
        return
    others = {name.split(".")[0] for name in imported} - {part}
    others -= TOGETHER if part in TOGETHER else set()
    others -= {other for source, other in EXCEPTIONS if source == module}
    later = others & set(ORDER[ORDER.index(part) :])
    assert not later, f"{part} stands before {later}"
    if part == "attention":
        assert others <= {"config", "state", "kernels", "lazy"}
    if part in MODEL_FREE or module in MODEL_FREE:
        wrong = {name for name in imported if name not in PLAIN and name.split(".")[0] not in PLAIN - {"explain"}}
        assert not wrong, f"{module} knows of no model"


def test_every_part_has_its_place():
    assert {part_of(path) for path in FILES} - {"__init__", "__main__"} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small(path):
    """About 400 lines; up to 600 where one idea takes them."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 600


def module_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def modules_of(path):
    """The modules that a file imports, at the top or inside a function; not those that only type checkers see."""
    found = set()
    for node in ast.walk(run_time(path)):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def test_no_import_cycle_with_lazy_imports_counted():
    """But for what packages export, and an explanation that saves itself through the viewer."""
    graph = {name: modules_of(path) for name, path in MODULES.items() if path.stem != "__init__"}
    graph["sightline.explain.explanation"] = {
        name for name in graph["sightline.explain.explanation"] if ".view" not in name
    }
    while leaves := [name for name, used in graph.items() if not used & graph.keys()]:
        for name in leaves:
            del graph[name]
    while roots := [name for name in graph if not any(name in used for used in graph.values())]:
        for name in roots:
            del graph[name]
    assert not graph, sorted(graph)


VERBS = ("cli", "serve", "api.py")
RUNS = ("Run", "Output", "Input")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_verbs_do_not_ask_which_task_they_hold(path):
    """Neither by the class of a run, an input or an output, nor by the name of a task."""
    if part_of(path) not in (*VERBS, "api"):
        return
    asked = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
            asked += [name for name in names if name.endswith(RUNS)]
        if isinstance(node, ast.Compare):
            values = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            asked += values & set(BUILT_IN)
    assert not asked


def test_the_walk_sees_imports():
    assert imports_of(SOURCE / "explain/capture.py") == {"attention.tap", "records", "explain.intercept"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["demo", "--help"],
        ["check", "--help"],
        ["align", "--help"],
        ["serve", "--help"],
        ["view", "--help"],
        ["train", "--help"],
        *(["train", task, "--help"] for task in TASKS),
        ["mechanisms"],
    ],
)
def test_help_does_not_import_torch(arguments):
    code = (
        "import sys; sys.argv = ['sightline', *sys.argv[1:]]\n"
        "from sightline.cli import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert not leave.code, leave.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "assert 'matplotlib' not in sys.modules\n"
        "assert 'soundfile' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sightline" in done.stdout or "softmax" in done.stdout


@pytest.mark.parametrize("task", TASKS)
def test_the_help_of_a_task_is_short_and_its_own(task):
    """At most 80 lines of 80 columns, none of another task's models and metrics, in half a second of processor time."""
    resource = pytest.importorskip("resource")
    spent = []
    for _ in range(8):  # a busy machine counts more for the same work
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "sightline", "train", task, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if spent[-1] < 0.4:
            break
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 80
    words = set(re.findall(r"[\w-]+", done.stdout))
    own = task_named(task)
    mine = {*own.models, *own.metrics, *(f"--{option.name}" for option in own.options)}
    others = [one for one in tasks().values() if one.name != task]
    foreign = {name for one in others for name in (*one.models, *one.metrics)} - mine
    foreign -= {"encoder", "exact", "accuracy", "f1"}  # words that mean other things too
    foreign |= {f"--{option.name}" for one in others for option in one.options} - mine
    assert not words & foreign
    assert min(spent) < 0.5


def test_help_takes_less_than_half_a_second_of_processor_time():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "sightline", "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_predicting_waits_for_no_compiler_and_no_charts():
    """They take as long to import as PyTorch itself."""
    code = (
        "import sys; sys.argv = ['sightline', 'predict', sys.argv[1], '--text', 'abc']\n"
        "from sightline.cli import main\n"
        "main()\n"
        "names = 'torch._dynamo', 'matplotlib', 'transformers'\n"
        "assert not [name for name in names if name in sys.modules]\n"
    )
    run = Path(__file__).parents[1] / "fixtures" / "run-format-1"
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_that_tests_import_by_name_have_names_of_their_own():
    """Helpers and benchmarks are both on the path of the tests: the order of collection must not choose among them."""
    helpers, benchmarks = ({path.stem for path in (ROOT / one).glob("*.py")} for one in ("tests/helpers", "benchmarks"))
    assert not helpers & benchmarks


def test_nothing_depends_on_the_clock_of_the_day():
    """It may jump: spans of time are measured with clocks that only run forwards."""
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\btime\.time\(|\bdatetime\.(now|today|utcnow)\(", text), path
