"""What the packages export: every name is there, none hides a module, and importing a package imports no torch."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sightline

pytestmark = pytest.mark.fast

SOURCE = Path(sightline.__file__).parent
PACKAGES = ["sightline"] + [
    f"sightline.{name}"
    for name in (
        *("align", "attention", "baselines", "data", "decoding", "explain", "export", "inputs", "interop", "metrics"),
        *("models", "nn", "outputs", "saliency", "serve", "synthetic", "tasks", "testing", "text", "view"),
    )
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_there(package):
    module = importlib.import_module(package)
    names = module.__all__
    assert len(set(names)) == len(names)
    assert not [name for name in names if getattr(module, name, None) is None]
    assert set(names) - {"application"} <= set(dir(module))  # that one needs an extra
    assert not [name for name in names if name.startswith("_") and name != "__version__"]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_exported_name_is_a_module_too(package):
    """The module, once imported, would take its place."""
    folder = SOURCE.joinpath(*package.split(".")[1:])
    inside = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not inside & set(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_is_exported(package):
    """The imports that they read and the table of what is imported at first use say the same."""
    tree = ast.parse((SOURCE.joinpath(*package.split(".")[1:]) / "__init__.py").read_text(encoding="utf-8"))
    checked = next((node for node in tree.body if isinstance(node, ast.If)), None)
    if checked is None or not checked.orelse:
        return
    names = exported_by(package)
    imported = {
        (node.module, alias.name)
        for node in checked.body
        for alias in node.names
        if (alias.asname or alias.name) in names
    }
    table = ast.literal_eval(checked.orelse[0].value.args[1])
    listed = {(f"sightline.{module}", name) for module, names in table.items() for name in names.split()}
    assert listed == imported


def exported_by(package):
    return importlib.import_module(package).__all__


def test_a_name_that_is_not_there_is_an_error():
    with pytest.raises(AttributeError, match=r"module 'sightline.models' has no attribute 'Transformers'"):
        importlib.import_module("sightline.models").Transformers  # noqa: B018


def test_importing_packages_imports_no_torch():
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name\n"
        "from sightline.tasks import Column, Task, Variant, task_named\n"
        "from sightline.explain import Explanation\n"
        "from sightline.metrics import bleu\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *PACKAGES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
