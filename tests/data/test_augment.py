"""Features at another speed."""

import numpy as np
import pytest

from sightline.data.augment import stretch


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
