"""Names that a package exports and imports at first use, so that importing the package costs nothing (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def exported(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that exports names of modules: ``{"explain.capture": "Trace cut"}``."""
    homes = {name: f"sightline.{module}" for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # the next use does not come here
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names
