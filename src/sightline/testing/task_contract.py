"""The laws of the contract of a task, one function each. `sightline.testing.check_task` runs them all."""

import base64
import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch

from sightline.cli import parsers as commands
from sightline.cli.parser_train import train as train_command
from sightline.cli.train import preset
from sightline.data.checking import RowLimits
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.files import write_text
from sightline.outputs.base import Output
from sightline.tasks.bench import works
from sightline.tasks.dry_run import estimate
from sightline.tasks.evaluate import compare, examples_for
from sightline.tasks.prepare import table_of
from sightline.tasks.registry import BUILT_IN, GROUP, tasks
from sightline.tasks.run import Run
from sightline.tasks.task import Example, Task, Variant
from sightline.tasks.train import train_task
from sightline.training.checkpoint import OPTIMISER, checkpoints, read_progress
from sightline.training.folder import MODEL, RunFolder, load_tensors

STEPS, STOPPED = 4, 3  # of the training; the step at which it is stopped once
TOLERANCE = 1e-4
LONGEST = 500  # characters of a sentence that refuses something


class CountedRows:
    """Rows that count how often each of them is read."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows, self.times = rows, [0] * len(rows)

    def __iter__(self) -> Iterator[Any]:
        for number, row in enumerate(self.rows):
            self.times[number] += 1
            yield row


@dataclass
class TaskCase:
    """A task with rows of data, items to predict, a small configuration, and a folder for its runs.

    The run is trained when a law first needs it, and then shared: laws do not change it.
    """

    task: Task
    rows: list[dict[str, Any]]
    folder: Path
    config: Any
    variant: Variant
    given: Sequence[Any] | None = None
    counted: CountedRows = field(init=False)

    @classmethod
    def of(
        cls, task: Task, data: Any, folder: Path, items: Sequence[Any] | None = None, config: Any = None
    ) -> "TaskCase":
        source = Source.of(data)
        variant = task.variant_for(source)
        columns = variant.columns or task.columns
        rows = []
        for cells in table_of(source, task.of(variant), columns):
            assert cells.problem is None, f"the data to check with has a bad row: {cells.problem}"
            values = zip(columns, cells.values, strict=False)
            rows.append({column.name: value for column, value in values if value is not None})
        config = preset(variant) if config is None else config
        limits = {"steps": STEPS, "validate_every": 2, "epochs": None, "minutes": None, "patience": 1000}
        config = replace(config, training=replace(config.training, **limits))
        return cls(task, rows, folder, config, variant, items)

    def __post_init__(self) -> None:
        self.counted = CountedRows(self.rows)

    @property
    def limits(self) -> RowLimits:
        return RowLimits(self.task.max_characters, 1.0)

    @cached_property
    def run(self) -> Run:
        return self.train(self.counted, "run")

    def train(self, data: Any, name: str, **options: Any) -> Run:
        """A run on this data; None resumes."""
        source = None if data is None else Source.of(data)
        options = {"limits": self.limits, "on_remark": lambda text: None, **options}
        return train_task(self.task, source, self.folder / name, self.config, **options)[0]

    @cached_property
    def examples(self) -> list[Example]:
        return examples_for(self.run, self.rows)[0]

    @cached_property
    def items(self) -> list[Any]:
        """What to predict: what was given, or the first items of the data."""
        return [one.x for one in self.examples[:4]] if self.given is None else list(self.given)

    @cached_property
    def file(self) -> Path:
        """The rows as lines of JSON."""
        return write_lines(self.folder / "rows.jsonl", self.rows)

    def predicted(self, run: Run | None = None, items: Sequence[Any] | None = None) -> list[Any]:
        """Predictions as plain data."""
        run, items = run or self.run, self.items if items is None else items
        xs = [run.input.item(one) for one in items]
        return [plain(run.output.to_json(x, one)) for x, one in zip(xs, run.predict(items), strict=True)]

    def arguments(self) -> tuple[list[str], list[Any]]:
        """Options of a command that name the items, and the items."""
        if self.run.input.reads_files:
            return [f"--{self.run.input.column}", *map(str, self.items)], self.items
        if all(isinstance(one, str) for one in self.items):
            return ["--text", *self.items], self.items
        few = self.rows[:2]
        xs = [self.run.input.read(row) for row in few]
        return ["--input", str(write_lines(self.folder / "items.jsonl", few))], xs


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    return write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows))


def plain(data: Any) -> Any:
    """The data after a round trip through JSON; an error if JSON cannot represent it."""
    return json.loads(json.dumps(data, ensure_ascii=False))


def same(actual: Any, expected: Any, what: str, tolerance: float = TOLERANCE) -> None:
    """Assert equal plain data; numbers up to the tolerance."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        assert actual.keys() == expected.keys(), f"{what} has {sorted(actual)}; expected {sorted(expected)}"
        for name, value in expected.items():
            same(actual[name], value, f"{what}, {name}", tolerance)
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        assert len(actual) == len(expected), f"{what} has {len(actual)} entries; expected {len(expected)}"
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            same(one, other, f"{what}, {number}", tolerance)
    elif isinstance(expected, float) and isinstance(actual, float | int):
        near = actual == expected or abs(actual - expected) <= tolerance * max(1.0, abs(expected))
        assert near or (actual != actual and expected != expected), f"{what} is {actual}; expected {expected}"
    else:
        assert actual == expected, f"{what} is {actual!r}; expected {expected!r}"


def refusal(do: Callable[[], Any], *names: str) -> str | None:
    """The sentence of the refusal, which must contain these names; None if nothing was refused."""
    try:
        do()
    except UserError as error:
        text = str(error)
        assert 0 < len(text) <= LONGEST, f"the refusal is empty or too long: {text}"
        assert "\n" not in text, f"the refusal has several lines: {text}"
        for name in names:
            assert name in text, f"the refusal does not name {name}: {text}"
        return text
    return None


def command(which: Callable[[Sequence[str]], None], *arguments: Any) -> str:
    """The standard output of a command."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    threads = ["--threads", str(torch.get_num_threads())]
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
        which([*map(str, arguments), *threads])
    return stream.buffer.getvalue().decode()


def law_declaration_without_torch(case: TaskCase) -> None:
    """Importing the declaration imports no model: help and lists of tasks wait for none."""
    points = {one.name: one.value for one in entry_points(group=GROUP)} | BUILT_IN
    modules = [points[case.task.name].partition(":")[0]] if case.task.name in points else []
    modules += [name for name, one in list(sys.modules.items()) if case.task in _values(one) and name not in modules]
    assert modules, "no module holds the declaration"
    code = "import sys, importlib; importlib.import_module(sys.argv[1]); sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, modules[0]], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{modules[0]} cannot be imported without torch: {done.stderr.strip()[-300:]}"


def _values(module: Any) -> list[Task]:
    return [one for one in list(getattr(module, "__dict__", {}).values()) if type(one) is Task]  # others may be lazy


def law_data_is_read_once(case: TaskCase) -> None:
    """Preparing reads every row once, wherever it comes from. The first one may also tell which variant reads it."""
    case.run  # noqa: B018 - trains
    first, *others = case.counted.times
    assert first <= len(case.task.variants), f"the first row was read {first} times while the data was prepared"
    most, least = max(others), min(others)
    assert (least, most) == (1, 1), f"rows were read {least} to {most} times while the data was prepared"


def law_bad_rows_are_named(case: TaskCase) -> None:
    """A row that cannot be used is left out, and named by file and line."""
    first = (case.variant.columns or case.task.columns)[0].name
    rows = [*case.rows[:3], {**case.rows[3], first: None}, *case.rows[4:]]
    path = write_lines(case.folder / "bad.jsonl", rows)
    report = examples_for(case.run, path)[1]
    assert report is not None
    assert report.bad == 1, f"of 1 bad row, {report.bad} were left out"
    assert "bad.jsonl:4: " in report.places[0], f"line 4 of bad.jsonl is bad; the report names {report.places}"


def law_resumes_bit_for_bit(case: TaskCase) -> None:
    """A training that is stopped and resumed ends as an uninterrupted one, bit for bit."""

    def stop(event: Any) -> None:
        if event.progress.step == STOPPED:
            raise KeyboardInterrupt

    whole = case.run
    with contextlib.suppress(KeyboardInterrupt):
        case.train(case.rows, "stopped", on_step=stop)
        raise AssertionError(f"training ended before step {STOPPED}")
    command(commands.RESUME, case.folder / "stopped", "--device", "cpu")
    ends = [checkpoints(case.folder / name)[-1] for name in ("run", "stopped")]
    states = [{**load_tensors(end / MODEL), **load_tensors(end / OPTIMISER)} for end in ends]
    assert states[0].keys() == states[1].keys(), "the checkpoints hold other tensors"
    differing = [name for name, tensor in states[0].items() if not tensor.equal(states[1][name])]
    assert not differing, f"after resuming, {len(differing)} tensors differ, such as {differing[0]}"
    places = [replace(read_progress(end), seconds=0.0) for end in ends]
    assert places[0] == places[1], f"it is at {places[1]}, not at {places[0]}"
    same(
        case.predicted(Run.load(case.folder / "stopped")),
        case.predicted(Run.load(whole.name)),
        "a prediction after resuming",
        0.0,
    )


def law_another_task_is_refused(case: TaskCase) -> None:
    """A run of this task is no run of another one: one sentence names both."""
    run, name = case.run, case.task.name
    other = next(one for one in tasks().values() if one.name != name)
    assert refusal(lambda: Run.load(case.folder / "run", other), name, other.name), "it loads as another task"
    both = {"this": run, "other": replace(run, task=other)}
    assert refusal(lambda: compare(both, case.examples), name, other.name), "it is compared with a run of another task"


def law_survives_save_load_and_move(case: TaskCase) -> None:
    """A run folder is complete: loaded, moved, or saved again, it predicts the same."""
    expected = case.predicted()
    moved = case.folder / "moved" / "elsewhere"
    shutil.copytree(case.folder / "run", moved)
    loaded = Run.load(moved)
    same(case.predicted(loaded), expected, "a prediction of a run that was moved")
    folder = RunFolder.create(case.folder / "saved")
    loaded.save(folder, "saved")
    same(case.predicted(Run.load(folder.path)), expected, "a prediction of a run that was saved again")


def law_rows_survive_storing(case: TaskCase) -> None:
    """`pack` gives plain data from which `unpack` makes the same item and target."""
    reading, output = case.run.input, case.run.output
    for example in case.examples[:4]:
        row = [*reading.pack(example.x), *output.pack(example.y)]
        x, rest = reading.unpack(plain(row))
        again = [*reading.pack(x), *output.pack(output.unpack(rest))]
        same(plain(again), plain(row), "a row that was stored", 0.0)
        assert reading.identity(x) == reading.identity(example.x), "a stored item has another identity"


def law_nothing_fitted_on_the_declaration(case: TaskCase) -> None:
    """Two runs of one task, trained on other data, are used side by side; neither changes the other."""
    declared, expected = repr(case.task), case.predicted()
    case.train(case.rows[len(case.rows) // 3 :], "other")
    same(case.predicted(), expected, "a prediction of the first run after a second was trained", 0.0)
    assert repr(case.task) == declared, "training changed the declaration"


def law_batches_do_not_matter(case: TaskCase) -> None:
    """An item is predicted the same alone, among others, and in another order."""
    whole = case.predicted()
    alone = [one for item in case.items for one in case.predicted(items=[item])]
    same(alone, whole, "a prediction alone")
    same(case.predicted(items=case.items[::-1])[::-1], whole, "a prediction in another order")


def law_no_items(case: TaskCase) -> None:
    """An empty list of items gives an empty list of predictions."""
    assert case.run.predict([]) == [], "an empty list gives predictions"


def law_scores_are_sums(case: TaskCase) -> None:
    """Statistics have a row for each example, and their sum is the score; training scores by the same.

    Where decisions are calibrated after training, training decides otherwise.
    """
    run, evaluation = case.run, case.run.evaluate(case.examples)
    values, examples = evaluation.values, evaluation.examples
    assert values, "there is no score"
    for name, one in evaluation.statistics.items():
        assert len(one) == len(examples), f"{name} counts {len(one)} rows of {len(examples)} examples"
        if name in values:
            same(values[name], one.score(list(range(len(one)))), f"{name} as a sum of rows")
    scores = run.output.validate(run, evaluation.raws, examples)
    assert scores, "training has no score"
    calibrated = type(run.output).calibrate is not Output.calibrate
    for name in () if calibrated else scores.keys() & values.keys():
        same(scores[name], values[name], f"{name} in training", 1e-3)


def law_dry_run(case: TaskCase) -> None:
    """The costs of a training are measured, and nothing is kept."""
    costs = estimate(case.task, Source.of(case.rows), None, case.config, case.limits)
    assert costs.parameters > 0, "a model without parameters"
    assert costs.seconds > 0, "training takes no time"


def law_training_by_command(case: TaskCase) -> None:
    """`sightline train` on a file gives the same weights as Python on the same rows."""
    config, out = case.folder / "config.json", case.folder / "commanded"
    write_text(config, case.config.dumps())
    arguments = [case.task.name, "--data", case.file, "--out", out, "--config", config, "--device", "cpu"]
    command(train_command, *arguments, "--max-bad-share", "1.0")
    weights, expected = (load_tensors(path / MODEL) for path in (out, Path(case.run.name)))
    differing = [name for name, tensor in expected.items() if not tensor.equal(weights[name])]
    assert not differing, f"{len(differing)} tensors differ from those of Python, such as {differing[0]}"


def law_predicting_by_command(case: TaskCase) -> None:
    """`sightline predict` writes the predictions of Python; an unknown option is refused in one sentence."""
    which, items = case.arguments()
    case.run  # noqa: B018 - trains
    extra = ["--out", case.folder / "files"] if case.run.output.writes_files else []
    lines = command(commands.PREDICT, case.folder / "run", *which, "--format", "jsonl", *extra).splitlines()
    xs, chosen = list(map(case.run.input.item, items)), case.run.output.for_json(case.run.output.options({}))
    predictions = [
        case.run.output.decide(x, raw, chosen) for x, raw in zip(xs, case.run.raw(xs, options=chosen), strict=True)
    ]
    expected = [plain(case.run.output.to_json(x, one)) for x, one in zip(xs, predictions, strict=True)]
    same([json.loads(line) for line in lines], expected, "what predict writes")
    assert refusal(lambda: case.run.predict(case.items, no_such_option=1), "no_such_option"), "it accepts any option"


def law_evaluating_by_command(case: TaskCase) -> None:
    """`sightline evaluate` prints the scores of Python."""
    printed = json.loads(command(commands.EVALUATE, case.run.name, "--data", case.file, "--json"))
    expected = plain(case.run.evaluate(case.file).to_json())
    for data in (printed, expected):
        for name in [one for one in data if one.startswith("seconds")]:
            del data[name]  # the time differs
    same(printed, expected, "what evaluate prints")


def law_comparing_by_command(case: TaskCase) -> None:
    """`sightline compare` finds no difference between a run and its copy."""
    copy = case.folder / "copy"
    shutil.copytree(case.run.name, copy)
    options = ["--data", case.file, "--samples", "20", "--json"]
    printed = json.loads(command(commands.COMPARE, case.run.name, copy, *options))
    assert printed["metrics"], "no metric is compared"
    for metric, one in printed["metrics"].items():
        first, second = one["runs"].values()
        same(second["value"], first["value"], f"{metric} of a copy")


def law_explains_every_prediction(case: TaskCase) -> None:
    """Each prediction can be explained, as plain data that survives JSON, as a picture and as a page."""
    for number, item in enumerate(case.items[:3]):
        explanation = case.run.explain(item, measure=number == 0)
        assert explanation.task, "the explanation names no task"
        data = json.loads(json.dumps(explanation.to_json(), allow_nan=False))
        same(plain(Explanation.from_json(data).to_json()), data, "an explanation after JSON", 0.0)
        if number == 0:
            for ending in (".png", ".html"):
                path = explanation.save(case.folder / f"seen{ending}")
                assert path.stat().st_size > 0, f"{path.name} is empty"


def law_viewing_by_command(case: TaskCase) -> None:
    """`sightline view` writes the explanation of `Run.explain`."""
    which, items = case.arguments()
    out = case.folder / "viewed.json"
    command(commands.VIEW, case.run.name, *(which if which[0] == "--input" else which[:2]), "--quick", "--out", out)
    written = json.loads(out.read_text(encoding="utf-8"))
    expected = case.run.explain(items[0], measure=False)
    same(written[0] if isinstance(written, list) else written, plain(expected.to_json()), "what view writes")


def law_serving(case: TaskCase) -> None:
    """The server answers with the predictions and explanations of Python; needs the extra serve."""
    if not all(importlib.util.find_spec(name) for name in ("fastapi", "httpx2")):
        return
    from starlette.testclient import TestClient

    from sightline.serve import application

    run = case.run
    xs = [run.input.item(one) for one in case.items[:2]]
    expected = [plain(run.output.served(x, one)) for x, one in zip(xs, run.predict(case.items[:2]), strict=True)]
    with TestClient(application({"run": run}), base_url="http://127.0.0.1:8000") as client:
        answer = client.post("/predict", json={"run": "run", **_asked(run, case.items[:2], xs, "s")})
        assert answer.status_code == 200, f"predict is answered with {answer.status_code}: {answer.text[:300]}"
        same(answer.json()["predictions"], expected, "what the server predicts")
        asked = {name: one[0] for name, one in _asked(run, case.items[:1], xs[:1], "").items()}
        answer = client.post("/explain", json={"run": "run", **asked})
        assert answer.status_code == 200, f"explain is answered with {answer.status_code}: {answer.text[:300]}"


def _asked(run: Run, items: Sequence[Any], xs: Sequence[Any], plural: str) -> dict[str, list[Any]]:
    """Items as fields of a request."""
    if run.input.reads_files:
        name = run.input.noun.removesuffix("s")
        return {f"{name}{plural}": [base64.b64encode(Path(one).read_bytes()).decode() for one in items]}
    if run.input.reads_table:
        asked = list(map(run.input.requested, xs))
        return {"questions": asked} if plural else {name: [one[name] for one in asked] for name in asked[0]}
    if run.input.two_texts:
        firsts, seconds = zip(*map(run.input.texts, xs), strict=True)
        return {f"text{plural}": list(firsts), f"text{plural}2": list(seconds)}
    return {f"text{plural}": [run.input.label(x) for x in xs]}


def law_measuring_speed(case: TaskCase) -> None:
    """The work that `sightline bench` measures runs: steps of training, and predictions."""
    todo = works(Run.load(case.run.name))
    assert len(todo) > 1, f"only {[one.name for one in todo]} would be measured"
    for one in todo:
        one.call()
        assert one.amount > 0, f"{one.name} has no amount"


def law_exporting(case: TaskCase) -> None:
    """`sightline export` writes a folder, or refuses in one sentence."""
    from sightline.cli.export import export_command

    def export() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            export_command(Path(case.run.name), "onnx", case.folder / "exported", False, None, None, False, True, None)

    refusal(export)
