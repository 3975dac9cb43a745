"""Runs that read recordings or arrays, with random weights: nothing is trained."""

import torch

from sightline.inputs.sound import SoundInput
from sightline.inputs.vectors import VectorsInput
from sightline.models.listen_attend_spell import ListenAttendSpellConfig
from sightline.models.series_to_labels import SeriesToLabelsConfig
from sightline.nn.mel import LogMelConfig
from sightline.nn.series import SeriesShape
from sightline.outputs.label_scores import Labels
from sightline.outputs.series_labels import SeriesLabelsOutput
from sightline.outputs.transcripts import TranscriptOutput
from sightline.tasks.classify import CLASSIFY
from sightline.tasks.configs.classify_series import SoundClassifyConfig
from sightline.tasks.configs.transcribe import SoundTranscribeConfig, TranscribeConfig
from sightline.tasks.run import Run
from sightline.tasks.transcribe import TRANSCRIBE
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser

SOUND = LogMelConfig(rate=8_000, size=12)
LISTENER = ListenAttendSpellConfig(size=8, reduces=(2, 2), decoder_size=8, embedding_size=4, dropout=0.0)


def transcriber(name="heard"):
    """Of recordings; it writes letters."""
    config = SoundTranscribeConfig(model=LISTENER, sound=SOUND)
    return _writer(config, SoundInput(config, SeriesShape((12,), SOUND.hop), SOUND.rate), 0, name)


def array_transcriber(name="arrays"):
    """Of arrays of five features."""
    config = TranscribeConfig(model=LISTENER)
    return _writer(config, VectorsInput(config, SeriesShape((5,), 0.01)), 1, name)


def _writer(config, reading, variant, name):
    torch.manual_seed(0)
    letters = TokeniserConfig(method="characters", vocab_size=100, min_frequency=1)
    output = TranscriptOutput(config, train_tokeniser(["one two three four"], letters))
    model = config.build(reading, output).eval()
    for parameter in model.parameters():
        parameter.data *= 2  # sharp enough to look somewhere
    task = TRANSCRIBE.of(TRANSCRIBE.variants[variant])
    return Run(task, TRANSCRIBE.variants[variant], model, reading, output, config, name)


def sound_classifier(name="words"):
    """Of recordings, with three labels."""
    config = SoundClassifyConfig(model=SeriesToLabelsConfig(size=8, dropout=0.0), sound=SOUND)
    reading = SoundInput(config, SeriesShape((12,), SOUND.hop), SOUND.rate)
    output = SeriesLabelsOutput(config, Labels("one", ("one", "two", "three"), (3, 3, 3)), reading)
    torch.manual_seed(1)
    variant = next(one for one in CLASSIFY.variants if one.stored == "classify_sound")
    return Run(CLASSIFY.of(variant), variant, config.build(reading, output).eval(), reading, output, config, name)
