"""Tiny classifiers for the tests of evidence and of the server: random weights, or trained in a second."""

import random

import torch

from sightline.inputs.text import TextInput
from sightline.models.attentive import AttentiveConfig
from sightline.models.encoder import EncoderConfig
from sightline.models.han import HANConfig
from sightline.outputs.label_scores import Labels
from sightline.outputs.labels import LabelsOutput
from sightline.tasks.classify import CLASSIFY
from sightline.tasks.configs.classify import ClassifyConfig
from sightline.tasks.run import Run
from sightline.text.encoding import TextEncoder
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser

TEXT = "The film begins slowly. Then comes the finest scene of the year! Wonderful, unforgettable."
CHINESE = "房间有点小，但是非常干净！早餐不错。下次还会再来。"
NAMES = ("bad", "fair", "good")
PLAIN = {"dropout": 0.0, "word_dropout": 0.0}
ATTENTIVE = AttentiveConfig(embedding_size=8, size=8, init_std=1.0, **PLAIN)
HAN = HANConfig(embedding_size=8, size=8, **PLAIN)
ENCODER = EncoderConfig(size=8, heads=2, feed_forward=16, layers=2, dropout=0.0)
WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op"]
DECIDE = {"zap": "good", "zop": "bad"}


def words_of(texts, method="words", words=300):
    return train_tokeniser(texts, TokeniserConfig(method, vocab_size=words, lower=method == "words", min_frequency=1))


def made(config=ATTENTIVE, *, kind="one", pairs=False, tokeniser=None, names=NAMES, max_length=512, name="tiny"):
    """A classifier with random weights, sharp enough to look somewhere."""
    torch.manual_seed(0)
    tokeniser = tokeniser or words_of([TEXT, CHINESE])
    names = () if kind == "number" else names
    labels = Labels(kind, names, (1,) * len(names), pairs, mean=10.0, spread=4.0)
    whole = ClassifyConfig(model=config, labels=kind, max_length=max_length)
    reading = TextInput(whole, TextEncoder(tokeniser, pairs=pairs, sentences=config.kind == "han"))
    output = LabelsOutput(whole, labels, reading, temperature=1.5)
    model = whole.build(reading, output)
    for parameter in model.parameters():
        parameter.data *= 2
    return Run(CLASSIFY, CLASSIFY.variant_of("classify"), model.eval(), reading, output, whole, name)


def sentence(draw, word):
    """Some words, and somewhere among them the one that decides."""
    words = draw.choices(WORDS, k=9)
    words[draw.randrange(9)] = word
    return f"{' '.join(words[:5])}. {' '.join(words[5:])}."


def trained(config, steps=60):
    """A classifier that has learnt that one word decides."""
    draw = random.Random(1)
    tokeniser = words_of([*WORDS, *DECIDE, "."])
    found = made(config, tokeniser=tokeniser, names=("bad", "good"))
    for parameter in found.model.parameters():
        parameter.data /= 2
    optimiser = torch.optim.Adam(found.model.parameters(), 0.03)
    for _ in range(steps):
        words = [draw.choice(list(DECIDE)) for _ in range(32)]
        parts = [part for (part,) in found.encode([sentence(draw, word) for word in words])]
        gold = torch.tensor([found.output.labels.index(DECIDE[word]) for word in words])
        optimiser.zero_grad()
        (found.model.loss(found.input.collate(parts), gold).total / 32).backward()
        optimiser.step()
    return found
