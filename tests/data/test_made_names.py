"""Names of made data: what they say, and that wrong ones are refused before anything large is loaded."""

import subprocess
import sys

import pytest

from sightline.data.made_names import MadeName, inputs_of, names_with, read_name
from sightline.errors import UserError
from sightline.synthetic.made import MADE
from sightline.tasks.registry import task_named


def test_a_name_says_what_its_inputs_are_and_how_many():
    assert read_name("made:copy:lengths=3:count=7") == MadeName("vectors", 7)
    assert read_name("made:copy") == MadeName("vectors", None)
    assert read_name("made:copy").rows == 500
    assert read_name("made:copy:count=7").rows == 7
    assert read_name("made:trees:count=2") == MadeName("symbols", 2)
    assert read_name("made:tables:rows=5-6:count=3") == MadeName("questions", 3)
    assert {name: inputs_of(name) for name in MADE if inputs_of(name) != "vectors"} == {"trees": "symbols"}
    assert {"made:sort", "made:copy"} < {*names_with("vectors")}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("made:", "there is no made data ''; there is copy, .*, trees, tables"),
        ("made:cpy:count=3", "there is no made data 'cpy'"),
        ("made:copy:widht=3", "'widht=3'; expected one of lengths=…"),
        ("made:copy:lengths=5-2", "lengths is '5-2'"),
        ("made:tables:kind=1", "'kind=1'; expected one of kinds=…"),
        ("made:tables:count=0", "count is 0"),
    ],
)
def test_wrong_names_are_one_sentence(name, message):
    with pytest.raises(UserError, match=message):
        read_name(name)


@pytest.mark.parametrize(("verb", "option"), [("predict", "--input"), ("view", "--input"), ("evaluate", "--data")])
def test_commands_refuse_wrong_names_without_torch(verb, option, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    code = (
        "import sys; sys.argv = ['sightline', *sys.argv[1:]]\n"
        "from sightline.cli import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert leave.code == 2\n"
        "assert 'torch' not in sys.modules\n"
    )
    command = [sys.executable, "-c", code, verb, str(tmp_path), option, "made:cpy"]
    more = ["--out", "seen.png"] if verb == "view" else []
    done = subprocess.run([*command, *more], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "there is no made data 'cpy'" in done.stderr


def test_tasks_say_which_made_data_they_read():
    made = {name: task_named(name).made for name in ("sequence", "ask", "translate", "classify")}
    assert made == {"sequence": "vectors", "ask": "questions", "translate": "symbols", "classify": ""}
