"""Sequence: a series of vectors, or a recording, to another sequence of vectors, with attention for each of them."""

from sightline.tasks.task import Column, Task, Variant
from sightline.tasks.transcribe import MODELS as LISTENERS
from sightline.tasks.transcribe import RATES, SOUND, VECTORS

TARGET = Column("target", "the path of an array (.npy), vectors × numbers", ("targets", "output", "outputs"))
MODELS = {"encoder_decoder": LISTENERS["listen_attend_spell"]}

SEQUENCE = Task(
    name="sequence",
    help="vectors out of a series of vectors or of a recording",
    data="a table with the columns features (or audio) and target, both paths of files",
    columns=(VECTORS, TARGET),
    reader="sightline.data.series_tables:vector_pairs",
    variants=(
        Variant(
            input="sightline.inputs.vectors:VectorsInput",
            output="sightline.outputs.vectors:VectorsOutput",
            config="sightline.tasks.configs.sequence:SequenceConfig",
            models=MODELS,
            stored="sequence",
            rates=RATES,
            accepts="sightline.data.series_tables:is_vector_source",
        ),
        Variant(
            input="sightline.inputs.sound:SoundInput",
            output="sightline.outputs.vectors:VectorsOutput",
            config="sightline.tasks.configs.sequence:SoundSequenceConfig",
            models=MODELS,
            stored="sequence_sound",
            rates=RATES,
            accepts="sightline.data.series_tables:is_sound_source",
            columns=(SOUND, TARGET),
            differs={"reader": "sightline.data.series_tables:sound_pairs", "rows": "recordings"},
        ),
    ),
    metrics=("r2", "mse", "length_error"),
    rows="arrays",
    counted="vectors",
    max_bad_share=0.05,
)
