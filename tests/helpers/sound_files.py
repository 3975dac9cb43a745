"""Small sound files, made in memory."""

import io

import numpy as np
import pytest

soundfile = pytest.importorskip("soundfile", reason="the extra sound is not installed")

KINDS = {
    "wav": ("WAV", "PCM_16"),
    "8-bit wav": ("WAV", "PCM_U8"),
    "24-bit wav": ("WAV", "PCM_24"),
    "float wav": ("WAV", "FLOAT"),
    "extensible wav": ("WAVEX", "PCM_16"),
    "large wav": ("RF64", "PCM_16"),
    "gsm wav": ("WAV", "GSM610"),
    "flac": ("FLAC", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "aiff": ("AIFF", "PCM_16"),
}


def tone(rate=16_000, seconds=1.0, frequency=440.0, level=0.5):
    times = np.arange(round(rate * seconds)) / rate
    return (level * np.sin(2 * np.pi * frequency * times)).astype(np.float32)


def encoded(samples, rate=16_000, kind="wav"):
    held = io.BytesIO()
    container, coding = KINDS[kind]
    soundfile.write(held, samples, rate, format=container, subtype=coding)
    return held.getvalue()


def with_total(flac, total):
    """A FLAC file whose header states another number of samples."""
    stated = int.from_bytes(flac[18:26], "big") >> 36 << 36 | total
    return flac[:18] + stated.to_bytes(8, "big") + flac[26:]
