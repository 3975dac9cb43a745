"""The files beside the code: dependencies that are explained and pinned, workflows and templates that can be read."""

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import pytest_collection_modifyitems

import sightline

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def dependencies():
    lists = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    names = {re.match(r"[\w-]+", one)[0] for some in lists for one in some}
    return sorted(names - {"sightline"})


@pytest.mark.parametrize("name", dependencies())
def test_every_dependency_is_explained_and_pinned(name):
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Dependencies")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    assert any(re.search(rf"(?<![\w-]){name}(?![\w-])", row) for row in rows)
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert name in pinned


def test_the_files_of_the_repository_can_be_read():
    yaml = pytest.importorskip("yaml")
    files = [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
    assert len(files) == 6
    read = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    assert read["CITATION.cff"]["version"] == sightline.__version__
    assert {"linux", "others", "coverage"} == set(read["tests.yml"]["jobs"])
    assert all(form["name"] and form["body"] for form in (read["bug.yml"], read["feature.yml"]))


def test_workflows_name_tests_that_exist():
    workflow = (ROOT / ".github/workflows/newest-torch.yml").read_text(encoding="utf-8")
    names = re.findall(r"tests/\w+/\w+\.py", workflow)
    assert names
    assert all((ROOT / name).is_file() for name in names)


def test_make_says_what_there_is():
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    declared = next(line for line in lines if line.startswith(".PHONY")).split()[1:]
    explained = [line.partition(":")[0] for line in lines if re.match(r"[a-z-]+:.*##", line)]
    assert sorted(declared) == sorted(explained)


@pytest.mark.parametrize("marker", ["slow", "browser", "fast", "unchecked_shapes"])
def test_markers_are_registered(marker):
    assert any(one.startswith(f"{marker}:") for one in PROJECT["tool"]["pytest"]["ini_options"]["markers"])


def test_a_test_with_a_browser_is_marked():
    """By its fixtures: no test has to say so."""
    marked = []
    items = [
        SimpleNamespace(fixturenames=names, add_marker=lambda mark, names=names: marked.append((names, mark.name)))
        for names in (["tmp_path", "visit"], ["browser"], ["tmp_path"])
    ]
    pytest_collection_modifyitems(items)
    assert marked == [(["tmp_path", "visit"], "browser"), (["browser"], "browser")]
