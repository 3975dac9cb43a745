"""The command that aligns words: align."""

from pathlib import Path
from typing import Literal

import tyro


def align(
    run: tyro.conf.Positional[Path],
    data: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, str] | None = None,
    reverse: Path | None = None,
    gold: Path | None = None,
    symmetrise: Literal[
        "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
    ] = "grow-diag-final-and",
    threshold: float = 0.0,
    words: Literal["auto", "spaces", "characters"] = "auto",
    use: str | None = None,
    reverse_use: str | None = None,
    out: Path | None = None,
    format: Literal["pharaoh", "jsonl"] = "pharaoh",
    report: Path | None = None,
    threads: int | None = None,
) -> None:
    """Which word of the source belongs to which word of the target: a line of links for each pair, such as 0-0 1-2.

    Links are source-target, words counted from 0. They come from attention; which layer, head and shift is read is
    chosen by --gold, else by the agreement of both directions (--reverse), else by what hiding source words costs, and
    is said on standard error.

    Args:
        run: The run folder.
        data: Pairs, in the same forms as for training.
        source: Instead of --data: the sources, one a line.
        target: Instead of --data: the targets, one a line.
        columns: The names of the two columns, where they are not source and target.
        reverse: A run trained the other way round, from target to source: the links of both are put together.
        gold: Links that people made: a line for each of the first pairs (0-0 sure, 0p1 possible, empty: not known), or
            .jsonl with source, target and links. The first 20 pairs choose, the others give the error rate.
        symmetrise: How the links of both directions become one set.
        threshold: Links with no more weight than this are left out, in each direction.
        words: What a word is: what stands between spaces, or also each character of a script without spaces. auto: the
            latter for texts of such scripts that are not cut with spaces.
        use: Read this instead of choosing: layer, head or mean, and shift, such as decoder.2.cross:mean:-1.
        reverse_use: The same for the run of --reverse.
        out: A file to write to instead of standard output; it is there when it is whole.
        format: pharaoh, or jsonl with words, links, their weights and the choice.
        report: A .json file for the choice, the scores, the agreement and the speed.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.aligning import Wanted, align_command
    from sightline.data.source import Source

    wanted = Wanted(symmetrise, threshold, words, use, reverse_use, format == "jsonl", out, report)
    pairs = Source.of(data, columns, source=source, target=target)
    align_command(run, reverse, pairs, gold, wanted, threads)
