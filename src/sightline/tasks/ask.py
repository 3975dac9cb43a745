"""Ask: the answer to a question about a table, and the program that gave it."""

from typing import Any

from sightline.tasks.task import Column, Option, Task, Variant

MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "neural_programmer": {"tiny": {"size": 64}, "small": {"size": 128}, "base": {"size": 256}},
    "cell_reader": {"tiny": {"size": 64}, "small": {"size": 128}, "base": {"size": 256}},
}
RATES: dict[str, object] = {"tiny": 1e-3, "small": 1e-3, "base": 5e-4}

ASK = Task(
    name="ask",
    help="the answer to a question about a table, and the program that gave it",
    data="questions, tables (files or rows) and answers; or made:tables",
    columns=(
        Column("question", "the question", ("utterance", "query")),
        Column("table", "the path of a table, or its header and rows", ("table_file", "context")),
        Column("answer", "a text, several with | between them, or a list", ("answers", "targetvalue", "denotation")),
        Column("kind", "the kind of the question, for scores of each kind", (), True),
        Column("id", "the name of the question", (), True),
    ),
    reader="sightline.data.questions:question_cells",
    made="questions",
    variants=(
        Variant(
            input="sightline.inputs.table:TableInput",
            output="sightline.outputs.answer:AnswerOutput",
            config="sightline.tasks.configs.ask:AskConfig",
            models=MODELS,
            stored="ask",
            rates=RATES,
        ),
    ),
    metrics=("denotation",),
    rows="questions",
    counted="questions",
    options=(
        Option("table", "One table for all questions that name none.", metavar="TABLE", everywhere=True),
        Option("count", "Of made data: how many questions.", metavar="N"),
    ),
    max_characters=2000,
    max_bad_share=0.01,
)
