"""Masks over features, and features at another speed."""

import numpy as np
import pytest

from sightline.data.augment import spec_augment, stretch


def widths(masked):
    """Of a mask over ones: whole bands and whole frames that are 0."""
    return (masked == 0).all(axis=0), (masked == 0).all(axis=1)


@pytest.mark.parametrize(("frames", "bands"), [(1, 80), (4, 13), (50, 40), (100, 80), (3000, 80)])
def test_masks_are_bounded_and_never_hide_everything(frames, bands):
    values = np.ones((frames, bands), np.float32)
    for seed in range(200):
        whole_bands, whole_frames = widths(spec_augment(values, np.random.default_rng(seed)))
        assert whole_bands.sum() <= 2 * int(bands * 27 / 80)
        assert whole_frames.sum() <= min(200, 2 * int(0.2 * frames))
    assert values.all()  # a copy was changed


def test_widths_reach_the_policy_for_long_sounds():
    values = np.ones((3000, 80), np.float32)
    drawn = [
        widths(spec_augment(values, np.random.default_rng(seed), time_masks=1, frequency_masks=1))
        for seed in range(200)
    ]
    assert max(bands.sum() for bands, _ in drawn) == 27
    assert {0, 1} <= {int(bands.sum()) for bands, _ in drawn}
    assert 95 <= max(frames.sum() for _, frames in drawn) <= 100


def test_the_same_seed_gives_the_same_masks_and_fills_with_the_mean():
    values = np.random.default_rng(0).standard_normal((60, 40)).astype(np.float32)
    first, again, other = (spec_augment(values, np.random.default_rng(seed), 7.0) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert set(first[first != values]) == {7.0}
    mean = values.mean(axis=0)
    masked = spec_augment(values, np.random.default_rng(1), mean)
    assert masked.dtype == np.float32
    np.testing.assert_array_equal(masked, np.where(first == 7.0, mean[None, :], values))


def test_settings_that_hide_everything_are_refused():
    values = np.ones((9, 4))
    for wrong in ({"share": 0.5}, {"share": 1.0}, {"frequency_share": 1.0}, {"time_masks": 5}):
        with pytest.raises(ValueError, match=r"share|masks"):
            spec_augment(values, np.random.default_rng(0), **wrong)
    with pytest.raises(ValueError, match="frames × bands"):
        spec_augment(np.ones(9), np.random.default_rng(0))


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.1, 3.0])
def test_stretching_interpolates_along_time(factor):
    line = np.stack([np.linspace(0, 1, 50), np.linspace(5, 3, 50)], axis=1).astype(np.float32)
    stretched = stretch(line, factor)
    count = round(50 / factor)
    assert stretched.dtype == np.float32
    expected = np.stack([np.linspace(0, 1, count), np.linspace(5, 3, count)], axis=1)
    np.testing.assert_allclose(stretched, expected, atol=1e-5)


def test_stretching_of_almost_nothing():
    assert stretch(np.ones((1, 3)), 2.0).shape == (1, 3)
    assert stretch(np.ones((1, 3)), 0.5).tolist() == [[1] * 3] * 2
    assert stretch(np.ones((0, 3)), 0.5).shape == (0, 3)
    with pytest.raises(ValueError, match="factor"):
        stretch(np.ones((1, 3)), 0)
