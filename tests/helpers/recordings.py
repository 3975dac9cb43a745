"""Explanations of recordings, features and clips that are made up: where each word attended to is known."""

import numpy as np

from sightline.data.sound import wav_bytes
from sightline.explain.explanation import Choice, Explanation, OutputStep, Stack
from sightline.recording import Recording
from sightline.records import Frames, Record, Tokens

RATE, HOP, REDUCTION = 8_000, 0.01, 4
WORDS = ("▁one", "▁two", "▁three", "</s>")
PEAKS = (3, 12, 24, 34)  # columns, of 0.04 seconds
COLUMNS = 38
SECONDS = 1.5


def samples():
    """A tone for each word but the last, where its peak is."""
    times = np.arange(round(RATE * SECONDS)) / RATE
    sound = np.zeros(len(times), np.float32)
    for peak, frequency in zip(PEAKS[:3], (400, 900, 1800), strict=True):
        near = np.abs(times - (peak + 0.5) * HOP * REDUCTION) < 0.08
        sound[near] = 0.4 * np.sin(2 * np.pi * frequency * times[near])
    return sound


def spectrogram():
    """Frames × bands: bright where there is a tone."""
    values = np.full((148, 24), 20, np.uint8)
    for peak, band in zip(PEAKS[:3], (4, 9, 17), strict=True):
        middle = round((peak + 0.5) * REDUCTION)
        values[middle - 8 : middle + 8, band] = 240
    return values


def weights(rows=4):
    """Most of each row within three columns."""
    map = np.full((rows, COLUMNS), 0.001, np.float32)
    for row, peak in enumerate(PEAKS[:rows]):
        map[row, peak - 1 : peak + 2] = (0.25, 0.4, 0.25)
    return map / map.sum(axis=1, keepdims=True)


def heard(recording=None, words=WORDS):
    """A transcript of a recording."""
    recording = recording or Recording(spectrogram(), SECONDS, wav_bytes(samples(), RATE), "spoken.wav", HOP)
    record = Record("decoder.attention", 0, 0, Tokens(words, (0, 1, 2, 3), (3,)), Frames(COLUMNS, 0.04), weights())
    steps = tuple(OutputStep(word, 0.8, (Choice(word, 0.8), Choice("▁four", 0.1))) for word in words)
    stacks = (Stack("From the transcript to the recording", "cross", ("decoder.attention",)),)
    return Explanation(
        "speech", "transcribe", "spoken.wav", "one two three", (record,), stacks, steps, recording=recording
    )


def labelled():
    """A label of a recording."""
    record = Record("label", 0, 0, Tokens(("two",)), Frames(COLUMNS, 0.04), weights(2)[1:])
    steps = (OutputStep("two", 0.9, (Choice("two", 0.9), Choice("one", 0.1))),)
    stacks = (Stack("From the label to the recording", "pool", ("label",)),)
    recording = Recording(spectrogram(), SECONDS, wav_bytes(samples(), RATE), "two.wav", HOP)
    return Explanation("words", "classify", "two.wav", "two", (record,), stacks, steps, recording=recording)


def watched():
    """A transcript of a clip: a square goes from left to right, 25 frames a second."""
    frames = np.full((38, 24, 32), 60, np.uint8)
    for number in range(38):
        left = number * 24 // 38
        frames[number, 8:16, left : left + 8] = 230
    return heard(Recording(frames, 38 * 0.04, None, "lips"))
