"""What a change of the design must not lose, and what it is to gain: size, names, walks, losses and memory.

    python benchmarks/contract.py --out before.json size names walk memory
    python benchmarks/contract.py --out before.json --data FOLDER loss
    python benchmarks/contract.py --out after.json --src OTHER/src size names walk

size    files and lines; lines of code are those without blank lines, comments and docstrings
names   where the names of tasks stand as strings, tests of the kind of a run, import cycles, and how many definitions
        do the same job
walk    the modules, functions and calls between modules of one tiny run of a command, after imports
loss    the training loss of 200 steps and the validation scores of five tasks; the same seed gives the same figures
memory  the peak of anonymous memory until the data is prepared, and how often the data file is opened meanwhile (Linux)

Every command runs in a process of its own with one thread. FOLDER holds the data sets translate-multi30k-en-de,
classify-sst2, caption-flickr8k and grid-crackforest, each with train.tsv (or train.tsv.gz) and valid.tsv. FILE.json is
written after every figure, and figures that are there from an earlier call stay unless they are measured again.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract_code import names, size
from contract_data import Options
from contract_runs import STEPS, loss, memory, walk

MEASURES = {"size": size, "names": names, "walk": walk, "loss": loss, "memory": memory}


def shown(figure: Any) -> str:
    """A figure on one line: of long lists their length, of losses some."""
    if not isinstance(figure, dict):
        return str(figure)
    if "losses" in figure:
        losses = figure["losses"]
        some = ", ".join(f"{step}: {losses[step - 1]:.4f}" for step in (1, 50, 100, 150, STEPS) if step <= len(losses))
        return f"{len(losses)} losses ({some}); {figure['metrics'][-1]}"
    short = {
        key: value for key, value in figure.items() if not isinstance(value, dict) and key not in ("names", "members")
    }
    return "  ".join(f"{key} {value}" for key, value in (short or figure).items())


def rows_shown(key: str, figure: Any) -> Iterator[str]:
    if key == "jobs":
        for job, row in figure.items():
            yield f"  {job}: {row['definitions']} definitions, {row['lines']} lines"
    else:
        yield f"  {key}: {shown(figure)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="+", choices=MEASURES, metavar="MEASURE", help=", ".join(MEASURES))
    here = Path(__file__).resolve().parent.parent / "src"
    parser.add_argument("--src", type=Path, default=here, metavar="FOLDER", help="what holds the package")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="what holds the data sets; for loss")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="where the figures go")
    parser.add_argument("--tasks", nargs="+", default=[], help="of walk, loss and memory, these tasks only")
    given = parser.parse_args()
    if not (given.src / "sightline" / "__init__.py").exists():
        parser.error(f"--src {given.src} holds no package sightline")
    options = Options(given.src.resolve(), given.data, given.tasks)
    results = defaultdict(dict, json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {})
    for measure in given.measures:
        print(measure, flush=True)
        for key, figure in MEASURES[measure](options):
            results[measure][key] = figure
            given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print("\n".join(rows_shown(key, figure)), flush=True)


if __name__ == "__main__":
    main()
