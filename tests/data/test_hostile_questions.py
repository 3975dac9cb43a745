"""Tables that questions are about, made to do harm and damaged: read and asked, or refused in one sentence."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile_questions.py"


def test_hostile_tables_are_asked_or_refused():
    """In a process of its own, where signatures are not checked."""
    command = [sys.executable, str(SCRIPT), "--mutated", "300"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent)
    assert (done.returncode, done.stderr) == (0, "")
    counts = [[int(number) for number in re.findall(r"\| (\d+)", line)] for line in done.stdout.splitlines()[2:]]
    (cases, read, refused, faults), damaged = counts
    assert cases == read + refused > 30
    assert read > 15
    assert refused > 10
    assert damaged[0] == 300
    assert faults == damaged[-1] == 0
