"""The scan path of saliency: which place is looked at next, when, and when no more."""

from itertools import pairwise

import pytest
import torch

from sightline.saliency import PathConfig
from sightline.saliency.competition import scan_paths


def hills(*places, size=60):
    """A map with smooth peaks: (row, column, height)."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    maps = [high * torch.exp(-((rows - row) ** 2 + (columns - column) ** 2) / 8) for row, column, high in places]
    return torch.stack(maps).amax(dim=0)[None]


def places(path, size=600, cells=60):
    return [(int(one.y * cells / size), int(one.x * cells / size)) for one in path]


def test_places_are_looked_at_in_the_order_of_their_saliency():
    maps = hills((10, 10, 0.3), (10, 50, 0.5), (50, 30, 0.4))
    (path,) = scan_paths(maps, [(600, 600)], PathConfig(3))
    assert places(path) == [(10, 50), (50, 30), (10, 10)]
    assert [one.saliency for one in path] == pytest.approx([0.5, 0.4, 0.3])


def test_times_are_those_of_the_paper():
    (path,) = scan_paths(hills((10, 10, 0.8), (50, 50, 1.0), (10, 50, 0.6)), [(600, 600)], PathConfig(8))
    first = [one.milliseconds for one in path[:3]]
    assert 30 <= first[0] <= 70
    assert all(30 <= later - earlier <= 70 for earlier, later in pairwise(first))
    back = next(one for one in path[1:] if places([one]) == [(50, 50)])  # it returns, but not at once
    assert 500 <= back.milliseconds - first[0] <= 900


def test_attention_does_not_stay_within_its_disc():
    (path,) = scan_paths(hills((30, 30, 1.0), (33, 33, 0.95), (50, 50, 0.3)), [(600, 600)], PathConfig(2))
    assert places(path)[1] == (50, 50)


def test_the_nearer_of_two_alike_is_preferred():
    for far, near in (((30, 55), (30, 18)), ((55, 30), (43, 30))):
        (path,) = scan_paths(hills((30, 30, 1.0), (*far, 0.5), (*near, 0.5)), [(600, 600)], PathConfig(2))
        assert places(path)[1] == near


def test_maps_in_a_batch_do_not_disturb_each_other():
    first, second = hills((10, 10, 1.0), (40, 40, 0.2)), hills((50, 5, 0.1), (5, 50, 0.09))
    flat = torch.zeros_like(first)
    sizes = [(600, 600), (300, 300), (600, 600)]
    together = scan_paths(torch.cat([first, second, flat]), sizes)
    assert together == [scan_paths(maps, [size])[0] for maps, size in zip((first, second, flat), sizes, strict=True)]
    assert together[2] == ()
    assert len(together[0]) == PathConfig().fixations


def test_time_ends():
    (path,) = scan_paths(hills((10, 10, 1.0)), [(600, 600)], PathConfig(milliseconds=100))
    assert len(path) == 1
