"""Log-mel features against a plain transcription of their formulas."""

import numpy as np
import pytest
import torch

from sightline.config import ConfigError
from sightline.nn.mel import LogMelConfig, log_mel, stream_log_mel

CONFIGS = [
    LogMelConfig(),
    LogMelConfig(size=40),
    LogMelConfig(rate=8000),
    LogMelConfig(rate=8000, size=23, highest=3700.0, preemphasis=0.0),
    LogMelConfig(rate=44_100, size=64, lowest=0.0, window=0.03, hop=0.015),
    LogMelConfig(size=128, floor=1e-3),
]


def sound(config, count, seed=0):
    times = np.arange(count) / config.rate
    noise = np.random.default_rng(seed).standard_normal(count)
    return (0.3 * np.sin(2 * np.pi * 700 * times) + 0.05 * noise).astype(np.float32)


def transcribed(samples, config, length):
    """One frame, one frequency and one filter at a time, in float64."""
    window, hop = round(config.window * config.rate), round(config.hop * config.rate)
    high = config.rate / 2 if config.highest is None else config.highest
    mel = lambda hertz: 2595 * np.log10(1 + hertz / 700)  # noqa: E731
    edges = np.linspace(mel(config.lowest), mel(high), config.size + 2)
    samples = samples.astype(np.float64)
    sharp = samples - config.preemphasis * np.concatenate([[0.0], samples[:-1]])
    if len(sharp) < window:
        sharp = np.concatenate([sharp, np.zeros(window - len(sharp))])
    features = []
    for start in range(0, len(sharp) - window + 1, hop):
        power = np.abs(np.fft.rfft(sharp[start : start + window] * np.hanning(window), length)) ** 2
        row = []
        for low, centre, top in zip(edges, edges[1:], edges[2:], strict=False):
            energy = 0.0
            for place, value in enumerate(power):
                at = mel(place * config.rate / length)
                if low < at <= centre:
                    energy += value * (at - low) / (centre - low)
                elif centre < at < top:
                    energy += value * (top - at) / (top - centre)
            row.append(np.log(max(energy, config.floor)))
        features.append(row)
    return np.array(features)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda one: f"{one.rate}-{one.size}")
def test_features_are_those_of_the_formulas(config):
    samples = sound(config, round(0.04 * config.rate) + 7)
    features = log_mel(torch.from_numpy(samples), config).numpy()
    length = {(16_000, 128): 1024, (8000, 80): 512, (8000, 23): 256, (44_100, 64): 2048}.get(
        (config.rate, config.size), 512
    )
    np.testing.assert_allclose(features, transcribed(samples, config, length), atol=2e-4)


@pytest.mark.parametrize(("samples", "frames"), [(0, 1), (1, 1), (400, 1), (559, 1), (560, 2), (16_000, 98)])
def test_the_number_of_frames(samples, frames):
    config = LogMelConfig()
    features = log_mel(torch.from_numpy(sound(config, samples)), config)
    assert features.shape == (frames, 80)
    assert config.frames(samples) == frames
    assert features.isfinite().all()


@pytest.mark.parametrize("count", [0, 3, 399, 400, 160_239, 160_240, 160_241, 400_000])
def test_blocks_give_the_same_to_the_last_bit(count):
    config = LogMelConfig(size=40)
    samples = sound(config, count)
    whole = log_mel(torch.from_numpy(samples), config).numpy()
    for cuts in ([], [1, 2, 500], [100_000, 100_000, 330_001], range(0, count, 7_001)):
        parts = list(stream_log_mel(np.split(samples, cuts), config))
        assert max(map(len, parts)) <= 1000
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_silence_is_the_floor_and_no_infinity():
    config = LogMelConfig()
    features = log_mel(torch.zeros(16_000), config)
    np.testing.assert_allclose(features, np.log(1e-8), rtol=1e-6)


def test_a_tone_is_loudest_in_the_filter_around_it():
    for config in (LogMelConfig(), LogMelConfig(rate=8000, size=40)):
        times = torch.arange(config.rate) / config.rate
        features = log_mel(torch.sin(2 * torch.pi * 1000 * times), config).mean(dim=0)
        mel = lambda hertz: 2595 * np.log10(1 + hertz / 700)  # noqa: E731
        centres = np.linspace(mel(20), mel(config.rate / 2), config.size + 2)[1:-1]
        assert abs(centres[int(features.argmax())] - mel(1000)) < centres[1] - centres[0]


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050])
@pytest.mark.parametrize("size", [13, 40, 80, 128])
def test_no_filter_is_empty(rate, size):
    """White noise reaches every filter."""
    config = LogMelConfig(rate=rate, size=size, preemphasis=0.0)
    features = log_mel(torch.from_numpy(sound(config, rate)), config)
    assert (features.mean(dim=0) > np.log(1e-3)).all()
    assert (features.std(dim=0) > 0.01).all()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"size": 2000}, "size is 2000"),
        ({"size": 0}, "size is 0"),
        ({"highest": 9000.0}, "highest 9000"),
        ({"lowest": 8000.0}, "lowest is 8000"),
        ({"window": 0.0}, "window is 0"),
        ({"hop": 0.5}, "hop 0.5"),
        ({"preemphasis": 1.0}, "preemphasis is 1"),
        ({"floor": 0.0}, "floor is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        LogMelConfig.from_json({**LogMelConfig().to_json(), **wrong})


def test_the_configuration_is_read_again():
    config = LogMelConfig(rate=8000, size=40, highest=3800.0)
    assert LogMelConfig.loads(config.dumps()) == config
