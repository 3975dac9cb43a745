"""The commands that show what a model looked at: view."""

from pathlib import Path
from typing import Annotated, Literal

import tyro


def view(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN|hf:DIR [...]")],
    out: Path,
    text: tuple[str, ...] = (),
    text2: tuple[str, ...] = (),
    image: tuple[Path, ...] = (),
    input: str | None = None,  # noqa: A002 - the name of the option
    output: str | None = None,
    layout: Literal["alignment", "heads", "layers"] = "alignment",
    attention: str | None = None,
    head: int | None = None,
    pieces: tyro.conf.FlagCreatePairsOff[bool] = False,
    width: float | None = None,
    title: str | None = None,
    shift: Literal[-1, 0, 1] | None = None,
    quick: tyro.conf.FlagCreatePairsOff[bool] = False,
    beam: int = 5,
    top: int | None = None,
    threads: int | None = None,
) -> None:
    """Show where a run looked while it wrote: a picture for a paper, a film, or a page to explore in any browser.

    Beside the map stand numbers that say what to make of it: how even it is, whether hiding what was looked at costs
    more than hiding something else, whether the model needs its attention at all. The page is one file that needs no
    network; it shows every layer and head, the decoding step by step, and several texts or runs side by side. Of a run
    that classifies texts: the text with the words and sentences that were looked at, and as .json their characters.

    Args:
        runs: A run folder, or a checkpoint of one (RUN/checkpoints/step-N), or hf:DIR, the folder of a Hugging Face
            model (config.json, model.safetensors, tokenizer.json); more than one to compare them in a page.
        out: What to write: .png, .svg, .pdf, .gif (the decoding as a film), .html (the page), .json (plain data). Of a
            run of grid: .png, .jpg, .webp, .html or .json.
        text: A text; several for a page.
        text2: To classify pairs: the second text of each pair.
        image: An image, for a run that reads images; several for a page.
        input: A file of texts, one a line, instead; - for a pipe. Pairs to classify have a tab between them.
        output: Explain this output instead of the model's own; of a run that classifies, this label.
        layout: What a picture shows: the alignment, all heads of a layer, or all layers at a glance.
        attention: Which attention a picture shows, by name, such as decoder.2.cross; the last one unless given.
        head: Which head of it, counted from 0; the mean of all unless given.
        pieces: Leave the pieces of words apart in a picture instead of putting them together.
        width: How wide a picture is, in inches; a column of a paper has about 3.4.
        title: What stands above a picture; "" leaves it out.
        shift: Move the rows of the map by one; left out, what was measured when the run was trained.
        quick: Only the map, without the numbers beside it.
        beam: How many hypotheses a run keeps while decoding; 1 is greedy, as hf:DIR always is.
        top: Keep only this many weights of each row; by itself this happens for very long texts only.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.commands.prediction import Lines
    from sightline.commands.viewing import Drawing, view_command
    from sightline.tasks.explaining import Wanted
    from sightline.tasks.table import task_of

    if len(runs) == 1 and not str(runs[0]).startswith("hf:") and task_of(runs[0]) == "grid":
        from sightline.commands.gridding import view_command as view_grid
        from sightline.errors import UserError

        if text or text2:
            raise UserError(f"{runs[0]} reads images, and --text is for runs that read texts; name one with --image")
        view_grid(runs[0], image, input, out, threads)
        return
    wanted = Wanted(output, beam, top=top, shift=shift, measure=not quick)
    view_command(
        runs,
        Lines(input, text),
        out,
        wanted,
        Drawing(layout, attention, head, pieces, width, title),
        threads,
        text2,
        image,
    )
