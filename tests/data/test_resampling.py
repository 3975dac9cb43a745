"""Sound at another rate: tones keep what they are, what the lower rate cannot hold is gone, blocks give the same."""

import math

import numpy as np
import pytest

from sightline.data.resampling import Resampler, change_speed, resample

PAIRS = [
    *((rate, 16_000) for rate in (44_100, 48_000, 22_050, 11_025, 8_000, 192_000)),
    *((16_000, rate) for rate in (44_100, 48_000, 22_050, 11_025, 8_000)),
    *((44_101, 16_000), (16_000, 11_027), (11, 10), (9, 10), (1, 1)),
]


def tone(share, count, rate):
    """A sine at a frequency given as a share of half of some rate."""
    return np.sin(np.pi * share * np.arange(count) / rate)


@pytest.mark.parametrize(("before", "after"), PAIRS)
@pytest.mark.parametrize("share", [0.05, 0.5, 0.88])
def test_a_tone_keeps_its_frequency_its_size_and_its_time(before, after, share):
    low, count = min(before, after), 9_000
    resampled = resample(tone(share, count, before / low).astype(np.float32), before, after)
    expected = tone(share, len(resampled), after / low)
    inner = slice(len(resampled) // 5, -(len(resampled) // 5))
    assert np.abs(resampled - expected)[inner].max() < 1e-3


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair[0] > 1.2 * pair[1]])
@pytest.mark.parametrize("share", [1.02, 1.15])
def test_what_the_lower_rate_cannot_hold_is_suppressed(before, after, share):
    resampled = resample(tone(share, 9_000, before / after).astype(np.float32), before, after)
    inner = slice(len(resampled) // 5, -(len(resampled) // 5))
    assert np.abs(resampled[inner]).max() < 1e-3  # 60 dB


@pytest.mark.parametrize(("before", "after"), PAIRS)
@pytest.mark.parametrize("count", [0, 1, 2, 159, 160, 161, 4410, 9999])
def test_the_length_is_exact(before, after, count):
    resampled = resample(np.zeros(count, np.float32), before, after)
    assert resampled.dtype == np.float32
    assert len(resampled) == math.ceil(count * after / before)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_blocks_of_any_size_give_the_same_to_the_last_bit(before, after):
    draw = np.random.default_rng(0)
    samples = draw.standard_normal(15_000).astype(np.float32)
    resampler, parts, start = Resampler(before, after), [], 0
    while start < len(samples):
        size = int(draw.integers(0, 5_000))
        parts.append(resampler.push(samples[start : start + size]))
        start += size
    parts.append(resampler.finish())
    np.testing.assert_array_equal(np.concatenate(parts), resample(samples, before, after))


def test_a_constant_stays_what_it_is():
    for before, after in PAIRS:
        resampled = resample(np.ones(20_000, np.float32), before, after)
        np.testing.assert_allclose(resampled[len(resampled) // 4 : len(resampled) // 2], 1.0, atol=1e-5)


def test_speed_changes_length_and_pitch():
    samples = tone(0.1, 16_000, 1).astype(np.float32)
    faster, slower = change_speed(samples, 1.1), change_speed(samples, 0.9)
    assert (len(faster), len(slower)) == (math.ceil(16_000 / 1.1), math.ceil(16_000 / 0.9))
    np.testing.assert_allclose(faster[2000:9000], tone(0.11, 9000, 1)[2000:], atol=1e-3)
    with pytest.raises(ValueError, match="factor is 0"):
        change_speed(samples, 0)


@pytest.mark.parametrize(("before", "after"), [(0, 16_000), (16_000, -1), (1, 16_000)])
def test_rates_that_make_no_sense_are_refused(before, after):
    with pytest.raises(ValueError, match="rate"):
        Resampler(before, after)
