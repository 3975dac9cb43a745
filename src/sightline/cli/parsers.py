"""The commands that use a run: predict, evaluate, compare, view, bench, resume. Options say which runs they are for."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sightline.cli.options import DEVICE, JSON, REQUIRED, THREADS, Command, Option

# The command that aligns words: align.


def align(
    run: tyro.conf.Positional[Path],
    data: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, str] | None = None,
    reverse: Path | None = None,
    gold: Path | None = None,
    symmetrise: Literal[
        "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
    ] = "grow-diag-final-and",
    threshold: float = 0.0,
    words: Literal["auto", "spaces", "characters"] = "auto",
    use: str | None = None,
    reverse_use: str | None = None,
    out: Path | None = None,
    format: Literal["pharaoh", "jsonl"] = "pharaoh",
    report: Path | None = None,
    threads: int | None = None,
) -> None:
    """Which word of the source belongs to which word of the target: a line of links for each pair, such as 0-0 1-2.

    Links are source-target, words counted from 0. They come from attention; which layer, head and shift is read is
    chosen by --gold, else by the agreement of both directions (--reverse), else by what hiding source words costs, and
    is said on standard error.

    Args:
        run: The run folder.
        data: Pairs, in the same forms as for training.
        source: Instead of --data: the sources, one a line.
        target: Instead of --data: the targets, one a line.
        columns: The names of the two columns, where they are not source and target.
        reverse: A run trained the other way round, from target to source: the links of both are put together.
        gold: Links that people made: a line for each of the first pairs (0-0 sure, 0p1 possible, empty: not known), or
            .jsonl with source, target and links. The first 20 pairs choose, the others give the error rate.
        symmetrise: How the links of both directions become one set.
        threshold: Links with no more weight than this are left out, in each direction.
        words: What a word is: what stands between spaces, or also each character of a script without spaces. auto: the
            latter for texts of such scripts that are not cut with spaces.
        use: Read this instead of choosing: layer, head or mean, and shift, such as decoder.2.cross:mean:-1.
        reverse_use: The same for the run of --reverse.
        out: A file to write to instead of standard output; it is there when it is whole.
        format: pharaoh, or jsonl with words, links, their weights and the choice.
        report: A .json file for the choice, the scores, the agreement and the speed.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.align import Wanted, align_command
    from sightline.data.source import Source

    wanted = Wanted(symmetrise, threshold, words, use, reverse_use, format == "jsonl", out, report)
    pairs = Source.of(data, columns, source=source, target=target)
    align_command(run, reverse, pairs, gold, wanted, threads)


# The command that shows everything at once: demo.


def demo(
    out: Path = Path("runs/demo"),
    pairs: int = 60_000,
    steps: int = 350,
    minutes: float = 6.0,
    seed: int = 0,
    threads: int | None = None,
) -> None:
    """Train a model that reads dates in 27 languages, score it on unseen days and draw what it looks at.

    Dates as people write them (27 sierpnia 2024, 2028年12月31日, 9 августа 1969) become ISO 8601. The data is made
    here, split by calendar day, and one language is kept out of training. What comes out is an ordinary run folder:
    try `sightline predict runs/demo --text "3. Mai 2021"` afterwards.

    Args:
        out: The run folder; an earlier demo there is made anew.
        pairs: How many dates to train on.
        steps: Training steps.
        minutes: Training stops after this long, even with fewer steps.
        seed: The same seed gives the same data and, with as many threads, the same model.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.demo import run_demo

    run_demo(out, pairs, steps, minutes, seed, threads)


# The command that takes a run to other engines: export.


def export(
    run: tyro.conf.Positional[Path],
    to: Literal["ctranslate2", "onnx", "huggingface"],
    out: Path,
    int8: tyro.conf.FlagCreatePairsOff[bool] = False,
    data: str | None = None,
    columns: tuple[str, ...] | None = None,
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False,
    json: bool = False,
    threads: int | None = None,
) -> None:
    """Write a run in the format of another engine, compare it with the run, and say how close it is.

    ctranslate2 is the fastest on a processor and runs Transformers; onnx runs them and the recurrent models, wherever
    there is an onnxruntime; huggingface is a folder that transformers loads (a Pegasus, a Marian, or the encoder of a
    run that classifies, tags, answers or was pre-trained). An export that does not say what the run says is not kept.

    Args:
        run: The run folder, or one of its checkpoints (RUN/checkpoints/step-N).
        to: The engine.
        out: The folder to write; it is there when it is whole.
        int8: Weights in 8 bits: smaller and faster, and not quite the same; what that costs is said.
        data: Pairs (of a run that does not translate, texts) to compare on; left out, the run's validation data, and
            where it has none, texts made of its vocabulary.
        columns: The names of the columns of --data.
        overwrite: Replace an earlier export.
        json: Print JSON instead of sentences.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.export import export_command

    export_command(run, to, out, int8, data, columns, overwrite, json, threads)


# The commands about mechanisms: mechanisms, check.


def mechanisms(json: bool = False) -> None:
    """List every score, normaliser and mechanism there is, built in and installed.

    Args:
        json: Print JSON instead of a table.
    """
    from sightline.cli.mechanisms import print_catalogue

    print_catalogue(json)


def check(
    mechanism: tyro.conf.Positional[str],
    normaliser: str | None = None,
    heads: Annotated[int, tyro.conf.arg(metavar="N")] = 1,
    seed: int = 0,
    output: Literal["table", "json"] = "table",
) -> None:
    """Hold a mechanism to the laws of the contract: padding, masks, caches, gradients, and so on.

    Args:
        mechanism: A mechanism or a score by name (see `sightline mechanisms`), or a .json file with its configuration.
        normaliser: What turns scores into weights; left out, the mechanism's own default.
        heads: With more than one, the mechanism is wrapped in multi-head attention.
        seed: The numbers it is tried on.
        output: A table for people or JSON for programs.
    """
    from sightline.cli.mechanisms import check_mechanism

    sys.exit(check_mechanism(mechanism, normaliser, heads, seed, output))


# The command that needs no training: saliency.


def saliency(
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE [IMAGE ...]")],
    out: Path,
    fixations: int = 8,
    blur: float | None = None,
    side: int | None = None,
    colours: Literal["opposed", "printed"] = "opposed",
    truth: Path | None = None,
    quick: tyro.conf.FlagCreatePairsOff[bool] = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
) -> None:
    """Show where images draw the eye: a map, and the places looked at one after the other.

    This is the model of Itti, Koch and Niebur (1998): contrasts of brightness, colour and orientation at several
    scales, and neurons that compete. Nothing is trained, and nothing is known of what the images show. For photo.jpg
    the folder gets photo.saliency.png (the places, numbered, and the maps), photo.saliency.npy (the map as an array: as
    large as the image, but at most 640 pixels along its longer side) and photo.saliency.json (the places in pixels of
    the image, with simulated milliseconds).

    Args:
        images: Images (JPEG, PNG, WebP, BMP, GIF, TIFF), or folders of them.
        out: The folder to write to.
        fixations: How many places to look at, at most.
        blur: How smooth the map is: spread of a Gaussian, as a share of the longer side.
        side: Pixels along the longer side that images are made before the model looks at them.
        colours: Opposed colours as the paper describes them, or by its printed formula, which adds where it should
            subtract.
        truth: A table of where people looked (columns image, x and y, in pixels), to score the maps by.
        quick: Leave out the pictures.
        device: auto takes a graphics card where there is one.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.saliency import Wanted, saliency_command

    wanted = Wanted(fixations, blur, side, colours, truth, pictures=not quick)
    saliency_command(images, out, wanted, device, threads)


# The command that answers other programs and browsers: serve.


def serve(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")],
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    without_token: tyro.conf.FlagCreatePairsOff[bool] = False,
    allow_host: tuple[str, ...] = (),
    max_body: int = 1 << 20,
    max_texts: int = 64,
    max_characters: int = 2_000,
    max_beam: int = 16,
    max_tokens: int = 1_024,
    max_weights: int = 1_000_000,
    max_measured: int = 64,
    max_seconds: float = 60.0,
    max_reading: float = 10.0,
    max_stopping: float = 30.0,
    max_waiting: int = 256,
    max_connections: int = 1_024,
    max_images: int = 8,
    max_image_bytes: int = 16 << 20,
    max_pixels: int = 50_000_000,
    threads: int | None = None,
) -> None:
    """Serve runs: a page to type texts into, or drop images on, and see where a model looks, and an HTTP API.

    The page is at the address that is printed, the API's documentation at /docs. Requests that come at the same time
    are predicted together, and the answers are those of predict. Ctrl-C, or SIGTERM, stops it: no new requests are
    taken, those that were are answered.

    Args:
        runs: Run folders, or checkpoints of them (RUN/checkpoints/step-N); the page compares any two.
        port: The port to listen on; 0 takes a free one.
        host: The address to listen on. Any but this machine's own lets others in, and needs a token.
        token: What every request has to bring (Authorization: Bearer TOKEN); SIGHTLINE_TOKEN in the environment, which
            others on the machine cannot read, does the same.
        without_token: Let others in without a token: whoever reaches the address may use it.
        allow_host: More names that the server may be asked by, such as that of the machine.
        max_body: Bytes of a request.
        max_texts: Texts in a request.
        max_characters: Characters of a text.
        max_beam: How wide a beam may be asked for.
        max_tokens: How long an output may be asked for.
        max_weights: Weights of one explanation.
        max_measured: Tokens up to which it is measured whether to believe a map; predictions wait meanwhile.
        max_seconds: How long an answer may take.
        max_reading: Seconds a client may take to send a request.
        max_stopping: Seconds to go on answering after it is told to stop.
        max_waiting: Requests that may wait; more are refused with 503.
        max_connections: Clients that may be connected.
        max_images: Images in a request, for runs that read images.
        max_image_bytes: Bytes of all images of a request together, as files; a body may be that much larger.
        max_pixels: Pixels of an image.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.serve import serve_command
    from sightline.serve.limits import Limits

    limits = Limits(
        body=max_body,
        texts=max_texts,
        characters=max_characters,
        beam=max_beam,
        tokens=max_tokens,
        weights=max_weights,
        measured=max_measured,
        seconds=max_seconds,
        reading=max_reading,
        stopping=max_stopping,
        waiting=max_waiting,
        connections=max_connections,
        images=max_images,
        image_bytes=max_image_bytes,
        pixels=max_pixels,
    )
    serve_command(runs, host, port, token, allow_host, without_token, limits, threads)


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
