"""Translate: a text for a text. Normalisation, transliteration and similar problems are the same task."""

from sightline.tasks.task import Column, Option, Sizes, Task, Variant

# A Transformer needs a far larger learning rate than a recurrent network of its size; larger models need smaller ones.
TRANSFORMER_RATES = {"tiny": 4e-3, "small": 2e-3, "base": 7e-4}
RECURRENT_RATES = {"tiny": 2e-3, "small": 1e-3, "base": 5e-4}


def _additive(hidden: int) -> dict[str, object]:
    score = {"kind": "additive", "hidden_size": hidden}
    return {"kind": "composed", "score": score, "normaliser": {"kind": "softmax"}}


MODELS: dict[str, Sizes] = {
    "transformer": {
        "tiny": {},
        "small": {"size": 256, "heads": 4, "feed_forward": 1024, "encoder_layers": 4, "decoder_layers": 4},
        "base": {
            "size": 512,
            "heads": 8,
            "feed_forward": 2048,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "dropout": 0.1,
        },
    },
    "universal_transformer": {
        "tiny": {},
        "small": {"size": 256, "heads": 4, "feed_forward": 1024},
        "base": {
            "size": 512,
            "heads": 8,
            "feed_forward": 2048,
            "thinking": {"kind": "fixed", "repeats": 6},
            "decoder_repeats": 6,
            "dropout": 0.1,
        },
    },
    "rnnsearch": {
        "tiny": {},
        "small": {"embedding_size": 384, "size": 512, "attention": _additive(512)},
        "base": {"embedding_size": 620, "size": 1000, "attention": _additive(1000), "dropout": 0.2},
    },
    "luong": {
        "tiny": {},
        "small": {"embedding_size": 512, "size": 512, "encoder_size": 512, "layers": 2},
        "base": {"embedding_size": 1000, "size": 1000, "encoder_size": 1000, "layers": 4, "dropout": 0.2},
    },
    "grammar": {
        "tiny": {"layers": 1},
        "small": {"embedding_size": 512},
        "base": {"embedding_size": 512, "size": 512, "encoder_size": 512, "dropout": 0.2},
    },
    "seq2seq": {
        "tiny": {},
        "small": {"embedding_size": 512, "size": 512, "layers": 2},
        "base": {"embedding_size": 1000, "size": 1000, "layers": 4, "dropout": 0.2},
    },
}
FIELDS = {
    "tiny": {"training.warmup": 1000, "batch_tokens": 2048},
    "small": {"training.warmup": 2000, "batch_tokens": 4096},
    "base": {"training.warmup": 4000, "batch_tokens": 8192},
}
COLUMNS = (Column("source", "the text to read"), Column("target", "the text to write"))
OPTIONS = (
    Option("source", "Sources, one per line, instead of --data.", metavar="FILE"),
    Option("target", "Targets, one per line.", metavar="FILE"),
    Option("copy", "Let the model copy words of the source (model.copying).", "model.copying", flag=True, value=True),
    Option("no-copy", "Let the model write every word itself.", "model.copying", flag=True, value=False),
)
METRICS = ("bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL")


def writing(stored: str) -> Variant:
    """The variant of a task from text to text, under this name in config.json."""
    return Variant(
        input="sightline.inputs.text:SourceText",
        output="sightline.outputs.translation:TranslationOutput",
        config="sightline.tasks.configs.translate:TranslateConfig",
        models=MODELS,
        stored=stored,
        rates={"transformer": TRANSFORMER_RATES, "universal_transformer": TRANSFORMER_RATES, "": RECURRENT_RATES},
        fields=FIELDS,
        start="sightline.tasks.warm_start:TranslationStart",
    )


TRANSLATE = Task(
    name="translate",
    help="a text for a text: translate, normalise, transliterate",
    data="pairs as .tsv, .csv, .jsonl or .parquet, gzip or not, with the columns source and target",
    columns=COLUMNS,
    reader="sightline.data.reading:pair_cells",
    made="symbols",
    variants=(writing("translate"),),
    metrics=METRICS,
    rows="pairs",
    counted="target tokens",
    options=OPTIONS,
)
