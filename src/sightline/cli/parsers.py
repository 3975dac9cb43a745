"""The commands that use a run: predict, evaluate, compare, view, bench, resume. Options say which runs they are for."""

from pathlib import Path

from sightline.cli.options import DEVICE, JSON, REQUIRED, THREADS, Command, Option

RUN = Option("run", Path, "The run folder.", REQUIRED, "RUN", positional=True)
SEARCH = "search"
ITEMS = "items"
DATA = (
    Option("data", str, "Data with targets, in the same forms as for training; - for a pipe.", None, "FILE"),
    Option("columns", tuple[str, ...], "Column names, where they are not the usual ones.", None, "NAME"),
    Option("source", str, "Instead of --data, of runs that translate: the sources, one a line.", None, "FILE"),
    Option("target", str, "Instead of --data: the targets, one a line.", None, "FILE"),
)
BEAM = Option("beam", int, "Hypotheses to keep, 5 unless given; 1 is greedy.", group=SEARCH)
LENGTH = Option("length-penalty", float, "Divide scores by length to this power; 1 unless given.", group=SEARCH)
BLEU = Option(
    "bleu-tokenise",
    str,
    "sacreBLEU's tokeniser; left out, zh for Chinese, char for Japanese, Thai and their like, else 13a.",
    None,
    choices=("auto", "13a", "zh", "char", "intl", "none"),
    group=SEARCH,
)
THRESHOLD = "labels"

PREDICT = Command(
    "predict",
    "Predict for each line of the input, or each image, in order; an empty line gives an empty line.",
    (
        RUN,
        Option(
            "input",
            str,
            "A file, one item a line (- is a pipe); of images a table or a folder.",
            None,
            "FILE",
            group=ITEMS,
        ),
        Option("text", tuple[str, ...], "Texts given here instead.", (), "TEXT", group=ITEMS),
        Option(
            "image", tuple[Path, ...], "Images, or folders of them, for runs that read images.", (), "FILE", group=ITEMS
        ),
        Option("out", Path, "Write to this file, whole or not at all; of grid, a folder for masks and pictures.", None),
        Option("format", str, "text, or jsonl with scores and probabilities.", "text", choices=("text", "jsonl")),
        Option("batch-tokens", int, "How many tokens are in work at once; less takes less memory."),
        THREADS,
        BEAM,
        LENGTH,
        Option("best", int, "How many outputs for each item, likeliest first.", group=SEARCH),
        Option("min-length", int, "The fewest tokens of an output.", group=SEARCH),
        Option("max-length", int, "The most tokens; left out, three times the source and twenty.", group=SEARCH),
        Option("no-repeat", int, "No run of this many tokens twice in an output.", group=SEARCH),
        Option("prefix", str, "What every output begins with: end it where a word ends.", group=SEARCH),
        Option("keep-unknown", bool, "Leave <unk> instead of copying a word from the source.", group=SEARCH),
        Option("sample", bool, "Draw outputs at random instead of searching for the likeliest.", group=SEARCH),
        Option("temperature", float, "With --sample: below 1 more conservative, above 1 more diverse.", group=SEARCH),
        Option("top", int, "With --sample: draw from this many of the likeliest tokens.", group=SEARCH),
        Option("mass", float, "With --sample: draw from tokens with this much probability together.", group=SEARCH),
        Option("seed", int, "With --sample: the same seed and input give the same outputs.", group=SEARCH),
        Option("split", bool, "Cut texts into sentences, predict these, put them together again.", group=SEARCH),
        Option("ensemble", tuple[Path, ...], "More runs with the same target vocabulary.", (), "RUN", group=SEARCH),
        Option(
            "engine",
            str,
            "What runs the model; a folder that export wrote needs no run.",
            None,
            choices=("sightline", "ctranslate2", "onnx"),
            group=SEARCH,
        ),
        Option("threshold", float, "How likely a label must be to be given; fitted unless given.", group=THRESHOLD),
    ),
    "sightline.cli.predict:predict_command",
)

EVALUATE = Command(
    "evaluate",
    "Score a run on data with targets: every metric of its task, with and without rows it was trained on.",
    (
        RUN,
        *DATA,
        Option("errors", int, "Also show this many of the worst predictions.", 0, "N"),
        Option("out", Path, "A .jsonl file for every prediction with its scores.", None),
        JSON,
        THREADS,
        BEAM,
        LENGTH,
        BLEU,
        Option("by-length", bool, "Also a table of scores by the length of the source.", group=SEARCH),
    ),
    "sightline.cli.evaluate:evaluate_command",
)

COMPARE = Command(
    "compare",
    "Score several runs on the same data, and say whether they differ by more than chance (paired bootstrap).",
    (
        Option(
            "runs",
            tuple[Path, ...],
            "Two or more run folders; each is compared with the first.",
            REQUIRED,
            "RUN RUN ...",
            positional=True,
        ),
        *DATA,
        Option("metrics", tuple[str, ...], "What to compare; left out, the main ones of the task.", None, "METRIC"),
        Option("samples", int, "How many times the rows are drawn again.", 1000, "N"),
        Option("seed", int, "The same seed draws the same rows.", 0, "N"),
        Option("out", Path, "A .png, .svg or .pdf of the scores by length (runs that translate).", None),
        JSON,
        THREADS,
        BEAM,
        LENGTH,
        BLEU,
    ),
    "sightline.cli.compare:compare_command",
)

VIEW = Command(
    "view",
    "Show where a run looked while it made its prediction: a picture for a paper, a film, or a page for any browser.",
    (
        Option(
            "runs",
            tuple[Path, ...],
            "A run folder, a checkpoint of one (RUN/checkpoints/step-N), or hf:DIR, a Hugging Face model; several go "
            "into a page.",
            REQUIRED,
            "RUN|hf:DIR [...]",
            positional=True,
        ),
        Option(
            "out",
            Path,
            "What to write: .png, .svg, .pdf, .gif, .html (the page), .json (plain data).",
            REQUIRED,
            "FILE",
        ),
        Option("text", tuple[str, ...], "A text; several for a page.", (), "TEXT", group=ITEMS),
        Option(
            "text2",
            tuple[str, ...],
            "The second text of each pair, or the text that answers a question.",
            (),
            "TEXT",
            group=ITEMS,
        ),
        Option(
            "image",
            tuple[Path, ...],
            "An image, for runs that read images; several for a page.",
            (),
            "FILE",
            group=ITEMS,
        ),
        Option("input", str, "A file of items, one a line, instead; - for a pipe.", None, "FILE", group=ITEMS),
        Option("output", str, "Explain this output, or label, instead of the model's own.", None, group=ITEMS),
        Option(
            "layout",
            str,
            "What a picture shows.",
            "alignment",
            choices=("alignment", "heads", "layers"),
            group="picture",
        ),
        Option(
            "attention",
            str,
            "Which attention, by name, such as decoder.2.cross; the last unless given.",
            group="picture",
        ),
        Option("head", int, "Which head, counted from 0; the mean of all unless given.", group="picture"),
        Option("pieces", bool, "Leave the pieces of words apart.", group="picture"),
        Option("width", float, "How wide a picture is, in inches; a column of a paper has about 3.4.", group="picture"),
        Option("title", str, 'The title of a picture; "" leaves it out.', group="picture"),
        Option("top", int, "Keep only this many weights of each row."),
        Option("quick", bool, "Only the map, without the numbers that say what to make of it."),
        THREADS,
        Option("beam", int, "Hypotheses to keep while decoding, 5 unless given.", group=SEARCH),
        Option("shift", int, "Move the rows of the map by -1, 0 or 1; left out, what was measured.", group=SEARCH),
    ),
    "sightline.cli.view:view_command",
)

BENCH = Command(
    "bench",
    "Measure how fast a run trains and predicts on this machine, its memory, and where its time goes.",
    (
        RUN,
        Option("seconds", float, "About how long to measure each kind of work.", 5.0),
        JSON,
        THREADS,
    ),
    "sightline.cli.bench:bench_command",
)

RESUME = Command(
    "resume",
    "Resume training from the last good checkpoint, at the same place in the data.",
    (
        RUN,
        Option("verify", int, "Check that resuming is exact: train N steps in two copies, killing one, and compare."),
        DEVICE,
        THREADS,
        Option("tensorboard", bool, "Write RUN/tensorboard too."),
        Option(
            "set",
            tuple[str, ...],
            "Fields of the training, or the size of batches: epochs=60 batch_tokens=4096",
            (),
            "FIELD=VALUE",
        ),
    ),
    "sightline.cli.train:resume_command",
)
