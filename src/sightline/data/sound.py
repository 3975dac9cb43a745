"""Sound out of files: one channel, at the rate asked for, as float32 between -1 and 1, and no longer than agreed.

A `BadSound` gives what is wrong with a file in one sentence, without the file's name; the caller decides how many bad
ones are too many. Files are not trusted: their first bytes must be those of a common format, and what is decoded is
counted while it is decoded, because a header may state anything and a small FLAC file can unpack to hours of silence.
Decoding and resampling work on blocks, so that `sound_blocks` needs the same memory for an hour as for a second.

libsndfile decodes, through soundfile (the extra ``sound``). It can crash on hostile files: the server decodes in a
process that can be killed (`sightline.data.decoding`).
"""

import io
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sightline.data.resampling import Resampler
from sightline.data.tables import open_named, too_many_bytes
from sightline.errors import UserError

if TYPE_CHECKING:
    import soundfile

ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff")
FORMATS = ("WAV", "FLAC", "OGG", "MP3", "AIFF")
MISSING = "reading sound needs soundfile: pip install 'sightline[sound]'"
BLOCK = 4096  # samples of each channel that are decoded at once
LOUDEST = 8.0  # files of floats may go a little above 1; one with 32,767 holds whole numbers
PACKET = 4 * 1152  # samples that an MP3 header may state more than there are
EVEN = 96_000  # Hz, above which rates must be whole hundreds: resampling others takes long
# Sizes that programs write who do not know the length yet: ffmpeg, sox and browsers, into a pipe.
UNKNOWN_SIZE, UNKNOWN_LENGTH = 0x7FFF0000, 1 << 60
MOST_CHUNKS = 10_000  # of a WAV or AIFF file
MOST_PAGES = 1_000_000  # of an Ogg file


class BadSound(ValueError):  # noqa: N818 - it is also a value, in the place of a sound
    """A sound that cannot be used. Its text is the reason, without the name of the file."""


@dataclass(frozen=True)
class SoundLimits:
    """How large a sound may be: the file, and what is decoded from it. ``most_samples`` counts those of all channels,
    ``rates`` are the lowest and the highest in Hz."""

    most_bytes: int = 2_000_000_000
    most_seconds: float = 7_200.0
    most_samples: int = 4_000_000_000
    most_channels: int = 64
    rates: tuple[int, int] = (1_000, 768_000)

    def __post_init__(self) -> None:
        for name in ("most_bytes", "most_samples", "most_channels"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name):,}; it must be at least 1")
        if not 0 < self.most_seconds <= 100 * 3600:
            raise UserError(f"most_seconds is {self.most_seconds}; it must be above 0 and at most 360,000")
        if not 1 <= self.rates[0] <= self.rates[1]:
            raise UserError(f"rates is {self.rates}; the lowest rate comes first, and is at least 1")


LIMITS = SoundLimits()


class SoundHeader(NamedTuple):
    """What a file says of itself. ``samples`` are those of one channel; None: it does not say."""

    rate: int
    channels: int
    samples: int | None
    format: str

    @property
    def seconds(self) -> float | None:
        return None if self.samples is None else self.samples / self.rate


def read_header(source: Path | bytes, limits: SoundLimits = LIMITS) -> SoundHeader:
    """The header of a file, checked, and nothing decoded. A WAV or AIFF file that ends early is refused here."""
    with _opened(source, limits) as (_, header):
        return header


def read_sound(source: Path | bytes, rate: int, limits: SoundLimits = LIMITS) -> np.ndarray:
    """The whole sound: float32 at ``rate``, the mean of its channels."""
    _check_rate(rate)
    with _opened(source, limits) as (file, header):
        length = 1 if header.samples is None else -(-header.samples * rate // header.rate)
        samples, count = np.empty(length, np.float32), 0
        for block in _at_rate(_decoded(file, header, limits), header.rate, rate):
            if count + len(block) > len(samples):  # the header did not say how long it is
                samples.resize(2 * (count + len(block)), refcheck=False)
            samples[count : count + len(block)] = block
            count += len(block)
        samples.resize(count, refcheck=False)
        return samples


def sound_blocks(source: Path | bytes, rate: int, seconds: float, limits: SoundLimits = LIMITS) -> Iterator[np.ndarray]:
    """The same samples as those of `read_sound`, in blocks of so many seconds; the last one may be shorter."""
    _check_rate(rate)
    size = round(seconds * rate)
    if size < 1:
        raise ValueError(f"seconds is {seconds}; a block must hold at least one sample")
    with _opened(source, limits) as (file, header):
        yield from _cut(_at_rate(_decoded(file, header, limits), header.rate, rate), size)


def load_soundfile() -> ModuleType:
    """The module, or one sentence that names the extra."""
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the library that it wraps is missing
        raise UserError(MISSING) from None
    return soundfile


@contextmanager
def _opened(source: Path | bytes, limits: SoundLimits) -> Iterator[tuple["soundfile.SoundFile", SoundHeader]]:
    """A file whose header is good. Whatever goes wrong while it is decoded in the block is a `BadSound` too."""
    soundfile = load_soundfile()
    if isinstance(source, bytes) and len(source) > limits.most_bytes:
        raise BadSound(too_many_bytes(len(source), limits.most_bytes))
    opened = (
        nullcontext(io.BytesIO(source))
        if isinstance(source, bytes)
        else open_named(source, limits.most_bytes, BadSound, "a sound")
    )
    with opened as content:
        _check_content(content)
        try:
            with soundfile.SoundFile(content) as file:
                yield file, _header(file, limits)
        except (BadSound, MemoryError):
            raise
        except soundfile.LibsndfileError as error:
            raise BadSound(_reason(error.error_string)) from None
        except Exception as error:  # an odd file can break soundfile in other ways
            raise BadSound(_reason(str(error) or type(error).__name__)) from None


def _header(file: "soundfile.SoundFile", limits: SoundLimits) -> SoundHeader:
    rate, channels, samples, kind = file.samplerate, file.channels, file.frames, file.format
    if kind not in (*FORMATS, "WAVEX", "RF64"):
        raise BadSound(_no_sound(f"found {kind}"))
    if not 1 <= channels <= limits.most_channels:
        raise BadSound(f"it has too many channels: found {channels:,}, expected at most {limits.most_channels}")
    lowest, highest = limits.rates
    if not lowest <= rate <= highest:
        raise BadSound(f"its rate is {rate:,} Hz; expected {lowest:,} to {highest:,}")
    if rate > EVEN and rate % 100:
        raise BadSound(f"its rate is {rate:,} Hz; above {EVEN:,} whole hundreds are expected: convert it to 48,000 Hz")
    header = SoundHeader(rate, channels, samples if samples < UNKNOWN_LENGTH else None, kind)
    if not samples:
        raise BadSound("it has no samples")
    if header.samples is not None:
        _check_length(header.samples, header, limits)
    return header


def _check_length(samples: int, header: SoundHeader, limits: SoundLimits) -> None:
    if samples > limits.most_seconds * header.rate:
        raise BadSound(f"it is too long: more than {limits.most_seconds:,.10g} seconds")
    if samples * header.channels > limits.most_samples:
        raise BadSound(
            f"it is too long: more than {limits.most_samples:,} samples in its {header.channels} channels together"
        )


def _decoded(file: "soundfile.SoundFile", header: SoundHeader, limits: SoundLimits) -> Iterator[np.ndarray]:
    """The mean of the channels, in blocks as they are decoded."""
    file.seekable = lambda: False  # else soundfile seeks after each block, which is slow and inexact
    block = np.empty((BLOCK, header.channels), np.float32)
    count = 0
    while True:
        try:
            values = file.read(len(block), out=block)
        except (RuntimeError, AssertionError):  # a LibsndfileError is the first
            if not header.samples or count >= header.samples:
                raise
            values = block[:0]
        if not len(values):
            break
        count += len(values)
        _check_length(count, header, limits)
        yield _mono(values)
    stated = header.samples or 0
    if count < stated - (PACKET if header.format == "MP3" else 0):
        raise BadSound(f"it is truncated or damaged: {count:,} of {stated:,} samples can be decoded")
    if not count:
        raise BadSound("it has no samples")


def _mono(values: np.ndarray) -> np.ndarray:
    peak = float(max(values.max(), -values.min()))  # NaN where one is
    if not peak <= LOUDEST:
        bad = "NaN or infinite values" if not np.isfinite(peak) else f"values up to {peak:,.6g}"
        raise BadSound(f"it has {bad}; expected samples between -1 and 1")
    channels = values.shape[1]
    return values[:, 0] if channels == 1 else values @ np.full(channels, 1 / channels, np.float32)


def _at_rate(blocks: Iterable[np.ndarray], from_rate: int, to_rate: int) -> Iterator[np.ndarray]:
    """Blocks at another rate. A filter and a lossy format go a little above 1 where a sound was as loud as can be."""
    resampler = Resampler(from_rate, to_rate)
    for block in blocks:
        yield np.clip(resampler.push(block), -1.0, 1.0)
    yield np.clip(resampler.finish(), -1.0, 1.0)


def _cut(blocks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Blocks of one size, but for the last."""
    held: list[np.ndarray] = []
    count = 0
    for block in blocks:
        held.append(block)
        count += len(block)
        if count >= size:
            joined = np.concatenate(held)
            whole = count - count % size
            for start in range(0, whole, size):
                yield joined[start : start + size]
            held, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(held)


def _check_rate(rate: int) -> None:
    if not LIMITS.rates[0] <= rate <= LIMITS.rates[1]:
        raise ValueError(f"rate is {rate}; it must be between {LIMITS.rates[0]:,} and {LIMITS.rates[1]:,} Hz")


# What the first bytes of a file say, before libsndfile sees it.
CHUNKS = {
    (b"RIFF", b"WAVE"): "<",
    (b"RF64", b"WAVE"): "<",
    (b"RIFX", b"WAVE"): ">",  # and the order of bytes
    (b"FORM", b"AIFF"): ">",
    (b"FORM", b"AIFC"): ">",
}
OTHERS = {
    b"\x1a\x45\xdf\xa3": "a Matroska or WebM file",
    b"#!AMR": "an AMR file",
    b"\x30\x26\xb2\x75": "a Windows Media file",
    b"MThd": "a MIDI file, which holds notes and no sound",
    b"caff": "a CAF file",
    b".snd": "an AU file",
    b"NIST": "a NIST Sphere file",
}


def _check_content(content: io.BufferedIOBase) -> None:
    """Refuse what is no sound of a format that is read, and files that end early, where libsndfile would not notice."""
    size = content.seek(0, io.SEEK_END)
    content.seek(0)
    first = content.read(512)
    if not first:
        raise BadSound("it is empty")
    if (order := CHUNKS.get((first[:4], first[8:12]))) is not None:
        _check_chunks(content, size, order)
    elif first[:4] == b"OggS":
        _check_pages(content, size)
    elif first[:4] != b"fLaC" and first[:3] != b"ID3" and not _is_mp3(first):
        if first[4:8] == b"ftyp":
            raise BadSound("it is an MP4 or M4A file: convert it to FLAC or WAV first")
        for start, name in OTHERS.items():
            if first.startswith(start):
                raise BadSound(f"it is {name}: convert it to FLAC or WAV first")
        text = not set(first) & {*range(9), *range(14, 27), 127}
        raise BadSound(_no_sound("found text" if text else ""))
    content.seek(0)


def _is_mp3(first: bytes) -> bool:
    """Eleven bits are set, and the layer is none that does not exist."""
    return len(first) > 3 and first[0] == 0xFF and first[1] & 0xE0 == 0xE0 and first[1] & 0x06 != 0


def _check_chunks(content: io.BufferedIOBase, size: int, order: str) -> None:
    """Count the bytes of a WAV or AIFF file's samples: libsndfile takes one that ends early for a shorter one."""
    place, large = 12, 0
    for _ in range(MOST_CHUNKS):
        content.seek(place)
        head = content.read(24)
        if len(head) < 8:
            raise BadSound("it is truncated: it has a header and no samples")
        name, length = struct.unpack(f"{order}4sI", head[:8])
        if name in (b"data", b"SSND"):
            there, stated = size - place - 8, large or length
            if there < stated and (large or stated < UNKNOWN_SIZE):
                raise BadSound(f"it is truncated: {there:,} of {stated:,} bytes of samples are there")
            return
        if name == b"ds64" and len(head) == 24:  # of RF64, whose files may be larger than 4 GB
            large = struct.unpack("<Q", head[16:])[0]
        place += 8 + length + length % 2
    raise BadSound(f"it has too many parts: more than {MOST_CHUNKS:,} chunks")


def _check_pages(content: io.BufferedIOBase, size: int) -> None:
    """Of an Ogg file: libsndfile leaves out a last page that is not whole, and all streams but the first."""
    place, began = 0, False
    for _ in range(MOST_PAGES):
        content.seek(place)
        head = content.read(27 + 255)
        if head[:4] != b"OggS"[: max(1, len(head))]:  # the end, or something that is not for us
            return
        count = head[26] if len(head) > 26 else 0
        whole = 27 + count + sum(head[27 : 27 + count])
        if place + whole > size:
            raise BadSound(f"it is truncated: {size - place:,} of {whole:,} bytes of its last page are there")
        first = bool(head[5] & 2)
        if first and began:
            raise BadSound("it holds several sounds, one behind the other; expected one")
        place, began = place + whole, began or not first
    raise BadSound(f"it has too many parts: more than {MOST_PAGES:,} pages")


def _reason(text: str) -> str:
    """What libsndfile says of a file that it cannot read, as our sentence."""
    reason = " ".join(text.split()).rstrip(".")[:200].removeprefix("Error : ")
    if "does not exist" in reason:  # so it says of an MP3 file without a whole frame
        reason = "nothing can be decoded"
    return f"it is damaged ({reason})"


def _no_sound(detail: str) -> str:
    expected = f"expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    return f"it is no sound: {f'{detail}, ' if detail else ''}{expected}"


# What is said about a sound that was read.

SILENT = 1e-3  # the peak below which a sound is silent: -60 dB
FULL = 0.999  # the magnitude from which on a sample may be clipped
CLIPPED = 0.005  # the share of such samples that is reported


class Quality(NamedTuple):
    """How a sound was recorded. ``level`` is the root mean square in dB below full scale."""

    peak: float
    level: float
    silent: bool
    clipped_share: float

    def faults(self, seconds: float, least_seconds: float, most_seconds: float) -> tuple[str, ...]:
        """Of ``too short``, ``too long``, ``silent`` and ``clipped``, those that it is."""
        names = {
            "too short": seconds < least_seconds,
            "too long": seconds > most_seconds,
            "silent": self.silent,
            "clipped": self.clipped_share > CLIPPED,
        }
        return tuple(name for name, is_so in names.items() if is_so)


def quality(samples: np.ndarray) -> Quality:
    """Clipped are samples at full scale with such a neighbour to each side: a single one is a peak."""
    if not len(samples):
        return Quality(0.0, -np.inf, True, 0.0)
    peak = float(max(samples.max(), -samples.min()))
    power = float(np.square(samples, dtype=np.float64).mean())
    full = np.abs(samples) >= FULL
    clipped = np.count_nonzero(full[1:-1] & full[:-2] & full[2:])
    return Quality(peak, 10 * np.log10(max(power, 1e-20)), peak < SILENT, clipped / len(samples))


def wav_bytes(samples: np.ndarray, rate: int) -> bytes:
    """A WAV file of 16 bits and one channel."""
    values = np.rint(np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes()
    size = len(values)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", 36 + size, b"WAVE") + form + struct.pack("<4sI", b"data", size) + values


# Where a long sound can be cut.


def energies(blocks: Iterable[np.ndarray], rate: int, hop_seconds: float = 0.01) -> np.ndarray:
    """The mean square of each stretch of so many seconds, of a sound in blocks of any size."""
    hop = round(hop_seconds * rate)
    if hop < 1:
        raise ValueError(f"hop_seconds is {hop_seconds}; a stretch must hold at least one sample")
    parts = [np.empty(0)]
    for block in _cut(blocks, 1000 * hop):
        padded = np.pad(block.astype(np.float64), (0, -len(block) % hop))
        parts.append(np.square(padded).reshape(-1, hop).mean(axis=1))
    return np.concatenate(parts)


def windows(
    energies: np.ndarray,
    hop_seconds: float,
    most_seconds: float,
    least_seconds: float | None = None,
    quiet_seconds: float = 0.2,
) -> list[tuple[int, int]]:
    """Windows, from a stretch up to another, that together make the whole sound; none is longer than ``most_seconds``.

    Each ends in the middle of the quietest ``quiet_seconds`` after its first ``least_seconds`` (None: the half of
    ``most_seconds``); of equally quiet ones the last is taken.
    """
    most = int(most_seconds / hop_seconds + 1e-9)
    least = most // 2 if least_seconds is None else max(1, int(least_seconds / hop_seconds + 1e-9))
    if not 1 <= least <= most:
        raise ValueError(f"a window has {least} to {most} stretches; expected at least one, and the smaller first")
    width = max(1, min(round(quiet_seconds / hop_seconds), least))
    if not len(energies):
        return []
    padded = np.pad(energies.astype(np.float64), (width // 2, width - 1 - width // 2), mode="edge")
    loudness = np.lib.stride_tricks.sliding_window_view(padded, width).mean(axis=1)
    start, cuts = 0, [0]
    while len(energies) - start > most:
        first, last = start + least, min(start + most, max(start + least, len(energies) - width))
        stretch = loudness[first : last + 1]
        start = last - int(np.argmin(stretch[::-1]))
        cuts.append(start)
    return list(zip(cuts, [*cuts[1:], len(energies)], strict=True))
