"""Copy vectors through a memory: a small Neural Turing Machine, trained on made sequences in about a minute.

The machine reads up to ten vectors of bits, then writes them again. It can only do so through its memory, and nothing
tells it how: it learns to write one slot after another and to read them in the same order, which the picture shows as
two diagonals. It prints how many bits of a sequence are wrong at the lengths of its training and at twice the longest
of them, and how much of what an answer read stands in the slot into which its vector was written.

    python examples/copy_memory.py --out runs/examples/copy_memory.png
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

import sightline
from sightline.models.turing import TuringMachineConfig
from sightline.synthetic.made import MadeData
from sightline.tasks.configs.sequence import SequenceConfig
from sightline.tasks.run import Run
from sightline.training.loop import TrainingConfig

LONGEST = 10  # vectors of a sequence in training


class Measured(NamedTuple):
    """Wrong bits of a sequence, at the lengths of training and at twice the longest; and the share of the weights of an
    answer that lies on the slot of its vector, at its own step or at the one before it."""

    trained: float
    longer: float
    same_slot: float


def configured(steps: int) -> SequenceConfig:
    """Fewer slots than the 128 of the paper are enough for sequences of this length."""
    training = TrainingConfig(
        learning_rate=3e-3, warmup=100, steps=steps, validate_every=max(1, steps // 10), patience=100, averaged=1
    )
    return SequenceConfig(model=TuringMachineConfig(slots=32), batch_rows=16, training=training)


def same_slot(run: Run, x: np.ndarray) -> float:
    """Of each answer, the weight with which it read the slot that its vector was written into most.

    The controller gets at one step what was read at the step before: machines learn to read either way.
    """
    length = len(x) - 1  # the mark comes last
    maps = {one.name: one.matrix() for one in run.explain(x, measure=False).records}
    slots = maps["write"][:length].argmax(axis=1)
    start = length + 1  # the first answer
    count = min(length, len(maps["read"]) - start)  # an untrained machine may stop early
    read = [maps["read"][np.arange(count) + first, slots[:count]].sum() / length for first in (start, start - 1)]
    return float(max(read))


def main(out: Path = Path("runs/examples/copy_memory.png"), quick: bool = False) -> Measured:
    """Train, score, draw.

    Args:
        out: The picture.
        quick: Only show that everything runs; nothing is learnt.
    """
    count, tested, steps = (100, 4, 2) if quick else (5000, 200, 1500)
    with tempfile.TemporaryDirectory() as name:
        made = f"made:copy:lengths=1-{LONGEST}"
        run = sightline.train(f"{made}:count={count}", Path(name) / "run", task="sequence", config=configured(steps))
        trained, longer = (
            run.evaluate(f"{data}:count={tested}").values["bit_error"]
            for data in (made, f"made:copy:lengths={2 * LONGEST}")
        )
        drawn, _ = MadeData.read(f"made:copy:lengths={LONGEST}").draw(np.random.default_rng(0), 20)
        shares = [same_slot(run, x) for x in drawn]
        out.parent.mkdir(parents=True, exist_ok=True)
        run.explain(drawn[0], measure=False).save(out, layout="layers")
    measured = Measured(trained, longer, float(np.mean(shares)))
    print(f"wrong bits of a sequence: {measured.trained:.2f} of 1 to {LONGEST} vectors")
    print(f"wrong bits of a sequence: {measured.longer:.2f} of {2 * LONGEST} vectors, twice the longest of training")
    print(f"weight of an answer on the slot of its vector: {measured.same_slot:.0%}")
    print(f"wrote {out}")
    return measured


if __name__ == "__main__":
    tyro.cli(main)
