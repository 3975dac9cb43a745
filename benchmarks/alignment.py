"""How well attention aligns words: ``python benchmarks/alignment.py reversal``, or ``multi30k RUN REVERSE --data F``.

Reversal: made sentences whose target is the source backwards, so that every link is known. Both directions are trained
here, rnnsearch and the Transformer; then layer, head and shift are chosen, by 20 gold pairs, by the agreement of both
directions and by hiding, and the error rate is that of 500 other pairs. Multi30k: two runs, given, on all pairs.

The bar stands first in this file. It was written before anything was trained.
"""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import tyro

import sightline
from report import machine, write_section
from sightline.align.aligning import Aligner, Alignment, Pair
from sightline.align.choosing import align, choose
from sightline.align.links import AlignmentScore, GoldLinks, Symmetrising, score
from sightline.cli.train import preset
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.machine import set_threads
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.transformer import TransformerConfig
from sightline.tasks.run import Run
from sightline.tasks.translate import TRANSLATE
from sightline.text.tokeniser import TokeniserConfig

ERROR_AT_MOST = 0.02  # of reversal, with 20 gold pairs and with the agreement of both directions

SYLLABLES = [a + b for a, b in product("bdfgklmnprst", "aeiou")]
WORDS, PAIRS, SHORTEST, LONGEST = 200, 20_000, 3, 8
CHOOSING, SCORED = 20, 500
MODELS = {
    "rnnsearch": RNNSearchConfig(128, 128, dropout=0.1),
    "transformer": TransformerConfig(128, 4, 256, 2, 2, dropout=0.1),
}
STEPS = {"rnnsearch": 400, "transformer": 600}  # of 2,048 tokens: a minute or two each on two cores
WAYS: tuple[Symmetrising, ...] = ("intersection", "grow-diag-final-and")


def made_pairs(count: int, seed: int) -> list[Pair]:
    """Sentences without a word twice, and the same backwards."""
    words = ["".join(pair) for pair in product(SYLLABLES, repeat=2)]
    random.Random(0).shuffle(words)
    drawn, pairs = random.Random(seed), []
    for _ in range(count):
        sentence = drawn.sample(words[:WORDS], drawn.randint(SHORTEST, LONGEST))
        pairs.append((" ".join(sentence), " ".join(reversed(sentence))))
    return pairs


def gold_of(pair: Pair) -> GoldLinks:
    count = len(pair[0].split())
    links = frozenset((count - 1 - target, target) for target in range(count))
    return GoldLinks(links, links)


def trained(kind: str, folder: Path, pairs: Sequence[Pair], seed: int) -> Run:
    """A run on these pairs; the folder is used again if it is there."""
    if (folder / "checksums.json").exists():
        return sightline.load(folder)
    data = folder.parent / f"{folder.name}.tsv"
    data.write_text("source\ttarget\n" + "".join(f"{source}\t{target}\n" for source, target in pairs))
    config = preset(TRANSLATE.variants[0], kind)
    training = replace(config.training, steps=STEPS[kind], warmup=STEPS[kind] // 4)
    config = replace(
        config,
        model=MODELS[kind],
        tokeniser=TokeniserConfig(vocab_size=600),
        training=training,
        validated=200,
        seed=seed,
    )
    return sightline.train(data, folder, config=config)


def reversal(folder: Path | None = None, threads: int | None = None, write: bool = False) -> None:
    """Train both directions of both models and align 500 unseen pairs.

    Args:
        folder: Where the runs are kept, and found again; left out, nothing is kept.
        threads: Processor threads.
        write: Put the figures into RESULTS.md.
    """
    set_threads(threads)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) if folder is None else folder
        place.mkdir(parents=True, exist_ok=True)
        lines = [
            "| model | chosen by | read | error rate | precision | recall |",
            "| --- | --- | --- | --: | --: | --: |",
        ]
        worst = 0.0
        for kind in MODELS:
            for by, found, total in _reversed(kind, place):
                rates = f"{total.error_rate:.2%} | {total.precision:.2%} | {total.recall:.2%}"
                lines.append(f"| {kind} | {by} | {found} | {rates} |")
                print(lines[-1], flush=True)
                if by != "hiding":
                    worst = max(worst, total.error_rate)
    verdict = f"The worst error rate with gold or two directions is {worst:.2%}; the threshold is {ERROR_AT_MOST:.0%}."
    print("\n".join(["", *lines, "", verdict]))
    if write:
        steps = " and ".join(f"{count} steps of {kind}" for kind, count in STEPS.items())
        about = f"Reversal, {SCORED} pairs of {SHORTEST} to {LONGEST} words, after {steps}. {machine()}."
        title, again = (
            "## Alignment with known truth",
            "Reproduce: `python benchmarks/alignment.py reversal --write`",
        )
        write_section("alignment-reversal", "\n".join([title, "", about, "", *lines, "", verdict, "", again]))
    if worst > ERROR_AT_MOST:
        raise SystemExit(verdict)


def _reversed(kind: str, place: Path) -> list[tuple[str, str, AlignmentScore]]:
    pairs = made_pairs(PAIRS, seed=1)
    turned = [(target, source) for source, target in pairs]
    forward = trained(kind, place / f"{kind}-forward", pairs, 0)
    backward = trained(kind, place / f"{kind}-backward", turned, 1)
    unseen = made_pairs(CHOOSING + SCORED, seed=2)
    gold = [gold_of(pair) for pair in unseen]
    ways: dict[str, dict[str, Any]] = {
        f"gold of {CHOOSING} pairs": {"gold": gold[:CHOOSING]},
        "agreement": {"reverse": backward},
        "hiding": {},
    }
    rows = []
    for by, options in ways.items():
        found = align(forward, *map(list, zip(*unseen, strict=True)), **options)
        rows.append((by, str(found.chosen).split(": ")[0], _total(found.alignments[CHOOSING:], gold[CHOOSING:])))
    return rows


def _total(found: Sequence[Alignment | None], gold: Sequence[GoldLinks]) -> AlignmentScore:
    parts = (score(frozenset(one.links), truth) for one, truth in zip(found, gold, strict=True) if one is not None)
    return sum(parts, AlignmentScore())


def multi30k(
    run: tyro.conf.Positional[Path],
    reverse: tyro.conf.Positional[Path],
    data: str,
    pairs: int | None = None,
    show: int = 20,
    threads: int | None = None,
    write: bool = False,
) -> None:
    """Align real pairs with two runs that were trained in opposite directions.

    Args:
        run: The run from source to target.
        reverse: The run from target to source.
        data: The pairs.
        pairs: Only so many of them.
        show: How many alignments to print, evenly chosen.
        threads: Processor threads.
        write: Put the figures into RESULTS.md.
    """
    set_threads(threads)
    translators = sightline.load(run), sightline.load(reverse)
    rows = [row.values for row in pair_cells(Source(data)) if row.problem is None][:pairs]
    started = time.perf_counter()
    chosen = choose(translators[0], rows[:1000], reverse=translators[1])
    choosing = time.perf_counter() - started
    aligner = Aligner(translators[0], chosen.selector, translators[1], chosen.reverse)
    started = time.perf_counter()
    found = [one for start in range(0, len(rows), 2048) for one in aligner.align(rows[start : start + 2048])]
    seconds = time.perf_counter() - started
    there = [one for one in found if one is not None]
    agreement = sum((one.agreement for one in there), AlignmentScore())
    lines = [
        f"Read {chosen}; selection took {choosing:.0f} s.",
        "",
        "| | links | links per pair | source words linked |",
    ]
    lines.append("| --- | --: | --: | --: |")
    ways: dict[str, Callable[[Alignment], Any]] = {
        "forward": lambda one: one.forward,
        "backward": lambda one: one.backward,
    }
    ways |= {how: lambda one, how=how: one.symmetrised(how) for how in WAYS}  # type: ignore[misc]
    for name, links_of in ways.items():
        links = [links_of(one) for one in there]
        count, words = sum(map(len, links)), sum(len(one.source) for one in there)
        linked = sum(len({source for source, _ in some}) for some in links)
        lines.append(f"| {name} | {count:,} | {count / len(there):.2f} | {linked / words:.1%} |")
    speed = f"{len(rows):,} pairs in both directions in {seconds:.0f} s: {len(rows) / seconds:,.0f} pairs per second."
    lines += ["", f"Both directions agree with F1 {agreement.f1:.3f}. {speed}"]
    print("\n".join(lines))
    for number in range(0, len(there), max(1, len(there) // max(show, 1))):
        print(_readable(number, there[number]))
    if write:
        title = f"## Alignment of real pairs\n\nMeasured on {machine()}; {run.name} and {reverse.name}."
        again = "Reproduce: `python benchmarks/alignment.py multi30k RUN REVERSE --data FILE --write`"
        write_section("alignment-pairs", "\n".join([title, "", *lines, "", again]))


def _readable(number: int, one: Alignment) -> str:
    agreed = set(one.symmetrised("intersection"))
    texts = [f"{one.source[s]}{'=' if (s, t) in agreed else '~'}{one.target[t]}" for s, t in one.links]
    return f"\n{number:,}  {' '.join(one.source)}\n  {' '.join(one.target)}\n  {'  '.join(texts)}"


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"reversal": reversal, "multi30k": multi30k})
