"""Classify: a text, a pair of texts or an image to one label, several, or a number."""

from sightline.data.tables import LINE_LIMIT
from sightline.tasks.caption import FEATURES, IMAGE, IMAGE_RATES
from sightline.tasks.presets import ATTENTIVE, ENCODER, HAN, NB_SVM, RATES
from sightline.tasks.task import Column, Option, Task, Variant

CLASSIFY = Task(
    name="classify",
    help="one label, several, or a number for a text, a pair of texts or an image",
    data="texts and labels, in the columns text (or text and text2) and label; or images and labels",
    columns=(
        Column("text", "the text", ("sentence", "review", "text1", "sentence1")),
        Column("text2", "the second text of a pair", ("sentence2",), optional=True),
        Column("label", "its label, several labels, or a number", ("labels", "target", "score")),
    ),
    reader="sightline.data.labelled:labelled_cells",
    variants=(
        Variant(  # before that of texts, which reads any other data
            input="sightline.inputs.image:ImageInput",
            output="sightline.outputs.image_labels:ImageLabelsOutput",
            config="sightline.tasks.configs.classify_images:ImageClassifyConfig",
            models={
                "attentive": {
                    "tiny": {},
                    "small": {"size": 384, "layers": 1, "heads": 6},
                    "base": {"size": 512, "layers": 2, "heads": 8},
                }
            },
            stored="classify_images",
            rates=IMAGE_RATES,
            accepts="sightline.data.image_tables:is_image_source",
            columns=(
                IMAGE,
                Column("label", "its label, several labels, or a number", ("labels", "class", "category", "target")),
            ),
            differs={
                "data": "a table with the columns image and label, or a folder with a folder of images for each label",
                "reader": "sightline.data.image_tables:image_label_cells",
                "rows": "images",
                "counted": "images",
                "max_bad_share": 0.05,
            },
        ),
        Variant(
            input="sightline.inputs.text:TextInput",
            output="sightline.outputs.labels:LabelsOutput",
            config="sightline.tasks.configs.classify:ClassifyConfig",
            models={
                "attentive": ATTENTIVE,
                "han": HAN,
                "encoder": {**ENCODER, "tiny": {"layers": 2}},
                "nb_svm": NB_SVM,
            },
            stored="classify",
            rates=RATES,
            start="sightline.tasks.warm_start:TextStart",
        ),
    ),
    metrics=("macro_f1", "accuracy", "micro_f1", "pearson", "spearman"),
    rows="texts",
    counted="texts",
    options=(
        Option(
            "labels", "Predict one label, several, or numbers.", sets="labels", choices=("one", "several", "number")
        ),
        Option(
            "separator",
            "The text between several labels in a cell; detected by default.",
            metavar="TEXT",
            only_with=("labels", "several"),
        ),
        Option(
            "no-baselines",
            "Do not train the linear models that are the baselines.",
            sets="baselines",
            flag=True,
            value=False,
        ),
        FEATURES,
    ),
    max_characters=LINE_LIMIT,
)
