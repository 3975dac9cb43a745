"""Caption: a sentence for an image, with attention over the image for each word."""

from sightline.tasks.task import Column, Option, Task, Variant

IMAGE = Column("image", "the path of an image", ("image_path", "image_file", "file_name", "filename", "file", "path"))
FEATURES = Option(
    "features",
    "For images: cache the features of a frozen encoder in this folder, for other runs.",
    metavar="FOLDER",
)
IMAGE_RATES = {"tiny": 1e-3, "small": 7e-4, "base": 4e-4}
# Weight of the penalty for uneven attention: with 1, uniform attention lowers the loss more than any word.
PENALTY = 0.1


def _soft(hidden: int) -> dict[str, object]:
    score = {"kind": "additive", "hidden_size": hidden}
    return {"kind": "composed", "score": score, "normaliser": {"kind": "softmax"}}


CAPTION = Task(
    name="caption",
    help="a sentence that describes an image",
    data="a table with the columns image and caption, or a folder of images with .txt files",
    columns=(
        IMAGE,
        Column("caption", "a sentence that describes it", ("captions", "text", "sentence", "description")),
    ),
    reader="sightline.data.image_tables:caption_cells",
    variants=(
        Variant(
            input="sightline.inputs.image:ImageInput",
            output="sightline.outputs.captions:CaptionOutput",
            config="sightline.tasks.configs.caption:CaptionConfig",
            models={
                "show_attend_tell": {
                    "tiny": {"embedding_size": 256, "size": 512, "attention": _soft(256), "penalty": PENALTY},
                    "small": {"embedding_size": 512, "size": 1024, "attention": _soft(512), "penalty": PENALTY},
                    "base": {"embedding_size": 512, "size": 1800, "attention": _soft(1024), "penalty": PENALTY},
                },
                "transformer": {
                    "tiny": {},
                    "small": {"size": 512, "heads": 8, "feed_forward": 1024, "decoder_layers": 4},
                    "base": {
                        "size": 512,
                        "heads": 8,
                        "feed_forward": 2048,
                        "encoder_layers": 3,
                        "decoder_layers": 6,
                    },
                },
            },
            stored="caption",
            rates=IMAGE_RATES,
        ),
    ),
    metrics=(
        "bleu4", "bleu1", "bleu2", "bleu3", "bleu1_no_bp", "bleu2_no_bp", "bleu3_no_bp", "bleu4_no_bp", "cider_d",
        "cider", "rougeL", "chrf", "exact",
    ),
    rows="images",
    counted="tokens",
    options=(FEATURES,),
    max_bad_share=0.05,
)  # fmt: skip
