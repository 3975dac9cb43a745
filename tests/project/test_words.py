"""The script that counts names and words, on small made trees."""

import json
import textwrap

import pytest

from words import Tree, amount, count, main

pytestmark = pytest.mark.fast


@pytest.fixture
def made(tmp_path):
    """Writes files of a tree and gives the counts."""

    def make(files, package=None):
        for name, text in {
            **files,
            **{f"src/sightline/{name}": text for name, text in (package or {}).items()},
        }.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (tmp_path / "src/sightline").mkdir(parents=True, exist_ok=True)
        counts = count(Tree(tmp_path))
        return {name: amount(name, places) for name, places in counts.items()}, counts

    return make


def test_names_are_counted_wherever_code_uses_them(made):
    source = '''
        def first(found, out=None):  # found in a comment
            """found in a docstring"""
            result = found + 1
            self.found = call(out=result, res="found")
            founded, ret = 1, 2
    '''
    counts, _ = made({}, {"a.py": textwrap.dedent(source)})
    assert [counts[f"name {name}"] for name in ("found", "result", "res", "out", "ret")] == [3, 2, 1, 2, 1]


def test_classes_and_modules_that_occur_twice(made):
    files = {
        "a/grid.py": "class Grid: ...\nclass _Own: ...\nclass Alone:\n    class Inner: ...",
        "b/grid.py": "class Grid: ...\nclass _Own: ...\nclass Inner: ...",
        "c/other.py": "class Grid: ...",
        "c/__init__.py": "",
        "b/__init__.py": "",
    }
    counts, places = made({}, files)
    assert counts["classes in two modules"] == 1
    assert [place.file for place in places["classes in two modules"]] == ["a/grid.py", "b/grid.py", "c/other.py"]
    assert counts["modules in two packages"] == 1


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("The model looks at a word.", 1),
        ("Names are looked up, and look for it; it looks like that.", 0),
        ("Lookup, overlook and `look` are other words.", 0),
        ("Where people looked.", 0),
        ("A line of sight", 1),
        ("math.floor rounds", 0),
        ("A floor wins; floors too.", 2),
        ("It goes on, going on, go\non with", 2),
        ("made anew by a stranger, whoever, nobody's", 4),
        ("a strangeness", 0),
        ("for want of it; in vain; left in peace; came about", 4),
        ("It stands behind, stood in and stands for nothing; a mean stands in for it", 2),
        ("It is said that BERT and its kin heard, kind and kindred", 3),
    ],
)
def test_words_of_the_dialect(made, text, times):
    assert made({"README.md": text})[0]["dialect in README"] == times
    assert made({"docs/more/page.md": text})[0]["dialect in docs"] == times


def test_errors_help_and_the_page(made):
    counts, places = made(
        {},
        {
            "a.py": 'def f(x):\n    raise ValueError(f"go on with {x}: made {x} anew")\nother = "nobody"\n',
            "cli/parsers.py": '"""Nobody reads this."""\ndef demo():\n    """Made anew."""\n',
            "cli/demo.py": 'print("anew")',
            "tasks/registry.py": 'BUILT_IN = {"tag": "sightline.tasks.tag:TAG"}',
            "tasks/tag.py": 'TAG = Task(help="what stands in a text")',
            "tasks/train.py": 'ABOUT = "anew"',
            "view/page/look.js": '// anew\nimport {x} from "./look.js"\nconst look = "look" + `it ${anew} looked at`',
            "view/page/front.html": "<p>Nobody</p>",
        },
    )
    assert counts["dialect in errors"] == 2
    assert counts["dialect in help"] == 2
    assert counts["dialect in page"] == 2
    assert sorted(place.line for place in places["dialect in page"]) == [1, 3]


def test_any_is_counted_in_what_packages_export(made):
    files = {
        "__init__.py": 'from sightline.api import load\n__all__ = ["load"]',
        "api.py": 'def load(x: Any, y: "list[Any]", z: int) -> Any: ...\ndef other(x: Any): ...',
        "tasks/__init__.py": '__all__ = ["Run"]\nif TYPE_CHECKING:\n    from sightline.tasks.run import Run',
        "tasks/run.py": (
            "class Run:\n"
            "    config: Any\n"
            "    _own: Any\n"
            "    def __init__(self, x: Anything): ...\n"
            "    def predict(self, **options: Any) -> int: ...\n"
            "    def _raw(self, x: Any): ...\n"
        ),
        "cli/hidden.py": "def hidden(x: Any): ...",
    }
    counts, places = made({}, files)
    assert counts["Any in public signatures"] == 5
    assert "Run.predict(options: Any)" in [place.text for place in places["Any in public signatures"]]


def test_print_is_for_the_command_line(made):
    files = {
        "a.py": 'print("x")\nready = print\n"print(x)"\npprint(1)',
        "cli/a.py": "print(1)",
        "__main__.py": "print()",
    }
    assert made({}, files)[0]["print in the library"] == 2


def test_the_table_the_places_and_json(made, tmp_path, capsys):
    made({"README.md": "It looks at a floor.\n"}, {"a.py": "found = 1"})
    main(["--src", str(tmp_path), "--list", "README"])
    printed = capsys.readouterr().out
    assert "dialect in README              2  look 1, floor 1\n" in printed
    assert "README.md:1: look: It looks at a floor." in printed
    main(["--src", str(tmp_path), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert data["name found"] == {"count": 1, "places": [["a.py", 1, "found"]]}


def test_a_tree_without_the_package_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="no src/sightline"):
        main(["--src", str(tmp_path)])
