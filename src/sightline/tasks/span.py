"""Span: the answer to a question as a span of a text."""

from sightline.tasks.presets import ATTENTIVE, ENCODER, LOUD, RATES
from sightline.tasks.task import Column, Task, Variant

SPAN = Task(
    name="span",
    help="the answer to a question, as a part of a text",
    data="questions, texts and answers",
    columns=(
        Column("question", "the question", ("query",)),
        Column("text", "the text with the answer", ("context", "passage")),
        Column("answer", "words of the text; empty if it has no answer", ("answers",)),
        Column("start", "the first character of the answer", ("answer_start",), True),
    ),
    variants=(
        Variant(
            input="sightline.inputs.question:QuestionInput",
            output="sightline.outputs.span:SpanOutput",
            config="sightline.tasks.configs.span:SpanConfig",
            models={
                "encoder": ENCODER,
                "attentive": {size: {**fields, "init_std": LOUD} for size, fields in ATTENTIVE.items()},
            },
            stored="span",
            rates=RATES,
            start="sightline.tasks.warm_start:TextStart",
        ),
    ),
    metrics=("f1", "exact"),
    rows="questions",
    counted="questions",
    max_characters=1_000_000,
)
