"""Hostile images: counted before they are decoded, and decoded in a process that can be killed."""

import os
import struct
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from hostile_images import chunk, comment, gif, good, jpeg, png, segment, tiles, webp
from sightline.data.decoding import Decoding
from sightline.data.image_parts import too_many_parts
from sightline.data.images import BadImage, ImageLimits, read_fitted, read_image
from sightline.data.sound import BadSound, SoundLimits, read_sound, wav_bytes

LIMITS = ImageLimits(1_000_000, 4 << 20)
PROGRESSIVE = good("JPEG", progressive=True)


@pytest.fixture(scope="module")
def decoding():
    one = Decoding(LIMITS, 60.0)
    yield one
    one.end()


PARTS = {
    "JPEG of 1,500 scans": jpeg(400, 300, 1500),
    "JPEG of 99 scans of many pixels": jpeg(7000, 7000, 99),
    "JPEG of many comments": b"\xff\xd8" + segment(0xFE, b"") * 6_000 + good("JPEG")[2:],
    "JPEG of many tables": b"\xff\xd8" + segment(0xDB, bytes([0] + [1] * 64)) * 6_000 + good("JPEG")[2:],
    "PNG of many texts": png(8, 8, chunk(b"tEXt", b"k\0") * 3_000),
    "PNG of many texts at its end": png(8, 8, after=[chunk(b"tEXt", b"k\0") * 3_000]),
    "PNG of many empty IDAT": png(8, 8, pixels=[chunk(b"IDAT") * 3_000]),
    "WebP of many chunks": webp((b"VP8X", bytes(10)), *[(b"XXXX", b"")] * 3_000),
}


@pytest.mark.parametrize("name", PARTS)
def test_too_many_parts_are_refused_before_decoding(name, monkeypatch):
    monkeypatch.setattr(Image, "open", None)
    with pytest.raises(BadImage, match=r"too many parts|takes too long"):
        read_image(PARTS[name])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"])
def test_good_files_have_few_parts(kind):
    assert too_many_parts(good(kind, (300, 400))) is None


def test_what_follows_the_end_of_a_jpeg_is_not_counted():
    """Phones add a film there."""
    assert too_many_parts(PROGRESSIVE) is None
    assert too_many_parts(PROGRESSIVE + b"\xff\xda\0\x02" * 5_000) is None


def test_a_run_of_fill_bytes_takes_no_time():
    began = time.process_time()
    too_many_parts(good("JPEG")[:-2] + b"\xff" * 2_000_000)
    assert time.process_time() - began < 2


def test_many_tiles_are_refused():
    with pytest.raises(BadImage, match="tiles"):
        read_image(tiles(300, 300, 1))


def test_a_compressed_text_is_not_unpacked():
    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(20 << 20), 9))
    with pytest.raises(BadImage, match="damaged"):
        read_image(png(8, 8, text))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "L", "P", "1", "I;16", "I", "F", "CMYK"])
def test_some_rows_at_a_time_give_the_same_pixels(mode, monkeypatch, tmp_path):
    draw = np.random.default_rng(0)
    if mode == "I;16":
        image = Image.fromarray(draw.integers(0, 65536, (40, 30), dtype=np.uint16))
    elif mode in ("I", "F"):
        image = Image.fromarray(draw.integers(0, 200, (40, 30)).astype(np.int32 if mode == "I" else np.float32))
    else:
        image = Image.fromarray(draw.integers(0, 256, (40, 30, 4), dtype=np.uint8)).convert(mode)
    image.save(tmp_path / "a.tiff")
    whole = read_image(tmp_path / "a.tiff")
    monkeypatch.setattr("sightline.data.images.BAND", 90)
    np.testing.assert_array_equal(read_image(tmp_path / "a.tiff"), whole)
    assert whole.flags.writeable


def test_the_process_gives_what_this_one_gives(decoding):
    content = good("JPEG", (60, 80))
    np.testing.assert_array_equal(decoding.image(content), read_image(content))
    np.testing.assert_array_equal(decoding.fitted(content, 16, 24, "crop"), read_fitted(content, 16, 24, "crop"))
    picture = decoding.picture(content, 8, 8, "pad")
    assert (picture.width, picture.height) == (80, 60)
    assert picture.box[1] < 0


BAD = {
    "nothing": b"",
    "no image": b"%!PS-Adobe-3.0 EPSF-3.0\n",
    "too large": png(2_000, 2_000),
    "cut": good("PNG")[:-40],
    "too many scans": jpeg(400, 300, 1500),
    "a cut comment": gif(8, 8, comment(10_000))[:-40],
    "pixels beyond the end": b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 900, 900, 8, 2, 0, 0, 0)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_one_sentence_and_the_process_goes_on(name, decoding):
    before = decoding._process and decoding._process._process.pid
    with pytest.raises(BadImage) as error:
        decoding.image(BAD[name])
    assert "\n" not in str(error.value)
    assert decoding.image(good()).shape == (24, 32, 3)
    assert before in (None, decoding._process._process.pid)


def test_an_image_that_takes_too_long_ends_its_process_and_no_other(monkeypatch):
    one = Decoding(LIMITS, 60.0)
    assert one.image(good()).shape == (24, 32, 3)
    process = one._process._process
    os.kill(process.pid, 19)  # SIGSTOP: a decoder that does not come back
    one.seconds = 0.2
    with pytest.raises(BadImage, match=r"within 0\.2 seconds"):
        one.image(good())
    assert process.poll() is not None
    one.seconds = 60.0
    assert one.image(good()).shape == (24, 32, 3)
    one.end()
    with pytest.raises(BadImage, match="stopping"):
        one.image(good())


@pytest.fixture(scope="module")
def sound_decoding():
    one = Decoding(LIMITS, 60.0, SoundLimits(most_bytes=1 << 20, most_seconds=60))
    yield one
    one.end()


def test_the_process_decodes_sounds_too(sound_decoding):
    pytest.importorskip("soundfile", reason="the extra sound is not installed")
    content = wav_bytes(np.sin(np.arange(8000) / 10).astype(np.float32), 8000)
    np.testing.assert_array_equal(sound_decoding.sound(content, 16_000), read_sound(content, 16_000))
    for bad, sentence in (
        (b"text", "it is no sound"),
        (content[:-100], "it is truncated: 15,900 of 16,000"),
        (wav_bytes(np.zeros(61 * 1000), 1000), "it is too long: more than 60 seconds"),
        (bytes((1 << 20) + 1), "it is too large"),
    ):
        with pytest.raises(BadSound, match=sentence):
            sound_decoding.sound(bad, 16_000)
    assert sound_decoding.image(good()).shape == (24, 32, 3)


def test_a_sound_that_takes_too_long_ends_its_process(sound_decoding):
    content = wav_bytes(np.zeros(8000), 8000)
    pid = sound_decoding.image(good()) is not None and sound_decoding._process._process.pid
    os.kill(pid, 19)
    sound_decoding.seconds = 0.2
    with pytest.raises(BadSound, match=r"within 0\.2 seconds"):
        sound_decoding.sound(content, 8000)
    sound_decoding.seconds = 60.0
    assert sound_decoding.image(good()).shape == (24, 32, 3)


def test_without_limits_for_sound_none_is_decoded(decoding):
    with pytest.raises(ValueError, match="sound_limits"):
        decoding.sound(b"RIFF", 16_000)
