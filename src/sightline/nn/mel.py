"""Log-mel features of sound: for every 10 ms, the energy in bands that are as wide as hearing is precise.

A frame is 25 ms of sound under a Hann window; its power spectrum is summed under triangles whose centres are equally
spaced on the mel scale of HTK, mel = 2595 · log10(1 + f / 700), and the natural logarithm is taken. The triangles have
straight sides on that scale, as those of HTK and Kaldi have. n samples have 1 + ⌊(n − window) / hop⌋ frames: none
reaches beyond the end, and a sound that is shorter than one frame is padded with silence. No noise is added.

What people get wrong: the logarithm of 0 (there is a floor), filters above what the sound holds (``highest`` is half of
the rate by default), more filters than the spectrum can feed (it is made finer here until every filter has its share).
"""

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sightline.attention.checks import check_least
from sightline.config import Config

UNIT = 1000  # frames that are computed at once, counted from the start: whole and in blocks give the same
LEAST_WEIGHT = 0.25  # that a filter must give to some frequency of the spectrum
FINEST = 8  # times the length of the window


@dataclass(frozen=True)
class LogMelConfig(Config):
    """Seconds and Hz. ``size`` is the number of filters; ``highest`` None is half of the rate; ``preemphasis`` 0 is
    none."""

    rate: int = 16_000
    size: int = 80
    window: float = 0.025
    hop: float = 0.010
    lowest: float = 20.0
    highest: float | None = None
    preemphasis: float = 0.97
    floor: float = 1e-8
    family: ClassVar[str] = "log_mel"

    def __post_init__(self) -> None:
        check_least(self, 1, "size")
        check_least(self, 1000, "rate")
        if not 0 <= self.lowest < self.top <= self.rate / 2:
            raise ValueError(
                f"lowest is {self.lowest:g} and highest {self.top:g}; expected 0 ≤ lowest < highest, and highest at "
                f"most {self.rate / 2:g}, half of the rate"
            )
        if not 2 <= self.window_samples <= self.rate or not 1 <= self.hop_samples <= self.window_samples:
            raise ValueError(
                f"window is {self.window:g} and hop {self.hop:g}; expected seconds, the window at most 1 and the hop "
                f"at most the window"
            )
        if not 0 <= self.preemphasis < 1:
            raise ValueError(f"preemphasis is {self.preemphasis}; it must be at least 0 and below 1")
        if not self.floor > 0:
            raise ValueError(f"the field floor is {self.floor}; it must be above 0")
        _filters(self)

    @property
    def top(self) -> float:
        return self.rate / 2 if self.highest is None else self.highest

    @property
    def window_samples(self) -> int:
        return round(self.window * self.rate)

    @property
    def hop_samples(self) -> int:
        return round(self.hop * self.rate)

    def frames(self, samples: int) -> int:
        """How many frames so many samples make."""
        return 1 + max(0, samples - self.window_samples) // self.hop_samples


def log_mel(samples: Float[Tensor, " n"], config: LogMelConfig) -> Float[Tensor, "t d"]:
    """The features of a whole sound."""
    count, window, hop = config.frames(len(samples)), config.window_samples, config.hop_samples
    before = samples.new_zeros(1)
    parts = []
    for first in range(0, count, UNIT):
        last = min(count, first + UNIT)
        parts.append(_unit(samples[first * hop : (last - 1) * hop + window], before, config))
        before = samples[last * hop - 1 : last * hop]
    return torch.cat(parts)


def stream_log_mel(blocks: Iterable[np.ndarray], config: LogMelConfig) -> Iterator[np.ndarray]:
    """The same features, float32, of a sound in blocks of any size; its memory does not grow with the sound."""
    window, hop = config.window_samples, config.hop_samples
    needed = (UNIT - 1) * hop + window  # samples of a unit
    held, before = np.empty(0, np.float32), np.zeros(1, np.float32)
    seen = made = 0
    with torch.no_grad():
        for block in blocks:
            held, seen = np.concatenate([held, block], dtype=np.float32), seen + len(block)
            while len(held) >= needed:
                yield _unit(torch.from_numpy(held[:needed]), torch.from_numpy(before), config).numpy()
                before, held, made = held[UNIT * hop - 1 : UNIT * hop], held[UNIT * hop :], made + UNIT
        if left := config.frames(seen) - made:
            rest = held[: (left - 1) * hop + window]
            yield _unit(torch.from_numpy(rest.copy()), torch.from_numpy(before), config).numpy()


def _unit(samples: Float[Tensor, " n"], before: Float[Tensor, " 1"], config: LogMelConfig) -> Float[Tensor, "t d"]:
    """The features of some frames; ``before`` is the sample before the first."""
    filters = torch.from_numpy(_filters(config)).to(samples)
    if config.preemphasis:
        samples = samples - config.preemphasis * torch.cat([before, samples[:-1]])
    if len(samples) < config.window_samples:
        samples = torch.nn.functional.pad(samples, (0, config.window_samples - len(samples)))
    frames = samples.unfold(0, config.window_samples, config.hop_samples)
    frames = frames * torch.hann_window(config.window_samples, periodic=False).to(samples)
    spectrum = torch.fft.rfft(frames, n=2 * (len(filters) - 1))
    power = spectrum.real.square() + spectrum.imag.square()
    return (power @ filters).clamp(min=config.floor).log()


@functools.lru_cache(maxsize=16)
def _filters(config: LogMelConfig) -> np.ndarray:
    """Frequencies of the spectrum × filters. The spectrum is as fine as the narrowest filter needs it."""
    low, high = _mel(config.lowest), _mel(config.top)
    step = (high - low) / (config.size + 1)
    centres = low + step * np.arange(1, config.size + 1)
    length = 2 ** math.ceil(math.log2(config.window_samples))
    while True:
        mels = _mel(np.arange(length // 2 + 1) * config.rate / length)
        weights = np.maximum(0.0, 1 - np.abs(mels[:, None] - centres[None, :]) / step)
        if weights.max(axis=0).min() >= LEAST_WEIGHT:
            return weights.astype(np.float32)
        length *= 2
        if length > FINEST * config.window_samples:
            raise ValueError(
                f"size is {config.size}, and some of so many filters between {config.lowest:g} and {config.top:g} Hz "
                f"are too narrow for a window of {config.window:g} seconds; take fewer filters"
            )


def _mel(hertz: float | np.ndarray) -> np.ndarray:
    return np.asarray(2595 * np.log10(1 + np.asarray(hertz) / 700))
