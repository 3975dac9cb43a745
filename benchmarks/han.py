"""`han`: cost against the number of sentences, beside a plain padded implementation of the same network.

    python benchmarks/han.py --write
    python benchmarks/han.py --part time|memory

Plain means documents × sentences × words in one padded cube, torch.nn.GRU over packed sequences, softmax over masked
scores: with the same parameters it gives the same features. Sentences have 1 to 80 words, 20 in the mean, and the
documents of a batch have between a tenth and all of the longest one's sentences, as reviews do.
"""

import argparse
import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from report import extra_memory, interleaved, machine, median_ratio, write_section
from sightline.attention.pooling import Pooling
from sightline.kernels.allocator import keep_memory
from sightline.models.han import HAN, HANConfig
from sightline.models.text_to_labels import Texts
from sightline.nn.rnn import BidirectionalEncoder
from sightline.vocabulary import END, PADDING

WORDS, BATCH, LONGEST = 30_000, 8, 80
MOST = (8, 32, 128, 400)  # sentences of the longest document
LONG = 50_000  # words of one document

Documents = list[list[Tensor]]


def documents(most: int, batch: int = BATCH) -> Documents:
    generator = torch.Generator().manual_seed(most)
    found = []
    for i in range(batch):
        count = most if i == 0 else max(1, int(most * (0.1 + 0.9 * torch.rand((), generator=generator))))
        lengths = torch.empty(count).exponential_(1 / 20, generator=generator).long().clamp(1, LONGEST)
        found.append([torch.randint(4, WORDS, (n,), generator=generator) for n in lengths.tolist()])
    return found


def flat(given: Documents) -> Texts:
    end = torch.tensor([END])
    rows = [torch.cat([part for sentence in document for part in (sentence, end)]) for document in given]
    return Texts(nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING))


def cube(given: Documents) -> Tensor:
    shape = len(given), max(map(len, given)), max(len(sentence) for document in given for sentence in document)
    found = torch.full(shape, PADDING)
    for i, document in enumerate(given):
        for j, sentence in enumerate(document):
            found[i, j, : len(sentence)] = sentence
    return found


def plain_level(encoder: BidirectionalEncoder, pooling: Pooling, x: Tensor, mask: Tensor) -> Tensor:
    lengths = mask.sum(dim=-1).clamp(min=1)
    output, _ = encoder.layers[0](pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    h, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
    score: Any = pooling.inner.score
    u = torch.tanh(h @ score.key.weight + pooling.query @ score.query.weight + score.query.bias)
    weights = (u @ score.vector).masked_fill(~mask, torch.finfo(h.dtype).min).softmax(dim=-1) * mask
    return (weights.unsqueeze(-2) @ h).squeeze(-2)


def plain(model: HAN, words: Tensor) -> Tensor:
    mask = words != PADDING
    x = model.embedding(words.flatten(0, 1))
    sentences = plain_level(model.word_encoder, model.words, x, mask.flatten(0, 1)).unflatten(0, mask.shape[:2])
    return plain_level(model.sentence_encoder, model.sentences, sentences, mask.any(dim=-1))


def build() -> HAN:
    torch.manual_seed(0)
    return HANConfig(dropout=0.0, word_dropout=0.0).build(WORDS)


def trained(model: HAN, forward: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        model.zero_grad(set_to_none=True)
        forward().square().sum().backward()

    return run


@torch.no_grad()
def predicted(forward: Callable[[], Tensor]) -> Tensor:
    return forward()


def seconds(repeats: int) -> list[str]:
    rows = [
        "| sentences | words | of the cube | train, ours, ms | µs a sentence | plain, ms | ratio "
        "| predict, ours, ms | µs a sentence | plain, ms | ratio |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    keep_memory()  # as training does
    model = build()
    points: list[tuple[int, float, float]] = []
    for most in MOST:
        given = documents(most)
        texts, words = flat(given), cube(given)
        sentences, real = sum(map(len, given)), int((words != PADDING).sum())
        forwards = {"ours": lambda t=texts: model.features(t), "plain": lambda w=words: plain(model, w)}
        found = [predicted(forward) for forward in forwards.values()]
        assert (found[0] - found[1]).abs().max() < 1e-5, "not the same network"
        cells = [f"{sentences:,}", f"{real:,}", f"{real / words.numel():.0%}"]
        ours = []
        for runs in (
            {name: trained(model, forward) for name, forward in forwards.items()},
            {name: lambda f=forward: predicted(f) for name, forward in forwards.items()},
        ):
            times = interleaved(runs, repeats)
            middle = {name: statistics.median(values) for name, values in times.items()}
            ours.append(middle["ours"])
            cells += [f"{1e3 * middle['ours']:.0f}", f"{1e6 * middle['ours'] / sentences:.0f}"]
            cells += [f"{1e3 * middle['plain']:.0f}", f"{median_ratio(times['ours'], times['plain']):.2f}"]
        points.append((sentences, *ours))  # type: ignore[arg-type]
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    (n, *first), (m, *last) = points[1], points[-1]
    powers = [math.log(b / a) / math.log(m / n) for a, b in zip(first, last, strict=True)]
    rows.append(
        f"\nFrom {n:,} to {m:,} sentences our time grows as their number to the {powers[0]:.2f} in training and "
        f"{powers[1]:.2f} in prediction."
    )
    print(rows[-1], flush=True)
    return rows


def long_pass(way: str, words: int) -> Callable[[], Any]:
    """One document of this many words, in a process of its own."""
    model = build().eval()
    given: list[Any] = [[]]
    while sum(map(len, given[0])) < words:
        given[0] += documents(256, batch=1)[0]
    texts, padded = flat(given), cube(given)
    forward = (lambda: model.features(texts)) if way == "ours" else (lambda: plain(model, padded))
    return lambda: predicted(forward)


def memory() -> list[str]:
    rows = ["| one document | ours, extra MB at the peak | plain, extra MB |", "|--:|--:|--:|"]
    for words in (LONG // 10, LONG, 4 * LONG):
        found = [f"{extra_memory(long_pass, way, words):,.0f}" for way in ("ours", "plain")]
        rows.append(f"| {words:,} words | {' | '.join(found)} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("time", "memory"), help="only this one, and nothing written")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    options = parser.parse_args()
    if options.write and options.part:
        parser.error("--write goes with all parts")
    parts: dict[str, Callable[[], list[str]]] = {"time": lambda: seconds(options.repeats), "memory": memory}
    found = {name: part() for name, part in parts.items() if options.part in (None, name)}
    if options.write:
        body = (
            f"## `han`: cost against the number of sentences\n\nMeasured on {machine()}. Batches of {BATCH} documents, "
        )
        body += f'{WORDS:,} words in the vocabulary; "of the cube" is how much of documents × sentences × words is no '
        body += "padding. Ratios below 1: ours is faster.\n\n"
        body += "\n".join(found["time"]) + "\n\nPrediction of one long document, each in a separate process:\n\n"
        body += "\n".join(found["memory"]) + "\n\nReproduce: `python benchmarks/han.py --write`."
        write_section("han", body)


if __name__ == "__main__":
    main()
