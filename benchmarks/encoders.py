"""Our encoder beside `transformers` with the same weights: how equal, how fast it predicts, how fast it is fine-tuned.

    python benchmarks/encoders.py --model DIR --data FILE --write
    python benchmarks/encoders.py --model DIR --data FILE --part parity|prediction|fine-tuning

DIR is the folder of a BERT, RoBERTa, DistilBERT or MiniLM. FILE is text, one a line, or .csv, .tsv or .jsonl with a
column ``text``. Everything is timed in turn, in one process, after one round that does not count.

Prediction, from texts to labels: `transformers` as its default pipeline (one text after the other), `transformers` in a
loop on batches sorted by length, and ours on the same batches; all three begin with the texts. Fine-tuning: the same
batches of tokens, the same dropout, the same AdamW, gradients clipped; once with batches of similar length and once
with batches in random order.
"""

import argparse
import csv
import dataclasses
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from report import interleaved, machine, median_ratio, write_section
from sightline.interop.pretrained import Pretrained, load_pretrained
from sightline.kernels.allocator import keep_memory
from sightline.models.heads import OneLabel
from sightline.models.text_to_labels import Texts
from sightline.training.groups import parameter_groups

BUDGET = 4096  # tokens of a batch at prediction, padding counted
RATE = 5e-5


def texts_of(path: Path, count: int) -> list[str]:
    texts = read_texts(path)
    random.Random(0).shuffle(texts)
    return texts[:count]


def read_texts(path: Path) -> list[str]:
    """One text a line, or the column ``text``."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            texts = [json.loads(line)["text"] for line in file]
        elif path.suffix in (".csv", ".tsv"):
            texts = [row["text"] for row in csv.DictReader(file, delimiter="," if path.suffix == ".csv" else "\t")]
        else:
            texts = list(file)
    return [text.strip() for text in texts if text.strip()]


class Theirs:
    """Their model for two labels, with a head on the same features as ours: ``pooler_output`` where there is one."""

    def __init__(self, folder: Path) -> None:
        self.tokeniser = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        torch.manual_seed(0)
        self.model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, num_labels=2
        )

    def loop(self, texts: Sequence[str], longest: int) -> Tensor:
        """Their own way with batches: sort by length, pad each batch, predict."""
        rows = self.tokeniser(list(texts), truncation=True, max_length=longest)["input_ids"]
        scores = torch.empty(len(rows), 2)
        for places in sorted_batches([len(row) for row in rows], BUDGET):
            given = self.tokeniser.pad({"input_ids": [rows[place] for place in places]}, return_tensors="pt")
            scores[places] = self.model(**given).logits
        return scores


class Ours:
    """Our encoder with their weights, and their output layer."""

    def __init__(self, folder: Path, theirs: Theirs) -> None:
        self.pretrained: Pretrained = load_pretrained(folder, "first")
        self.model = OneLabel(self.pretrained.build(), 2)
        output = theirs.model.classifier
        # RoBERTa's head has its dense layer inside: no comparison of scores, the same work all the same.
        output = getattr(output, "out_proj", output)
        self.model.output.load_state_dict(output.state_dict())

    def rows(self, texts: Sequence[str], longest: int) -> list[list[int]]:
        specials = self.pretrained.tokeniser.specials
        cut = self.pretrained.tokeniser.encode(list(texts))
        return [[specials.start, *row[: longest - 2], specials.end] for row in cut]

    def batch(self, rows: Sequence[list[int]]) -> Texts:
        width = max(map(len, rows))
        padding = self.pretrained.tokeniser.specials.padding
        return Texts(torch.tensor([row + [padding] * (width - len(row)) for row in rows]))

    def loop(self, texts: Sequence[str], longest: int) -> Tensor:
        rows = self.rows(texts, longest)
        scores = torch.empty(len(rows), 2)
        for places in sorted_batches([len(row) for row in rows], BUDGET):
            scores[places] = self.model.scores(self.batch([rows[place] for place in places]))
        return scores


def sorted_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Places of texts of similar length, the longest first, as many as the budget of tokens allows."""
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > budget:
            batches.append([])
        batches[-1].append(place)
    return batches


@torch.no_grad()
def parity(folder: Path, texts: Sequence[str], longest: int) -> list[str]:
    """The largest difference of a hidden state, of some batches with padding and of texts alone."""
    pretrained = load_pretrained(folder)
    ours, theirs = pretrained.build().eval(), transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    theirs.eval()
    padding = pretrained.tokeniser.specials.padding
    specials = pretrained.tokeniser.specials
    rows = [
        [specials.start, *row[: longest - 2], specials.end] for row in pretrained.tokeniser.encode(list(texts[:64]))
    ]
    largest = {}
    for name, size in (("batches of 16 with padding", 16), ("texts alone", 1)):
        found = []
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            width = max(map(len, some))
            words = torch.tensor([row + [padding] * (width - len(row)) for row in some])
            mask = words != padding
            expected = theirs(input_ids=words, attention_mask=mask.long()).last_hidden_state
            found.append((ours.annotate(Texts(words)) - expected)[mask].abs().max().item())
        largest[name] = max(found)
    lines = ["| hidden states, largest difference | |", "|---|--:|"]
    return lines + [f"| {name} | {value:.1e} |" for name, value in largest.items()]


@torch.no_grad()
def prediction(folder: Path, texts: Sequence[str], longest: int, repeats: int) -> list[str]:
    theirs = Theirs(folder)
    ours = Ours(folder, theirs)
    theirs.model.eval()
    ours.model.eval()
    pipeline = transformers.pipeline("text-classification", model=theirs.model, tokenizer=theirs.tokeniser)
    if ours.pretrained.kind == "bert":
        difference = (ours.loop(texts[:32], longest) - theirs.loop(texts[:32], longest)).abs().max().item()
        if difference > 1e-4:
            sys.exit(f"the scores differ by {difference:.1e}: this would compare two different models")
    runs: dict[str, Callable[[], Any]] = {
        "transformers, default pipeline": lambda: pipeline(list(texts), truncation=True, max_length=longest),
        "transformers, sorted batches": lambda: theirs.loop(texts, longest),
        "Sightline, sorted batches": lambda: ours.loop(texts, longest),
    }
    times = interleaved(runs, repeats)
    own = times["Sightline, sorted batches"]
    lengths = [len(row) for row in ours.rows(texts, longest)]
    lines = [
        f"| prediction, {len(texts):,} texts of {statistics.median(lengths):.0f} tokens (median) | texts/s | "
        "speed-up of Sightline |",
        "|---|--:|--:|",
    ]
    for name, seconds in times.items():
        speed = len(texts) / statistics.median(seconds)
        lines.append(f"| {name} | {speed:,.1f} | {median_ratio(seconds, own):.2f}x |")
    return lines


def trainer(
    loss: Callable[[Any, Tensor], Tensor], model: nn.Module, groups: Any, batches: Sequence[tuple[Any, Tensor]]
) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(groups, lr=RATE, fused=True)
    model.train()

    def run() -> None:
        for given, gold in batches:
            optimiser.zero_grad(set_to_none=True)
            loss(given, gold).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()

    return run


def fine_tuning(folder: Path, texts: Sequence[str], longest: int, repeats: int, rows_in_batch: int) -> list[str]:
    lines = [
        f"| fine-tuning, batches of {rows_in_batch} | padding | transformers, texts/s | Sightline, texts/s | faster |",
        "|---|--:|--:|--:|--:|",
    ]
    for order in ("of similar length", "in random order"):
        theirs = Theirs(folder)
        ours = Ours(folder, theirs)
        config, encoder = ours.pretrained.config, theirs.model.config
        rates = (getattr(encoder, "hidden_dropout_prob", None), getattr(encoder, "attention_probs_dropout_prob", None))
        if ours.pretrained.kind != "distilbert" and rates != (config.dropout, config.attention_dropout):
            sys.exit(f"dropout is {rates} there and {config.dropout, config.attention_dropout} here")
        rows = ours.rows(texts, longest)
        if order == "of similar length":
            rows.sort(key=len)
        cut = [rows[start : start + rows_in_batch] for start in range(0, len(rows), rows_in_batch)]
        random.Random(1).shuffle(cut)
        gold = [torch.arange(len(some)) % 2 for some in cut]
        padding = 1 - sum(map(len, rows)) / sum(len(some) * max(map(len, some)) for some in cut)
        own = [(ours.batch(some), labels) for some, labels in zip(cut, gold, strict=True)]
        other = [
            (theirs.tokeniser.pad({"input_ids": some}, return_tensors="pt"), labels)
            for some, labels in zip(cut, gold, strict=True)
        ]

        def our_loss(given: Texts, labels: Tensor, model: OneLabel = ours.model) -> Tensor:
            return model.loss(given, labels).total / len(labels)

        def their_loss(given: Any, labels: Tensor, model: Any = theirs.model) -> Tensor:
            return F.cross_entropy(model(**given).logits, labels)

        runs = {
            "theirs": trainer(their_loss, theirs.model, theirs.model.parameters(), other),
            "ours": trainer(our_loss, ours.model, parameter_groups(ours.model, 0.01), own),
        }
        times = interleaved(runs, repeats)
        speed = {name: len(rows) / statistics.median(seconds) for name, seconds in times.items()}
        ratio = median_ratio(times["theirs"], times["ours"])
        lines.append(f"| {order} | {padding:.0%} | {speed['theirs']:.1f} | {speed['ours']:.1f} | {ratio:.2f}x |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("parity", "prediction", "fine-tuning"), help="only this; nothing is written")
    parser.add_argument("--model", type=Path, required=True, help="the folder of the encoder")
    parser.add_argument("--data", type=Path, required=True, help="texts")
    parser.add_argument("--texts", type=int, default=512, help="how many for prediction; a quarter is fine-tuned on")
    parser.add_argument("--longest", type=int, default=256, help="tokens of a text")
    parser.add_argument("--batch", type=int, default=16, help="texts of a batch in fine-tuning")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    options = parser.parse_args()
    if options.write and options.part:
        parser.error("--write goes with all parts")
    if options.repeats < 3:
        parser.error("a median wants at least 3 repeats")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    keep_memory()  # as `sightline` does; it serves both
    texts = texts_of(options.data, options.texts)
    some = texts[: max(options.batch, len(texts) // 4)]
    parts: dict[str, Callable[[], list[str]]] = {
        "parity": lambda: parity(options.model, texts, options.longest),
        "prediction": lambda: prediction(options.model, texts, options.longest, options.repeats),
        "fine-tuning": lambda: fine_tuning(options.model, some, options.longest, options.repeats, options.batch),
    }
    found = {}
    for name, part in parts.items():
        if options.part in (None, name):
            found[name] = part()
            print("\n".join(found[name]), flush=True)
    if options.write:
        shape = dataclasses.asdict(load_pretrained(options.model).config)
        sizes = f"{shape['layers']} layers of {shape['size']}, {shape['heads']} heads"
        body = (
            f"## Encoders with pre-trained weights\n\nMeasured on {machine()}, transformers "
            f"{transformers.__version__}: {options.model.name} ({sizes}), texts of {options.data.name} cut at "
            f"{options.longest} tokens, medians of {options.repeats} alternating rounds.\n\n"
        )
        body += "\n\n".join("\n".join(found[name]) for name in parts)
        body += "\n\nReproduce: `python benchmarks/encoders.py --model DIR --data FILE --write`."
        write_section("encoders", body)


if __name__ == "__main__":
    main()
