"""Made sentences with their trees: data for parsing, as in Grammar as a Foreign Language (Vinyals et al. 2015).

A tree is written as tokens, ``(S (NP DT NN ) (VP VBD (NP NNP ) ) )``: brackets with labels, and for each word its tag.

The sentences are of a small probabilistic context-free grammar, given their number of words. Each has one tree, but no
window of a few words shows it:

- A phrase with *with* belongs to what its noun goes with: a hat to the last person, a roof to the last building, a
  telescope to the last verb of seeing. What is last can be many words back, in another clause.
- *the dog and the cat* are one phrase, or the cat begins a new sentence if a verb without a subject follows.
- Relative clauses stand inside each other: *the dog that the cat that Anna saw followed slept*. All verbs follow all
  subjects then.
- The opening brackets of a phrase come before its first word, and how many there are depends on all that follows.

The same seed makes the same sentences.
"""

import random
from bisect import bisect
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import NamedTuple

TRIES = 20  # sentences of one length that are drawn before another length is, where all of them were there before

# A symbol is a label and, behind a slash, a variant of it. Symbols without a label are not in the tree. Variants keep
# the grammar unambiguous: what ends in a relative clause is not the first part of a coordination, for example.
# Each rule has a weight. `NP/mod` can be modified; `NP/+see` ends in a clause with a verb of seeing.
RULES: dict[str, dict[str, float]] = {
    "S": {"/who VP": 5, "S/left CC S/right": 2},
    "S/left": {"/who VP/plain": 1},
    "S/right": {"/one VP": 4, "S/next CC S/right": 1},
    "S/next": {"/one VP/plain": 1},
    "VP": {"/closed": 5, "/open": 3, "VBD:say SBAR/say": 2, "VP/closed CC VP": 2},
    "VP/plain": {"/closed": 5, "/open": 3, "VP/closed CC VP/plain": 1},
    "VP/closed": {"/closed": 1},
    "VP/gap": {"VBD:see": 1, "VBD:use": 1},
    "VP/+see": {"VBD:see /object": 2, "VBD:see /object PP/see": 1},
    "VP/+use": {"VBD:use /object": 2, "VBD:use /object PP/use": 1},
    "/closed": {
        "VBD:move": 1,
        "VBD:move RB": 1,
        "VBD:move PP/to": 1,
        "VBD:see /object": 1,
        "VBD:use /object": 1,
        "VBD:see /object PP/see": 2,
        "VBD:use /object PP/use": 2,
        "VBD:see NP/+use PP/see": 2,
        "VBD:use NP/+see PP/use": 2,
    },
    "/open": {"VBD:see NP/rel": 1, "VBD:use NP/rel": 1},
    "SBAR": {"WDT VP/plain": 3, "WDT S/gap": 2},
    "SBAR/say": {"IN:that S": 1},
    "SBAR/+see": {"WDT VP/+see": 1},
    "SBAR/+use": {"WDT VP/+use": 1},
    "S/gap": {"/who VP/gap": 1},
    "/object": {"/whos": 3, "/places": 1, "/things": 2},
    "/who": {"/one": 5, "NP/and": 1},
    "/one": {"NP/who": 4, "NP/rel": 2},
    "/whos": {"NP/who": 4, "NP/whos": 1},
    "NP/and": {"NP/who CC /who": 1},
    "NP/whos": {"NP/who CC /whos": 1},
    "NP/rel": {"NP/mod SBAR": 1},
    "NP/+see": {"NP/mod SBAR/+see": 1},
    "NP/+use": {"NP/mod SBAR/+use": 1},
    "NP/who": {"NNP:name": 2, "/mod": 3},
    "NP/mod": {"/mod": 1},
    "/mod": {"DT NN:who": 4, "DT JJ NN:who": 2, "NP/mod PP/who": 2},
    "/places": {"NP/place": 4, "NP/places": 1},
    "NP/places": {"NP/place CC /places": 1},
    "NP/place": {"DT NN:place": 3, "DT JJ NN:place": 1, "NP/place PP/place": 1},
    "/things": {"NP/thing": 4, "NP/things": 1},
    "NP/things": {"NP/thing CC /things": 1},
    "NP/thing": {"DT NN:thing": 3, "DT JJ NN:thing": 1, "NP/thing PP/thing": 1},
    "NP/hat": {"DT NN:hat": 3, "DT JJ NN:hat": 1},
    "NP/roof": {"DT NN:roof": 3, "DT JJ NN:roof": 1},
    "NP/lid": {"DT NN:lid": 3, "DT JJ NN:lid": 1},
    "NP/lens": {"DT NN:lens": 3, "DT JJ NN:lens": 1},
    "NP/tool": {"DT NN:tool": 3, "DT JJ NN:tool": 1},
    "NP/town": {"NNP:town": 1},
    "PP/who": {"IN:with NP/hat": 2, "IN:near /places": 2, "IN:from NP/town": 1},
    "PP/place": {"IN:with NP/roof": 2, "IN:of NP/town": 1},
    "PP/thing": {"IN:with NP/lid": 2, "IN:from NP/town": 1},
    "PP/see": {"IN:with NP/lens": 1},
    "PP/use": {"IN:with NP/tool": 1},
    "PP/to": {"IN:to /places": 1},
}
# Words by their tag and, behind a colon, their class. Saw is a verb and a tool.
WORDS: dict[str, tuple[str, ...]] = {
    tag: tuple(words.split())
    for tag, words in {
        "CC": "and",
        "DT": "the a this every",
        "IN:from": "from",
        "IN:near": "near behind",
        "IN:of": "of",
        "IN:that": "that",
        "IN:to": "to into",
        "IN:with": "with",
        "JJ": "old new small big red green quiet strange",
        "NN:hat": "hat scarf coat ribbon",
        "NN:lens": "telescope camera mirror lens",
        "NN:lid": "lid label lock handle",
        "NN:place": "house barn school church station",
        "NN:roof": "roof garden tower gate",
        "NN:thing": "box bottle basket drawer chest",
        "NN:tool": "hammer stick saw rope",
        "NN:who": "man woman boy girl doctor teacher dog cat horse bird",
        "NNP:name": "Anna Ben Clara David Emma Felix Grace Henry",
        "NNP:town": "Bergen Cork Dover Kyoto Lima",
        "RB": "quickly slowly again often",
        "VBD:move": "slept ran walked waited came",
        "VBD:say": "said thought knew",
        "VBD:see": "saw watched found noticed",
        "VBD:use": "hit broke opened followed",
        "WDT": "that",
    }.items()
}


class _Ways(NamedTuple):
    """How a symbol becomes so many words: the children of each way with their lengths, and the sums of weights."""

    children: list[tuple[tuple[str, int], ...]]
    sums: list[float]


def tree_pairs(seed: int, count: int, lengths: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """So many sentences of ``lengths[0]`` to ``lengths[1]`` words, each length as often as any other, and their trees.

    Sentences are distinct. Where there are too few short ones, there are more of the longer ones; a sentence comes
    twice only where a range has too few in all.
    """
    shortest, longest = lengths
    possible = [n for n in range(max(1, shortest), longest + 1) if _total("S", n)]
    if not possible:
        raise ValueError(f"lengths is {lengths}; sentences have at least 2 words, and the smaller number is first")
    return _distinct(random.Random(seed), count, possible)


def _distinct(draw: random.Random, count: int, lengths: list[int]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for _ in range(count):
        sentence, tree = "", ""
        # The last try is of the longest, of which there are the most.
        for length in (*(draw.choice(lengths) for _ in range(TRIES)), lengths[-1]):
            for _ in range(TRIES):
                words: list[str] = []
                tokens: list[str] = []
                _grow("S", length, draw, words, tokens)
                sentence, tree = " ".join(words), " ".join(tokens)
                if sentence not in seen:
                    break
            if sentence not in seen:
                break
        seen.add(sentence)
        yield sentence, tree


def _grow(symbol: str, length: int, draw: random.Random, words: list[str], tokens: list[str]) -> None:
    """Add the words of a phrase of this length, and the tokens of its tree."""
    if symbol in WORDS:
        words.append(draw.choice(WORDS[symbol]))
        tokens.append(symbol.partition(":")[0])
        return
    label = symbol.partition("/")[0]
    if label:
        tokens.append(f"({label}")
    ways = _ways(symbol, length)
    way = min(bisect(ways.sums, draw.random() * ways.sums[-1]), len(ways.sums) - 1)
    for child, part in ways.children[way]:
        _grow(child, part, draw, words, tokens)
    if label:
        tokens.append(")")


@cache
def _ways(symbol: str, length: int) -> _Ways:
    """All rules of a symbol with all ways to divide the words among its children."""
    children, weights = [], []
    for rule, weight in RULES[symbol].items():
        symbols = rule.split()
        within = weight / sum(RULES[symbol].values())
        for parts in _divided(len(symbols), length):
            product = within
            for child, part in zip(symbols, parts, strict=True):
                product *= _total(child, part)
            if product:
                children.append(tuple(zip(symbols, parts, strict=True)))
                weights.append(product)
    return _Ways(children, list(accumulate(weights)))


@cache
def _total(symbol: str, length: int) -> float:
    """The probability that a symbol becomes so many words."""
    if symbol in WORDS:
        return float(length == 1)
    sums = _ways(symbol, length).sums
    return sums[-1] if sums else 0.0


def _divided(parts: int, length: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a length as a sum of so many numbers from 1."""
    if parts == 1:
        yield (length,)
        return
    for first in range(1, length - parts + 2):
        yield from ((first, *others) for others in _divided(parts - 1, length - first))
