"""Small models that can copy, without training, and a made-up explanation of an output that was partly copied."""

from dataclasses import replace

import torch

import runs
from page_samples import translation
from sightline.explain.explanation import Copied, Stack
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.transformer import TransformerConfig
from sightline.records import Record
from sightline.tasks.configs.translate import TranslateConfig
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser

TEXTS = ["the old dog sleeps", "a dog and the cat", "cats sleep and dogs dream"] * 20
MODELS = {
    "rnnsearch": RNNSearchConfig(copying=True, embedding_size=16, size=16),
    "transformer": TransformerConfig(copying=True, size=16, heads=2, feed_forward=32, encoder_layers=1),
}
SOURCE, OUTPUT = "the dog Zyx sleeps", "Zyx dream"  # the vocabulary lacks Zyx, the source has no dream
COVERED = Stack("Coverage: sum of earlier weights", "cross", ("coverage",), unit="sum of weights")


def copier(kind):
    """A run of `translate` with whole words, whose model has random weights."""
    torch.manual_seed(0)
    config = TranslateConfig(model=MODELS[kind], tokeniser=TokeniserConfig("words", 400))
    tokeniser = train_tokeniser(TEXTS, config.tokeniser)
    model = config.model.build(tokeniser.words, tokeniser.words).eval()
    return runs.translator(model, tokeniser, tokeniser, kind, config=config)


def explained(kind):
    """Its explanation of an output whose first word can only be copied and whose second one only be written."""
    return copier(kind).explain(SOURCE, OUTPUT, measure=False)


def partly_copied():
    """The sample sentence: ‘Fenster’ (row 6) is copied from ‘dow’ and ‘bank’ from ‘sill’; the end is copied too."""
    one = translation()
    copies = [Copied(0.98, 0.01, None) for _ in one.steps]
    copies[6], copies[7], copies[9] = Copied(0.04, 0.97, 9), Copied(0.1, 0.91, 10), Copied(0.3, 0.6, 12)
    steps = tuple(replace(step, copied=copied) for step, copied in zip(one.steps, copies, strict=True))
    attention = one.records[0]
    summed = attention.weights.cumsum(axis=0) - attention.weights
    records = (*one.records, Record("coverage", 0, 0, attention.rows, attention.columns, summed))
    return replace(one, steps=steps, records=records, stacks=(*one.stacks, COVERED))
