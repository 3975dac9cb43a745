"""Tag: a label for each word of a sentence."""

from sightline.tasks.presets import ATTENTIVE, ENCODER, LOUD, RATES
from sightline.tasks.task import Column, Option, Task, Variant

TAG = Task(
    name="tag",
    help="a label for each word: names, parts of speech, segmentation",
    data="lines of a word, a tab and its label, with an empty line after each sentence, or the columns words and tags",
    columns=(
        Column("words", "the words, as a list or separated by spaces", ("tokens", "sentence", "text")),
        Column("tags", "their labels", ("labels", "ner_tags", "pos_tags")),
        Column("document", "the document that the sentence is from", ("doc", "document_id", "doc_id"), optional=True),
    ),
    reader="sightline.data.tagged:tagged_cells",
    variants=(
        Variant(
            input="sightline.inputs.words:WordsInput",
            output="sightline.outputs.tags:TagsOutput",
            config="sightline.tasks.configs.tag:TagConfig",
            models={
                "attentive": {size: {**fields, "init_std": LOUD} for size, fields in ATTENTIVE.items()},
                "encoder": ENCODER,
            },
            stored="tag",
            rates=RATES,
            start="sightline.tasks.warm_start:TextStart",
        ),
    ),
    options=(Option("crf", "Learn scores of neighbouring tags too (a CRF).", sets="crf", flag=True, value=True),),
    metrics=("span_f1", "accuracy", "macro_f1"),
    rows="sentences",
    counted="words",
    max_characters=1_000_000,
)
