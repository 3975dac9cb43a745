"""The README is true: every Python example and every command in it runs, in both languages and in CONTRIBUTING."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"]


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands():
    lines = [
        (page, line.split("#")[0].strip())
        for page in PAGES
        for block in blocks(page, "bash")
        for line in block.splitlines()
    ]
    return sorted({line for _, line in lines if line})


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_run(page, tmp_path):
    """In one process and in order: a later example may use what an earlier one made."""
    code = "\n".join(blocks(page, "python"))
    assert code
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("sightline")])
def test_commands_run(command, tmp_path):
    quick = ["--steps", "3"] if " demo" in command else []  # the demo at full length has a test of its own
    line = [sys.executable, "-m", "sightline", *shlex.split(command)[1:], *quick]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_make_has_what_the_pages_name():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for page in PAGES:
        named = re.findall(r"(?:`|^)make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert named
        assert set(named) <= set(targets), page


def test_files_that_the_pages_name_exist():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in re.findall(r"\]\(([^):]+)\)", text):
            assert (ROOT / name).exists(), f"{page} links to {name}"


def test_both_languages_have_the_same_examples():
    """Comments are translated; the code is the same."""
    for language in ("python", "bash"):
        english, chinese = ([re.sub(r"\s*#.*", "", block) for block in blocks(page, language)] for page in PAGES[:2])
        assert english == chinese
