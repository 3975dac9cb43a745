"""Frames: the same ones out of a folder, a stacked image, an array and a video; hostile files are one sentence each."""

import contextlib
import io
import os
import struct
import sys
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from sightline.data.frames import BadFrames, FrameLimits, frame_rate, read_frames
from sightline.errors import UserError

pytestmark = pytest.mark.fast


def made_frames(count=12, height=16, width=32):
    """A bright bar that moves over a dark ground: JPEG and video keep it nearly."""
    frames = np.full((count, height, width), 40, np.uint8)
    for number in range(count):
        frames[number, :, 2 * number : 2 * number + 8] = 200
    return frames


def write_video(path, frames, codec="mpeg4", rate=25, title="", **options):
    with av.open(str(path), "w", **options) as container:
        container.metadata.update({"title": title} if title else {})
        stream = container.add_stream(codec, rate=Fraction(rate))
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 2_000_000
        for pixels in frames:
            colour = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=-1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(colour, format="rgb24")))
        container.mux(stream.encode())


def write_folder(folder, frames, name="frame{}.png"):
    folder.mkdir()
    for number, pixels in enumerate(frames):
        Image.fromarray(pixels).save(folder / name.format(number))


def reason(source, *given, **options):
    with pytest.raises(BadFrames) as raised:
        read_frames(source, *given, **options)
    text = str(raised.value)
    assert "\n" not in text
    assert str(source) not in text
    return text


def test_a_folder_is_read_in_natural_order(tmp_path):
    frames = made_frames()
    write_folder(tmp_path / "clip", frames)  # frame10 is behind frame2
    (tmp_path / "clip" / "notes.txt").write_text("no frame")
    (tmp_path / "clip" / ".hidden.png").write_text("no frame")
    assert (read_frames(tmp_path / "clip") == frames).all()


def test_a_stacked_image_and_an_array_are_the_same_frames(tmp_path):
    frames = made_frames()
    Image.fromarray(frames.reshape(-1, 32)).save(tmp_path / "all.png")
    np.save(tmp_path / "all.npy", frames)
    assert (read_frames(tmp_path / "all.png", stacked=16) == frames).all()
    array = read_frames(tmp_path / "all.npy")
    assert isinstance(array, np.memmap)
    assert (array == frames).all()
    np.save(tmp_path / "one.npy", frames[..., None])
    assert (read_frames(tmp_path / "one.npy") == frames).all()
    np.save(tmp_path / "order.npy", np.asfortranarray(frames))
    assert (read_frames(tmp_path / "order.npy") == frames).all()


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "mpeg4"), ("a.avi", "mpeg4"), ("a.MKV", "ffv1"), ("a.mov", "mpeg4"), ("a.mpg", "mpeg1video")],
)
def test_a_video_has_nearly_the_same_frames(tmp_path, name, codec):
    frames = made_frames()
    write_video(tmp_path / name, frames, codec, format="mpeg" if codec == "mpeg1video" else None)
    read = read_frames(tmp_path / name)
    assert read.shape == frames.shape
    assert read.dtype == np.uint8
    assert np.abs(read.astype(int) - frames).mean() < 6
    assert frame_rate(tmp_path / name) == pytest.approx(25)
    one = made_frames(1)
    write_video(tmp_path / f"one-{name}", one, codec, format="mpeg" if codec == "mpeg1video" else None)
    assert read_frames(tmp_path / f"one-{name}").shape == one.shape


def test_webm_and_colour_and_another_size(tmp_path):
    frames = np.zeros((3, 16, 32, 3), np.uint8)
    frames[..., 0] = 220  # red
    write_video(tmp_path / "a.webm", frames, "libvpx-vp9")
    read = read_frames(tmp_path / "a.webm", colour=True)
    assert read.shape == frames.shape
    assert np.abs(read.astype(int) - frames).mean() < 12
    assert read_frames(tmp_path / "a.webm", (8, 20)).shape == (3, 8, 20)
    np.save(tmp_path / "a.npy", frames)
    write_folder(tmp_path / "clip", frames)
    grey = read_frames(tmp_path / "a.npy")
    assert (grey == read_frames(tmp_path / "clip")).all()
    assert set(grey.ravel().tolist()) == {66}  # 0.299 of red
    assert (read_frames(tmp_path / "clip", colour=True) == frames).all()
    np.save(tmp_path / "grey.npy", grey)
    assert read_frames(tmp_path / "grey.npy", colour=True).shape == (3, 16, 32, 3)


def test_a_size_fits_all_frames_and_without_one_they_must_agree(tmp_path):
    write_folder(tmp_path / "clip", made_frames(2))
    Image.fromarray(np.full((10, 20), 7, np.uint8)).save(tmp_path / "clip" / "frame2.png")
    assert read_frames(tmp_path / "clip", (8, 8)).shape == (3, 8, 8)
    assert reason(tmp_path / "clip") == (
        "frame frame2.png has 20 × 10 pixels, and the first one 32 × 16; give a size that all are fitted to"
    )


def test_a_video_of_a_telephone_stands_upright(tmp_path):
    """Its frames lie on their side; a matrix in its header says how to turn them."""
    frames = made_frames(3)
    write_video(tmp_path / "a.mp4", frames)
    content = (tmp_path / "a.mp4").read_bytes()
    place = content.index(b"tkhd") + 44
    assert content[place : place + 36] == struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    clockwise = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    (tmp_path / "turned.mp4").write_bytes(content[:place] + clockwise + content[place + 36 :])
    straight = read_frames(tmp_path / "a.mp4")
    assert (read_frames(tmp_path / "turned.mp4") == np.rot90(straight, -1, axes=(1, 2))).all()


def test_a_rate_is_stated_by_videos_only(tmp_path):
    write_folder(tmp_path / "clip.mp4", made_frames(1))
    assert frame_rate(tmp_path / "clip.mp4") is None
    assert frame_rate(tmp_path / "a.npy") is None


def test_what_is_no_sequence_of_frames_is_one_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    assert reason(tmp_path / "empty").startswith("it is a folder without images; expected .jpg")
    assert reason(tmp_path / "nowhere.mp4") == "there is no such file"
    (tmp_path / "a.txt").write_text("x")
    assert reason(tmp_path / "a.txt").startswith("its ending is .txt; expected a folder of images, or .mp4")
    (tmp_path / "bare").write_text("x")
    assert reason(tmp_path / "bare").startswith("its ending is missing")
    write_folder(tmp_path / "clip", made_frames(2))
    (tmp_path / "clip" / "frame1.png").write_text("x")
    assert reason(tmp_path / "clip").startswith("frame frame1.png: it is no image")
    Image.fromarray(made_frames(3).reshape(-1, 32)).save(tmp_path / "all.png")
    assert reason(tmp_path / "all.png").startswith("it is one image; say how many rows")
    assert reason(tmp_path / "all.png", stacked=10) == (
        "it has 48 rows, which is no multiple of the 10 rows of a frame"
    )
    with pytest.raises(UserError, match="stacked is 0"):
        read_frames(tmp_path / "all.png", stacked=0)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.mp4")
        with pytest.raises(UserError, match="a device or a pipe"):
            read_frames(tmp_path / "pipe.mp4")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3, 4), np.float32),
        np.zeros((2, 3), np.uint8),
        np.zeros((2, 3, 4, 2), np.uint8),
        np.array([{"a": 1}], dtype=object),
        np.zeros((0, 3, 4), np.uint8),
        np.zeros((2, 0, 4), np.uint8),
    ],
    ids=["floats", "flat", "channels", "objects", "none", "empty"],
)
def test_other_arrays_are_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    assert reason(tmp_path / "a.npy").startswith(("it holds ", "it is no array", "it has no frames", "its frames have"))


@pytest.mark.parametrize(
    "claimed", ["(1000000, 1000, 1000)", "(12, 16, 33)", "(" + "9" * 30 + ", 1, 1)", "(1,) * 9999"]
)
def test_a_header_that_claims_more_than_there_is(tmp_path, claimed):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {claimed}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(12 * 16 * 32)
    (tmp_path / "a.npy").write_bytes(content)
    assert reason(tmp_path / "a.npy").startswith("it is no array of NumPy, or it is truncated")
    assert reason(tmp_path / "a.npy", (8, 8)).startswith("it is no array of NumPy, or it is truncated")


def test_damaged_videos_are_one_sentence(tmp_path, capfd):
    for name in ("text.mp4", "text.avi", "text.mkv", "text.mpg", "text.mov"):
        (tmp_path / name).write_text("this is no video\n" * 200)
        assert reason(tmp_path / name).startswith((f"it is no {name[4:]} video, or it is damaged (", "it has no "))
        (tmp_path / name).write_bytes(b"")
        assert reason(tmp_path / name) == "it is empty"
    write_video(tmp_path / "whole.mp4", made_frames(40, 64, 64))
    content = (tmp_path / "whole.mp4").read_bytes()
    (tmp_path / "half.mp4").write_bytes(content[: len(content) // 2])  # its index is at the end
    assert "or it is damaged" in reason(tmp_path / "half.mp4")
    write_video(tmp_path / "first.mp4", made_frames(40, 64, 64), options={"movflags": "faststart"})
    content = (tmp_path / "first.mp4").read_bytes()
    (tmp_path / "part.mp4").write_bytes(content[: len(content) * 2 // 3])
    assert reason(tmp_path / "part.mp4").startswith(
        ("it is truncated: it has ", "it is no .mp4 video, or it is damaged")
    )
    with pytest.raises(BadFrames, match="or it is damaged"):
        frame_rate(tmp_path / "half.mp4")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("ending", "codec"), [(".mp4", "mpeg4"), (".avi", "mpeg4"), (".mkv", "ffv1")])
def test_any_damage_gives_frames_or_a_sentence(tmp_path, ending, codec):
    """Also a codec that there is not, a title in another encoding, and a size that nothing has room for."""
    draw = np.random.default_rng(0)
    write_video(tmp_path / f"whole{ending}", made_frames(6), codec)
    content = np.frombuffer((tmp_path / f"whole{ending}").read_bytes(), np.uint8)
    for _ in range(60):
        broken = content.copy()
        places = draw.integers(len(content), size=draw.integers(1, 40))
        broken[places] = draw.integers(256, size=len(places))
        (tmp_path / f"broken{ending}").write_bytes(broken[: draw.integers(1, len(content) + 1)].tobytes())
        with contextlib.suppress(BadFrames):
            assert read_frames(tmp_path / f"broken{ending}", (8, 8)).shape[1:] == (8, 8)


def test_a_title_in_another_encoding_does_no_harm(tmp_path):
    frames = made_frames(2)
    write_video(tmp_path / "a.avi", frames, title="Gruss")
    content = (tmp_path / "a.avi").read_bytes()
    (tmp_path / "a.avi").write_bytes(content.replace(b"Gruss", b"Gru\xdfe"))
    assert read_frames(tmp_path / "a.avi").shape == frames.shape


def test_a_playlist_called_video_is_not_followed(tmp_path):
    write_video(tmp_path / "secret.mp4", made_frames(2))
    for text in (
        f"ffconcat version 1.0\nfile '{tmp_path / 'secret.mp4'}'\n",
        f"#EXTM3U\n#EXTINF:1,\n{tmp_path / 'secret.mp4'}\n#EXT-X-ENDLIST\n",
    ):
        (tmp_path / "list.mp4").write_text(text)
        assert "or it is damaged" in reason(tmp_path / "list.mp4")


def test_sound_alone_is_no_video(tmp_path):
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=16_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16_000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert reason(tmp_path / "sound.mp4") == "it has no video"


def test_limits_hold_before_frames_are_held(tmp_path):
    frames = made_frames()
    np.save(tmp_path / "a.npy", frames)
    Image.fromarray(frames.reshape(-1, 32)).save(tmp_path / "a.png")
    write_folder(tmp_path / "clip", frames)
    write_video(tmp_path / "a.mp4", frames)
    for name, stacked in (("a.npy", None), ("a.png", 16), ("clip", None), ("a.mp4", None)):
        few, small, light = FrameLimits(most_frames=11), FrameLimits(most_pixels=511), FrameLimits(most_bytes=6000)
        assert "too many frames: expected at most 11" in reason(tmp_path / name, None, few, stacked=stacked)
        assert "too large" in reason(tmp_path / name, None, small, stacked=stacked)
        with pytest.raises((BadFrames, UserError), match=r"too large together|at most 6,000 are read"):
            read_frames(tmp_path / name, None, light, stacked=stacked)
        assert len(read_frames(tmp_path / name, None, FrameLimits(12, 512, 100_000), stacked=stacked)) == 12
    with pytest.raises(UserError, match="most_frames is 0"):
        FrameLimits(most_frames=0)


def test_a_small_file_of_large_frames_is_refused(tmp_path):
    content = io.BytesIO()
    Image.new("L", (6000, 6000)).save(content, "PNG", compress_level=9)
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "0.png").write_bytes(content.getvalue())
    assert "it is too large: found 6,000 × 6,000 pixels" in reason(tmp_path / "clip")


def test_video_without_pyav_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "a.mp4").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UserError, match=r"video files need PyAV: pip install 'sightline\[video\]'"):
        read_frames(tmp_path / "a.mp4")
