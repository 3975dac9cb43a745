"""Sightline, through the code that `sightline train` and `sightline predict` run."""

import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from jobs import BATCH_TOKENS, LONGEST
from shared import (
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

from sightline.cli.common import set_up
from sightline.data.store import Corpus
from sightline.inputs.base import SomeInput
from sightline.inputs.text import SourceText
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.text_to_text import TextToTextConfig
from sightline.models.transformer import TransformerConfig
from sightline.outputs.base import SomeOutput
from sightline.outputs.searched import Prediction
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.prepare import Prepared
from sightline.tasks.run import Run
from sightline.tasks.train import TaskLesson, build
from sightline.tasks.translate import TRANSLATE
from sightline.training.folder import RunFolder
from sightline.training.loop import Event, TrainingConfig
from sightline.training.loop import train as run_training


def model_config(kind: str, norm: Any = "pre") -> TextToTextConfig:
    if kind == "rnnsearch":
        # Two tables of words, as JoeyNMT has with tied embeddings: 6 million parameters each.
        return RNNSearchConfig(embedding_size=RECURRENT_SIZE, size=RECURRENT_SIZE, dropout=DROPOUT, tied="output")
    size, heads, feed_forward, layers = SIZES.values()
    return TransformerConfig(size, heads, feed_forward, layers, layers, DROPOUT, norm=norm)


def task_of(job: dict[str, Any]) -> TaskLesson:
    """The lesson with its model as `train_task` makes them, on a corpus that is there already."""
    words = Batches(job["data"]).words
    # Tokens come from the corpus: of a tokeniser, training asks the size only.
    tokeniser: Any = SimpleNamespace(words=words)
    training = TrainingConfig(learning_rate=RATE, clip=CLIP, steps=10_000, validate_every=10_000)
    config = TranslateConfig(
        model=model_config(job["model"]), training=training, batch_tokens=BATCH_TOKENS, smoothing=SMOOTHING
    )
    source = cast("SomeInput", SourceText(config, tokeniser))
    target = cast("SomeOutput", TranslationOutput(config, tokeniser))
    corpus = Corpus.open(Path(job["data"]) / "corpus")
    prepared: Prepared[str, str] = Prepared(source, target, corpus, [], config, TRANSLATE)
    return TaskLesson(Run(TRANSLATE, TRANSLATE.variants[0], build(prepared), source, target, config), prepared)


def train(job: dict[str, Any]) -> Timed:
    set_up(job["threads"])
    lesson = task_of(job)
    model, config = lesson.run.model, lesson.run.config
    clock, tokens = Clock(job["warmup"], job["steps"]), [0]

    def on_step(event: Event) -> None:
        tokens.append(event.progress.tokens)
        clock.done(event.progress.step)

    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run")
        with suppress(Enough):
            run_training(model, lesson, config.training, run, device="cpu", on_step=on_step)
    return Timed(clock.seconds, tokens[-1] - tokens[clock.warmup], {"parameters": trainable(model)})


def decode(job: dict[str, Any]) -> Timed:
    """From text to text, as users call it: cutting into tokens and writing them out is in the time, here alone."""
    set_up(job["threads"])
    translator = Run.load(Path(job["data"]) / "run")
    texts, _ = sentences(job)
    length = job["length"]
    options = {"beam": job["beam"], "min_length": length or 0, "max_length": length or LONGEST}

    def search(rows: list[int]) -> list[list[int]]:
        # A budget without end: the batch is the one that all tools get.
        found = translator.predict([texts[i] for i in rows], batch_tokens=2**40, **options)
        return [list(one.tokens) for one in cast("list[Prediction]", found)]

    return time_decoding(job, search)
