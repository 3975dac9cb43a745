"""Pictures over time: the map lies exactly below the spectrogram, and clips show the frames that were attended to."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import invoke
from recordings import COLUMNS, HOP, PEAKS, SECONDS, heard, labelled, samples, spectrogram, watched, weights
from runs import saved
from sightline.data.sound import wav_bytes
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.recording import Recording
from sightline.records import Frames, Record, Tokens
from sightline.view.layout import COLOURS, TEXT_WIDTH
from sightline.view.timed import attended_stretch, best_frames, largest_weight, recording_figure, times_of

pytest.importorskip("soundfile", reason="the extra sound is not installed")
from sound_runs import sound_classifier, transcriber

pytestmark = pytest.mark.unchecked_shapes


def by_trying(row, share):
    """The shortest stretch with the most weight, found by trying all."""
    places = [(first, last) for first in range(len(row)) for last in range(first + 1, len(row) + 1)]
    tried = [(last - first, -row[first:last].sum(), first, last) for first, last in places]
    enough = [one for one in tried if -one[1] >= share * row.sum() * (1 - 1e-9)]
    return min(enough)[2:]


def test_the_stretch_is_the_shortest_that_holds_nine_tenths():
    draw = np.random.default_rng(0)
    for _ in range(60):
        row = draw.random(draw.integers(1, 14)) ** draw.integers(1, 9)
        assert attended_stretch(row) == by_trying(row, 0.9)
    assert attended_stretch(np.zeros(5)) is None
    assert attended_stretch(np.array([np.nan, 0.0, 1.0])) == (2, 3)
    for row, peak in zip(weights(), PEAKS, strict=True):
        assert attended_stretch(row) == (peak - 1, peak + 2)


def test_times_are_those_of_the_data():
    frames = Frames(COLUMNS, 0.04)
    times = times_of(heard().recording, frames)
    assert (times.end, times.frame, times.column, times.unit) == (SECONDS, HOP, 0.04, "seconds")
    unknown = times_of(Recording(spectrogram(), 0.0), frames)
    assert (unknown.end, unknown.frame, unknown.column, unknown.unit) == (148, 1, 148 / COLUMNS, "frame")
    large = Recording.of(np.zeros((3_000_000, 4), np.float32), 30_000.0, step=0.01)  # too many to show: every third
    assert (len(large.values), large.frame_seconds) == (1_000_000, 0.03)
    assert Recording.from_json(json.loads(json.dumps(large.to_json()))).step == 0.03


def test_the_map_lies_below_what_it_attended_to():
    explanation = heard()
    figure, above, image = recording_figure(
        explanation.recording, explanation.records[0], None, TEXT_WIDTH, COLOURS, 0.5
    )
    (spectral,), below = above.images, image.axes
    assert spectral.get_extent() == [0.0, pytest.approx(148 * HOP), 0.0, 24]
    assert spectral.origin == "lower"  # low bands below
    assert image.get_extent()[:2] == [0.0, pytest.approx(COLUMNS * 0.04)]
    assert above.get_xlim() == below.get_xlim() == (0.0, SECONDS)
    boxes = above.get_position(), below.get_position()
    assert boxes[0].x0 == boxes[1].x0
    assert boxes[0].width == boxes[1].width
    figure.canvas.draw()
    for peak in PEAKS[:3]:  # the tone and the weight are at the same place of the page
        frame = round((peak + 0.5) * 4)
        tone = above.transData.transform(((frame + 0.0) * HOP, 0))[0]
        weight = below.transData.transform(((peak + 0.5) * 0.04, 0))[0]
        assert abs(tone - weight) < 0.01


def test_words_set_the_scale_and_not_the_end():
    record = heard().records[0]
    assert largest_weight(record) == 0.5
    sharp = record.weights.copy()
    sharp[3] = np.eye(COLUMNS)[5]
    assert largest_weight(replace(record, weights=sharp)) == 0.5
    assert largest_weight(replace(record, rows=Tokens(("</s>",), None, (0,)), weights=sharp[3:])) == 1.0


@pytest.mark.parametrize("make", [heard, labelled, watched])
def test_every_format_is_written(make, tmp_path):
    explanation = Explanation.from_json(json.loads(json.dumps(make().to_json())))
    for ending in ("png", "svg"):
        assert explanation.save(tmp_path / f"map.{ending}").stat().st_size > 2_000
    svg = (tmp_path / "map.svg").read_text()
    words = {"heard": ("one", "three", "seconds"), "labelled": ("two", "seconds"), "watched": ("one", "0.14 s: 0.43")}
    assert all(f">{text}</text>" in svg for text in words[make.__name__])


def test_films_replay_token_by_token(tmp_path):
    for number, make in enumerate((heard, watched)):
        with Image.open(make().save(tmp_path / f"{number}.gif")) as film:
            assert film.n_frames == 5
            still = []
            for frame in range(5):
                film.seek(frame)
                still.append(np.asarray(film.convert("RGB"), np.int16))
        assert all(np.abs(a - b).max() > 50 for a, b in itertools.pairwise(still))


def test_frames_of_a_clip_are_the_attended_ones(tmp_path):
    explanation = watched()
    record, times = explanation.records[0], times_of(explanation.recording, Frames(COLUMNS, 0.04))
    for row, peak in enumerate(PEAKS):
        frames = best_frames(record.matrix()[row], explanation.recording, times, 6)
        assert [frame for frame, _, _ in frames] == [peak - 1, peak, peak + 1]
        assert [at for _, at, _ in frames] == pytest.approx([(one + 0.5) * 0.04 for one in (peak - 1, peak, peak + 1)])
    long = Record("a", 0, 0, Tokens(("w",) * 61), Frames(COLUMNS, 0.04), np.repeat(weights()[:1], 61, axis=0))
    many = replace(explanation, records=(long,), stacks=(replace(explanation.stacks[0], names=("a",)),))
    with pytest.raises(UserError, match="make a page"):
        many.save(tmp_path / "many.png")


def test_files_are_named_by_the_column_of_the_input(tmp_path):
    (tmp_path / "one.wav").write_bytes(wav_bytes(samples(), 8_000))
    run = saved(transcriber(), tmp_path / "run")

    def said(*arguments, code=0):
        done = invoke.run(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done

    viewed = said("view", run, "--audio", "one.wav", "--out", "map.png", "--quick")
    assert "one.wav  →" in viewed.stdout
    assert (tmp_path / "map.png").stat().st_size > 5_000
    assert said("predict", run, "--audio", "one.wav").stdout.startswith("one.wav\t")
    refused = said("predict", run, "--image", "one.wav", code=2).stderr
    assert "reads recordings, and --image is for runs that read images; use --audio" in refused
    assert "reads recordings; name one with --audio" in said("view", run, "--out", "map.png", code=2).stderr
    assert "no.wav: there is no such file" in said("predict", run, "--audio", "no.wav", code=2).stderr
    labels = saved(sound_classifier(), tmp_path / "labels")
    said("view", labels, "--audio", "one.wav", "--out", "label.html")
    assert "media-src" not in (tmp_path / "label.html").read_text()[:600]  # Web Audio needs no right to load
