"""Every verb for every kind of task, on one small run of each: none fails, and only export may refuse.

The table in docs/verbs.md is made of the same cells: `VERBS` × `KINDS`.
"""

import json
import shutil
from pathlib import Path

import pytest

from invoke import run
from sightline.cli import display
from sightline.cli import verify as verifying

pytestmark = pytest.mark.unchecked_shapes

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
KINDS = ("translate", "summarise", "classify-text", "classify-pair", "classify-image")
KINDS = (*KINDS, "tag", "span", "pretrain", "caption", "grid", "transcribe", "transcribe-vectors", "classify-sound")
KINDS = (*KINDS, "sequence", "sequence-positions", "ask")
IMAGE, SOUND = ("--image", "image", "images/01.png"), ("--audio", "recording", "sounds/01.wav")
# Items that are files: the option, the field of a request, and one of them.
FILES = {
    **dict.fromkeys(("classify-image", "caption", "grid"), IMAGE),
    **dict.fromkeys(("transcribe", "classify-sound"), SOUND),
    "transcribe-vectors": ("--features", "array", "sounds/01.npy"),
    **dict.fromkeys(("sequence", "sequence-positions"), ("--features", "array", "series/01.npy")),
}
TASKS = {kind: kind.partition("-")[0] for kind in KINDS}
ITEMS = {
    "tag": ["--text", "Anna sees Bonn"],
    "span": ["--text", "where is it", "--text2", "it is in the old house"],
    "pretrain": ["--text", "the <mask> dog sleeps"],
    "classify-pair": ["--text", "a red dog", "--text2", "a blue dog"],
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A copy of every frozen run: a test may read it, and must not change it."""
    place = tmp_path_factory.mktemp("matrix")
    for kind in KINDS:
        shutil.copytree(RUNS / kind, place / kind)
    return place


def data_of(here):
    return next(path for path in sorted(here.iterdir()) if path.name.startswith("data."))


def items_of(kind, here):
    if kind == "ask":
        return ["--table", here / "table.csv", "--text", "which name has the most points?"]
    return [FILES[kind][0], here / FILES[kind][2]] if kind in FILES else ITEMS.get(kind, ["--text", "a red dog"])


def ok(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def config_of(here, place):
    """The frozen run's configuration for a new training of two steps."""
    config = json.loads((here / "run" / "config.json").read_text())["config"]
    config["training"] |= {"steps": 2, "epochs": None, "minutes": None, "validate_every": 1, "averaged": 1}
    path = place / "config.json"
    path.write_text(json.dumps(config))
    return path


def train(kind, here, place):
    options = ["--labels", "one"] if TASKS[kind] == "classify" else []
    out = place / "new"
    arguments = ["train", TASKS[kind], "--data", data_of(here), "--valid", data_of(here), "--out", out]
    ok(run(*arguments, *options, "--config", config_of(here, place), "--threads", 1, cwd=here))
    assert (out / "card.md").exists()
    assert (out / "model.safetensors").exists()


def dry_run(kind, here, place):
    arguments = ["train", TASKS[kind], "--data", data_of(here), "--valid", data_of(here), "--out", place / "dry"]
    said = ok(run(*arguments, "--config", config_of(here, place), "--dry-run", "--threads", 1, cwd=here))
    assert "nothing was kept" in said
    assert not (place / "dry").exists()


def resume(kind, here, place):
    copy = place / "resumed"
    shutil.copytree(here / "run", copy)
    steps = int(next((copy / "checkpoints").glob("step-*")).name.removeprefix("step-"))
    ok(run("resume", copy, "--set", f"steps={steps + 2}", "--threads", 1, cwd=place))
    assert (copy / "checkpoints" / f"step-{steps + 2}").is_dir()


def verify(kind, here, place):
    """The whole command in this process; the copy is stopped by Ctrl-C between two steps instead of being killed."""
    copy = place / "verified"
    shutil.copytree(here / "run", copy)

    def in_process(command):
        assert ok(run(*command[4:], cwd=place)) is not None

    def stopped(command, folder, start, goal, hurry):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(display.Display, "step", interrupt)
            assert run(*command[4:], cwd=place).returncode == 130
        in_process(command)
        return [start + 1]

    def interrupt(self, event):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifying, "_run", in_process)
        patch.setattr(verifying, "_run_killed", stopped)
        assert "equal bit for bit" in ok(run("resume", copy, "--verify", 3, "--threads", 1, cwd=place))


def predict(kind, here, place):
    lines = ok(run("predict", here / "run", *predicted(kind, here), "--format", "jsonl", "--threads", 1, cwd=place))
    assert json.loads(lines.splitlines()[0])


def predicted(kind, here):
    """What `predict` reads: of two texts, both on one line."""
    given = items_of(kind, here)
    if "--text2" in given:
        return ["--text", f"{given[1]}\t{given[3]}"]
    return given


def evaluate(kind, here, place):
    found = json.loads(ok(run("evaluate", here / "run", "--data", data_of(here), "--json", "--threads", 1, cwd=here)))
    assert any(isinstance(value, float | dict) for value in found.values())
    ok(run("evaluate", here / "run", "--data", data_of(here), "--errors", 2, "--threads", 1, cwd=here))


def compare(kind, here, place):
    copy = place / "other"
    shutil.copytree(here / "run", copy)
    said = ok(
        run("compare", here / "run", copy, "--data", data_of(here), "--samples", 20, "--json", "--threads", 1, cwd=here)
    )
    for metric in json.loads(said)["metrics"].values():
        first, second = metric["runs"].values()
        assert first["value"] == second["value"]
        assert second["difference"] == 0


def view(kind, here, place):
    for ending in (".json", ".png", ".html"):
        out = place / f"seen{ending}"
        ok(run("view", here / "run", *items_of(kind, here), "--out", out, "--quick", "--threads", 1, cwd=place))
        assert out.stat().st_size > 100
    seen = json.loads((place / "seen.json").read_text())
    assert seen["task"].startswith(TASKS[kind]) or kind == "summarise"
    assert seen["records"] or seen["notes"]


def serve(kind, here, place):
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    import base64

    from server_samples import client_of
    from sightline.cli.serve import named

    given = items_of(kind, here)
    if kind in FILES:
        _, field, file = FILES[kind]
        content = base64.b64encode((here / file).read_bytes()).decode()
        many, one = {f"{field}s": [content]}, {field: content}
    elif kind == "ask":
        one = {"question": given[3], "table": {"header": ["Name", "Points"], "rows": [["Anna", "3"], ["Ben", "5"]]}}
        many = {"questions": [one]}
    else:
        one = dict(zip(("text", "text2"), given[1::2], strict=False))
        many = {f"{name.removesuffix('2')}s{'2' if name.endswith('2') else ''}": [text] for name, text in one.items()}
    with client_of(named([here / "run"])) as client:
        answered = client.post("/predict", json=many)
        assert answered.status_code == 200, answered.text
        assert len(answered.json()["predictions"]) == 1
        shown = client.post("/explain", json=one)
        assert shown.status_code == 200, shown.text
        page = client.post("/explain", json={**one, "form": "page"})
        assert page.status_code == 200, page.text
        assert client.get("/").status_code == 200


def bench(kind, here, place):
    found = json.loads(ok(run("bench", here / "run", "--seconds", 0.01, "--json", "--threads", 1, cwd=place)))
    assert {"training"} < {work["name"] for work in found["work"]}


def export(kind, here, place):
    done = run("export", here / "run", "--to", "huggingface", "--out", place / "exported", cwd=here)
    assert done.returncode == 0 or (done.returncode == 2 and done.stderr.count("\n") == 1), done.stderr


VERBS = {
    "train": train,
    "dry run": dry_run,
    "resume": resume,
    "resume --verify": verify,
    "predict": predict,
    "evaluate": evaluate,
    "compare": compare,
    "view": view,
    "serve": serve,
    "bench": bench,
    "export": export,
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_verb_works_for_every_kind(kind, verb, kept, tmp_path):
    VERBS[verb](kind, kept / kind, tmp_path)


def test_the_table_in_the_documentation_has_every_cell():
    table = (Path(__file__).parents[2] / "docs" / "verbs.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")]
    header, *body = [[cell.strip() for cell in row] for row in rows if not set("".join(row).strip()) <= set("- ")]
    assert tuple(header[1:]) == tuple(VERBS)
    assert tuple(row[0] for row in body) == KINDS
    assert all(cell for row in body for cell in row)
