"""Memory while training on ten and a hundred times the pairs: the corpus lies on the disk, so it must stay flat.

    python benchmarks/corpus.py --write

Each size trains in a process of its own, from reading the file to the last step, as `sightline train` would. What is
measured is anonymous memory (RssAnon), which the process cannot give back; pages of the mapped corpus are not in it.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from report import write_section

FACTORS = (1, 10, 100)
WORDS = 20_000  # different words in the made-up language: about as many as a corpus of that size has


def write_pairs(path: Path, count: int) -> None:
    """Made-up sentences of made-up words, frequent ones more often, and the same backwards."""
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "or")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(WORDS)]
    shares = [1 / (rank + 10) for rank in range(WORDS)]
    with path.open("w", encoding="utf-8") as file:
        file.write("source\ttarget\n")
        for _ in range(count):
            sentence = draw.choices(words, weights=shares, k=draw.randint(4, 16))
            file.write(f"{' '.join(sentence)}\t{' '.join(reversed(sentence))}\n")


def anonymous_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("this system does not say RssAnon; Linux does")


def measure(data: str, steps: int) -> None:
    """In a process of its own: train, and print what was held after every step."""
    import torch

    import sightline

    torch.set_num_threads(2)
    held: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        sightline.train(
            data,
            Path(folder) / "run",
            steps=steps,
            on_step=lambda event: held.append(anonymous_megabytes()),
        )
    print(json.dumps(held))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000, help="pairs of the smallest corpus")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--factors", type=int, nargs="+", default=list(FACTORS))
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.steps)
        return
    rows = []
    for factor in options.factors:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "pairs.tsv"
            write_pairs(data, options.pairs * factor)
            command = [sys.executable, __file__, "--measure", str(data), "--steps", str(options.steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        held = json.loads(done.stdout.splitlines()[-1])
        later = sorted(held[len(held) // 2 :])  # the first steps still allocate
        rows.append((options.pairs * factor, later[len(later) // 2], max(held)))
        print(f"{rows[-1][0]:>10,} pairs: {rows[-1][1]:7.1f} MB, at most {rows[-1][2]:.1f} MB", flush=True)
    first = rows[0][1]
    table = [
        "| pairs | anonymous memory, median of the later steps | maximum | relative to the first |",
        "| --- | --- | --- | --- |",
    ]
    table += [
        f"| {pairs:,} | {median:,.0f} MB | {most:,.0f} MB | {median / first:.2f} |" for pairs, median, most in rows
    ]
    if options.write:
        body = f"## Memory and the size of the corpus\n\nThe tiny Transformer, {options.steps} steps, made-up pairs. "
        body += (
            f"Reproduce: `python benchmarks/corpus.py --pairs {options.pairs} --steps {options.steps} --write`\n\n"
            + "\n".join(table)
        )
        write_section("corpus", body)


if __name__ == "__main__":
    main()
