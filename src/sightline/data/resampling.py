"""Sound at another rate: a Kaiser-windowed sinc, block by block, with NumPy alone.

Each output sample is a weighted sum of the input samples around its time (Smith, "Digital audio resampling"). The
weights are those of a low-pass filter that passes 90 % of the band of the lower rate and suppresses by 80 dB all that
lies above that band. What people get wrong: taking every third sample of 48 kHz folds what lies above 8 kHz into the
speech below it, and linear interpolation dampens the upper half of the band.

The input is worked on in units of a fixed size, so that the result is the same to the last bit however it was cut.
"""

import functools
import math

import numpy as np

STOP = 80.0  # dB by which the filter suppresses what the lower rate cannot hold
PASS = 0.9  # the share of the lower rate's band that passes unchanged
ROWS = 32  # of one matrix product
LEAST = 160  # outputs of a row
MOST_PHASES = 1024  # places between two input samples for which weights are computed exactly
STEPS = 512  # places of the table that serves more: what is interpolated in it is exact to about 110 dB
MOST_RATIO = 1000


class Resampler:
    """Sound at ``from_rate`` that comes in blocks, at ``to_rate``: call `push` for each block, then `finish` once.

    Of n samples it makes ⌈n · to_rate / from_rate⌉, the first one at the time of the first.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        for name, rate in (("from_rate", from_rate), ("to_rate", to_rate)):
            if rate < 1:
                raise ValueError(f"{name} is {rate}; it must be at least 1")
        if max(from_rate, to_rate) > MOST_RATIO * min(from_rate, to_rate):
            raise ValueError(f"the rates are {from_rate} and {to_rate}; one may be at most {MOST_RATIO} × the other")
        common = math.gcd(from_rate, to_rate)
        self._up, self._down = to_rate // common, from_rate // common
        self._reach = _reach(self._up, self._down)
        self._count = ROWS * _row(self._up) if self._up <= MOST_PHASES else ROWS * LEAST  # outputs of a unit
        self._first = 0  # output that comes next
        self._seen = 0  # input samples so far
        self._held = np.zeros(self._reach - 1, np.float32)  # what the next unit needs, silence before the start
        self._start = 1 - self._reach  # the place of its first sample in the input

    def push(self, samples: np.ndarray) -> np.ndarray:
        """The samples that can be computed when these have come."""
        self._seen += len(samples)
        if self._up == self._down:
            return np.array(samples, np.float32)
        self._held = np.concatenate([self._held, samples], dtype=np.float32)
        return self._units()

    def finish(self) -> np.ndarray:
        """The samples that are left, computed as if silence followed."""
        if self._up == self._down:
            return np.empty(0, np.float32)
        left = -(-self._seen * self._up // self._down) - self._first
        silence = np.zeros(self._needed(-(-left // self._count)), np.float32)
        self._held = np.concatenate([self._held, silence])
        return self._units()[:left]

    def _needed(self, units: int) -> int:
        """How many held samples so many units need, and no fewer."""
        last = (self._first + units * self._count) * self._down // self._up + self._reach
        return max(0, last + 1 - self._start)

    def _units(self) -> np.ndarray:
        parts = [np.empty(0, np.float32)]
        while len(self._held) >= self._needed(1):
            parts.append(self._exact() if self._up <= MOST_PHASES else self._interpolated())
            self._first += self._count
            start = self._first * self._down // self._up + 1 - self._reach
            self._held, self._start = self._held[start - self._start :], start
        return np.concatenate(parts)

    def _exact(self) -> np.ndarray:
        """One product: each row of input samples makes a row of outputs."""
        weights = _weights(self._up, self._down)
        hop = _row(self._up) // self._up * self._down
        rows = np.lib.stride_tricks.sliding_window_view(self._held, len(weights))[: ROWS * hop : hop]
        return (np.ascontiguousarray(rows) @ weights).reshape(-1)

    def _interpolated(self) -> np.ndarray:
        """The same for rates with no common factor, from the nearest two of some weights that are kept."""
        table = _table(self._up, self._down)
        outputs = np.arange(self._first, self._first + self._count)
        whole, rest = np.divmod(outputs * self._down, self._up)
        step, share = np.divmod(rest * STEPS, self._up)
        frames = np.lib.stride_tricks.sliding_window_view(self._held, table.shape[1])[
            whole + 1 - self._reach - self._start
        ]
        nearest = np.einsum("nt,nt->n", frames, table[step])
        share = (share / self._up).astype(np.float32)
        return nearest + share * (np.einsum("nt,nt->n", frames, table[step + 1]) - nearest)


def resample(samples: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """A whole sound at another rate."""
    resampler = Resampler(from_rate, to_rate)
    return np.concatenate([resampler.push(samples), resampler.finish()])


def change_speed(samples: np.ndarray, factor: float) -> np.ndarray:
    """The sound played faster (above 1) or slower, its pitch with it: speed perturbation (Ko et al. 2015) takes 0.9
    and 1.1. The factor counts to a thousandth."""
    if not 0.1 <= factor <= 10:
        raise ValueError(f"factor is {factor}; it must be at least 0.1 and at most 10")
    return resample(samples, round(1000 * factor), 1000)


def _reach(up: int, down: int) -> int:
    """Input samples to each side of an output that have a weight."""
    taps = (STOP - 8) / (2.285 * np.pi * (1 - PASS))  # Kaiser's rule, in samples of the lower rate
    return math.ceil(taps / 2 * max(1.0, down / up)) + 1


def _row(up: int) -> int:
    """Outputs of a row: a whole number of rounds through the phases."""
    return up * max(1, -(-LEAST // up))


def _filter(times: np.ndarray, up: int, down: int) -> np.ndarray:
    """Weights of input samples at these distances from an output; along the first axis they sum to 1."""
    cut = (1 + PASS) / 2 * min(1.0, up / down)  # the middle of the transition, as a share of the input's band
    half = _reach(up, down) - 1
    inside = np.sqrt(np.maximum(0.0, 1 - (times / half) ** 2))
    window = np.where(np.abs(times) < half, np.i0(0.1102 * (STOP - 8.7) * inside), 0.0)
    weights = np.sinc(cut * times) * window
    return (weights / weights.sum(axis=0)).astype(np.float32)


@functools.lru_cache(maxsize=16)
def _weights(up: int, down: int) -> np.ndarray:
    """Input samples of a row × its outputs."""
    outputs = np.arange(_row(up)) * down / up
    inputs = np.arange(1 - _reach(up, down), math.floor(outputs[-1]) + _reach(up, down) + 1)
    return _filter(inputs[:, None] - outputs[None, :], up, down)


@functools.lru_cache(maxsize=4)
def _table(up: int, down: int) -> np.ndarray:
    """For each place between two input samples, the weights of those around it."""
    inputs = np.arange(1 - _reach(up, down), _reach(up, down) + 1)
    return np.ascontiguousarray(_filter(inputs[:, None] - np.arange(STEPS + 1)[None, :] / STEPS, up, down).T)
