"""Sound files made to do harm, and damaged ones: samples or one sentence."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("soundfile", reason="the extra sound is not installed")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile_sound.py"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="time and memory are measured on Linux only")
def test_hostile_sounds_are_read_or_refused():
    """In processes of their own, where signatures are not checked."""
    command = [sys.executable, str(SCRIPT), "--quick", "--mutated", "200"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parent)
    assert done.returncode == 0, done.stderr
    counts = [[int(number) for number in re.findall(r"\| (\d+)", line)] for line in done.stdout.splitlines()[2:]]
    (cases, read, refused, _, faults, *_), damaged = counts
    assert cases >= 60
    assert read < 20
    assert refused > 40
    assert damaged[0] == 200
    assert faults == damaged[4] == 0
