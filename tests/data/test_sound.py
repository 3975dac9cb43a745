"""Sound out of files: every common format, one channel, one rate, and one sentence for each bad file."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from sightline.data.resampling import resample
from sightline.data.sound import (
    ENDINGS,
    BadSound,
    SoundLimits,
    energies,
    quality,
    read_header,
    read_sound,
    sound_blocks,
    wav_bytes,
    windows,
)
from sightline.errors import UserError
from sound_files import KINDS, encoded, tone, with_total


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read(kind):
    rate = 48_000 if kind == "opus" else 16_000
    samples = tone(rate)
    content = encoded(samples, rate, kind)
    header = read_header(content)
    assert (header.rate, header.channels) == (rate, 1)
    assert header.seconds == pytest.approx(1, abs=0.02)
    decoded = read_sound(content, rate)
    assert decoded.dtype == np.float32
    assert len(decoded) == header.samples
    exact = {"8-bit wav": 0.02, "gsm wav": 0.2, "vorbis": 0.02, "opus": 0.05, "mp3": 0.02}.get(kind, 1e-4)
    np.testing.assert_allclose(decoded[1000:15_000], samples[1000:15_000], atol=exact)


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_of_every_ending_are_read(ending, tmp_path):
    kind = {".ogg": "vorbis", ".oga": "vorbis", ".aif": "aiff"}.get(ending, ending[1:])
    path = tmp_path / f"a{ending}"
    path.write_bytes(encoded(tone(48_000), 48_000, kind))
    assert len(read_sound(path, 16_000)) == 16_000


def test_channels_are_averaged_without_clipping():
    left, right = tone(level=0.9), tone(frequency=300, level=0.9)
    decoded = read_sound(encoded(np.stack([left, right], axis=1), kind="24-bit wav"), 16_000)
    np.testing.assert_allclose(decoded, (left + right) / 2, atol=1e-6)
    many = np.repeat(tone()[:, None], 64, axis=1)
    np.testing.assert_allclose(read_sound(encoded(many), 16_000), tone(), atol=1e-4)
    with pytest.raises(BadSound, match="too many channels: found 65"):
        read_sound(encoded(np.zeros((10, 65))), 16_000)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 192_000])
def test_other_rates_are_resampled(rate):
    samples = tone(rate, 0.5)
    decoded = read_sound(encoded(samples, rate, "float wav"), 16_000)
    np.testing.assert_array_equal(decoded, resample(samples, rate, 16_000))
    assert len(decoded) == 8_000


@pytest.mark.parametrize("kind", ["wav", "flac", "vorbis", "mp3"])
@pytest.mark.parametrize("seconds", [0.01, 0.3, 100])
def test_blocks_are_the_whole_sound_cut(kind, seconds, tmp_path):
    draw = np.random.default_rng(0)
    noise = (0.1 * draw.standard_normal((60_000, 2))).astype(np.float32)
    content = encoded(noise, 44_100, kind)
    (tmp_path / "a").write_bytes(content)
    blocks = list(sound_blocks(tmp_path / "a", 16_000, seconds))
    assert all(len(block) == 16_000 * seconds for block in blocks[:-1])
    np.testing.assert_array_equal(np.concatenate(blocks), read_sound(content, 16_000))


def test_values_stay_between_minus_one_and_one():
    square = np.sign(tone(44_100, frequency=1000)).astype(np.float32)
    decoded = read_sound(encoded(square, 44_100, "float wav"), 16_000)
    assert np.abs(decoded).max() == 1
    assert np.abs(read_sound(encoded(1.5 * square, 44_100, "float wav"), 44_100)).max() == 1


def bad_values(value):
    samples = tone()
    samples[7000] = value
    return encoded(samples, kind="float wav")


NO_END = encoded(tone()).replace((2 * 16_000).to_bytes(4, "little"), b"\xff" * 4, 1)
CUT = {kind: encoded(tone(48_000, 3), 48_000, kind) for kind in ("wav", "large wav", "flac", "vorbis", "aiff")}
BAD = {
    "empty": (b"", "it is empty"),
    "text": (b"one,two\n" * 50, "it is no sound: found text, expected WAV, FLAC, OGG, MP3 or AIFF"),
    "zeros": (bytes(5000), "it is no sound: expected WAV, FLAC, OGG, MP3 or AIFF"),
    "m4a": (b"\0\0\0\x20ftypM4A " + bytes(50), "it is an MP4 or M4A file: convert it to FLAC or WAV first"),
    "webm": (b"\x1a\x45\xdf\xa3" + bytes(50), "it is a Matroska or WebM file: convert it to FLAC or WAV first"),
    "zero samples": (encoded(tone()[:0]), "it has no samples"),
    "header alone": (encoded(tone())[:36], "it is truncated: it has a header and no samples"),
    "NaN": (bad_values(np.nan), "it has NaN or infinite values; expected samples between -1 and 1"),
    "infinite": (bad_values(-np.inf), "it has NaN or infinite values; expected samples between -1 and 1"),
    "whole numbers": (bad_values(32_767), "it has values up to 32,767; expected samples between -1 and 1"),
    "low rate": (encoded(tone(), 900), "its rate is 900 Hz; expected 1,000 to 768,000"),
    "odd rate": (encoded(tone(), 191_999), "its rate is 191,999 Hz; above 96,000 whole hundreds are expected: .*"),
    "cut wav": (CUT["wav"][:100_044], "it is truncated: 100,000 of 288,000 bytes of samples are there"),
    "cut large wav": (CUT["large wav"][:100_104], "it is truncated: 100,000 of 288,000 bytes of samples are there"),
    "cut aiff": (CUT["aiff"][:100_054], r"it is truncated: 100,\d+ of 288,\d+ bytes of samples are there"),
    "cut flac": (CUT["flac"][:-2000], r"it is truncated or damaged: 1\d\d,\d+ of 144,000 samples can be decoded"),
    "cut vorbis": (CUT["vorbis"][:-200], r"it is truncated: [\d,]+ of [\d,]+ bytes of its last page are there"),
    "two in an Ogg file": (2 * CUT["vorbis"], "it holds several sounds, one behind the other; expected one"),
    "Ogg header alone": (CUT["vorbis"][:27], "it is truncated: 27 of 28 bytes of its last page are there"),
    "cut mp3": (encoded(tone(48_000, 3), 48_000, "mp3")[:-8000], r"it is truncated or damaged: [\d,]+ of 144,000 .*"),
    "long by its header": (
        with_total(CUT["flac"], 1 << 35),
        "it is too long: more than 7,200 seconds",
    ),
    "few by its header": (with_total(CUT["flac"], 200_000), r"it is truncated or damaged: 144,000 of 200,000 .*"),
    "many chunks": (b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 10_001, "it has too many parts: more than 10,000 chunks"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_sound_is_one_sentence(name):
    content, sentence = BAD[name]
    with pytest.raises(BadSound, match=f"^{sentence}$"):
        read_sound(content, 16_000)
    with pytest.raises(BadSound):
        list(sound_blocks(content, 16_000, 1))


def test_lengths_that_are_not_known_yet_are_no_fault():
    """Programs that write into a pipe cannot know them."""
    assert read_header(NO_END).samples == 16_000
    unknown = with_total(encoded(tone(), kind="flac"), 0)
    assert read_header(unknown).samples is read_header(unknown).seconds is None
    np.testing.assert_array_equal(read_sound(unknown, 8_000), read_sound(encoded(tone(), kind="flac"), 8_000))


def test_paths_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "link.wav").symlink_to("/dev/zero")
    for path, sentence in (
        (tmp_path / "pipe.wav", "it is no regular file"),
        (tmp_path / "link.wav", "it is no regular file"),
        (tmp_path, "it is a folder, expected a sound"),
        (tmp_path / "none.wav", "there is no such file"),
        (Path("a\0b.wav"), "it cannot be read"),
    ):
        with pytest.raises(BadSound, match=sentence):
            read_sound(path, 16_000)


def test_limits_hold_for_what_is_decoded():
    """The header says nothing, so that the samples are counted as they come."""
    unknown = with_total(encoded(tone(seconds=5), kind="flac"), 0)
    for limits, sentence in (
        (SoundLimits(most_seconds=2.5), "it is too long: more than 2.5 seconds"),
        (SoundLimits(most_samples=50_000), "it is too long: more than 50,000 samples in its 1 channels together"),
        (SoundLimits(most_bytes=1000), r"it is too large: found [\d,]+ bytes, expected at most 1,000"),
        (SoundLimits(rates=(20_000, 48_000)), "its rate is 16,000 Hz; expected 20,000 to 48,000"),
    ):
        with pytest.raises(BadSound, match=sentence):
            read_sound(unknown, 16_000, limits)
        with pytest.raises(BadSound, match=sentence):
            read_sound(encoded(tone(seconds=5), kind="flac"), 16_000, limits)


@pytest.mark.parametrize("wrong", [{"most_seconds": 0}, {"most_bytes": 0}, {"rates": (5, 4)}, {"most_channels": -1}])
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        SoundLimits(**wrong)


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="rate is 10"):
        read_sound(encoded(tone()), 10)
    with pytest.raises(ValueError, match="at least one sample"):
        list(sound_blocks(encoded(tone()), 16_000, 0))


def test_a_long_sound_needs_little_memory():
    """A minute in stereo at 44.1 kHz is 21 MB of floats, and 3.84 MB when it has been read."""
    content = encoded(np.zeros((60 * 44_100, 2), np.int16), 44_100, "flac")

    def peak(use):
        tracemalloc.start()
        try:
            use()
            return tracemalloc.get_traced_memory()[1] / 1e6
        finally:
            tracemalloc.stop()

    read_sound(encoded(tone(44_100), 44_100), 16_000)  # the weights of the filter are kept
    assert peak(lambda: sum(map(len, sound_blocks(content, 16_000, 1.0)))) < 1
    assert 3.84 < peak(lambda: read_sound(content, 16_000)) < 5


def test_without_the_extra_one_sentence_names_it():
    code = (
        "import sys; sys.modules['soundfile'] = None\n"
        "from sightline.data.sound import read_sound, UserError\n"
        "try: read_sound(b'RIFF', 16_000)\n"
        "except UserError as error: print(error)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "reading sound needs soundfile: pip install 'sightline[sound]'\n"


def test_quality_names_what_is_wrong():
    good = quality(tone())
    assert good.peak == pytest.approx(0.5, abs=1e-3)
    assert good.level == pytest.approx(-9.03, abs=0.01)  # 0.5 / √2
    assert good.faults(1.0, 0.1, 10) == ()
    assert quality(tone(level=1.0, frequency=1000)).faults(1.0, 0.1, 10) == ()
    clipped = np.clip(3 * tone(), -1, 1)
    assert quality(clipped).clipped_share > 0.3
    assert quality(clipped).faults(20.0, 0.1, 10) == ("too long", "clipped")
    assert quality(1e-4 * tone()).faults(0.01, 0.1, 10) == ("too short", "silent")
    assert quality(np.zeros(0, np.float32)).silent


def test_a_wav_file_that_we_write_is_read_again():
    samples = np.array([0, 0.5, -0.5, 1, -1, 2], np.float32)
    content = wav_bytes(samples, 16_000)
    assert read_header(content) == (16_000, 1, 6, "WAV")
    np.testing.assert_allclose(read_sound(content, 16_000), np.clip(samples, -1, 1), atol=1e-4)


def test_energies_do_not_depend_on_the_blocks():
    samples = np.random.default_rng(0).standard_normal(50_123).astype(np.float32)
    whole = energies([samples], 16_000, 0.01)
    assert len(whole) == 314  # the last one holds silence too
    expected = np.square(samples[:50_080].astype(np.float64)).reshape(-1, 160).mean(axis=1)
    np.testing.assert_allclose(whole[:313], expected)
    np.testing.assert_array_equal(energies(np.split(samples, [3, 20_000, 20_001]), 16_000, 0.01), whole)


def test_long_sounds_are_cut_where_they_are_quiet():
    loud = np.ones(1000)
    loud[380:420], loud[640:660] = 1e-4, 1e-6
    cuts = windows(loud, 0.01, 5.0, 1.0)
    assert cuts[0][0] == 0
    assert cuts[-1][1] == 1000
    assert [end for _, end in cuts[:-1]] == [start for start, _ in cuts[1:]]
    assert 390 <= cuts[0][1] <= 410
    assert 645 <= cuts[1][1] <= 655


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 350, 1000, 36_000])
@pytest.mark.parametrize("least", [None, 0.02, 1.0])
def test_windows_cover_the_sound_and_are_never_too_long(count, least):
    for seed in range(3):
        loud = np.random.default_rng(seed).random(count) if seed else np.zeros(count)
        cuts = windows(loud, 0.01, 1.0, least)
        assert [end for _, end in cuts] == [start for start, _ in cuts[1:]] + [count] * bool(count)
        assert all(0 < end - start <= 100 for start, end in cuts)
    with pytest.raises(ValueError, match="stretches"):
        windows(np.zeros(9), 0.01, 0.001)
