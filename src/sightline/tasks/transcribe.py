"""Transcribe: sound, features or images in time to text, with attention over the frames for each token."""

from sightline.tasks.task import Column, Task, Variant

TEXT = Column("text", "what was said", ("transcript", "transcription", "sentence", "target"))
LISTENER = {
    "tiny": {"size": 192, "reduces": [2, 2, 1]},
    "small": {"size": 256, "reduces": [2, 2, 1]},
    "base": {"size": 320, "reduces": [2, 2, 1, 1]},
}

MODELS = {
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

TRANSCRIBE = Task(
    name="transcribe",
    help="the text of a recording, of arrays of features, or of lips",
    data="a table with the columns audio (or features, or frames) and text, or a folder of recordings with .txt files",
    columns=(Column("audio", "the path of a recording", ("sound", "recording", "wav", "path", "file")), TEXT),
    variants=(
        Variant(
            input="sightline.inputs.vectors:VectorsInput",
            output="sightline.outputs.transcripts:TranscriptOutput",
            config="sightline.tasks.configs.transcribe:TranscribeConfig",
            models=MODELS,
            stored="transcribe_vectors",
            rates={"tiny": 1e-3, "small": 1e-3, "base": 7e-4},
            columns=(Column("features", "the path of an array (.npy), frames × features", ("vectors", "array")), TEXT),
            differs={"reader": "sightline.data.series_tables:vector_cells", "rows": "arrays"},
        ),
    ),
    metrics=("wer", "cer", "sentence_error"),
    rows="recordings",
    counted="tokens",
    max_bad_share=0.05,
)
