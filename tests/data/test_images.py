"""Images out of files of every kind, good and bad."""

import io
import struct
import threading
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from encoded_images import encoded
from sightline.data import images
from sightline.data.images import (
    BadImage,
    ImageLimits,
    fit_image,
    fitting,
    open_image,
    read_fitted,
    read_image,
    read_images,
)
from sightline.errors import UserError
from sightline.synthetic.shapes import made_shapes


def corners():
    """Four colours, so that every turn of the image can be told from every other: 6 high, 8 wide."""
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[:3, :4], pixels[:3, 4:], pixels[3:, :4], pixels[3:, 4:] = (
        (250, 0, 0),
        (0, 250, 0),
        (0, 0, 250),
        (250, 250, 0),
    )
    return pixels


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png_header(width, height):
    """The beginning of a PNG that says it has this size, and nothing else."""
    about = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", about) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG"])
def test_every_format_gives_the_same_pixels(kind):
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(kind, {})
    found = read_image(encoded(np.kron(corners(), np.ones((4, 4, 1), np.uint8)), kind, **options))
    assert found.shape == (24, 32, 3)
    assert found.dtype == np.uint8
    expected = np.kron(corners(), np.ones((4, 4, 1), np.uint8)).astype(int)
    assert np.abs(found - expected).max() <= (8 if kind == "JPEG" else 0)


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_an_image_stands_upright_whatever_its_exif_says(turn, kind):
    # What each number of the EXIF standard says of the stored rows and columns, undone by hand.
    store = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.transpose(1, 0, 2),
        6: lambda x: np.rot90(x, 1),
        7: lambda x: x.transpose(1, 0, 2)[::-1, ::-1],
        8: lambda x: np.rot90(x, -1),
    }[turn]
    exif = Image.Exif()
    exif[0x0112] = turn
    options = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(np.ascontiguousarray(store(corners())), kind, exif=exif, **options)
    assert np.array_equal(read_image(content), corners())


def test_a_broken_note_does_not_make_an_image_bad():
    content = encoded(corners(), "PNG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\xff\xff")
    assert np.array_equal(read_image(content), corners())


def test_sixteen_bits_are_scaled_and_not_cut():
    grey = np.array([[0, 257, 32896, 65535]], np.uint16)
    assert read_image(encoded(grey))[0, :, 0].tolist() == [0, 1, 128, 255]
    assert read_image(encoded(grey, "TIFF"))[0, :, 0].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize(
    ("values", "expected"), [([0.0, 0.5, 1.0], [0, 128, 255]), ([0.0, 100.0, 255.0], [0, 100, 255])]
)
def test_floats_are_taken_by_their_range(values, expected):
    assert read_image(encoded(np.array([values], np.float32), "TIFF"))[0, :, 2].tolist() == expected


@pytest.mark.parametrize("values", [[-1.0, 0.0], [0.0, 1e9], [0.0, float("nan")]])
def test_numbers_that_are_no_image_are_refused(values):
    with pytest.raises(BadImage, match="not those of an image"):
        read_image(encoded(np.array([values], np.float32), "TIFF"))


def test_alpha_lies_over_white():
    pixels = np.zeros((1, 3, 4), np.uint8)
    pixels[0, :, 3] = [255, 128, 0]
    assert read_image(encoded(pixels))[0, :, 0].tolist() == [0, 127, 255]
    assert read_image(encoded(pixels, mode="LA"))[0, :, 0].tolist() == [0, 127, 255]


def test_palettes_grey_and_print_colours():
    assert np.array_equal(read_image(encoded(corners(), mode="P")), read_image(encoded(corners(), mode="P")))
    palette = Image.fromarray(corners()).quantize(4)
    file = io.BytesIO()
    palette.save(file, "PNG")
    assert np.array_equal(read_image(file.getvalue()), corners())
    clear = palette.getpixel((0, 0))
    file = io.BytesIO()
    palette.save(file, "PNG", transparency=clear)
    expected = corners()
    expected[:3, :4] = 255
    assert np.array_equal(read_image(file.getvalue()), expected)
    assert read_image(encoded(corners(), mode="L")).shape == (6, 8, 3)
    assert set(np.unique(read_image(encoded(corners(), mode="1")))) <= {0, 255}
    cmyk = read_image(encoded(np.kron(corners(), np.ones((8, 8, 1), np.uint8)), "JPEG", mode="CMYK", quality=100))
    assert np.abs(cmyk[8, 8].astype(int) - [250, 0, 0]).max() < 12


BAD = {
    "empty": (b"", "it is empty"),
    "text": (b"not an image at all, but named .jpg\n" * 10, "it is no image: expected JPEG, PNG"),
    "truncated": (encoded(made_shapes(1)[0].pixels, "JPEG")[:-400], "it is truncated"),
    "header": (encoded(corners(), "PNG")[:20], "it is"),
    "damaged": (encoded(made_shapes(1)[0].pixels, "PNG")[:200] + bytes(3000), "it is"),
    "bomb": (png_header(20_000, 20_000), "too large: found 400,000,000 pixels, expected at most 100,000,000"),
    "large": (png_header(12_000, 10_000), "too large: found 12,000 × 10,000 pixels, expected at most 100,000,000"),
    "nothing": (png_header(0, 10), "it "),
    "program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is no image"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "it is no image"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_says_why(name, tmp_path):
    content, expected = BAD[name]
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    for source in (path, content):
        with pytest.raises(BadImage) as error:
            read_image(source)
        assert expected in str(error.value)
        assert "photo.jpg" not in str(error.value)  # whoever reads many says which one


def test_a_bomb_is_refused_from_its_header(monkeypatch):
    """Nothing of it is decoded: a file that has pixels indeed, and few are allowed."""
    content = encoded(np.zeros((100, 100, 3), np.uint8))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(BadImage, match=r"found 100 × 100 pixels, expected at most 9,999"):
        read_image(content, ImageLimits(most_pixels=9_999))
    with open_image(content, ImageLimits()) as image:
        assert image.size == (100, 100)


def test_what_is_no_file_is_bad_too(tmp_path):
    for path, expected in (
        (tmp_path, "it is a folder"),
        (tmp_path / "none.jpg", "there is no such file"),
        (Path("a\0b"), "it cannot be read"),
        (Path("/dev/zero"), "it is no regular file"),
    ):
        with pytest.raises(BadImage, match=expected):
            read_image(path)
    (tmp_path / "long.png").write_bytes(encoded(corners()))
    with pytest.raises(BadImage, match=r"too large: found \d+ bytes, expected at most 20"):
        read_image(tmp_path / "long.png", ImageLimits(most_bytes=20))


@pytest.mark.parametrize("limits", [{"most_pixels": 0}, {"most_pixels": 10**9}, {"most_bytes": 0}])
def test_limits_are_checked(limits):
    with pytest.raises(UserError, match="must be at least 1"):
        ImageLimits(**limits)


def test_one_pixel_is_an_image():
    content = encoded(np.full((1, 1, 3), 77, np.uint8))
    assert read_fitted(content, 32, 48).shape == (32, 48, 3)
    assert (read_fitted(content, 32, 48) == 77).all()
    assert (read_fitted(content, 4, 8, "pad")[:, [0, 1, 6, 7]] == 0).all()


def test_fitting_keeps_what_it_says():
    assert fitting(100, 200, 50, 50, "stretch") == ((0, 0, 200, 100), (0, 0, 50, 50))
    assert fitting(100, 200, 50, 50, "crop") == ((50, 0, 150, 100), (0, 0, 50, 50))
    assert fitting(100, 200, 50, 50, "pad") == ((0, 0, 200, 100), (0, 12, 50, 37))
    for fit in ("stretch", "crop", "pad"):
        of, to = fitting(1, 5000, 7, 3, fit)
        assert of[2] > of[0]
        assert of[3] > of[1]
        assert to[2] > to[0]
        assert to[3] > to[1]
        assert fit_image(np.zeros((1, 5000, 3), np.uint8), 7, 3, fit).shape == (7, 3, 3)


def test_shrinking_averages_and_labels_stay_labels():
    lines = np.zeros((64, 64, 3), np.uint8)
    lines[::2] = 200  # every second row: without averaging, one that is shrunk would be all light or all dark
    assert np.abs(fit_image(lines, 8, 8).astype(int) - 100).max() <= 6
    mask = np.zeros((33, 47), np.uint8)
    mask[5:20, 7:30] = 7
    small = fit_image(mask, 16, 16, smooth=False)
    assert small.shape == (16, 16)
    assert set(np.unique(small)) == {0, 7}
    with pytest.raises(ValueError, match="uint8"):
        fit_image(np.zeros((4, 4, 3)), 2, 2)
    with pytest.raises(ValueError, match="height is 0"):
        fit_image(mask, 0, 4)


def test_a_large_jpeg_is_read_quickly_and_looks_the_same():
    ramp = np.linspace(0, 255, 1200).astype(np.uint8)
    pixels = np.stack(
        [np.tile(ramp, (900, 1)), np.tile(ramp[:900, None], (1, 1200)), np.full((900, 1200), 90, np.uint8)], -1
    )
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(pixels, "JPEG", quality=95, exif=exif)
    for fit in ("stretch", "crop", "pad"):
        quick, slow = read_fitted(content, 60, 80, fit), fit_image(read_image(content), 60, 80, fit)
        assert np.abs(quick.astype(int) - slow).max() <= 3, fit
    sizes = []
    original = Image.Image.resize
    try:
        Image.Image.resize = lambda self, *args, **options: sizes.append(self.size) or original(self, *args, **options)
        read_fitted(content, 60, 80)
    finally:
        Image.Image.resize = original
    assert max(sizes[-1]) < 1200


def test_images_come_in_order_and_bad_ones_in_their_place(tmp_path):
    paths = []
    for number in range(30):
        path = tmp_path / f"{number}.png"
        path.write_bytes(b"" if number % 7 == 3 else encoded(np.full((5, 4, 3), number, np.uint8)))
        paths.append(path)
    for workers in (0, 1, 3):
        found = list(read_images(iter(paths), 6, 6, workers=workers))
        assert [number for number, _ in found] == list(range(30))
        for number, pixels in found:
            assert isinstance(pixels, BadImage) == (number % 7 == 3)
            assert isinstance(pixels, BadImage) or (pixels == number).all()


def test_no_more_images_wait_than_agreed_and_leaving_early_ends_the_threads():
    asked = []
    content = encoded(corners())

    def sources():
        for number in range(1000):
            asked.append(number)
            yield content

    before = set(threading.enumerate())  # other tests may have left some to the garbage collector
    reading = read_images(sources(), 4, 4, workers=2)
    next(reading)
    assert len(asked) <= 10
    reading.close()
    for thread in set(threading.enumerate()) - before:  # what is being decoded is decoded to its end
        thread.join(timeout=5)
        assert not thread.is_alive()
    with pytest.raises(ValueError, match="workers"):
        next(read_images([], 4, 4, workers=-1))


@pytest.mark.parametrize("large", [True, False])
def test_large_images_are_decoded_one_at_a_time(monkeypatch, large):
    monkeypatch.setattr(images, "LARGE", 20 if large else 400)
    decode, lock, both = images._upright_colour, threading.Lock(), threading.Barrier(2)
    inside, most = [], []

    def watched(image):
        with lock:
            inside.append(image)
            most.append(len(inside))
        if large:
            time.sleep(0.01)
        else:
            both.wait(20)  # for ever, if the other waited too
        with lock:
            inside.pop()
        return decode(image)

    monkeypatch.setattr(images, "_upright_colour", watched)
    contents = [encoded(np.full((5, 5, 3), number, np.uint8)) for number in range(6)]
    found = [pixels.max() for _, pixels in read_images(contents, 5, 5, workers=2)]
    assert found == list(range(6))
    assert max(most) == (1 if large else 2)


def test_a_large_jpeg_that_is_decoded_small_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(images, "LARGE", 40 * 40)
    content = encoded(np.zeros((160, 160, 3), np.uint8), "JPEG")
    with images._large_one:
        assert read_fitted(content, 8, 8).shape == (8, 8, 3)


def test_warnings_of_the_reader_go_nowhere_and_ours_stay():
    before = list(warnings.filters)
    with open_image(png_header(9_600, 9_500), ImageLimits()) as image:  # large enough for Pillow to warn, and allowed
        assert image.size == (9_600, 9_500)
    list(read_images([encoded(corners())] * 20, 8, 8, workers=4))
    assert warnings.filters == before
