"""Transcribe: sound, features or images in time to text, with attention over the frames for each token."""

from typing import Any

from sightline.tasks.task import Column, Task, Variant

TEXT = Column("text", "the transcript", ("transcript", "transcription", "sentence", "target"))
LISTENER: dict[str, dict[str, Any]] = {  # GRUs learn little data as well as LSTMs, and faster
    "tiny": {"size": 192, "reduces": [2, 2, 1], "cell": "gru"},
    "small": {"size": 256, "reduces": [2, 2, 1], "cell": "gru"},
    "base": {"size": 320, "reduces": [2, 2, 1, 1]},
}

MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "listen_attend_spell": {
        size: {**own, "decoder_size": decoder}
        for (size, own), decoder in zip(LISTENER.items(), (256, 320, 512), strict=True)
    },
    "transformer": {
        "tiny": {},
        "small": {"size": 192, "feed_forward": 768, "encoder_layers": 8},
        "base": {"size": 256, "feed_forward": 1024, "encoder_layers": 10, "decoder_layers": 4},
    },
    "ctc": LISTENER,
}

RATES = {"tiny": 3e-3, "small": 2e-3, "base": 1e-3}
SOUND = Column(
    "audio", "the path of a recording", ("sound", "recording", "wav", "audio_path", "speech", "path", "file")
)
VECTORS = Column("features", "the path of an array (.npy), frames × features", ("vectors", "array", "npy"))
CLIPS = Column("frames", "the path of a clip: a video, a folder of images, an array", ("video", "clip", "lips"))
# A frame of a clip is as long as four of sound, so that fewer are put together.
WATCHING = {
    name: {
        size: {**own, "reduces": [2, *[1] * (len(own["reduces"]) - 1)], "front": {"components": 64, "deltas": 1}}
        for size, own in MODELS[name].items()
    }
    for name in ("listen_attend_spell", "ctc")
}

TRANSCRIBE = Task(
    name="transcribe",
    help="the text of a recording, of arrays of features, or of lips",
    data="a table with the columns audio (or features, or frames) and text, or a folder of recordings with .txt files",
    columns=(SOUND, TEXT),
    reader="sightline.data.series_tables:sound_cells",
    variants=(
        Variant(
            input="sightline.inputs.sound:SoundInput",
            output="sightline.outputs.transcripts:TranscriptOutput",
            config="sightline.tasks.configs.transcribe:SoundTranscribeConfig",
            models=MODELS,
            stored="transcribe",
            rates=RATES,
            accepts="sightline.data.series_tables:is_sound_source",
        ),
        Variant(
            input="sightline.inputs.vectors:VectorsInput",
            output="sightline.outputs.transcripts:TranscriptOutput",
            config="sightline.tasks.configs.transcribe:TranscribeConfig",
            models=MODELS,
            stored="transcribe_vectors",
            rates=RATES,
            accepts="sightline.data.series_tables:is_vector_source",
            columns=(VECTORS, TEXT),
            differs={"reader": "sightline.data.series_tables:vector_cells", "rows": "arrays"},
        ),
        Variant(
            input="sightline.inputs.clips:ClipInput",
            output="sightline.outputs.transcripts:TranscriptOutput",
            config="sightline.tasks.configs.transcribe:ClipTranscribeConfig",
            models=WATCHING,
            stored="transcribe_frames",
            rates=RATES,
            accepts="sightline.data.series_tables:is_clip_source",
            columns=(CLIPS, TEXT),
            differs={"reader": "sightline.data.series_tables:clip_cells", "rows": "clips"},
        ),
    ),
    metrics=("wer", "cer", "sentence_error"),
    rows="recordings",
    counted="tokens",
    max_bad_share=0.05,
)
