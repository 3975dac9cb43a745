"""Copy beside pytorch-ntm (github.com/loudinthecloud/pytorch-ntm): time to the first 500 held-out sequences without a
wrong bit. One thread each, the settings that each comes with.

    python benchmarks/machines_beside.py ours --seeds 0 1 2 3 4 --folder FOLDER
    python benchmarks/machines_beside.py theirs --seeds 1000 --code CLONE

With newer versions of what it needs, the clone runs after two edits: ``convert=`` becomes ``converter=`` in tasks/*.py,
and ``argcomplete`` (and the line that calls it) is left out of train.py. Ours is scored every 50 batches of 16 on
its validation data (500 sequences), theirs every 500 batches of one.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST, OF_EACH = 20, 25  # lengths, and held-out sequences of each length


def ours(seed: int, folder: Path, minutes: float) -> str:
    """`sightline train` until its validation data has no wrong bit."""
    out = folder / f"first-{seed}"
    settings = ["batch_rows=16", "training.validate_every=50", "training.patience=100000", "training.averaged=1"]
    options = ["--data", "made:copy", "--model", "ntm", "--seed", str(seed), "--threads", "1"]
    command = [sys.executable, "-m", "sightline", "train", "sequence", "--out", str(out), *options]
    running = subprocess.Popen([*command, "--minutes", f"{minutes}", "--set", *settings], stdout=subprocess.DEVNULL)
    try:
        while running.poll() is None:
            time.sleep(0.5)
            right = next((one for one in _metrics(out) if one.get("bit_error") == 0), None)
            if right is not None:
                spent = _processor_seconds(running.pid) / 60
                step, wall = right["step"], right["seconds"] / 60
                return f"{16 * step:,} sequences, {wall:.2f} minutes ({spent:.2f} of the processor, start included)"
    finally:
        running.kill()
        running.wait()
    return f"not in {minutes:g} minutes"


def _metrics(out: Path) -> Iterator[dict[str, Any]]:
    if (out / "metrics.jsonl").exists():
        for line in (out / "metrics.jsonl").read_text().splitlines():
            yield json.loads(line)


def _processor_seconds(process: int) -> float:
    """Of a running process (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def theirs(seed: int, code: Path, minutes: float) -> str:
    """Their training of one batch, with their defaults; scoring is not counted."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, str(code))
    training, task = importlib.import_module("train"), importlib.import_module("tasks.copytask")
    draws, held = np.random.default_rng(12345), []
    for length in range(1, LONGEST + 1):
        bits = draws.integers(0, 2, (length, OF_EACH, 8)).astype(np.float32)
        frames = np.zeros((length + 1, OF_EACH, 9), np.float32)
        frames[:length, :, :8], frames[length, :, 8] = bits, 1
        held.append((torch.from_numpy(frames), torch.from_numpy(bits)))
    training.init_seed(seed)
    model = task.CopyTaskModelTraining(params=task.CopyTaskParams())

    def wrong_bits() -> int:
        wrong = 0
        with torch.no_grad():
            for frames, bits in held:
                model.net.init_sequence(OF_EACH)
                for frame in frames:
                    model.net(frame)
                answers = torch.stack([model.net()[0] for _ in bits])
                wrong += int(((answers >= 0.5).float() != bits).sum())
        return wrong

    wall = spent = 0.0
    started = time.time(), time.process_time()
    for number, frames, bits in model.dataloader:
        training.train_batch(model.net, model.criterion, model.optimizer, frames, bits)
        if number % 500 == 0:
            wall, spent = wall + time.time() - started[0], spent + time.process_time() - started[1]
            if wrong_bits() == 0:
                return f"{number:,} sequences, {wall / 60:.2f} minutes ({spent / 60:.2f} of the processor)"
            if wall > 60 * minutes:
                break
            started = time.time(), time.process_time()
    return f"not in {minutes:g} minutes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("whose", choices=("ours", "theirs"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/machines"))
    parser.add_argument("--code", type=Path, default=Path("pytorch-ntm"))
    parser.add_argument("--minutes", type=float, default=25)
    options = parser.parse_args()
    for seed in options.seeds:
        if options.whose == "ours":
            print(seed, ours(seed, options.folder, options.minutes), flush=True)
        else:
            print(seed, theirs(seed, options.code, options.minutes), flush=True)


if __name__ == "__main__":
    main()
