"""Sequence: a series of vectors, or a recording, to another sequence of vectors, or to positions of the series."""

from dataclasses import replace
from typing import Any

from sightline.tasks.task import Column, Option, Task, Variant
from sightline.tasks.transcribe import MODELS as LISTENERS
from sightline.tasks.transcribe import RATES, SOUND, VECTORS
from sightline.tasks.translate import COLUMNS as SYMBOLS
from sightline.tasks.translate import METRICS as TEXT_METRICS
from sightline.tasks.translate import writing

TARGET = Column("target", "the path of an array (.npy), vectors × numbers", ("targets", "output", "outputs"))
POSITIONS = Column("positions", "frames of the array, counted from 0, such as 3 0 2", ("order", "pointers"))
MACHINES: dict[str, dict[str, dict[str, Any]]] = {
    "ntm": {"tiny": {}, "small": {"read_heads": 4, "write_heads": 4}, "base": {"size": 200, "slots": 256, "width": 32}},
    "dnc": {"tiny": {}, "small": {"read_heads": 4}, "base": {"size": 200, "slots": 256, "width": 32, "read_heads": 4}},
    "lstm": {"tiny": {}, "small": {"size": 256}, "base": {"size": 512, "layers": 3}},
    "transformer": {
        "tiny": {},
        "small": {"size": 256, "feed_forward": 1024, "layers": 4},
        "base": {"size": 512, "heads": 8, "feed_forward": 2048, "layers": 6},
    },
    "universal": {
        "tiny": {},
        "small": {"size": 256, "feed_forward": 1024},
        "base": {"size": 512, "heads": 8, "feed_forward": 2048},
    },
}
MODELS = {"encoder_decoder": LISTENERS["listen_attend_spell"], **MACHINES}
ALL_RATES: dict[str, object] = {
    "": RATES,
    **{name: {"tiny": 3e-3, "small": 2e-3, "base": 1e-3} for name in ("ntm", "dnc")},
    **{name: {"tiny": 1e-3, "small": 1e-3, "base": 5e-4} for name in ("lstm", "transformer", "universal")},
}
POINTERS: dict[str, dict[str, dict[str, Any]]] = {
    "pointer": {
        "tiny": {},
        "small": {"size": 256, "decoder_size": 256, "score": {"kind": "additive", "hidden_size": 256}},
        "base": {"size": 512, "decoder_size": 512, "score": {"kind": "additive", "hidden_size": 512}},
    }
}
POINTER_RATES: dict[str, object] = {"tiny": 3e-3, "small": 2e-3, "base": 1e-3}
OPTIONS = (
    Option("lengths", "Of made data: how long sequences are, such as 20 or 1-20.", metavar="RANGE"),
    Option("count", "Of made data: how many rows; training draws new ones like them.", metavar="N"),
    Option("width", "Of made data: the numbers in a vector.", metavar="N"),
    Option("repeats", "Of made:repeat-copy: how often, such as 1-10.", metavar="RANGE"),
)

SEQUENCE = Task(
    name="sequence",
    help="vectors out of a series of vectors or of a recording, or positions of its vectors",
    data="a table with the columns features (or audio) and target (or positions), files or lists; or made:copy…",
    columns=(VECTORS, TARGET),
    reader="sightline.data.series_tables:vector_pairs",
    made="vectors",
    variants=(
        Variant(
            input="sightline.inputs.vectors:VectorsInput",
            output="sightline.outputs.vectors:VectorsOutput",
            config="sightline.tasks.configs.sequence:SequenceConfig",
            models=MODELS,
            stored="sequence",
            rates=ALL_RATES,
            accepts="sightline.data.series_tables:is_vector_source",
        ),
        Variant(
            input="sightline.inputs.vectors:VectorsInput",
            output="sightline.outputs.positions:PositionsOutput",
            config="sightline.tasks.configs.sequence:PositionsConfig",
            models=POINTERS,
            stored="sequence_positions",
            rates=POINTER_RATES,
            accepts="sightline.data.series_tables:is_position_source",
            columns=(VECTORS, POSITIONS),
            differs={
                "reader": "sightline.data.series_tables:position_pairs",
                "metrics": ("exact", "position_accuracy"),
                "counted": "positions",
            },
        ),
        Variant(
            input="sightline.inputs.sound:SoundInput",
            output="sightline.outputs.vectors:VectorsOutput",
            config="sightline.tasks.configs.sequence:SoundSequenceConfig",
            models=MODELS,
            stored="sequence_sound",
            rates=ALL_RATES,
            accepts="sightline.data.series_tables:is_sound_source",
            columns=(SOUND, TARGET),
            differs={"reader": "sightline.data.series_tables:sound_pairs", "rows": "recordings", "made": ""},
        ),
        replace(
            writing("sequence_symbols"),
            config="sightline.tasks.configs.sequence:SymbolSequenceConfig",
            accepts="sightline.data.reading:is_symbol_source",
            columns=SYMBOLS,
            differs={
                "reader": "sightline.data.reading:pair_cells",
                "made": "symbols",
                "rows": "pairs",
                "counted": "target tokens",
                "metrics": ("exact", *(one for one in TEXT_METRICS if one != "exact")),
            },
        ),
    ),
    metrics=("r2", "mse", "bit_error", "exact", "length_error"),
    options=OPTIONS,
    rows="arrays",
    counted="vectors",
    max_bad_share=0.05,
)
