"""The direction of imports, the size of files, and what the project may say of itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sightline"
FILES = sorted(SOURCE.rglob("*.py"))
ORDER = ["data", "attention", "layers", "models", "evidence", "interop", "tasks", "serve", "commands", "cli"]
MODEL_FREE = {
    "search",
    "view",
    "config",
    "records",
    "explanation",
    "picture",
    "errors",
    "state",
    "files",
    "data",
    "vocabulary",
}


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path):
    """The parts of the package that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("sightline.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    part, imported = part_of(path), imports_of(path)
    if part in ORDER:
        later = set(ORDER[ORDER.index(part) + 1 :]) - ({"commands"} if part == "cli" else set())
        assert not imported & later, f"{part} comes before {imported & later}"
    if part == "attention":
        assert imported <= {"attention", "config", "state"}
    if part in MODEL_FREE:
        assert not (imported - {part}) & {*ORDER, "trace", "testing", "demo"}, f"{part} knows of no model"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_the_walk_sees_imports():
    assert imports_of(SOURCE / "trace.py") == {"attention", "records", "interop"}


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
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sightline" in done.stdout or "softmax" in done.stdout


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
    run = Path(__file__).parent / "fixtures" / "run-format-1"
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
