"""The library logs and never prints; a command shows what it logs as plain sentences on standard error."""

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from invoke import run
from sightline.cli.logs import printed_log

pytestmark = pytest.mark.fast

SOURCE = Path(__file__).parents[2] / "src" / "sightline"
FIXTURE = Path(__file__).parents[1] / "fixtures" / "run-format-1"
LIBRARY = [path for path in sorted(SOURCE.rglob("*.py")) if "cli" not in path.relative_to(SOURCE).parts]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_library_never_prints(path):
    names = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)]
    assert not [f"line {node.lineno}" for node in names if node.id == "print"]


def test_a_command_prints_what_is_logged_and_leaves_logging_as_it_was(capsys):
    log = logging.getLogger("sightline")
    before = list(log.handlers)
    with printed_log():
        logging.getLogger("sightline.outputs").warning("100 % of it")
        logging.getLogger("sightline.outputs").info("not this")
    log.warning("nor this")
    assert capsys.readouterr() == ("", "sightline: 100 % of it\n")
    assert log.handlers == before


def test_a_long_line_is_warned_of_on_standard_error(tmp_path):
    done = run("predict", FIXTURE, "--text", "1 May " * 300, "--max-length", "3", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("sightline: line 1 has 1,800 characters, more than training takes")


def test_a_program_that_set_up_no_logging_sees_nothing():
    code = "import logging, sightline; logging.getLogger('sightline.serve').warning('something')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
