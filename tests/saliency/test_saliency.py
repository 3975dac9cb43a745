"""The model of saliency against the paper's formulas in NumPy, and what it must find."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.errors import UserError
from sightline.saliency import PathConfig, SaliencyConfig, prepare_image, saliency, saliency_stream
from sightline.saliency import model as model_module
from sightline.saliency.arrays import pop_out
from sightline.saliency.model import LOWEST_PEAK, opponents, promote, saliency_maps
from sightline.saliency.pyramids import blur, gabors, halve, orientations, pyramid, resize

SMALL = SaliencyConfig(side=640)


def noise_image(height, width, seed=0):
    """Coloured blobs: noise at an eighth of the size, made larger, and a little of it at the full size."""
    draw = np.random.default_rng(seed)
    small = draw.integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    return (0.9 * smooth + draw.integers(0, 26, (height, width, 3))).astype(np.uint8)


# ---- The paper, transcribed in NumPy, with loops where the model has none.


def numpy_halve(image):
    for _ in range(2):
        image = np.pad(image, ((1, 1 + len(image) % 2), (0, 0)), mode="edge")
        rows = range(0, len(image) - 3, 2)
        image = np.array(
            [(image[row] + 3 * image[row + 1] + 3 * image[row + 2] + image[row + 3]) / 8 for row in rows]
        ).T
    return image


def numpy_enlarge(image, shape):
    for size in shape:
        places = (np.arange(size) + 0.5) * len(image) / size - 0.5
        image = np.array([np.interp(places, np.arange(len(image)), line) for line in image.T])
    return image


def numpy_shrink(image, shape):
    ratio = image.shape[0] // shape[0]
    return image.reshape(shape[0], ratio, shape[1], ratio).max(axis=(1, 3))


def numpy_promote(image, faint=1e-4):
    span = image.max() - image.min()
    image = (image - image.min()) / span
    peaks, padded = [], np.pad(image, 3, constant_values=-1)
    places = []
    for (row, column), value in np.ndenumerate(image):
        if value >= LOWEST_PEAK and value >= padded[row : row + 7, column : column + 7].max():
            if not any(row - above <= 3 and abs(column - beside) <= 3 for above, beside in places):
                peaks.append(value)
            places.append((row, column))  # equal ones side by side are one maximum
    peaks.remove(max(peaks))
    return image * (1 - (sum(peaks) / len(peaks) if peaks else 0)) ** 2 * min(1, span / faint)


def numpy_gabor(image, angle):
    place = np.arange(-3, 4)
    x, y = np.meshgrid(place, place)
    window = np.exp(-(x**2 + y**2) / (2 * (4 / 3) ** 2))
    total = 0
    for phase in (0, math.pi / 2):
        wave = np.cos(2 * math.pi / 4 * (x * math.cos(angle) + y * math.sin(angle)) - phase)
        kernel = window * (wave - (window * wave).sum() / window.sum())
        kernel /= np.abs(kernel).sum()
        padded = np.pad(image, 3, mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7))
        total = total + (windows * kernel).sum(axis=(2, 3)) ** 2
    return np.sqrt(total)


def numpy_saliency(pixels):
    rgb = pixels.astype(np.float64) / 255
    intensity = rgb.mean(axis=2)
    seen = intensity > intensity.max() / 10
    r, g, b = (np.where(seen, rgb[..., i] / np.where(seen, intensity, 1), 0) for i in range(3))
    red, green, blue = r - (g + b) / 2, g - (r + b) / 2, b - (r + g) / 2
    yellow = (r + g) / 2 - np.abs(r - g) / 2 - b
    red, green, blue, yellow = (np.maximum(one, 0) for one in (red, green, blue, yellow))
    levels = {}
    for name, start in {"I": intensity, "R": red, "G": green, "B": blue, "Y": yellow}.items():
        for level in range(2, 10):
            levels[name, level] = start if level == 2 else numpy_halve(levels[name, level - 1])
    angles = [0, math.pi / 4, math.pi / 2, 3 * math.pi / 4]
    shape = levels["I", 4].shape

    def added_up(feature, faint):
        total = 0
        for c in (2, 3, 4):
            for s in (c + 3, c + 4):
                centre = feature(c)
                contrast = np.abs(centre - numpy_enlarge(feature(s), centre.shape))
                total = total + numpy_shrink(numpy_promote(contrast, faint), shape)
        return total

    of_intensity = added_up(lambda k: levels["I", k], 0.5)
    of_colour = added_up(lambda k: levels["R", k] - levels["G", k], 2.0)
    of_colour = of_colour + added_up(lambda k: levels["B", k] - levels["Y", k], 2.0)
    of_orientation = 0
    for angle in angles:
        striped = {}
        for k in range(2, 9):
            own = levels["I", k] - numpy_enlarge(levels["I", k + 1], levels["I", k].shape)
            striped[k] = numpy_gabor(own, angle)
        of_orientation = of_orientation + numpy_promote(added_up(striped.__getitem__, 0.15))
    return (numpy_promote(of_intensity) + numpy_promote(of_colour) + numpy_promote(of_orientation)) / 3


@pytest.mark.parametrize("shape", [(96, 128), (128, 72)])
def test_the_model_is_the_paper(shape):
    pixels = noise_image(*shape)
    found = saliency_maps(torch.from_numpy(pixels)[None]).saliency[0]
    np.testing.assert_allclose(found, numpy_saliency(pixels), atol=2e-4)


def test_the_number_of_maps_is_the_papers(monkeypatch):
    promoted = []

    def counting(maps, *faint):
        promoted.append(maps.shape[1])
        return promote(maps, *faint)

    monkeypatch.setattr(model_module, "promote", counting)
    saliency_maps(torch.from_numpy(noise_image(64, 64))[None])
    assert sum(promoted) == 6 + 12 + 24 + 4 + 3  # and each angle's sum, and the three conspicuity maps


def test_the_colours_are_the_papers():
    image = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(1))
    image[1, :, 2] *= 0.05  # too dark to have a hue
    found = opponents(image, image.mean(dim=1, keepdim=True))
    for number, row, column in np.ndindex(2, 5, 7):
        r, g, b = image[number, :, row, column].tolist()
        i = (r + g + b) / 3
        if i <= float(image[number].mean(dim=0).max()) / 10:
            r = g = b = 0.0
        else:
            r, g, b = r / i, g / i, b / i
        red, green, blue = max(0, r - (g + b) / 2), max(0, g - (r + b) / 2), max(0, b - (r + g) / 2)
        yellow = max(0, (r + g) / 2 - abs(r - g) / 2 - b)
        assert found[number, 0, row, column] == pytest.approx(red - green, abs=1e-5)
        assert found[number, 1, row, column] == pytest.approx(blue - yellow, abs=1e-5)
    assert not found[1, :, 2].any()


def test_one_peak_is_promoted_and_many_alike_vanish():
    one, many = torch.zeros(1, 1, 20, 20), torch.zeros(1, 1, 20, 20)
    one[..., 5, 5] = 3.0
    many[..., 2::5, 2::5] = 3.0
    assert promote(one).max() == 1
    assert not promote(many).any()
    two = one.clone()
    two[..., 15, 15] = 1.5
    assert promote(two).max() == pytest.approx((1 - 0.5) ** 2)
    assert not promote(torch.full((1, 1, 4, 4), 0.3)).any()


def test_places_that_are_equally_high_side_by_side_are_one_peak():
    for height, width in ((2, 2), (1, 4), (3, 1), (1, 15), (9, 9)):
        flat = torch.zeros(1, 1, 20, 20)
        flat[..., 5 : 5 + height, 3 : 3 + width] = 3.0
        assert promote(flat).max() == 1, (height, width)
        flat[..., 18, 18] = 1.5
        assert promote(flat).max() == pytest.approx((1 - 0.5) ** 2)
        assert promote(flat.flip(2, 3)).max() == pytest.approx((1 - 0.5) ** 2)


def test_a_peak_is_the_first_of_those_around_it():
    draw = np.random.default_rng(0)
    maps = draw.integers(0, 4, (5, 11, 13)) / 3  # many are equal
    found = model_module._peaks(torch.from_numpy(maps)[None].float())[0].numpy()
    padded = np.pad(maps, ((0, 0), (3, 3), (3, 3)), constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7), axis=(1, 2))
    highest = maps == windows.max(axis=(3, 4))
    for number, row, column in np.ndindex(maps.shape):
        above = highest[number, max(0, row - 3) : row, max(0, column - 3) : column + 4]
        beside = highest[number, row, max(0, column - 3) : column]
        assert found[number, row, column] == (highest[number, row, column] and not above.any() and not beside.any())
    assert highest.sum() > found.sum() > 10


@pytest.mark.parametrize(("side", "least"), [(16, 0.3), (24, 0.3), (40, 0.3), (120, 0.01)])
def test_a_square_in_the_middle_of_nothing_stands_out(side, least):
    """All that it has is there twice or four times, and alike."""
    image = np.zeros((320, 320, 3), dtype=np.uint8)
    first = 160 - side // 2
    image[first : first + side, first : first + side] = 255
    (found,) = saliency([image], path=PathConfig(1))
    assert found.raw.max() > least
    (fixation,) = found.path
    assert max(abs(fixation.x - 160), abs(fixation.y - 160)) <= side / 2 + 4


def test_where_nothing_is_promoted_maps_are_added_up_as_they_are(monkeypatch):
    images = torch.from_numpy(np.stack([np.full((64, 64, 3), 9, np.uint8), noise_image(64, 64)]))
    images[0, 24:40, 24:40] = 250
    whole = saliency_maps(images)

    def only_noise(maps, *faint):
        found = promote(maps, *faint)
        return torch.cat([0 * found[:-1], found[-1:]])

    monkeypatch.setattr(model_module, "promote", only_noise)
    found = saliency_maps(images)
    assert torch.equal(found.saliency[1], whole.saliency[1])
    assert found.saliency[0].max() > 0.3
    row, column = divmod(int(found.saliency[0].argmax()), 16)
    assert 5 <= row <= 10
    assert 5 <= column <= 10
    torch.testing.assert_close(found.saliency, found.conspicuity.mean(dim=1))


def test_a_pyramid_keeps_places_where_they_are():
    ramp = torch.arange(64.0).expand(1, 1, 64, 64)
    levels = pyramid(ramp, 4)
    for level, maps in enumerate(levels):
        middle = maps[0, 0, 0, 1:-1] if level else maps[0, 0, 0]
        wide = 2**level
        expected = (torch.arange(64 // wide) + 0.5) * wide - 0.5
        inner = slice(1, -1) if level else slice(None)
        assert torch.allclose(middle[inner], expected[1:-1][inner] if level else expected, atol=0.3)
    assert [tuple(one.shape[2:]) for one in pyramid(torch.zeros(1, 1, 5, 1), 4)] == [(5, 1), (3, 1), (2, 1), (1, 1)]
    assert torch.allclose(halve(torch.full((1, 1, 7, 5), 0.7)), torch.tensor(0.7))


def test_orientations_are_told_apart():
    x = torch.arange(40.0)
    upright = (torch.cos(2 * math.pi / 4 * x)[None, :]).expand(40, 40)[None, None]
    slanted = torch.cos(2 * math.pi / 4 * (x[None] + x[:, None]) / 2**0.5)[None, None]
    filters = gabors(4, upright)
    inside = slice(10, -10)
    for stripes, angle in ((upright, 0), (slanted, 1), (upright.transpose(2, 3), 2), (slanted.flip(3), 3)):
        found = orientations(stripes, halve(stripes), filters)[0, :, inside, inside].mean(dim=(1, 2))
        assert int(found.argmax()) == angle
        assert found[angle] > 5 * found[(angle + 2) % 4]
    assert orientations(torch.ones(1, 1, 20, 20), torch.ones(1, 1, 10, 10), filters).max() < 1e-6


def test_blur_is_a_gaussian_and_keeps_the_sum():
    dot = torch.zeros(1, 1, 41, 41)
    dot[..., 20, 20] = 1.0
    smooth = blur(dot, 3.0)
    assert smooth.sum() == pytest.approx(1, abs=1e-5)
    assert smooth[0, 0, 20, 23] / smooth[0, 0, 20, 20] == pytest.approx(math.exp(-0.5), rel=1e-4)
    assert blur(dot, 0.0) is dot
    assert torch.allclose(blur(torch.full((1, 1, 6, 3), 0.4), 5.0), torch.tensor(0.4))


# ---- What it must find.


def found_first(oddity, colours):
    arrays = [pop_out(oddity, seed) for seed in range(1010, 1016)]
    found = saliency([array.pixels for array in arrays], SaliencyConfig(colours=colours), PathConfig(fixations=1))
    return sum(
        array.nearest(one.path[0].x, one.path[0].y) == array.odd for array, one in zip(arrays, found, strict=True)
    )


@pytest.mark.parametrize("oddity", ["colour", "orientation"])
def test_the_odd_one_is_looked_at_first(oddity):
    assert found_first(oddity, "opposed") >= 5


def test_the_printed_formula_of_the_colours_does_not_see_the_odd_one():
    assert found_first("colour", "printed") <= 1


def test_arrays_differ_by_seed_and_only_in_what_is_odd():
    one, again, other = pop_out("colour", 3), pop_out("colour", 3), pop_out("colour", 4)
    assert np.array_equal(one.pixels, again.pixels)
    assert one.odd == again.odd
    assert not np.array_equal(one.pixels, other.pixels)
    x, y = map(round, one.places[one.odd])
    assert one.pixels[y, x, 0] > one.pixels[y, x, 1]
    others = [one.pixels[round(y), round(x)] for place, (x, y) in enumerate(one.places) if place != one.odd]
    assert all(pixel[1] > pixel[0] for pixel in others)
    assert {int(pixel.astype(int).sum()) for pixel in [*others, one.pixels[y, x]]} == {316}  # as bright as each other


def test_a_batch_gives_what_each_image_gives_alone():
    images = [noise_image(60, 80, 1), noise_image(90, 40, 2), noise_image(61, 80, 3), noise_image(30, 40, 4)]
    together = saliency(images, SMALL)
    for image, one in zip(images, together, strict=True):
        (alone,) = saliency([image], SMALL)
        np.testing.assert_allclose(one.map, alone.map, atol=1e-5)
        assert one.map.shape == image.shape[:2]
        assert [(fix.x, fix.y) for fix in one.path] == [(fix.x, fix.y) for fix in alone.path]


def test_a_stream_gives_every_image_back_and_keeps_few(monkeypatch):
    monkeypatch.setattr("sightline.saliency.compute.WAITING", 3)
    taken = []

    def images():
        for number in range(9):
            taken.append(number)
            yield number, prepare_image(noise_image(16 + 16 * (number % 4), 64, number), SMALL)

    back = []
    for number, _, found in saliency_stream(images(), SMALL, PathConfig(0), batch=2):
        back.append(number)
        assert len(taken) - len(back) <= 3
        assert found.height == 16 + 16 * (number % 4)
    assert sorted(back) == list(range(9))


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (500, 1), (40, 30)])
def test_nothing_stands_out_in_a_flat_image_of_any_shape(shape):
    (found,) = saliency([np.full((*shape, 3), 117, dtype=np.uint8)], SMALL)
    assert found.map.shape == shape
    assert not found.map.any()
    assert found.path == ()
    assert found.to_json() == {"width": shape[1], "height": shape[0], "most_salient": 0.0, "fixations": []}


def test_a_large_image_has_a_map_of_640_pixels_and_places_of_its_own():
    image = np.full((700, 1400, 3), 40, dtype=np.uint8)
    image[100:160, 1200:1260] = 230
    (found,) = saliency([image], SMALL)
    assert found.map.shape == (320, 640)
    assert math.dist((found.path[0].x, found.path[0].y), (1230, 130)) < 40
    peak = np.unravel_index(found.map.argmax(), found.map.shape)
    assert math.dist(peak, (130 * 320 / 700, 1230 * 640 / 1400)) < 25
    assert found.resized(35, 70).shape == (35, 70)


def test_wrong_images_are_said(tmp_path):
    text = tmp_path / "text.jpg"
    text.write_text("no image")
    with pytest.raises(UserError, match=r"text\.jpg: it is no image"):
        saliency([text])
    for wrong in (np.zeros((4, 4)), np.zeros((4, 4, 4), dtype=np.uint8), np.zeros((0, 4, 3), dtype=np.uint8)):
        with pytest.raises(UserError, match=r"an image (is|has)"):
            saliency([wrong])
    for options in ({"side": 10}, {"blur": -1.0}, {"blur": math.nan}):
        with pytest.raises(UserError, match="must be at least"):
            SaliencyConfig(**options)
    for options in ({"fixations": -1}, {"milliseconds": 0}):
        with pytest.raises(UserError, match="must be at least"):
            PathConfig(**options)


def test_resize_takes_the_mean_or_goes_over_smoothly():
    maps = torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]])
    assert resize(maps, (1, 1)).item() == 1.5
    assert resize(maps, (2, 2)) is maps
    assert resize(maps, (4, 4))[0, 0, 0].tolist() == pytest.approx([0.0, 0.25, 0.75, 1.0])
