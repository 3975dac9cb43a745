"""Classify: a text, a pair of texts, an image or a recording to one label, several, or a number."""

from sightline.data.tables import LINE_LIMIT
from sightline.tasks.caption import FEATURES, IMAGE, IMAGE_RATES
from sightline.tasks.presets import ATTENTIVE, ENCODER, HAN, NB_SVM, RATES, UNIVERSAL
from sightline.tasks.task import Column, Option, Task, Variant
from sightline.tasks.transcribe import SOUND, VECTORS

LABEL = Column("label", "its label, several labels, or a number", ("labels", "class", "category", "target"))

CLASSIFY = Task(
    name="classify",
    help="one label, several, or a number for a text, a pair, an image or a recording",
    data="texts and labels, in the columns text (or text and text2) and label; or images, or recordings",
    columns=(
        Column("text", "the text", ("sentence", "review", "text1", "sentence1")),
        Column("text2", "the second text of a pair", ("sentence2",), optional=True),
        Column("label", "its label, several labels, or a number", ("labels", "target", "score")),
    ),
    reader="sightline.data.labelled:labelled_cells",
    variants=(
        *(
            Variant(
                input=f"sightline.inputs.{kind}",
                output="sightline.outputs.series_labels:SeriesLabelsOutput",
                config=f"sightline.tasks.configs.classify_series:{config}",
                models={
                    "attentive": {
                        "tiny": {},
                        "small": {"size": 128, "reduces": [2, 2, 1]},
                        "base": {"size": 192, "reduces": [2, 2, 1]},
                    }
                },
                stored=stored,
                rates=IMAGE_RATES,
                accepts=f"sightline.data.series_tables:{accepts}",
                columns=(
                    column,
                    Column(
                        "label", "its label, several labels, or a number", ("labels", "class", "category", "target")
                    ),
                ),
                differs={
                    "data": f"a table with the columns {column.name} and label, or a folder of files for each label",
                    "reader": f"sightline.data.series_tables:{reader}",
                    "rows": rows,
                    "counted": rows,
                    "max_bad_share": 0.05,
                },
            )
            for kind, config, stored, accepts, column, reader, rows in (
                (
                    "sound:SoundInput",
                    "SoundClassifyConfig",
                    "classify_sound",
                    "is_labelled_sound",
                    SOUND,
                    "sound_cells",
                    "recordings",
                ),
                (
                    "vectors:VectorsInput",
                    "SeriesClassifyConfig",
                    "classify_vectors",
                    "is_labelled_vectors",
                    VECTORS,
                    "vector_cells",
                    "arrays",
                ),
            )
        ),
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
                LABEL,
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
                "universal": UNIVERSAL,
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
