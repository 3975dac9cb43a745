"""The hot paths take no more operations, and write no more, than they did when somebody last looked."""

import json

import pytest
import torch

from guard import KEPT, counts_of, hot_paths, version
from sightline import kernels

pytestmark = pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")

KEEPING = json.loads(KEPT.read_text())


@pytest.mark.skipif(version() != KEEPING["torch"], reason="counted with another version of PyTorch")
def test_hot_paths_take_no_more_than_before():
    paths = hot_paths()
    assert set(paths) == set(KEEPING["paths"])
    for name, call in paths.items():
        for unit, count in counts_of(call).items():
            kept = KEEPING["paths"][name][unit]
            assert count <= kept, f"{name} takes {count:,} {unit}; kept in {KEPT.name} are {kept:,}"


def test_a_slip_shows():
    x = torch.randn(8, 8)
    plain = counts_of(lambda: x @ x)
    assert plain == {"operations": 1, "elements": 64}
    assert counts_of(lambda: (x @ x).clone()) == {"operations": 2, "elements": 128}
    assert counts_of(lambda: (x @ x).t()) == plain, "a view is free"
    assert counts_of(lambda: (x @ x).add_(1)) == {"operations": 2, "elements": 128}
