"""Sound files made to do harm, and good ones damaged at random: each gives samples or one sentence.

    python benchmarks/hostile_sound.py --mutated 10000 --write

Contents are decoded in the process that the server uses, which can be killed; paths are read in this one. Allowed:
finite samples between -1 and 1, or a `BadSound` of one line. A decoder that crashed or was killed is counted by itself.
Counted as a fault: anything else, more than 5 seconds of the processor for a damaged file (an hour of sound may take
60), or more than 1 GB beyond what the program needs by itself.
"""

import argparse
import importlib
import io
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fuzz import damaged
from report import machine, write_section
from sightline.data.decoding import Decoding
from sightline.data.images import ImageLimits
from sightline.data.sound import BadSound, SoundLimits, read_sound, sound_blocks, wav_bytes
from sightline.errors import SightlineError

RATE = 16_000
SECONDS, HOUR_SECONDS, MEGABYTES, HANGING = 5.0, 60.0, 1000, 120.0
LONGEST_SENTENCE = 300  # characters
LIMITS = SoundLimits(most_bytes=256 << 20, most_seconds=3700.0)
BROKEN = "or it broke the decoder"
KINDS = {
    "WAV": (
        "PCM_16",
        "PCM_U8",
        "PCM_24",
        "PCM_32",
        "FLOAT",
        "DOUBLE",
        "ULAW",
        "ALAW",
        "IMA_ADPCM",
        "MS_ADPCM",
        "GSM610",
    ),
    "WAVEX": ("PCM_16",),
    "RF64": ("PCM_16",),
    "AIFF": ("PCM_16", "FLOAT"),
    "FLAC": ("PCM_16", "PCM_24"),
    "OGG": ("VORBIS", "OPUS"),
    "MP3": ("MPEG_LAYER_III",),
}


class Hostile(NamedTuple):
    """The content of a file, or what makes a file or something else at a path. ``quick``: it takes no second."""

    name: str
    content: bytes | Callable[[Path], Any]
    quick: bool = True


def encoded(samples: np.ndarray, kind: str = "WAV", coding: str = "PCM_16", rate: int = RATE, times: int = 1) -> bytes:
    held = io.BytesIO()
    soundfile: Any = importlib.import_module("soundfile")
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    with soundfile.SoundFile(held, "w", rate, channels, format=kind, subtype=coding) as file:
        for _ in range(times):
            for start in range(0, len(samples), 4096):  # libsndfile crashes when it encodes long blocks as Vorbis
                file.write(samples[start : start + 4096])
    return held.getvalue()


def tone(seconds: float = 0.3, rate: int = RATE) -> np.ndarray:
    times = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * 440 * times) + 0.1 * np.sin(2 * np.pi * 3000 * times)).astype(np.float32)


def bomb(seconds: int, rate: int = RATE) -> bytes:
    """A small FLAC file of silence."""
    return encoded(np.zeros(rate, np.int16), "FLAC", "PCM_16", rate, times=seconds)


def with_total(flac: bytes, total: int) -> bytes:
    """A FLAC file whose header states another number of samples; 0: it does not know."""
    stated = int.from_bytes(flac[18:26], "big") >> 36 << 36 | total
    return flac[:18] + stated.to_bytes(8, "big") + flac[26:]


def put(content: bytes, place: int, value: int, size: int) -> bytes:
    return content[:place] + value.to_bytes(size, "little") + content[place + size :]


def bad_values(value: float) -> bytes:
    samples = tone()
    samples[1000] = value
    return encoded(samples, "WAV", "FLOAT")


def linked(to: str) -> Callable[[Path], Any]:
    return lambda path: path.symlink_to(to)


def hostile(quick: bool) -> list[Hostile]:
    wav, flac, ogg = encoded(tone()), encoded(tone(), "FLAC"), encoded(tone(), "OGG", "VORBIS")
    mp3 = encoded(tone(1.0), "MP3", "MPEG_LAYER_III")
    noise = np.random.default_rng(0).uniform(-1, 1, (4000, 64)).astype(np.float32)
    data = wav.index(b"data")
    cases = [
        Hostile("empty", b""),
        Hostile("one byte", b"R"),
        Hostile("text", b"the cat sat on the mat\n" * 100),
        Hostile("zeros", bytes(100_000)),
        Hostile("random bytes", np.random.default_rng(0).bytes(100_000)),
        Hostile("HTML", b"<!DOCTYPE html><html><body>404 not found</body></html>"),
        Hostile("PNG", b"\x89PNG\r\n\x1a\n" + bytes(200)),
        Hostile("M4A", b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(200)),
        Hostile("WebM", b"\x1a\x45\xdf\xa3" + bytes(200)),
        Hostile("AU", encoded(tone(), "AU")),
        Hostile("MAT5", encoded(tone(), "MAT5")),
        Hostile("zero samples", encoded(tone()[:0])),
        Hostile("one sample", encoded(tone()[:1])),
        Hostile("192 kHz", encoded(tone(0.3, 192_000), "WAV", "PCM_24", 192_000)),
        Hostile("768 kHz", encoded(tone(0.1, 768_000), rate=768_000)),
        Hostile("odd rate", encoded(tone(0.3, 44_101), rate=44_101)),
        Hostile("high odd rate", encoded(tone(0.1, 767_999), rate=767_999)),
        Hostile("rate of 1 Hz", put(wav, 24, 1, 4)),
        Hostile("rate of 0", put(wav, 24, 0, 4)),
        Hostile("rate of 4 GHz", put(wav, 24, 0xFFFFFFFF, 4)),
        Hostile("8 bits", encoded(tone(), "WAV", "PCM_U8")),
        Hostile("24 bits", encoded(tone(), "WAV", "PCM_24")),
        Hostile("NaN", bad_values(np.nan)),
        Hostile("infinite", bad_values(np.inf)),
        Hostile("floats up to 1e38", bad_values(1e38)),
        Hostile("whole numbers as floats", encoded(32_767 * tone(), "WAV", "FLOAT")),
        Hostile("64 channels", encoded(noise)),
        Hostile("1,000 channels", encoded(np.zeros((100, 1000)))),
        Hostile("channels by the header", put(wav, 22, 65_535, 2)),
        Hostile("no channels", put(wav, 22, 0, 2)),
        Hostile("no bits", put(wav, 34, 0, 2)),
        Hostile("block of nothing", put(wav, 32, 0, 2)),
        Hostile("format 0xFFFF", put(wav, 20, 0xFFFF, 2)),
        Hostile("no length yet", put(put(wav, 4, 0xFFFFFFFF, 4), data + 4, 0xFFFFFFFF, 4)),
        Hostile("length of nothing", put(wav, data + 4, 0, 4)),
        Hostile("longer by the header", put(wav, data + 4, 1 << 30, 4)),
        Hostile("half of a WAV file", wav[: len(wav) // 2]),
        Hostile("header alone", wav[:data]),
        Hostile("half of a FLAC file", flac[: len(flac) // 2]),
        Hostile("half of an Ogg file", ogg[: len(ogg) // 2]),
        Hostile("half of an MP3 file", mp3[: len(mp3) // 2]),
        Hostile("Ogg page alone", ogg[:27]),
        Hostile("many chunks", wav[:12] + b"junk\0\0\0\0" * 200_000 + wav[12:]),
        Hostile("chunk of 4 GB", wav[:12] + b"junk\xfe\xff\xff\xff" + wav[12:]),
        Hostile("chunk without an end", wav[:12] + b"LIST\xff\xff\xff\x7f"),
        Hostile("FLAC, hours by its header", with_total(flac, (1 << 36) - 1)),
        Hostile("FLAC, few by its header", with_total(flac, 100)),
        Hostile("FLAC, none by its header", with_total(flac, 0)),
        Hostile("FLAC of many blocks of notes", flac[:4] + b"\x04\0\0\x08" + bytes(8) + flac[4:]),
        Hostile("Ogg files in a row", ogg * 50),
        Hostile("MP3 behind a large tag", b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + mp3),
        Hostile("MP3 sync without an end", b"\xff\xfb\x90\x00" * 50_000),
        Hostile("FIFO", lambda path: os.mkfifo(path)),
        Hostile("link to /dev/zero", linked("/dev/zero")),
        Hostile("link to itself", linked("link to itself.wav")),
        Hostile("link to nothing", linked("nothing")),
        Hostile("folder", lambda path: path.mkdir()),
        Hostile("text named .wav", lambda path: path.write_text("hello\n")),
        Hostile("name of a good file", lambda path: path.with_suffix("").write_bytes(wav)),
        Hostile("good file", lambda path: path.write_bytes(wav)),
    ]
    if not quick:
        hours, silence = bomb(6 * 3600, 8000), np.zeros(3600 * RATE, np.float32)
        cases += [
            Hostile("bomb: FLAC of 6 hours", hours, False),
            Hostile("bomb: the same, its header says nothing", with_total(hours, 0), False),
            Hostile("bomb: the same, its header says a second", with_total(hours, 8000), False),
            Hostile("bomb at 655 kHz", with_total(bomb(150, 655_300), 0), False),
            Hostile("one hour of silence", lambda path: path.write_bytes(wav_bytes(silence, RATE)), False),
            Hostile("one hour of silence in FLAC", bomb(3600), False),
        ]
    return cases


def used(pid: int | str) -> tuple[float, float]:
    """Seconds of the processor so far, and megabytes at the peak; of a process that is gone, none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0, 0.0
    peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), peak / 1024


class Attack:
    """Cases of one kind, and what came of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.slowest = self.largest = 0.0

    def row(self) -> str:
        columns = " | ".join(f"{self.counts[kind]:,}" for kind in ("read", "refused", "killed", "fault"))
        return f"| {self.name} | {self.counts.total():,} | {columns} | {self.slowest:.1f} | {self.largest:.0f} |"

    def attempt(self, case: str, decoding: Decoding, content: bytes | Path, seconds: float) -> None:
        process = decoding._process
        pid: int | str = "self" if isinstance(content, Path) or process is None else process._process.pid
        before = used(pid)
        result = outcome(lambda: read(decoding, content))
        after = used(pid)
        spent, grown = (max(0.0, late - early) for late, early in zip(after, before, strict=True))
        self.slowest, self.largest = max(self.slowest, spent), max(self.largest, grown)
        if spent > seconds or grown > MEGABYTES:
            result = f"fault: {spent:.1f} s, {grown:,.0f} MB"
        self.counts[result.partition(":")[0]] += 1
        if result.startswith("fault"):
            print(f"{case}: {result}", file=sys.stderr)


def read(decoding: Decoding, content: bytes | Path) -> int:
    """Decode it, and check what comes."""
    blocks = sound_blocks(content, RATE, 10.0, LIMITS) if isinstance(content, Path) else [decoding.sound(content, RATE)]
    count = 0
    for block in blocks:
        assert block.dtype == np.float32, block.dtype
        assert block.ndim == 1, block.shape
        assert block.size, "no samples"
        assert np.abs(block).max() <= 1, "values beyond -1 and 1"  # also where there is a NaN
        count += len(block)
    assert count <= LIMITS.most_seconds * RATE + 1, f"{count:,} samples"
    return count


def outcome(do: Callable[[], int]) -> str:
    try:
        do()
    except BadSound as error:
        sentence = str(error)
        if "\n" in sentence or not 0 < len(sentence) <= LONGEST_SENTENCE:
            return f"fault: no sentence: {sentence[:200]!r}"
        return "killed" if BROKEN in sentence else "refused"
    except SightlineError as error:
        return f"fault: {error}"
    except Exception as error:
        return f"fault: {type(error).__name__}: {str(error)[:200]}"
    return "read"


def good_files() -> list[bytes]:
    stereo = np.stack([tone(), tone()[::-1]], axis=1)
    files = []
    for kind, codings in KINDS.items():
        for coding in codings:
            files += [encoded(tone(), kind, coding)] + ([encoded(stereo, kind, coding)] if coding != "GSM610" else [])
    return files


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Half of the faults are in the header, which is a small part of a file."""
    if draw.random() < 0.5:
        return damaged(content, draw)
    size = draw.choice((44, 100, 300))
    return damaged(content[:size], draw) + content[size:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutated", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="leave out what takes a second or more")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    harm, random_ones = Attack("made to do harm"), Attack("damaged at random")
    decoding = Decoding(ImageLimits(1000, 1000), HANGING, LIMITS)
    try:
        decoding.sound(wav_bytes(tone(), RATE), RATE)  # what it needs by itself
        read_sound(encoded(tone(0.3, 44_100), rate=44_100), RATE)
        with tempfile.TemporaryDirectory(prefix="sightline-sounds-") as name:
            for case in hostile(chosen.quick):
                path = Path(name) / f"{case.name.replace('/', ' ')}.wav"
                if not isinstance(case.content, bytes):
                    case.content(path)
                content = case.content if isinstance(case.content, bytes) else path
                harm.attempt(case.name, decoding, content, SECONDS if case.quick else HOUR_SECONDS)
        draw, files = random.Random(chosen.seed), good_files()
        for number in range(chosen.mutated):
            content = mutated(files[number % len(files)], draw)
            random_ones.attempt(f"case {number}", decoding, content, SECONDS)
    finally:
        decoding.end()
    head = "| sounds | cases | read | refused with one sentence | decoder killed | faults | slowest, s | MB more |"
    text = "\n".join([head, "|---|--:|--:|--:|--:|--:|--:|--:|", harm.row(), random_ones.row()])
    print(text)
    if chosen.write:
        again = f"Reproduce: `python benchmarks/hostile_sound.py --mutated {chosen.mutated} --write`."
        write_section("sounds", "\n\n".join(["## Hostile sound", f"Measured on {machine()}.", text, again]))
    if harm.counts["fault"] or random_ones.counts["fault"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
