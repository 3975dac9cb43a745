"""Classify: a text, a pair of texts or an image to one label, several, or a number."""

from sightline.data.tables import LINE_LIMIT
from sightline.tasks.presets_text import ATTENTIVE, ENCODER, HAN, RATES
from sightline.tasks.task import Column, Option, Task, Variant

CLASSIFY = Task(
    name="classify",
    help="one label, several, or a number for a text or a pair of texts",
    data="texts and labels, in the columns text (or text and text2) and label",
    columns=(
        Column("text", "the text", ("sentence", "review", "text1", "sentence1")),
        Column("text2", "the second text of a pair", ("sentence2",), optional=True),
        Column("label", "its label, several labels, or a number", ("labels", "target", "score")),
    ),
    reader="sightline.data.labelled:labelled_cells",
    variants=(
        # The variant of images comes before that of texts, which reads whatever is left:
        # accepts="sightline.data.image_tables:is_image_source".
        Variant(
            input="sightline.inputs.text:TextInput",
            output="sightline.outputs.labels:LabelsOutput",
            config="sightline.tasks.configs.classify:ClassifyConfig",
            models={"attentive": ATTENTIVE, "han": HAN, "encoder": {**ENCODER, "tiny": {"layers": 2}}},
            stored="classify",
            rates=RATES,
            start="sightline.tasks.text_start:TextStart",
        ),
    ),
    metrics=("macro_f1", "accuracy", "micro_f1", "pearson", "spearman"),
    rows="texts",
    counted="texts",
    options=(
        Option("labels", "one label, several, or a number", sets="labels", choices=("one", "several", "number")),
        Option("separator", "what stands between several labels in a cell; found if left out", metavar="TEXT"),
        Option(
            "no-floors", "leave out the linear models that scores are held against", "floors", flag=True, value="false"
        ),
    ),
    max_characters=LINE_LIMIT,
)
