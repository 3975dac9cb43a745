"""JoeyNMT through its own trainer and its own search.

Its trainer makes batches of its own, without regard to length: that is what a user gets. Given our batches, the same
trainer shows what its model and loss cost alone. Both are measured.
"""

import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from jobs import BATCH_TOKENS, JOEY_OWN
from joeynmt.batch import Batch  # type: ignore[import-not-found]
from joeynmt.config import parse_global_args, set_validation_args  # type: ignore[import-not-found]
from joeynmt.data import load_data  # type: ignore[import-not-found]
from joeynmt.model import build_model  # type: ignore[import-not-found]
from joeynmt.search import search as run_search  # type: ignore[import-not-found]
from joeynmt.training import TrainManager  # type: ignore[import-not-found]
from joeynmt.vocabulary import Vocabulary  # type: ignore[import-not-found]
from shared import (
    BETAS,
    CLIP,
    DROPOUT,
    RATE,
    RECURRENT_SIZE,
    SIZES,
    SMOOTHING,
    Batches,
    Clock,
    Enough,
    Timed,
    sentences,
    time_decoding,
    trainable,
)

UNKNOWN, PADDING, START, END = range(4)  # its order: the first two are the other way round than ours
SIDES = {"source": "src", "target": "trg"}
CPU = torch.device("cpu")


def settings(model: str, words: int, folder: Path, data: Path | None, norm: str = "pre") -> dict[str, Any]:
    """What its YAML file would hold."""
    side = {"level": "word", "lowercase": False, "max_length": -1, "tokenizer_type": "none"}
    voc = None if data is None else str(data / "vocabulary.txt")
    return {
        "name": "peer",
        "model_dir": str(folder),
        "use_cuda": False,
        "normalization": "tokens",
        "random_seed": 0,
        "data": {
            "train": None if data is None else str(data / "train"),
            "dataset_type": "plain",
            **{short: {**side, "lang": short, "voc_file": voc} for short in SIDES.values()},
        },
        "training": {
            "optimizer": "adamw",
            "adam_betas": BETAS,
            "learning_rate": RATE,
            "learning_rate_min": 0.0,
            "scheduling": "noam",
            "label_smoothing": SMOOTHING,
            "clip_grad_norm": CLIP,
            "normalization": "tokens",
            "batch_type": "token",
            "batch_size": BATCH_TOKENS,
            "epochs": 1000,
            "logging_freq": 100,
            "validation_freq": 1_000_000,
        },
        "testing": {},
        "model": _transformer(norm) if model == "transformer" else _recurrent(),
    }


def _transformer(norm: str) -> dict[str, Any]:
    size, heads, feed_forward, layers = SIZES.values()
    side = {
        "type": "transformer",
        "num_layers": layers,
        "num_heads": heads,
        "hidden_size": size,
        "ff_size": feed_forward,
        "dropout": DROPOUT,
        "layer_norm": norm,
        "activation": "relu",
        "embeddings": {"embedding_dim": size, "scale": True, "dropout": DROPOUT},
    }
    return {"initializer": "xavier_uniform", "tied_embeddings": True, "tied_softmax": True} | {
        "encoder": side,
        "decoder": dict(side),
    }


def _recurrent() -> dict[str, Any]:
    side = {
        "type": "recurrent",
        "rnn_type": "gru",
        "num_layers": 1,
        "hidden_size": RECURRENT_SIZE,
        "dropout": DROPOUT,
        "embeddings": {"embedding_dim": RECURRENT_SIZE, "dropout": DROPOUT},
    }
    attending = {"attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True, "hidden_dropout": DROPOUT}
    return {"tied_embeddings": True, "encoder": {**side, "bidirectional": True}, "decoder": {**side, **attending}}


def renumbered(tokens: np.ndarray) -> torch.Tensor:
    """Padding and unknown change places."""
    found = torch.from_numpy(tokens)
    return torch.where(found < 2, 1 - found, found)


class Given:
    """A dataset of finished batches, with as much of its loader's face as the trainer looks at."""

    def __init__(self, batches: Batches, count: int) -> None:
        self.batches, self.count, self.seed = batches, count, 0
        self.batch_sampler = SimpleNamespace(set_seed=lambda seed: None, get_state=lambda: None)

    def make_iter(self, **options: Any) -> "Given":
        return self

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            source, target = (renumbered(side) for side in self.batches[number])
            yield batch_of(source, target)


def batch_of(source: torch.Tensor, target: torch.Tensor | None) -> Any:
    lengths = (source != PADDING).sum(dim=1)
    indices = torch.arange(len(source))
    return Batch(source, lengths, None, target, None, indices, CPU, PADDING, END, is_train=target is not None)


class TimedManager(TrainManager):
    """Its trainer, with a clock at the beginning of every step, and no checkpoint at the end."""

    clock: Clock
    tokens: list[int]

    def _train_step(self, batch: Any) -> Any:
        self.clock.done(len(self.tokens))  # what came before is whole: update, logging and the next batch too
        self.tokens.append(batch.ntokens)
        return super()._train_step(batch)

    def _save_checkpoint(self, new_best: bool, score: float) -> None:
        return


def _quiet() -> None:
    logging.disable(logging.WARNING)


def train(job: dict[str, Any]) -> Timed:
    _quiet()
    batches, data = Batches(job["data"]), Path(job["data"]) / "joeynmt"
    own = job["tool"] == JOEY_OWN
    with tempfile.TemporaryDirectory() as folder:
        cfg = settings(job["model"], batches.words, Path(folder), data)
        args = parse_global_args(cfg, mode="train")
        needed = job["warmup"] + job["steps"] + 1  # the clock stops when the next step begins
        dataset: Any
        if own:
            vocabulary, _, dataset, _, _ = load_data(args.data, datasets=["train"])
        else:
            vocabulary, dataset = vocabulary_of(batches.words, args), Given(batches, needed)
        model = build_model(args.model, vocabulary, vocabulary)
        model.loss_function = (args.train.loss, args.train.label_smoothing)
        manager = TimedManager(
            rank=0,
            model=model,
            model_dir=Path(folder),
            device=CPU,
            autocast=args.autocast,
            train_args=args.train,
            dev_args=set_validation_args(args.test),
        )
        manager.clock, manager.tokens = Clock(job["warmup"], job["steps"]), []
        with suppress(Enough):
            manager.train_and_validate(dataset, SimpleNamespace(seed=0))
    return Timed(manager.clock.seconds, sum(manager.tokens[job["warmup"] :]), {"parameters": trainable(model)})


def vocabulary_of(words: int, args: Any) -> Any:
    return Vocabulary([str(word) for word in range(4, words)], args.data["special_symbols"])


def decode(job: dict[str, Any]) -> Timed:
    """Random weights of the same size: with a given length, the work is the same whatever the weights say."""
    _quiet()
    _, tokens = sentences(job)
    words = json.loads((Path(job["data"]) / "about.json").read_text(encoding="utf-8"))["words"]
    with tempfile.TemporaryDirectory() as folder:
        cfg = settings("transformer", words, Path(folder), None, norm="post")
        args = parse_global_args(cfg, mode="train")
        vocabulary = vocabulary_of(words, args)
        model = build_model(args.model, vocabulary, vocabulary).eval()
    steps = job["length"] + 1

    def search(rows: list[int]) -> list[list[int]]:
        longest = max(len(tokens[i]) for i in rows) + 1
        padded = [[*tokens[i], END, *[0] * (longest - len(tokens[i]) - 1)] for i in rows]
        batch = batch_of(renumbered(np.array(padded)), None)
        reverse = batch.sort_by_src_length()
        found, _, _ = run_search(
            model=model,
            batch=batch,
            max_output_length=steps,
            min_output_length=steps,
            beam_size=job["beam"],
            beam_alpha=1.0,
        )
        return [found[place][: job["length"]].tolist() for place in reverse]

    return time_decoding(job, search)
