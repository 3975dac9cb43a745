"""A small sample of every kind of task there is: made data, a configuration of a tiny model, items to predict.

Data is made as that of the frozen runs was; configurations are theirs.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

from sightline.tasks.registry import stored_task
from sightline.tasks.task import Task, imported

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
KINDS = sorted(path.parent.name for path in RUNS.glob("*/run"))  # and not what Python keeps beside them
TEXTS = {
    "classify-text": ["ga di gi. zap be.", "zup ba", "da zop ga di"],
    "pretrain": ["di do <mask> ga ge", "ba <mask> bi bo <mask>", "ki ko"],
    "summarise": ["ge bi so ko du.", "ba be bi so bo."],
    "summaries": ["ge bi Oslo so 4 ko. du ba.", "ba be Rome so 7 bi. so bo."],
    "translate": ["ge bi ko", "gi be ba ke da", "du"],
}
ROWS = {"grid": 12, "caption": 16, "classify-image": 20}


class Sample(NamedTuple):
    """A task with what `sightline.testing.check_task` takes."""

    task: Task
    data: Path
    config: Any
    items: list[Any] | None


def sample(kind: str, folder: Path) -> Sample:
    """The sample of one of the `KINDS`; its data is made in the folder."""
    about = json.loads((RUNS / kind / "run" / "config.json").read_text())
    task = stored_task(about["task"], RUNS / kind)
    config = imported(task.variant_of(about["task"]).config).from_json(about["config"])
    spec = importlib.util.spec_from_file_location("make_runs", RUNS / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    make.KINDS[kind][0](folder, "data", 1, ROWS.get(kind, 40))
    (data,) = folder.glob("data.*")
    files = sorted(path for path in folder.glob("*s/*.*") if "mask" not in path.name)  # images or sounds
    return Sample(task, data, config, TEXTS.get(kind) or files[:3] or None)
