"""Tiny runs to export, which have learnt a few pairs by heart: what they write differs from text to text, and ends."""

import functools
import json
from dataclasses import replace

import torch

import runs
from sightline.cli.train import preset
from sightline.decoding.options import pad
from sightline.models.transformer import TransformerConfig
from sightline.tasks.translate import TRANSLATE
from sightline.text.tokeniser import TokeniserConfig, train_tokenisers
from sightline.vocabulary import END, START

TEXTS = ["a", "ab cd", "the cat", "a dog runs", "at last!", "é ü", "cd ab the"]
TRANSFORMER = TransformerConfig(16, 2, 24, 2, 1, dropout=0.0)


@functools.cache
def translator_of(config=TRANSFORMER, joint=True, method="characters", steps=20):
    """A translator that turns these texts round; with ``joint`` off the two vocabularies are of different sizes."""
    targets = [text[::-1] if joint else text[::-1].replace("a", "").upper() or "X" for text in TEXTS]
    shape = TokeniserConfig(method, vocab_size=400 if method == "bpe" else 60, joint=joint, min_frequency=1)
    source, target = train_tokenisers(lambda: TEXTS, lambda: targets, shape)
    torch.manual_seed(3)
    model = config.build(source.words, target.words)
    given = pad([[*row, END] for row in source.encode(TEXTS)])
    wanted = pad([[START, *row, END] for row in target.encode(targets)])
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        model.loss(given, wanted).total.backward()
        optimiser.step()
    return runs.translator(model.eval().requires_grad_(False), source, target)


def run_of(path, config=TRANSFORMER, valid=True, **options):
    """The same as a run folder, with validation data or moved without."""
    whole = replace(preset(TRANSLATE.variants[0], "transformer"), model=config)
    runs.saved(translator_of(config, **options), path, whole, sealed=True)
    if valid:
        (path / "data").mkdir()
        rows = [json.dumps([text, text[::-1]]) for text in TEXTS]
        (path / "data" / "valid.jsonl").write_text("\n".join(rows) + "\n")
    return path


def readme_code(folder):
    """The Python in the README of an exported folder, as those who read it would run it."""
    return (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
