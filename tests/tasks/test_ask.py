"""Ask, from a table and questions to answers with their programs, by Python and by the command line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from invoke import run
from sightline.cli.train import preset
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.inputs.table import Asked
from sightline.tasks.registry import task_named
from sightline.tasks.run import Run
from sightline.tasks.train import train_task

pytestmark = pytest.mark.unchecked_shapes
RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
TABLE = "Nation,Gold,Year\nNorway,14,2018\nGermany,10,2014\nCanada,11,2010\n"
QUESTIONS = [
    ("how many nations are there?", "3", "count"),
    ("which nation has the most gold?", "Norway", "max"),
    ("what is the sum of gold?", "35", "sum"),
    ("when did Germany win?", "2014", "match"),
]


def config(model=None):
    task = task_named("ask")
    own = preset(task.variants[0], model)
    limits = {"steps": 3, "validate_every": 3, "epochs": None, "minutes": None}
    return replace(own, model=replace(own.model, size=8), training=replace(own.training, **limits))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table, questions about it, and a run that was trained on made ones."""
    here = tmp_path_factory.mktemp("ask")
    (here / "medals.csv").write_text(TABLE)
    rows = [f"{question}\tmedals.csv\t{answer}\t{kind}\n" for question, answer, kind in QUESTIONS]
    (here / "questions.tsv").write_text("question\ttable\tanswer\tkind\n" + "".join(rows))
    (here / "plain.tsv").write_text("question\tanswer\n" + "".join(f"{one[0]}\t{one[1]}\n" for one in QUESTIONS))
    source = Source.of("made:tables:count=30:rows=4-6:columns=4")
    train_task(task_named("ask"), source, here / "run", config())
    return here


@pytest.fixture(scope="module")
def trained(place):
    return Run.load(place / "run")


def test_tables_are_stored_once_and_split_by_table(place, trained):
    stored = (place / "run" / "data" / "tables.jsonl").read_text().splitlines()
    assert len(stored) == 30
    assert all(len(line) < 400 for line in (place / "run" / "data" / "valid.jsonl").read_text().splitlines())
    x = Asked("a?", trained.input.item(("b?", {"header": ["x"], "rows": [["1"]]})).table)
    assert trained.input.identity(x) == trained.input.identity(x._replace(question="c?"))


def test_unreachable_questions_and_kinds_are_counted_apart(place, trained):
    evaluation = trained.evaluate(str(place / "questions.tsv"))
    data = evaluation.to_json(errors=4)
    assert data["unreachable"] == 1
    assert set(data["kinds"]) == {"count", "max", "sum", "match"}
    assert set(data["of_reachable"]) == {"denotation"}
    assert {"the most frequent answer", "the cell in the row and the column that the question names"} == set(
        data["baselines"]
    )
    parts = trained.output.tables(evaluation)
    assert parts[0] == "no program of this kind can answer 1 of 4"
    assert parts[1].names[0] == "kind of question"
    assert all("right is" in trained.output.shown_error(row) for row in data["errors"])


def test_one_table_for_all_questions(place, trained):
    about = trained.about_table(str(place / "medals.csv"))
    (prediction,) = about.predict(["which nation has the most gold?"])
    assert prediction.program
    assert trained.predict([("which nation has the most gold?", place / "medals.csv")]) == [prediction]
    with pytest.raises(UserError, match="no table"):
        trained.predict(["which nation has the most gold?"])


def test_the_answer_and_the_program_by_command(place):
    asked = ["--table", "medals.csv", "--text", "which nation has the most gold?", "how many?"]
    lines = run("predict", "run", *asked, "--threads", 1, cwd=place)
    assert lines.returncode == 0, lines.stderr
    assert len(lines.stdout.splitlines()) == 2
    answer, program = lines.stdout.splitlines()[0].split("\t")
    data = json.loads(
        run("predict", "run", *asked, "--format", "jsonl", "--threads", 1, cwd=place).stdout.splitlines()[0]
    )
    assert data["program"] == program
    assert answer == "|".join(data["answers"])
    assert [one["operation"] for one in data["operations"]]
    done = run("predict", "run", "--input", "made:tables:count=3", "--threads", 1, cwd=place)
    assert len(done.stdout.splitlines()) == 3, done.stderr
    seen = run("view", "run", "--table", "medals.csv", "--text", "which?", "--quick", "--out", "v.json", cwd=place)
    assert seen.returncode == 0, seen.stderr
    assert json.loads((place / "v.json").read_text())["table"]["header"] == ["Nation", "Gold", "Year"]
    scored = run("evaluate", "run", "--data", "plain.tsv", "--table", "medals.csv", "--json", cwd=place)
    assert json.loads(scored.stdout)["questions"] == 4


def test_other_runs_refuse_a_table(place):
    done = run("predict", RUNS / "classify-text" / "run", "--table", "medals.csv", "--text", "a", cwd=place)
    assert done.returncode == 2
    assert "--table is for runs that answer questions about tables" in done.stderr
    refused = run("evaluate", RUNS / "tag" / "run", "--table", "medals.csv", "--data", "plain.tsv", cwd=place)
    assert "--table is no option of tag" in refused.stderr


def test_evidence_says_what_the_answer_rests_on(place, trained):
    item = ("which nation has the most gold?", place / "medals.csv")
    belief = trained.explain(item).belief
    assert [one.key for one in belief.findings] == ["columns", "rows", "passes", "operations"]
    assert all(one.sentence for one in belief.findings)
    with pytest.raises(UserError, match="leave output out"):
        trained.explain(item, "Norway")


def test_questions_without_any_reachable_answer_are_refused(tmp_path):
    table = {"header": ["a"], "rows": [["x"]]}
    rows = [{"question": f"what {i}?", "table": {**table, "rows": [[f"x{i}"]]}, "answer": "sum"} for i in range(30)]
    with pytest.raises(UserError, match="no program can answer any of the"):
        train_task(task_named("ask"), Source.of(rows), tmp_path / "run", config("cell_reader"))


def test_validation_data_has_the_same_table(place, tmp_path):
    own = tmp_path / "config.json"
    own.write_text(config().dumps())
    files = ["--data", "plain.tsv", "--valid", "plain.tsv", "--table", "medals.csv", "--config", own]
    done = run("train", "ask", *files, "--out", tmp_path / "run", "--threads", 1, "--device", "cpu", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "no program of this kind can answer 1 of 4" in done.stdout
