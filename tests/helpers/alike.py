"""What `test_serve` and other tests share."""

import pytest


def assert_alike(found, expected):
    """The same data. Numbers may differ in their last digits: which kernel adds them up depends on where they lie."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_alike(list(found.values()), list(expected.values()))
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    else:
        assert found == expected
