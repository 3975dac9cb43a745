"""Hear Morse code: a small Listen, Attend and Spell, trained on made recordings in about a minute.

The program that made the recordings knows when each letter was sent, so that we can count how much of the attention of
a letter lies within its time (with a tenth of a second to each side). It prints the error rate of words and letters on
recordings that were not trained on, and draws what the model attended to in the first of them.

    python examples/morse.py --out runs/examples/morse.png
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

import sightline
from sightline.attention import LocationAwareConfig
from sightline.data.sound import wav_bytes
from sightline.models.listen_attend_spell import ListenAttendSpellConfig
from sightline.nn.mel import LogMelConfig
from sightline.nn.series import SeriesFrontConfig
from sightline.synthetic.morse import RATE, Sent, made_morse
from sightline.tasks.configs.transcribe import SoundTranscribeConfig
from sightline.tasks.run import Run
from sightline.training.loop import TrainingConfig

SHOWN = 20  # recordings whose attention is measured
BESIDE = 0.1  # seconds before and behind a letter that count as its own


def written(folder: Path, sent: list[Sent], name: str) -> Path:
    """A table of recordings and texts."""
    rows = ["audio\ttext"]
    for number, one in enumerate(sent):
        file = folder / f"{name}-{number}.wav"
        file.write_bytes(wav_bytes(one.samples, RATE))
        rows.append(f"{file.name}\t{one.text}")
    table = folder / f"{name}.tsv"
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return table


def configured(steps: int) -> SoundTranscribeConfig:
    """A model of this size hears Morse code, which has one tone: eight bands are enough."""
    model = ListenAttendSpellConfig(
        front=SeriesFrontConfig(masking=None),
        size=64,
        reduces=(4,),
        cell="gru",
        embedding_size=32,
        decoder_size=96,
        attention=LocationAwareConfig(hidden_size=48, filters=4, width=11),
        dropout=0.1,
        ctc=0.5,
        sampling=0.0,
    )
    return SoundTranscribeConfig(
        model=model,
        sound=LogMelConfig(size=8, lowest=400.0, highest=1100.0),
        speeds=(1.0,),
        batch_tokens=2500,
        training=TrainingConfig(learning_rate=1e-2, warmup=50, steps=steps, validate_every=200, averaged=3),
    )


def inside(run: Run, path: Path, sent: Sent) -> list[float]:
    """Of each letter, the share of its attention within its time; the text is forced to be the right one."""
    explanation = run.explain(path, sent.text, measure=False)
    record = explanation.of(explanation.stacks[0].names[-1])[0]
    weights, seconds = record.matrix(), record.columns.seconds  # type: ignore[union-attr]
    middles = (np.arange(weights.shape[1]) + 0.5) * seconds
    rows = [row for row, letter in enumerate(sent.text) if letter != " "]
    return [
        float(weights[row][(middles >= start - BESIDE) & (middles <= end + BESIDE)].sum())
        for row, (start, end) in zip(rows, sent.times, strict=True)
    ]


class Measured(NamedTuple):
    """Error rates in per cent, and the mean share of a letter's attention within its time."""

    words: float
    letters: float
    inside: float


def main(out: Path = Path("runs/examples/morse.png"), quick: bool = False) -> Measured:
    """Train, score, draw.

    Args:
        out: The picture.
        quick: Only show that everything runs; nothing is learnt.
    """
    recordings, tested, steps = (40, 4, 2) if quick else (1500, 100, 800)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, valid = written(folder, made_morse(recordings, 1), "train"), written(folder, made_morse(60, 2), "valid")
        test = made_morse(tested, 3)
        data = written(folder, test, "test")
        run = sightline.train(train, folder / "run", task="transcribe", valid=valid, config=configured(steps))
        values = run.evaluate(data).values
        shares = [
            one for number, sent in enumerate(test[:SHOWN]) for one in inside(run, folder / f"test-{number}.wav", sent)
        ]
        out.parent.mkdir(parents=True, exist_ok=True)
        run.explain(folder / "test-0.wav", test[0].text, measure=False).save(out)
    measured = Measured(values["wer"], values["cer"], float(np.mean(shares)))
    print(f"word error rate {measured.words:.1f} %, letter error rate {measured.letters:.1f} %")
    print(f"attention of a letter within its time: {measured.inside:.0%}")
    print(f"wrote {out}")
    return measured


if __name__ == "__main__":
    tyro.cli(main)
