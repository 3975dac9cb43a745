"""One name, one meaning: a public class has a name that no other module of the package gives to a class."""

import pytest

from words import ROOT, Tree, classes, exported, public_any

pytestmark = pytest.mark.fast

# Names that are still to be told apart. None may be added.
KNOWN: set[str] = set()


def test_public_class_names_are_unique():
    shared = {}
    for place in classes(Tree(ROOT)):
        shared.setdefault(place.text, []).append(f"{place.file}:{place.line}")
    for name in KNOWN:
        shared.pop(name, None)
    assert not shared, "\n".join(f"{name}: {', '.join(files)}" for name, files in shared.items())


def test_public_signatures_say_what_they_take_and_give():
    tree = Tree(ROOT)
    places = public_any(tree, exported(tree))
    assert not places, "\n".join(f"{place.file}:{place.line}: {place.text}" for place in places)
