"""Tables made to do harm, and damaged ones: rows or one sentence."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile_tables.py"


def test_hostile_tables_are_refused_or_their_rows_are():
    """In a process of its own, where signatures are not checked."""
    command = [sys.executable, str(SCRIPT), "--quick", "--mutated", "60"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent)
    assert (done.returncode, done.stderr) == (0, "")
    counts = [[int(number) for number in re.findall(r"\| (\d+)", line)] for line in done.stdout.splitlines()[2:]]
    (cases, read, _, refused, faults), damaged = counts
    assert cases > 60
    assert read < 15
    assert refused > 30
    assert faults == damaged[-1] == 0
