"""Transcribe and classify sound: from files to texts with times, on tones whose letters and times are known."""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sightline
from invoke import run
from sightline.data.checking import RowLimits
from sightline.data.sound import wav_bytes
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.inputs.series import SeriesWindow
from sightline.metrics import cer
from sightline.models.listen_attend_spell import CTCConfig, ListenAttendSpellConfig
from sightline.nn.mel import LogMelConfig
from sightline.nn.series import SeriesFrontConfig
from sightline.tasks.classify import CLASSIFY
from sightline.tasks.configs.classify_series import SoundClassifyConfig
from sightline.tasks.configs.transcribe import SoundTranscribeConfig
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes
RATE, TONE, GAP = 8000, 0.08, 0.06  # seconds of a letter, and behind a word
LETTERS = "abc"


def spoken(text, seed=0):
    """A tone for each letter, silence for each space."""
    noise, parts = np.random.default_rng(seed), [np.zeros(round(GAP * RATE))]
    for letter in text:
        count = round((TONE if letter != " " else GAP) * RATE)
        time = np.arange(count) / RATE
        tone = 0.0 if letter == " " else 0.5 * np.sin(2 * np.pi * 500 * 2 ** LETTERS.index(letter) * time)
        parts.append(tone * np.hanning(count))
    samples = np.concatenate([*parts, np.zeros(round(GAP * RATE))])
    return (samples + noise.normal(0, 0.001, len(samples))).astype(np.float32)


def texts(count, seed):
    draw = random.Random(seed)
    return [" ".join("".join(draw.choices(LETTERS, k=draw.randint(1, 3))) for _ in range(2)) for _ in range(count)]


def table(folder, name, some):
    (folder / "sounds").mkdir(exist_ok=True)
    rows = ["audio\ttext"]
    for number, text in enumerate(some):
        path = folder / "sounds" / f"{name}-{number}.wav"
        path.write_bytes(wav_bytes(spoken(text, number), RATE))
        rows.append(f"sounds/{path.name}\t{text}")
    (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return folder / f"{name}.tsv"


def config(**changed):
    model = ListenAttendSpellConfig(
        size=24, reduces=(2, 1), embedding_size=8, decoder_size=32, dropout=0.0, sampling=0.0, ctc=0.5,
        front=SeriesFrontConfig(masking=None),
    )  # fmt: skip
    training = TrainingConfig(learning_rate=0.01, warmup=20, steps=150, validate_every=150, averaged=1)
    settings = {"model": model, "training": training, "sound": LogMelConfig(size=12), "speeds": (1.0,)}
    return SoundTranscribeConfig(**{**settings, "batch_tokens": 3000, **changed})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has learnt the tones."""
    folder = tmp_path_factory.mktemp("tones")
    data, valid = table(folder, "train", texts(60, 1)), table(folder, "valid", texts(8, 2))
    run = sightline.train(data, folder / "run", task="transcribe", valid=valid, config=config())
    return folder, run


def test_it_learns_to_hear(trained):
    folder, run = trained
    assert run.input.rate == RATE  # that of the files, which is below that of the configuration
    evaluation = run.evaluate(table(folder, "test", texts(12, 3)))
    assert evaluation.values["wer"] < 20
    assert evaluation.values["cer"] < 10


def test_words_have_the_times_of_their_tones(trained):
    folder, run = trained
    text = "ab ca"
    path = folder / "timed.wav"
    path.write_bytes(wav_bytes(spoken(text), RATE))
    options = run.output.for_json(run.output.options({"beam": 3}))
    (raw,) = run.raw([path], options=options)
    prediction = run.output.decide(path, raw, options)
    assert prediction.text == text
    words = prediction.more["words"]
    starts = [GAP, GAP + 2 * TONE + GAP]
    for word, name, start in zip(words, text.split(), starts, strict=True):
        assert word.text == name
        assert abs(word.start - start) < 0.06
        assert abs(word.end - (start + 2 * TONE)) < 0.08
        assert 0 < word.confidence <= 1


def test_a_long_recording_is_cut_at_silences_and_put_together(trained):
    folder, _ = trained
    short = sightline.load(folder / "run")
    object.__setattr__(short.config, "max_frames", 90)
    phrases = texts(4, 9)
    path = folder / "long.wav"
    pause = np.random.default_rng(0).normal(0, 0.001, round(0.25 * RATE)).astype(np.float32)
    path.write_bytes(wav_bytes(np.concatenate([x for one in phrases for x in (spoken(one), pause)]), RATE))
    (parts,) = short.input.encode([path])
    assert len(parts) > 2
    assert all(isinstance(part, SeriesWindow) and len(part.values) <= 90 for part in parts)
    assert [part.start for part in parts] == [sum(len(one.values) for one in parts[:n]) for n in range(len(parts))]
    options = short.output.for_json(short.output.options({}))
    (raw,) = short.raw([path], options=options)
    prediction = short.output.decide(path, raw, options)
    assert cer([prediction.text], [" ".join(phrases)]).value < 30
    assert "  " not in prediction.text
    times = [word.start for word in prediction.more["words"]]
    assert times == sorted(times)
    assert times[-1] > 1.5


def test_the_first_window_of_a_long_recording_is_explained(trained):
    folder, _ = trained
    short = sightline.load(folder / "run")
    object.__setattr__(short.config, "max_frames", 60)
    explanation = short.explain(np.concatenate([spoken("ab ca"), spoken("bc a")]), measure=False)
    record = explanation.records[0]
    assert len(record.columns) <= short.config.model.steps(60)
    assert len(record.rows) > 1
    assert any("the first of them is explained" in note for note in explanation.notes)


def test_arrays_of_samples_are_checked(trained):
    _, run = trained
    good = spoken("ab")
    assert run.predict([good])[0].text
    for bad in (good.astype(np.int16), good.reshape(1, -1), good[:0], np.full(8000, np.nan, np.float32)):
        with pytest.raises(UserError, match="expected samples from -1 to 1"):
            run.predict([bad])


def test_the_command_writes_subtitles_and_grids(trained):
    folder, _ = trained
    given = ["--audio", folder / "sounds" / "valid-0.wav", folder / "sounds" / "valid-1.wav"]
    for format, ending, first in (
        ("srt", ".srt", "1\n00:00:0"),
        ("vtt", ".vtt", "WEBVTT"),
        ("textgrid", ".TextGrid", "File"),
    ):
        out = folder / format
        done = run("predict", folder / "run", *given, "--format", format, "--out", out, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in out.iterdir()) == [f"valid-0{ending}", f"valid-1{ending}"]
        assert (out / f"valid-0{ending}").read_text().startswith(first)
    seconds = len(spoken(texts(8, 2)[0])) / RATE  # of the whole recording, to the hop
    grid = (folder / "textgrid" / "valid-0.TextGrid").read_text()
    assert abs(float(grid.split("xmax = ")[1].split()[0]) - seconds) < 0.04
    lines = run("predict", folder / "run", *given, "--format", "jsonl", cwd=folder).stdout.splitlines()
    row = json.loads(lines[0])
    assert row["text"].split() == [word["word"] for word in row["words"]]
    refused = run("predict", folder / "run", *given, "--format", "srt", cwd=folder)
    assert "name a folder with --out" in refused.stderr


def test_a_map_says_where_each_token_was_heard(trained):
    folder, run = trained
    explanation = run.explain(folder / "sounds" / "valid-0.wav")
    (record, *_) = explanation.records
    assert explanation.recording.wav is not None
    assert len(record.columns) == run.config.model.steps(len(explanation.recording.values))
    assert record.columns.seconds == pytest.approx(0.02)
    assert explanation.belief is not None


def test_a_folder_with_texts_beside_the_files(tmp_path):
    for number, text in enumerate(texts(12, 5)):
        (tmp_path / f"{number}.wav").write_bytes(wav_bytes(spoken(text), RATE))
        (tmp_path / f"{number}.txt").write_text(f"{text}\n")
    (tmp_path / "lost.wav").write_bytes(wav_bytes(spoken("a"), RATE))
    few = TrainingConfig(steps=1, averaged=1)
    with pytest.raises(UserError, match=r"missing transcript: expected lost\.txt beside it"):
        sightline.train(tmp_path, tmp_path / "run", task="transcribe", config=config(training=few))
    (tmp_path / "lost.wav").unlink()
    run = sightline.train(tmp_path, tmp_path / "run", task="transcribe", config=config(training=few))
    assert run.variant.stored == "transcribe"


def test_bad_files_are_named_and_left_out(tmp_path):
    data = table(tmp_path, "train", texts(12, 6))
    (tmp_path / "sounds" / "train-3.wav").write_text("no sound")
    (tmp_path / "sounds" / "train-4.wav").write_bytes(b"")
    run = sightline.train(
        data, tmp_path / "run", task="transcribe", limits=RowLimits(1000, 0.5),
        config=config(training=TrainingConfig(steps=1, averaged=1)),
    )  # fmt: skip
    about = json.loads((Path(run.folder) / "about.json").read_text())
    assert about["report"]["left_out"] == {"bad recording": 2}
    assert "train-3.wav" in about["report"]["places"][0]
    with pytest.raises(UserError, match=r"none\.wav cannot be used: there is no such file"):
        run.predict([tmp_path / "none.wav"])


def test_speeds_are_drawn_for_each_epoch_and_the_same_again(tmp_path):
    from runs import prepared_as

    data = table(tmp_path, "train", texts(12, 7))
    with prepared_as("transcribe", data, tmp_path / "data", config(speeds=(0.8, 1.0, 1.25))) as (prepared, _):
        batches = prepared.output.batches(prepared, prepared.config)
        widths = [
            [batches.batch(handle)[0].lengths.tolist() for handle in batches.epoch(number)] for number in (0, 0, 1)
        ]
    assert widths[0] == widths[1]
    assert widths[0] != widths[2]


def test_labels_of_recordings(tmp_path):
    """Keyword spotting: each folder is a label."""
    for letter in LETTERS:
        (tmp_path / "words" / letter).mkdir(parents=True)
        for number in range(10):
            sound = np.concatenate([np.zeros(400 * number, np.float32), spoken(letter, number)])
            (tmp_path / "words" / letter / f"{number}.wav").write_bytes(wav_bytes(sound, RATE))
    settings = ["model.size=12", "model.dropout=0", "model.front.masking=null", "sound.size=12", "speeds=[1.0]"]
    done = run(
        "train", "classify", "--data", "words", "--out", "run", "--steps", 30, "--threads", 1, "--set", *settings,
        "training.learning_rate=0.02", "training.warmup=5", "training.averaged=1", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trained = sightline.load(tmp_path / "run")
    assert trained.variant.stored == "classify_sound"
    path = tmp_path / "words" / "b" / "3.wav"
    assert trained.predict([path])[0].label == "b"
    explanation = trained.explain(path)
    assert explanation.recording is not None
    assert {stack.title for stack in explanation.stacks} >= {"From the label to the recording"}
    costs = explanation.of("hiding")[0].matrix()[0]
    heard = slice(1200 // 320, (1200 + 480 + 640) // 320 + 1)  # states of four frames of 10 milliseconds
    assert costs[heard].sum() > 0.6


def test_texts_and_images_stay_what_they_were(tmp_path):
    """A path beside a text, or a stray array among images, makes no recordings of them."""
    rows = ["path\ttext\tlabel", *(f"{n}.wav\ta {'good' if n % 2 else 'bad'} film\t{n % 2}" for n in range(10))]
    (tmp_path / "texts.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for name in ("1.png", "2.png", "3.png", "stray.npy", "stray.wav"):
        (tmp_path / "photos" / "a" / name).write_bytes(b"")
    (tmp_path / "spoken" / "a").mkdir(parents=True)
    for name in ("1.wav", "2.flac", "cover.png"):
        (tmp_path / "spoken" / "a" / name).write_bytes(b"")
    kinds = {
        name: CLASSIFY.variant_for(Source(str(tmp_path / name))).stored for name in ("texts.tsv", "photos", "spoken")
    }
    assert kinds == {"texts.tsv": "classify", "photos": "classify_images", "spoken": "classify_sound"}


def test_transcripts_that_ctc_cannot_align_are_counted(tmp_path):
    from runs import prepared_as

    data = table(tmp_path, "train", [*texts(10, 8), "a b"])
    lines = data.read_text().splitlines()
    data.write_text("\n".join([*lines[:-1], lines[-1].replace("a b", "abc" * 60)]) + "\n")
    for model, kept in ((config().model, 1), (CTCConfig(size=8, reduces=(2, 1)), 0)):
        with prepared_as("transcribe", data, tmp_path / model.kind, config(model=model, valid_share=0.1)) as (
            prepared,
            _,
        ):
            fast = [note for note in prepared.output.notes(prepared) if "CTC learns nothing" in note]
            long = [row for row in range(len(prepared.corpus)) if len(prepared.corpus[row][1]) > 100]
        if fast:  # unless the split took it for validation
            assert len(long) == kept


@pytest.mark.parametrize("settings", [{"speeds": (0.0,)}, {"speeds": (-1.0, 1.0)}, {"frame_seconds": 0.0}])
def test_speeds_are_checked(settings):
    for kind in (SoundTranscribeConfig, SoundClassifyConfig):
        with pytest.raises(ValueError, match=r"it must be above 0|each must be from"):
            kind(**settings)


def test_a_low_rate_lowers_the_highest_frequency(tmp_path):
    from runs import prepared_as

    data = table(tmp_path, "train", texts(12, 7))
    given = config(sound=LogMelConfig(size=12, highest=7600.0))
    with prepared_as("transcribe", data, tmp_path / "data", given) as (prepared, _):
        assert prepared.input.mel.highest == RATE / 2
        assert "recordings are read at 8,000 Hz, the lowest rate of these files" in prepared.input.notes()


def test_frames_of_another_run_are_refused(tmp_path):
    data = table(tmp_path, "train", texts(12, 7))
    sightline.train(
        data, tmp_path / "run", task="transcribe", config=config(training=TrainingConfig(steps=1, averaged=1))
    )
    about = tmp_path / "run" / "data" / "series" / "series.json"
    about.write_text(about.read_text().replace('"variants": 1', '"variants": 2'))
    run_input = sightline.load(tmp_path / "run").input
    with pytest.raises(UserError, match="prepare the data again"):
        run_input.reopen(SimpleNamespace(data=tmp_path / "run" / "data"))


def clips(folder, height, width):
    draw, rows = np.random.default_rng(0), ["frames\ttext"]
    for number in range(20):
        np.save(folder / f"{number}.npy", draw.integers(0, 255, (8 + number % 3, height, width), dtype=np.uint8))
        rows.append(f"{number}.npy\t{['red', 'blue'][number % 2]} light")
    (folder / "clips.tsv").write_text("\n".join(rows) + "\n")
    return ["train", "transcribe", "--data", "clips.tsv", "--out", "run", "--steps", 1, "--set", "model.size=4"]


@pytest.mark.parametrize("front", ["components=64", "components=0"])
def test_clips_are_read(front, tmp_path):
    """By principal components, of which small frames have few, and by convolutions."""
    done = run(*clips(tmp_path, 6, 8), f"model.front.{front}", "model.front.channels=[2]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trained = sightline.load(tmp_path / "run")
    assert trained.model.front.size == (48 * 2 if front == "components=64" else 2 * 3 * 4)
    (prediction,) = trained.predict([tmp_path / "0.npy"])
    assert isinstance(prediction.text, str)
    done = run("view", "run", "--frames", "0.npy", "--quick", "--output", "red light", "--out", "map.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_large_frames_have_no_principal_components(tmp_path):
    done = run(*clips(tmp_path, 80, 80), cwd=tmp_path)
    assert done.returncode == 2
    assert "--set height=32 width=64, or convolutions with model.front.components=0" in done.stderr
    assert "Traceback" not in done.stderr
