"""Tiny classifiers for the tests of evidence and of the server: random weights, or trained in a second."""

import random

import torch

from sightline.data.texts import TextReader
from sightline.data.tokenise import TokeniserConfig, train_tokeniser
from sightline.models.attentive import AttentiveConfig
from sightline.models.encoder import EncoderConfig
from sightline.models.han import HANConfig
from sightline.models.heads import build_labeller
from sightline.tasks.classifier import OBJECTIVES, Classifier, to_texts
from sightline.tasks.labels import Labels

TEXT = "The film begins slowly. Then comes the finest scene of the year! Wonderful, unforgettable."
CHINESE = "房间有点小，但是非常干净！早餐不错。下次还会再来。"
NAMES = ("bad", "fair", "good")
PLAIN = {"dropout": 0.0, "word_dropout": 0.0}
ATTENTIVE = AttentiveConfig(embedding_size=8, size=8, deviation=1.0, **PLAIN)
HAN = HANConfig(embedding_size=8, size=8, **PLAIN)
ENCODER = EncoderConfig(size=8, heads=2, feed_forward=16, layers=2, dropout=0.0)
WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op"]
DECIDE = {"zap": "good", "zop": "bad"}


def words_of(texts, method="words", words=300):
    return train_tokeniser(texts, TokeniserConfig(method, words=words, lower=method == "words", minimum=1))


def made(config=ATTENTIVE, *, kind="one", pairs=False, tokeniser=None, names=NAMES, longest=None, name="tiny"):
    """A classifier with random weights, sharp enough to look somewhere."""
    torch.manual_seed(0)
    tokeniser = tokeniser or words_of([TEXT, CHINESE])
    names = () if kind == "number" else names
    labels = Labels(kind, names, (1,) * len(names), pairs)
    model = build_labeller(OBJECTIVES[kind], config.build(tokeniser.words), labels.classes, mean=10.0, spread=4.0)
    for parameter in model.parameters():
        parameter.data *= 2
    reader = TextReader(tokeniser, pairs=pairs, sentences=config.kind == "han")
    return Classifier(model.eval(), reader, labels, name, temperature=1.5, longest=longest)


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
        rows = found.reader.read([sentence(draw, word) for word in words]).rows
        gold = torch.tensor([found.labels.index(DECIDE[word]) for word in words])
        optimiser.zero_grad()
        (found.model.loss(to_texts(*found.reader.pad(rows)), gold).total / 32).backward()
        optimiser.step()
    return found
