"""Sightline and what a user would pick instead, on the same work: training, decoding, memory, and how they grow.

    python benchmarks/peers/run.py --data FOLDER --write

One command: it sets up an environment for all tools (once; a folder beside this file unless --env names another), makes
the tokens and batches that every tool gets, trains one small model and gives its weights to the tools that can take
them, measures every tool in a process of its own, in turn, and prints a table. FOLDER holds train.tsv.gz and valid.tsv
with the columns source and target; without --data the pairs are made up. Measurements are kept: a second run goes on
where the first one stopped. Leave the machine alone meanwhile.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import environment
from jobs import OURS, SECTIONS, Job, plan


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="train.tsv.gz and valid.tsv; without it made-up pairs"
    )
    parser.add_argument("--env", type=Path, default=environment.DEFAULT, help="where the environment of the tools is")
    parser.add_argument("--work", type=Path, default=environment.HERE / "work", help="batches, models, measurements")
    parser.add_argument("--run", type=Path, help="a trained run (model.norm=post) to decode with, instead of a new one")
    parser.add_argument("--epochs", type=int, default=4, help="of the model to decode with, when a new one is trained")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--tools", nargs="+", metavar="NAME", help="only tools whose name begins so; ours always")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a training; a quarter of them for growth")
    parser.add_argument("--sentences", type=int, default=512, help="sentences to decode; an eighth one at a time")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1800, help="seconds that one measurement may take")
    parser.add_argument("--again", action="store_true", help="measure anew what was measured before")
    parser.add_argument("--write", action="store_true", help="put the tables and pictures beside RESULTS.md")
    found = parser.parse_args()
    for name in ("steps", "sentences", "repeats", "threads", "epochs"):
        if getattr(found, name) < 1:
            parser.error(f"--{name} is {getattr(found, name)}; it must be at least 1")
    if found.write and found.repeats < 3:
        parser.error("--write wants medians of at least three repeats")
    return found


def make_material(chosen: argparse.Namespace, jobs: list[Job]) -> None:
    """In a process of its own: what it imports shall not be in the way of what is measured."""
    needed: dict[str, int] = {}
    for job in jobs:
        if job.kind == "train":
            name = Path(job.data).name
            needed[name] = max(needed.get(name, 0), job.warmup + job.steps + 1)
    wanted = {
        "work": str(chosen.work),
        "data": None if chosen.data is None else str(chosen.data),
        "run": None if chosen.run is None else str(chosen.run),
        "datasets": needed,
        "decoding": any(job.kind == "decode" for job in jobs),
        "epochs": chosen.epochs,
        "threads": chosen.threads,
    }
    command = [sys.executable, str(environment.HERE / "material.py"), json.dumps(wanted)]
    done = subprocess.run(command, env=environment.variables(chosen.threads), check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def report_text(
    title: str, sheets: dict[str, Any], notes: list[str], picture: Path | None, about: str, again: str
) -> str:
    """A section of RESULTS.md."""
    body = f"## {title}\n\n{about}\n\n"
    for heading, sheet in sheets.items():
        body += f"### {heading}\n\n{sheet.markdown()}\n\n"
    body += "".join(f"- {note}\n" for note in notes) + ("\n" if notes else "")
    body += "" if picture is None else f"![{picture.stem}]({picture.name})\n\n"
    return body + f"Reproduce: `{again}`"


ABOUT = (
    "Every tool does the same work: joint BPE of 8,000, batches of 4,096 padded tokens bucketed by length, 4 + 4 "
    "layers of 128 with 4 heads and 256 inside (rnnsearch: 256, one layer), dropout 0.3, label smoothing 0.1, AdamW "
    "with clipping, float32, the same memory settings. Each measurement is a separate process, and tools alternate; "
    "*ours ÷ it* is the median over rounds of the ratio of both speeds in the same round: above 1, we are faster. "
    "Training counts target tokens without padding, decoding sentences. Peak is the maximum resident memory of the "
    "process, libraries included; anonymous is the part of it that is no mapped file. HF Marian has dropout where "
    "our model has it, and in a second row in attention weights and activations too; torch.nn.Transformer and JoeyNMT "
    "support only the latter. JoeyNMT makes batches without regard to length; in one row its trainer uses ours. "
    "Decoding: one model trained with Sightline, normalised after its layers as Marian requires, the same weights in "
    "Marian and CTranslate2 (checked); JoeyNMT has random weights of the same size. With a given length every "
    "tool takes 16 steps (15 tokens and the end). Ours is timed from text to text, the others from tokens to tokens."
)


def main() -> None:
    chosen = options()
    python = environment.set_up(chosen.env)
    if not environment.is_active(chosen.env):
        sys.stdout.flush()
        os.execv(python, [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])
    sys.path.insert(0, str(environment.HERE.parent))
    from measure import Results, code_mark, measure
    from rich.console import Console

    from sightline.errors import UserError

    console = Console()
    chosen.work = chosen.work.resolve()
    jobs = plan(tuple(chosen.only), chosen.steps, chosen.sentences, chosen.work)
    if chosen.tools:
        jobs = [job for job in jobs if job.tool == OURS or job.tool.startswith(tuple(chosen.tools))]
    settings = {"data": str(chosen.data), "threads": chosen.threads, "code": code_mark()}
    try:
        results = Results(chosen.work / "results.json", settings, chosen.again)
        make_material(chosen, jobs)
        failed = measure(jobs, chosen.repeats, results, chosen.threads, chosen.limit, console)
    except UserError as error:
        raise SystemExit(f"peers: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(f"stopped; what was measured is in {chosen.work}: the same command goes on") from None
    show(chosen, jobs, results, failed, console)


def show(chosen: argparse.Namespace, jobs: list[Job], results: Any, failed: list[str], console: Any) -> None:
    """Tables on the screen, pictures in files, and with --write both in RESULTS.md: growth in a section of its own."""
    import tables

    titles = {"training": "Training, tiny Transformer", "rnnsearch": "Training, rnnsearch", "decoding": "Decoding"}
    folder = environment.HERE.parent if chosen.write else chosen.work
    failures = [f"failed: {line}" for line in failed]
    parts: list[tuple[str, str, dict[str, Any], list[str], Path | None]] = []
    sheets = {
        title: tables.speeds(group, "sentences/s" if group == "decoding" else "tokens/s", jobs, results.of)
        for group, title in titles.items()
        if group in chosen.only
    }
    if sheets:
        notes = [*tables.limits(jobs, results.of), *tables.same_outputs(jobs, results.of), *failures]
        parts.append(("peers", "Peers", sheets, notes, tables.draw_speeds(jobs, results.of, folder / "peers.png")))
    if "growth" in chosen.only:
        grown = {"Lengths, vocabularies, beams": tables.growth(jobs, results.of)}
        picture = tables.draw_growth(jobs, results.of, folder / "peers-growth.png")
        parts.append(("peers-growth", "Peers: growth", grown, [] if sheets else failures, picture))
    for _, _, shown, notes, picture in parts:
        for sheet in shown.values():
            console.print(sheet.rich())
        for note in notes:
            console.print(note, highlight=False)
        console.print(f"measurements: {results.path}; picture: {picture}", highlight=False)
    if chosen.write:
        import torch

        from report import machine, write_section

        torch.set_num_threads(chosen.threads)  # for what `machine` says
        pairs = "the corpus in FOLDER" if chosen.data else "made-up pairs"
        about = f"Measured on {machine()}; {pairs}, medians of {chosen.repeats} rounds. {ABOUT}"
        where = "--data FOLDER " if chosen.data else ""
        for name, title, shown, notes, picture in parts:
            only = "growth" if name == "peers-growth" else " ".join(part for part in titles if part in chosen.only)
            again = f"python benchmarks/peers/run.py {where}--only {only} --write"
            write_section(name, report_text(title, shown, notes, picture, about, again))


if __name__ == "__main__":
    main()
