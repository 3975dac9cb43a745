"""The command that needs no training: saliency."""

from pathlib import Path
from typing import Annotated, Literal

import tyro


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
