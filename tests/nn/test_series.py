"""Series of frames: the pyramid against PyTorch's own layers, padding that changes nothing, masks in their limits."""

import numpy as np
import pytest
import torch
from torch import nn

from sightline.inputs.series import principal_axes
from sightline.nn.series import (
    ClipNorm,
    FeatureNorm,
    FrameMaskingConfig,
    PyramidEncoder,
    SeriesBatch,
    SeriesFrontConfig,
    SeriesShape,
    frame_mask,
    masked,
    reduced,
    stacked,
    with_deltas,
)

LENGTHS = torch.tensor([11, 7, 1])


def series(size=3, longest=11):
    torch.manual_seed(0)
    return SeriesBatch(torch.randn(len(LENGTHS), longest, size), LENGTHS)


def alone(batch, row):
    """One series by itself, without padding."""
    length = int(batch.lengths[row])
    return SeriesBatch(batch.values[row : row + 1, :length], batch.lengths[row : row + 1])


@pytest.mark.parametrize("reduces", [(2, 2), (1, 2), (3,), (1, 1)])
def test_the_pyramid_concatenates_neighbours(reduces):
    """Against `nn.LSTM` over each series by itself; of an odd length the last frame has zeros beside it."""
    torch.manual_seed(1)
    encoder, batch = PyramidEncoder("lstm", 3, 4, reduces), series()
    encoded, mask = encoder(batch.values, frame_mask(batch.lengths, 11))
    for row, length in enumerate(LENGTHS.tolist()):
        x = batch.values[row, :length]
        for layer, count in zip(encoder.layers, reduces, strict=True):
            missing = -len(x) % count
            x = torch.cat([x, x.new_zeros(missing, x.shape[1])]).reshape(-1, count * x.shape[1])
            x = layer.layers[0](x.unsqueeze(0))[0][0]
        assert mask[row].sum() == len(x) == reduced(length, reduces)
        torch.testing.assert_close(encoded.annotations[row, : len(x)], x)
        torch.testing.assert_close(encoded.forward[row], x[-1, :4])
        torch.testing.assert_close(encoded.backward[row], x[0, 4:])


def test_stacking_keeps_what_is_alone_at_the_end():
    x, mask = stacked(torch.ones(1, 5, 2), torch.ones(1, 5, dtype=torch.bool), 2)
    assert x.tolist() == [[[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]]]
    assert mask.all()


@pytest.mark.parametrize("frame", [(3,), (8, 6)])
@pytest.mark.parametrize("centring", ["item", "data"])
def test_padding_changes_nothing(frame, centring):
    torch.manual_seed(2)
    front = SeriesFrontConfig(centring=centring, deltas=1, channels=(4, 4)).build(SeriesShape(frame)).eval()
    values = torch.randint(0, 255, (3, 11, *frame), dtype=torch.uint8)
    batch = SeriesBatch(values, LENGTHS)
    together, mask = front(batch)
    assert together.shape[-1] == front.size
    for row, length in enumerate(LENGTHS.tolist()):
        by_itself, _ = front(alone(batch, row))
        torch.testing.assert_close(together[row, :length], by_itself[0], rtol=1e-4, atol=1e-5)
        assert not together[row, length:].any()
    assert mask.sum(dim=1).tolist() == LENGTHS.tolist()


def test_features_are_centred_without_the_padding():
    norm = FeatureNorm(2, "item")
    norm.scale.copy_(torch.tensor([1.0, 0.5]))
    x = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [100.0, 100.0]]])
    given = norm(x, torch.tensor([[True, True, False]]))
    assert given.tolist() == [[[-1, -1], [1, 1], [0, 0]]]


def test_slopes_are_those_of_two_frames_to_each_side():
    """Σ n (x_{t+n} − x_{t−n}) ÷ 2 Σ n², the ends repeated, as a plain loop."""
    x = np.random.default_rng(0).normal(size=(6, 2))
    expected = np.zeros_like(x)
    for time in range(6):
        for step in (1, 2):
            expected[time] += step * (x[min(time + step, 5)] - x[max(time - step, 0)])
    batch = torch.zeros(1, 9, 2)
    batch[0, :6] = torch.from_numpy(x)
    given = with_deltas(batch, frame_mask(torch.tensor([6]), 9), 1)
    np.testing.assert_allclose(given[0, :6, 2:], expected / 10, atol=1e-6)
    assert not given[0, 6:].any()


def test_masks_keep_to_their_shares():
    """Of 200 draws none covers more than its share, and both kinds are drawn."""
    torch.manual_seed(3)
    config = FrameMaskingConfig(bands=1, band=0.25, stretches=1, stretch=0.2)
    lengths = torch.full((200,), 20)
    hidden = masked(torch.ones(200, 20, 8), lengths, config) == 0
    bands, stretches = hidden.all(dim=1).sum(dim=1), hidden.all(dim=2).sum(dim=1)
    assert bands.max() == 2
    assert stretches.max() == 4
    assert bands.min() == stretches.min() == 0


def test_masks_are_for_training_only():
    front = SeriesFrontConfig(masking=FrameMaskingConfig(stretches=2, stretch=0.9)).build(SeriesShape((3,)))
    batch = series()
    assert torch.equal(front.eval()(batch)[0], front.eval()(batch)[0])
    torch.manual_seed(0)
    assert not torch.equal(front.train()(batch)[0], front.eval()(batch)[0])


def test_a_clip_is_seen_through_three_frames_at_a_time(monkeypatch):
    """What happens two frames away changes nothing behind a layer, but for what is measured of the whole clip."""
    monkeypatch.setattr(ClipNorm, "forward", lambda self, x, there: x)
    torch.manual_seed(4)
    front = SeriesFrontConfig(channels=(2,), centring="data").build(SeriesShape((8, 8))).eval()
    assert isinstance(front.convolutions[0], nn.Conv3d)
    clip = torch.randint(0, 255, (1, 9, 8, 8)).float()
    other = clip.clone()
    other[0, 8] = clip[0, 8].flip(0)  # the same numbers, so the same mean and deviation
    first, second = front(SeriesBatch(clip, torch.tensor([9])))[0], front(SeriesBatch(other, torch.tensor([9])))[0]
    torch.testing.assert_close(first[0, :7], second[0, :7])
    assert not torch.allclose(first[0, 8], second[0, 8])


def test_padding_changes_nothing_of_a_clip():
    torch.manual_seed(0)
    clip = torch.rand(1, 9, 8, 12) * 255
    for config in (SeriesFrontConfig(channels=(4, 8)), SeriesFrontConfig(components=5, deltas=1)):
        front = config.build(SeriesShape((8, 12))).eval()
        padded = torch.cat([clip, torch.rand(1, 5, 8, 12) * 255], dim=1)
        alone, mask = front(SeriesBatch(clip, torch.tensor([9])))
        beside, longer = front(SeriesBatch(padded, torch.tensor([9])))
        torch.testing.assert_close(alone, beside[:, :9], atol=1e-4, rtol=1e-4)
        assert (mask.all(), int(longer.sum())) == (True, 9)


def test_a_clip_is_normalised_as_a_whole():
    """Each channel has mean 0 and deviation 1 over the frames that are there; a still frame stays quiet."""
    torch.manual_seed(0)
    x, there = torch.randn(1, 2, 6, 3, 4) * 5 + 2, torch.ones(1, 1, 6, 1, 1, dtype=torch.bool)
    there[:, :, 4:] = False
    x[:, :, 1] = x[:, :, :4].mean(dim=(2, 3, 4), keepdim=True).squeeze(2)
    normalised = ClipNorm(2)(x, there)[:, :, :4]
    torch.testing.assert_close(normalised.mean(dim=(2, 3, 4)), torch.zeros(1, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalised.std(dim=(2, 3, 4), correction=0), torch.ones(1, 2), atol=1e-4, rtol=0)
    assert normalised[:, :, 1].abs().max() < 0.3


def test_images_become_their_principal_components():
    draw = np.random.default_rng(0)
    bases = np.linalg.qr(draw.normal(size=(12, 3)))[0]
    clips = [
        (100 + 10 * draw.normal(size=(8, 3)) @ (np.array([[3], [2], [1]]) * bases.T)).reshape(8, 3, 4)
        for _ in range(20)
    ]
    mean, axes = principal_axes(clips, 12, 3)
    np.testing.assert_allclose(np.abs((bases * axes).sum(axis=0)), 1, atol=0.1)  # the largest first, of either sign
    front = SeriesFrontConfig(components=3, masking=None, centring="data").build(SeriesShape((3, 4))).eval()
    front.project(torch.from_numpy(mean), torch.from_numpy(axes))
    clip = torch.from_numpy(clips[0]).float().unsqueeze(0)
    vectors, _ = front(SeriesBatch(clip, torch.tensor([8])))
    expected = (clips[0].reshape(8, 12) - mean) @ axes
    np.testing.assert_allclose(vectors[0].numpy(), expected, atol=1e-3)


def test_components_of_large_frames_are_refused():
    with pytest.raises(ValueError, match="set smaller height and width"):
        SeriesFrontConfig(components=64).build(SeriesShape((100, 100)))
    assert SeriesFrontConfig(components=64).build(SeriesShape((3, 4))).size == 12  # there are no more
