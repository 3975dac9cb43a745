"""Pretrain: an encoder trained on plain text, for other tasks to start from."""

from sightline.tasks.presets import ENCODER, READING_RATES, READING_TOKENS
from sightline.tasks.task import Column, Task, Variant

PRETRAIN = Task(
    name="pretrain",
    help="an encoder that learns masked words of plain text, for other tasks to start from",
    data="plain text",
    columns=(Column("text", "a text", ("sentence", "review", "text1", "sentence1")),),
    reader="sightline.data.plain:plain_cells",
    variants=(
        Variant(
            input="sightline.inputs.text:PlainInput",
            output="sightline.outputs.masked:MaskedOutput",
            config="sightline.tasks.configs.pretrain:PretrainConfig",
            models={"encoder": ENCODER},
            stored="pretrain",
            rates=READING_RATES,
            fields={size: {"batch_tokens": tokens} for size, tokens in READING_TOKENS.items()},
            start="sightline.tasks.warm_start:PretrainStart",
        ),
    ),
    metrics=(),
    rows="texts",
    counted="hidden words",
    max_characters=1_000_000,
)
