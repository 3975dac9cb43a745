"""Every task keeps the laws of the contract, ours and those of another package; broken ones do not get through."""

import re
import sys
from pathlib import Path

import pytest

from invoke import run
from sightline.errors import UserError
from sightline.tasks.registry import task_named, tasks
from sightline.testing import check_task, task_case, task_laws
from task_samples import KINDS, sample

pytestmark = pytest.mark.unchecked_shapes

HERE = Path(__file__).parents[1]
# What a broken task is held to: the laws that need no command, each on a run of its own.
PLAIN = [
    *("data_is_read_once", "bad_rows_are_named", "resumes_bit_for_bit", "another_task_is_refused"),
    *("survives_save_load_and_move", "rows_survive_storing", "nothing_fitted_on_the_declaration"),
    *("batches_do_not_matter", "no_items", "scores_are_sums", "dry_run"),
]
FAULTS = [
    *("nothing_fitted_on_the_declaration", "batches_do_not_matter", "resumes_bit_for_bit"),
    *("data_is_read_once", "bad_rows_are_named"),
]


@pytest.fixture(scope="module", autouse=True)
def _installed():
    """The other package, as pip would have installed it."""
    sys.path.insert(0, str(HERE / "third_party"))
    tasks.cache_clear()
    yield
    sys.path.remove(str(HERE / "third_party"))
    tasks.cache_clear()


@pytest.mark.parametrize("name", ["vectors", "morse"])
def test_tasks_of_another_package_keep_every_law(name):
    import sightline_extras.samples

    rows = getattr(sightline_extras.samples, name)()
    assert check_task(task_named(name), rows) == list(task_laws())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_our_tasks_keep_every_law(kind, tmp_path):
    task, data, config, items = sample(kind, tmp_path)
    assert check_task(task, data, items=items, config=config) == list(task_laws())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_task_breaks_the_law_that_names_its_fault(fault):
    from sightline_extras.broken import BROKEN
    from sightline_extras.samples import vectors

    broken = []
    with task_case(BROKEN[fault], vectors(20)) as case:
        for name in PLAIN:
            try:
                task_laws()[name](case)
            except Exception:
                broken.append(name)
    assert broken == [fault]


def test_the_first_broken_law_is_named():
    from sightline_extras.broken import BROKEN
    from sightline_extras.samples import vectors

    sentence = "reads_twice breaks the law 'data_is_read_once': the first row was read 2 times"
    with pytest.raises(AssertionError, match=re.escape(sentence)):
        check_task(BROKEN["data_is_read_once"], vectors(20))


def test_a_declaration_that_imports_torch_is_refused(tmp_path, monkeypatch):
    from sightline_extras.samples import vectors

    (tmp_path / "heavy.py").write_text(
        "import torch\nfrom sightline_extras.broken import broken\n\nHEAVY = broken('heavy')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import heavy

    with task_case(heavy.HEAVY, vectors(20)) as case, pytest.raises(AssertionError, match="heavy cannot be imported"):
        task_laws()["declaration_without_torch"](case)


def test_every_fault_is_tried():
    from sightline_extras.broken import BROKEN

    assert sorted(BROKEN) == sorted(FAULTS)


def test_a_task_that_is_checked_need_not_be_installed_and_is_forgotten():
    from sightline_extras.broken import BROKEN
    from sightline_extras.samples import vectors

    (name,) = {one.name for one in BROKEN.values()} & {"reads_twice"}
    with task_case(BROKEN["data_is_read_once"], vectors(20)):
        assert task_named(name).name == name
    with pytest.raises(UserError, match="there is no task 'reads_twice'"):
        task_named(name)


def test_the_commands_know_tasks_of_another_package(tmp_path):
    listed = run("train", "--help", cwd=tmp_path)
    assert "vectors" in listed.stdout
    assert "morse" in listed.stdout
    own = run("train", "vectors", "--help", cwd=tmp_path)
    assert "reader (the default)" in own.stdout
    assert "rnnsearch" not in own.stdout


def test_the_contract_can_say_tasks_to_come():
    """Their methods are those of the contract, and their declarations are complete; mypy checks the signatures."""
    import future_tasks
    from sightline.inputs.base import Input
    from sightline.outputs.base import Output
    from sightline.tasks.task import imported

    own = {"slots"}
    for task in future_tasks.TASKS:
        for variant in task.variants:
            for path, base in ((variant.input, Input), (variant.output, Output)):
                part = imported(path)
                assert issubclass(part, base)
                assert not getattr(part, "__abstractmethods__", None), f"{part.__name__} is not complete"
                new = {name for name, one in vars(part).items() if callable(one)} - {"__init__"}
                known = {name for kind in part.__mro__[1:] for name in vars(kind)}
                assert new - known <= own, f"the contract does not know {new - known} of {part.__name__}"


def test_data_may_be_made_by_a_seed():
    import future_tasks
    from sightline.data.source import Source
    from sightline.tasks.prepare import table_of

    def rows(seed):
        source = Source.of("made:copy", made_rows="3", made_seed=seed)
        return [cells.values for cells in table_of(source, future_tasks.COPY, future_tasks.COPY.columns)]

    assert len(rows("1")) == 3
    assert rows("1") == rows("1") != rows("2")


def test_the_page_for_contributors_shows_what_is_tested():
    page = (HERE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (declared,) = re.findall(r"^```python\n(from sightline.tasks.task import.*?)^```", page, re.DOTALL | re.MULTILINE)
    _, _, constant = declared.partition("VECTORS = ")
    file = (HERE / "third_party" / "sightline_extras" / "__init__.py").read_text(encoding="utf-8")
    assert f"VECTORS = {constant.strip()}\n" in file
    (checked,) = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert "check_task(VECTORS, vectors())" in checked
    compile(checked, "CONTRIBUTING.md", "exec")  # it is run above
