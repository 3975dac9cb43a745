"""The laws of the contracts of attention and of tasks: test suites for any mechanism and any task, ours or yours.

::

    from sightline.testing import check_attention, check_task
    check_attention(MyAttentionConfig())
    check_task(MY_TASK, rows)

Each law is a function of a `Case` of `attention_contract` or a `TaskCase` of `task_contract`; `laws()` and
`task_laws()` list them, so that each can be a test of its own. A law that does not hold raises `AssertionError` with
its name, what was expected and what was found.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.attention import AttentionConfig
    from sightline.config import Config
    from sightline.data.source import RowsLike
    from sightline.tasks.task import Task
    from sightline.testing.attention_contract import Case
    from sightline.testing.task_contract import TaskCase
else:
    __getattr__, __dir__ = exported(__name__, {"testing.attention_contract": "Case"})

__all__ = ["Case", "Law", "check_attention", "check_task", "laws", "task_case", "task_laws"]

Law = Callable[["Case"], None]
TaskLaw = Callable[["TaskCase"], None]


def laws() -> dict[str, Law]:
    """Every law of attention, by name."""
    from sightline.testing import attention_contract

    return _laws(attention_contract)


def task_laws() -> "dict[str, TaskLaw]":
    """Every law of a task, by name."""
    from sightline.testing import task_contract

    return _laws(task_contract)


def _laws(module: ModuleType) -> dict[str, Any]:
    return {name.removeprefix("law_"): law for name, law in vars(module).items() if name.startswith("law_")}


def check_attention(config: "AttentionConfig", *, seed: int = 0, sizes: tuple[int, int, int] = (8, 8, 8)) -> list[str]:
    """Test a mechanism by every law. Returns the names of the laws; raises `AssertionError` at the first broken one."""
    from sightline.testing.attention_contract import Case

    return _hold(type(config).__name__, laws(), lambda: Case.of(config, seed, sizes))


def check_task(
    task: "Task",
    data: "RowsLike",
    *,
    items: Sequence[object] | None = None,
    config: "Config | None" = None,
    without: Sequence[str] = (),
) -> list[str]:
    """Test a task by every law. Returns the names of the laws; raises `AssertionError` at the first broken one.

    ``data`` are about twenty valid rows or more, or their path: enough to split. ``items`` are what to predict, by
    default those of the data. ``config`` is the configuration to train, by default the smallest preset; a few steps are
    trained in a temporary folder. ``without`` names laws to skip.
    """
    chosen = {name: law for name, law in task_laws().items() if name not in without}
    with task_case(task, data, items=items, config=config) as case:
        return _hold(task.name, chosen, lambda: case)


@contextmanager
def task_case(
    task: "Task", data: "RowsLike", *, items: Sequence[object] | None = None, config: "Config | None" = None
) -> "Iterator[TaskCase]":
    """The argument of the laws of a task. Inside the block the task is registered, installed or not."""
    from sightline.tasks.registry import tasks
    from sightline.testing.task_contract import TaskCase

    known = tasks()
    before = known.get(task.name)
    known[task.name] = task
    try:
        with tempfile.TemporaryDirectory(prefix="sightline-check-") as folder:
            yield TaskCase.of(task, data, Path(folder), items, config)
    finally:
        if before is None:
            del known[task.name]
        else:
            known[task.name] = before


def _hold(name: str, chosen: dict[str, Any], case: Callable[[], Any]) -> list[str]:
    for law_name, law in chosen.items():
        try:
            law(case())
        except AssertionError as error:
            raise AssertionError(f"{name} breaks the law {law_name!r}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{name} breaks the law {law_name!r}: {type(error).__name__}: {error}") from error
    return list(chosen)
