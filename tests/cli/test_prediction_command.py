"""The command `predict`: lines in, lines out, and every option that reaches the search."""

import io
import json
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from predictions import run, stranger, texts, texts_of, translator  # noqa: F401 - pytest finds the fixtures here
from sightline.decoding.options import SearchConfig
from sightline.outputs.searched import Prediction, Searched, SequenceOptions
from sightline.tasks.run import Run

pytestmark = [pytest.mark.unchecked_shapes, pytest.mark.slow]


@pytest.fixture
def command(monkeypatch, capsys, run, tmp_path):
    """`sightline predict RUN ...` in this process: its exit code, what it wrote, and what it said."""
    from sightline.cli import main

    monkeypatch.chdir(tmp_path)

    def call(*arguments, given=None, folder=run):
        monkeypatch.setattr(sys, "argv", ["sightline", "predict", str(folder), *map(str, arguments)])
        if given is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        try:
            main()
            code = 0
        except SystemExit as leave:
            code = leave.code
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return call


def test_the_command_predicts_lines_in_order(command, translator, texts, tmp_path):
    given = "".join(f"{text}\n" for text in [*texts, "", "ka"])
    expected = "".join(f"{text}\n" for text in texts_of(translator.predict([*texts, "", "ka"])))
    assert command(given=given).out == expected
    (tmp_path / "in.txt").write_text(given)
    done = command("--input", "in.txt", "--out", "new/out.txt", "--batch-tokens", 300)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "new" / "out.txt").read_text() == expected
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.txt"]


def test_every_option_reaches_the_search(command, monkeypatch):
    seen = []

    def raw(self, xs, *, options, **others):
        seen.append(options)
        return [Searched([Prediction("", 0.0, 0.0)]) for _ in xs]

    monkeypatch.setattr(Run, "raw", raw)
    wanted = SearchConfig(7, 0.6, 3, 2, 30, 4, True, 0.5, 6, 0.9, 11)
    options = ["--format", "jsonl"]
    for name, value in asdict(wanted).items():
        options += [f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", value]
    assert command("--text", "ka", "--prefix", "red", "--keep-unknown", *options).code == 0
    assert command("--text", "ka", "--batch-tokens", 77).code == 0
    assert seen[0] == SequenceOptions(**asdict(wanted), prefix="red", keep_unknown=True)
    assert seen[1] == SequenceOptions(batch_tokens=77)


def test_the_best_few_as_json(command, translator):
    lines = command("--text", "ka Zog", "", "--best", 3, "--format", "jsonl").out.splitlines()
    expected = [one.all for one in translator.predict(["ka Zog", ""], best=3)]
    for line, text, some in zip(lines, ["ka Zog", ""], expected, strict=True):
        outputs = [{"text": one.text, "log_prob": one.log_prob, "score": one.score} for one in some]
        assert json.loads(line) == {"source": text, "predictions": outputs}


def test_an_ensemble_by_command(command, run, stranger, texts):
    given = "".join(f"{text}\n" for text in texts)
    assert command("--ensemble", run, run, given=given).out == command(given=given).out
    done = command("--ensemble", stranger, "--text", "ka")
    assert done.code == 2
    assert str(run) in done.err
    assert str(stranger) in done.err


def test_samples_by_command(command, monkeypatch):
    from sightline.cli import lines

    monkeypatch.setattr(lines, "BLOCK", 4)
    given = "ka lo\n" * 8
    options = ["--sample", "--temperature", 3]
    first = command(*options, given=given).out
    assert command(*options, given=given).out == first
    assert command(*options, "--seed", 1, given=given).out != first
    lines = first.splitlines()
    assert lines[:4] != lines[4:], "each block draws anew"


def test_long_lines_and_documents_by_command(command, translator):
    given = "ka lo\n" + "Zog mi. " * 200 + "\n\n" + "nu. " * 300 + "\n"
    whole = command("--max-length", 3, given=given)
    assert whole.err.count("--split") == 1
    assert "line 2 has 1,600 characters" in whole.err
    split = command("--split", "--max-length", 3, given=given)
    assert split.err == ""
    expected = translator.predict(given.split("\n")[:-1], split=True, max_length=3)
    assert split.out == "".join(f"{one.text}\n" for one in expected)
    assert len(split.out.splitlines()[1].split()) >= 200


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_where_somebody_sees_it(command, monkeypatch, tmp_path):
    (tmp_path / "in.txt").write_text("ka lo\n" * 3)
    for stdout, options, shown in (
        (io.StringIO(), [], True),
        (Terminal(), [], False),
        (Terminal(), ["--out", "out.txt"], True),
    ):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(sys, "stdout", stdout)
        assert command("--input", "in.txt", *options).code == 0
        assert ("3 lines, " in terminal.getvalue()) == shown
        assert bool(terminal.getvalue()) == shown


REFUSED = {
    "several as text": (["--best", "2"], "--format jsonl"),
    "several of documents": (["--best", "2", "--format", "jsonl", "--split"], "--best above 1 and --split"),
    "a prefix of documents": (["--prefix", "a", "--split"], "--prefix and --split"),
    "a beam of none": (["--beam", "0"], "beam is 0; it must be at least 1"),
    "a batch of none": (["--batch-tokens", "0"], "--batch-tokens is 0"),
    "a folder to write to": (["--out", "."], "--out is ., which is a folder"),
    "two inputs": (["--input", "in.txt"], "give --input or --text, not both"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_use_of_the_command(command, case, tmp_path):
    options, message = REFUSED[case]
    done = command("--text", "ka", *options)
    assert done.code == 2
    assert message in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_breaks_off_leaves_no_output(command, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"ka\n\xff\n")
    done = command("--input", "in.txt", "--out", "out.txt")
    assert done.code == 2
    assert "in.txt, line 2: byte 0 is 0xff" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    assert "there is no file nothing.txt" in command("--input", "nothing.txt").err


def test_a_folder_that_is_no_run_is_said_before_an_image_is_refused(command, tmp_path):
    done = command("--image", "a.png", folder=tmp_path / "nowhere")
    assert done.code == 2
    assert "there is no run folder" in done.err
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{", encoding="utf-8")
    (tmp_path / "a.png").write_bytes(b"")
    done = command("--image", "a.png", folder=tmp_path / "broken")
    assert done.code == 2
    assert "is damaged" in done.err
    assert "reads texts, and --image is for runs that read images; leave it out" in command("--image", "a.png").err
    assert "reads texts, and --audio is for runs that read recordings" in command("--audio", "a.png").err


def test_weights_before_the_first_validation_are_called_what_they_are(tmp_path, capsys):
    from sightline.cli.common import say_unfinished

    (tmp_path / "checkpoints" / "step-3").mkdir(parents=True)
    say_unfinished(tmp_path, {"weights": "untrained"})
    assert "its weights are still the initial ones" in capsys.readouterr().err
    (tmp_path / "metrics.jsonl").write_text("{}\n", encoding="utf-8")
    say_unfinished(tmp_path, {"weights": "untrained"})
    assert "its best weights so far" in capsys.readouterr().err
