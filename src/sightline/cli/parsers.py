"""Every command except `train`: its help and its options, in the order of the list of commands."""

from dataclasses import fields, replace
from pathlib import Path

from sightline.cli.options import DEVICE, ENCODING, JSON, REQUIRED, THREADS, Arg, Command, file_options
from sightline.serve.limits import Limits


def several(name: str, metavar: str, help: str) -> Arg:
    """Positional paths."""
    return Arg(name, tuple[Path, ...], help, REQUIRED, metavar, positional=True)


RUN = Arg("run", Path, "The run folder.", REQUIRED, "RUN", positional=True)
SEARCH, ITEMS, PICTURE = "search", "items", "picture"
TABLE = Arg("table", str, "For runs that answer questions about tables: the table of all questions.", None, "FILE")
DATA = (
    Arg("data", str, "Data with targets, in the same formats as for training; - reads a pipe.", None, "FILE"),
    Arg("columns", tuple[str, ...], "Names of the columns, if they are not the usual ones.", None, "NAME"),
    Arg("source", str, "For runs that translate, instead of --data: the sources, one per line.", None, "FILE"),
    Arg("target", str, "Instead of --data: the targets, one per line.", None, "FILE"),
    TABLE,
    ENCODING,
    Arg("lengths", str, "Of made data: how long sequences are, such as 20 or 1-20.", None, "RANGE"),
    Arg("count", str, "Of made data: how many rows; 500 by default.", None, "N"),
    Arg("repeats", str, "Of made:repeat-copy: how often, such as 1-10.", None, "RANGE"),
)
BEAM = Arg("beam", int, "Number of hypotheses to keep; 1 is greedy search, 5 the default.", group=SEARCH)
LENGTH = Arg("length-penalty", float, "Divide scores by length to this power; 1 is the default.", group=SEARCH)
LIMITS_OF_TEXT = (
    Arg("min-length", int, "The fewest tokens of an output.", group=SEARCH),
    Arg(
        "max-length",
        int,
        "The most tokens; by default, three times the source's plus twenty; of summaries, those of the longest one in "
        "the training data.",
        group=SEARCH,
    ),
    Arg(
        "no-repeat",
        int,
        "Never repeat a sequence of this many tokens; 0 allows all, and 3 is the default of summarise.",
        group=SEARCH,
    ),
    Arg("coverage", float, "In a beam, lower scores for attending to the same words again; 1 is strong.", group=SEARCH),
)
BLEU = Arg(
    "bleu-tokenise",
    str,
    "sacreBLEU's tokeniser; by default zh for Chinese, char for Japanese, Thai and similar scripts, else 13a.",
    None,
    choices=("auto", "13a", "zh", "char", "intl", "none"),
    group=SEARCH,
)

DEMO = Command(
    "demo",
    "Train a model that reads dates in 27 languages, score it on unseen days, and draw its attention.\n\n"
    "Dates as people write them (27 sierpnia 2024, 2028年12月31日, 9 августа 1969) become ISO 8601. The data is "
    "generated, split by calendar day, and one language is kept out of training. The result is an ordinary run folder; "
    'continue with: sightline predict runs/demo --text "3. Mai 2021"',
    (
        Arg("out", Path, "Write this run folder; an earlier demo there is overwritten.", Path("runs/demo"), "FOLDER"),
        Arg("pairs", int, "Train on this many dates.", 60_000),
        Arg("steps", int, "Train this many steps.", 350),
        Arg("minutes", float, "Stop training after this many minutes.", 6.0),
        Arg("seed", int, "The same seed gives the same data and, with the same threads, the same model.", 0),
        THREADS,
    ),
    "sightline.cli.demo:run_demo",
)

TIDY = Command(
    "tidy",
    "Remove what predictions do not need: the checkpoints and the prepared data of a run.",
    (RUN,),
    "sightline.cli.tidy:tidy_command",
)

RESUME = Command(
    "resume",
    "Resume training from the last valid checkpoint, at the same position in the data.",
    (
        RUN,
        Arg("verify", int, "Check that resuming is exact: train N steps in two copies, kill one, and compare."),
        DEVICE,
        THREADS,
        Arg("tensorboard", bool, "Also write RUN/tensorboard."),
        Arg("epochs", int, "Stop after this many passes in all; a new limit replaces those of the run."),
        Arg("steps", int, "Stop after this many updates in all."),
        Arg("minutes", float, "Stop after this many minutes in all."),
        Arg("learning-rate", float, "Train on with this highest learning rate."),
        Arg("set", tuple[str, ...], "Set training fields or the batch size: epochs=60 batch=16", (), "FIELD=VALUE"),
    ),
    "sightline.cli.train:resume_command",
)

EVALUATE = Command(
    "evaluate",
    "Score a run on data with targets: every metric of its task, with and without rows of the training data.",
    (
        RUN,
        *DATA,
        Arg("errors", int, "Also show this many of the worst predictions.", 0, "N"),
        Arg("out", Path, "Write every prediction with its scores to this .jsonl file.", None),
        JSON,
        THREADS,
        BEAM,
        LENGTH,
        *LIMITS_OF_TEXT,
        BLEU,
        Arg("by-length", bool, "Also show scores by the length of the source.", group=SEARCH),
    ),
    "sightline.cli.evaluate:evaluate_command",
)

COMPARE = Command(
    "compare",
    "Score several runs on the same data, and test whether they differ by more than chance (paired bootstrap).",
    (
        several("runs", "RUN RUN ...", "Two or more run folders; each is compared with the first."),
        *DATA,
        Arg("metrics", tuple[str, ...], "Compare these metrics; by default, the main ones.", None, "METRIC"),
        Arg("samples", int, "Draw the rows this many times.", 1000),
        Arg("seed", int, "The same seed draws the same rows.", 0),
        Arg("out", Path, "For runs that translate: draw scores by length to this .png, .svg or .pdf file.", None),
        JSON,
        THREADS,
        BEAM,
        LENGTH,
        *LIMITS_OF_TEXT,
        BLEU,
    ),
    "sightline.cli.compare:compare_command",
)

PREDICT = Command(
    "predict",
    "Predict for each line of the input, or for each file, in order; an empty line gives an empty line.",
    (
        RUN,
        Arg(
            "input",
            str,
            "Read items, one per line, - from a pipe; for files, a table or folder; or 500 items of made data by its "
            "name, such as made:copy, or as many as made:copy:count=3 says.",
            None,
            "FILE",
            group=ITEMS,
        ),
        Arg("text", tuple[str, ...], "Predict for these texts instead.", (), group=ITEMS),
        replace(TABLE, group=ITEMS),
        *file_options(" or folders of them", ITEMS),
        replace(ENCODING, group=ITEMS),
        Arg("out", Path, "Write this file, atomically; a folder where each item has a file of its own.", None),
        Arg(
            "format",
            str,
            "Write text, or jsonl with scores and probabilities; transcribe also has srt, vtt, textgrid, sequence npy.",
            "text",
            "NAME",
        ),
        Arg("batch-tokens", int, "Process this many tokens at once; fewer take less memory."),
        THREADS,
        BEAM,
        LENGTH,
        Arg("best", int, "Write this many outputs for each item, the most likely first.", group=SEARCH),
        *LIMITS_OF_TEXT,
        Arg("prefix", str, "Start every output with this text; end it where a word ends.", group=SEARCH),
        Arg("keep-unknown", bool, "Keep <unk> instead of copying a word from the source.", group=SEARCH),
        Arg("sample", bool, "Draw outputs at random instead of searching for the most likely.", group=SEARCH),
        Arg("temperature", float, "With --sample: below 1 more conservative, above 1 more diverse.", group=SEARCH),
        Arg("top", int, "With --sample: draw from this many of the most likely tokens.", group=SEARCH),
        Arg("mass", float, "With --sample: draw from the tokens with this much probability.", group=SEARCH),
        Arg("seed", int, "With --sample: the same seed and input give the same outputs.", group=SEARCH),
        Arg("split", bool, "Split texts into sentences, predict these, and join the outputs.", group=SEARCH),
        Arg("ensemble", tuple[Path, ...], "More runs with the same target vocabulary.", (), "RUN", group=SEARCH),
        Arg(
            "engine",
            str,
            "Run the model with this engine; a folder that export wrote needs no run.",
            None,
            choices=("sightline", "ctranslate2", "onnx"),
            group=SEARCH,
        ),
        Arg("threshold", float, "Predict labels with at least this probability; fitted by default.", group="labels"),
    ),
    "sightline.cli.predict:predict_command",
)

VIEW = Command(
    "view",
    "Show what a run attends to for a prediction: a picture for a paper, an animation, or a page for any browser.",
    (
        several(
            "runs",
            "RUN|hf:DIR [...]",
            "A run folder, one of its checkpoints (RUN/checkpoints/step-N), or hf:DIR, a Hugging Face model; a page "
            "shows several.",
        ),
        Arg("out", Path, "Write .png, .svg, .pdf, .gif, .html (the page) or .json (plain data).", REQUIRED, "FILE"),
        Arg("text", tuple[str, ...], "A text; a page shows several.", (), group=ITEMS),
        Arg("text2", tuple[str, ...], "The second text of each pair, or the text to find answers in.", (), group=ITEMS),
        replace(TABLE, group=ITEMS),
        *file_options(", one for a picture, several for a page", ITEMS),
        Arg(
            "input",
            str,
            "Read items from this file, one per line; - reads a pipe; or an item of made data, such as made:copy.",
            None,
            "FILE",
            group=ITEMS,
        ),
        replace(ENCODING, group=ITEMS),
        Arg("output", str, "Explain this output or label instead of the model's own.", None, group=ITEMS),
        Arg("layout", str, "What a picture shows.", "alignment", None, ("alignment", "heads", "layers"), PICTURE),
        Arg("attention", str, "Show this attention, such as decoder.2.cross; the last by default.", group=PICTURE),
        Arg("head", int, "Show this head, counted from 0; the mean of all by default.", group=PICTURE),
        Arg("pieces", bool, "Show tokens instead of whole words.", group=PICTURE),
        Arg("width", float, "Width of a picture in inches; a column of a paper has about 3.4.", group=PICTURE),
        Arg("title", str, 'The title of a picture; "" omits it.', group=PICTURE),
        Arg("top", int, "Keep only this many weights of each row."),
        Arg("quick", bool, "Compute only the map, not the measures of whether to believe it."),
        THREADS,
        Arg("beam", int, "Number of hypotheses to keep while decoding; 5 by default.", group=SEARCH),
        Arg("shift", int, "Move the rows of the map by -1, 0 or 1; measured by default.", group=SEARCH),
    ),
    "sightline.cli.view:view_command",
)

ALIGN = Command(
    "align",
    "Align the words of source and target: write one line of links for each pair, such as 0-0 1-2.\n\n"
    "Links are source-target; words are counted from 0. They come from attention. The layer, head and shift are chosen "
    "by --gold, else by the agreement of both directions (--reverse), else by the effect of hiding source words; the "
    "choice is printed to standard error.",
    (
        RUN,
        Arg("data", str, "Pairs, in the same formats as for training.", None, "FILE"),
        Arg("source", str, "Instead of --data: the sources, one per line.", None, "FILE"),
        Arg("target", str, "Instead of --data: the targets, one per line.", None, "FILE"),
        Arg("columns", tuple[str, str], "Names of the two columns, if not source and target.", None, "SOURCE TARGET"),
        ENCODING,
        Arg("reverse", Path, "Combine with the links of this run, trained from target to source.", None, "RUN"),
        Arg(
            "gold",
            Path,
            "Links made by people: one line for each of the first pairs (0-0 sure, 0p1 possible, empty: unknown), or "
            ".jsonl with source, target and links. The first 20 pairs choose; the others give the error rate.",
        ),
        Arg("gold-base", int, "Words of --gold are counted from this number: 0 or 1.", 0),
        Arg(
            "symmetrise",
            str,
            "How to combine the links of both directions.",
            "grow-diag-final-and",
            None,
            ("intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"),
        ),
        Arg("threshold", float, "Omit links with this weight or less, in each direction.", 0.0),
        Arg(
            "words",
            str,
            "Split words at spaces, or also at each character of a script without spaces; auto does the latter for "
            "texts of such scripts that have no spaces.",
            "auto",
            choices=("auto", "spaces", "characters"),
        ),
        Arg("use", str, "Use this layer, head (or mean) and shift, such as decoder.2.cross:mean:-1.", None, "MAP"),
        Arg("reverse-use", str, "The same for the run of --reverse.", None, "MAP"),
        Arg("out", Path, "Write this file, atomically, instead of standard output."),
        Arg(
            "format",
            str,
            "Write links only, or jsonl with words, links, weights and the choice.",
            "pharaoh",
            choices=("pharaoh", "jsonl"),
        ),
        Arg("report", Path, "Write the choice, scores, agreement and speed to this .json file."),
        THREADS,
    ),
    "sightline.cli.align:align_command",
)

LIMITS = {
    "body": "Most bytes of a request.",
    "texts": "Most texts in a request.",
    "characters": "Most characters of a text.",
    "beam": "Widest beam that a request may ask for.",
    "tokens": "Longest output that a request may ask for.",
    "weights": "Most weights of one explanation.",
    "measured": "Most tokens of a map whose evidence is measured; predictions wait meanwhile.",
    "seconds": "Most seconds for an answer.",
    "reading": "Most seconds for a client to send a request.",
    "decoding": "Most seconds to decode an image or a recording, for runs that read them.",
    "stopping": "Most seconds until the server ends after a signal to stop; it answers open requests meanwhile.",
    "waiting": "Most requests that may wait; more are refused with 503.",
    "connections": "Most connected clients.",
    "images": "Most images or other files in a request, for runs that read files.",
    "image_bytes": "Most bytes of all files of a request together; its body may be larger by that.",
    "pixels": "Most pixels of an image.",
    "sound_seconds": "Most seconds of a recording, for runs that read recordings.",
    "table_cells": "Most cells of all tables of a request, for runs that read tables.",
}
SERVE = Command(
    "serve",
    "Serve runs: a page to enter texts, drop files or speak, and see attention maps, and an HTTP API.\n\n"
    "The page is at the printed address, the documentation of the API at /docs. Simultaneous requests are predicted in "
    "one batch; the answers are those of predict. Ctrl-C or SIGTERM stops the server: it refuses new requests and "
    "answers open ones.",
    (
        several("runs", "RUN [RUN ...]", "Run folders or checkpoints (RUN/checkpoints/step-N); the page compares two."),
        Arg("port", int, "Listen on this port; 0 chooses a free one.", 8000),
        Arg("host", str, "Listen on this address; one that other machines can reach needs a token.", "127.0.0.1"),
        Arg(
            "token",
            str,
            "Require this token (Authorization: Bearer TOKEN). The environment variable SIGHTLINE_TOKEN does the same, "
            "and other users of the machine cannot read it.",
        ),
        Arg("without-token", bool, "Allow other machines without a token: anyone who reaches the address."),
        Arg("allow-host", tuple[str, ...], "Accept requests for these host names too.", (), "NAME"),
        *(
            Arg(f"max-{one.name.replace('_', '-')}", one.type, LIMITS[one.name], one.default)
            for one in fields(Limits)
            if one.name in LIMITS
        ),
        THREADS,
    ),
    "sightline.cli.serve:serve_command",
)

EXPORT = Command(
    "export",
    "Write a run in the format of another engine, and compare its predictions with those of the run.\n\n"
    "ctranslate2 is the fastest on a processor and runs Transformers. onnx runs them and recurrent models wherever "
    "there is an onnxruntime. huggingface is a folder for transformers: a Pegasus, a Marian, or the encoder of a run "
    "that classifies, tags, answers or was pre-trained. An export whose predictions differ is deleted.",
    (
        Arg("run", Path, "A run folder or a checkpoint (RUN/checkpoints/step-N).", REQUIRED, "RUN", positional=True),
        Arg("to", str, "The engine.", REQUIRED, choices=("ctranslate2", "onnx", "huggingface")),
        Arg("out", Path, "Write this folder, atomically.", REQUIRED, "FOLDER"),
        Arg("int8", bool, "Store weights in 8 bits: smaller, faster, not exact; the difference is printed."),
        Arg(
            "data",
            str,
            "Compare on these pairs (texts, for runs that do not translate); by default on the validation data, or on "
            "texts made of the vocabulary.",
            None,
            "FILE",
        ),
        Arg("columns", tuple[str, ...], "Names of the columns of --data.", None, "NAME"),
        Arg("overwrite", bool, "Replace an earlier export."),
        Arg("json", bool, "Print JSON instead of sentences."),
        THREADS,
    ),
    "sightline.cli.export:export_command",
)

SALIENCY = Command(
    "saliency",
    "Predict where people look in images, without training: a saliency map and a scan path.\n\n"
    "This is the model of Itti, Koch and Niebur (1998): contrasts of brightness, colour and orientation at several "
    "scales, and neurons that compete. For photo.jpg the folder gets photo.saliency.png (the numbered fixations and "
    "the maps), photo.saliency.npy (the map as an array, at most 640 pixels along its longer side) and "
    "photo.saliency.json (the fixations in pixels of the image, with simulated milliseconds).",
    (
        several("images", "IMAGE [IMAGE ...]", "Images (JPEG, PNG, WebP, BMP, GIF, TIFF), or folders of them."),
        Arg("out", Path, "Write to this folder.", REQUIRED, "FOLDER"),
        Arg("fixations", int, "Compute at most this many fixations.", 8),
        Arg("blur", float, "Smooth the map by a Gaussian of this fraction of the longer side."),
        Arg("side", int, "Scale images to this many pixels along the longer side first."),
        Arg(
            "colours",
            str,
            "Opposed colours as the paper describes them, or by its printed formula, which has a wrong sign.",
            "opposed",
            choices=("opposed", "printed"),
        ),
        Arg("truth", Path, "Score the maps by human fixations: a table with the columns image, x and y, in pixels."),
        Arg("quick", bool, "Write no pictures."),
        DEVICE,
        THREADS,
    ),
    "sightline.cli.saliency:saliency_command",
)

BENCH = Command(
    "bench",
    "Measure how fast a run trains and predicts on this machine, its memory, and where its time goes.",
    (RUN, Arg("seconds", float, "Measure each kind of work for about this many seconds.", 5.0), JSON, THREADS),
    "sightline.cli.bench:bench_command",
)

MECHANISMS = Command(
    "mechanisms",
    "List every score, normaliser and mechanism, built in and installed.",
    (Arg("json", bool, "Print JSON instead of a table."),),
    "sightline.cli.mechanisms:print_catalogue",
)

CHECK = Command(
    "check",
    "Test a mechanism against the laws of the attention contract: padding, masks, caches, gradients and others.",
    (
        Arg(
            "mechanism",
            str,
            "The name of a mechanism or score (see `sightline mechanisms`), or a .json file of its configuration.",
            REQUIRED,
            "MECHANISM",
            positional=True,
        ),
        Arg("normaliser", str, "Turn scores into weights with this normaliser.", None, "NAME"),
        Arg("heads", int, "With more than one, wrap the mechanism in multi-head attention.", 1),
        Arg("seed", int, "Draw the inputs with this seed.", 0),
        Arg("output", str, "Print a table or JSON.", "table", choices=("table", "json")),
    ),
    "sightline.cli.mechanisms:check_mechanism",
)
