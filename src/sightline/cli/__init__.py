"""The `sightline` command. Nothing here imports torch: `--help` must answer at once."""

import io
import sys
from collections.abc import Callable

import tyro

from sightline import __version__
from sightline.cli.aligning import align
from sightline.cli.exporting import export
from sightline.cli.mechanisms import check, mechanisms
from sightline.cli.saliency import saliency
from sightline.cli.seeing import view
from sightline.cli.serving import serve
from sightline.cli.training import demo, resume, train
from sightline.cli.using import bench, compare, evaluate, predict
from sightline.errors import MachineError, SightlineError, UserError

DESCRIPTION = """Train attention models on your own data and see what they attend to.

Start with: sightline demo
"""

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "compare": compare,
    "predict": predict,
    "view": view,
    "align": align,
    "serve": serve,
    "export": export,
    "saliency": saliency,
    "bench": bench,
    "mechanisms": mechanisms,
    "check": check,
}


def main() -> None:
    """Run the command; turn errors into one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no "…" still gets its help
            stream.reconfigure(errors="replace")
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"sightline {__version__}")
        return
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="sightline", description=DESCRIPTION, sort_subcommands=False
        )
    except KeyboardInterrupt as stopped:
        print("sightline: stopped", file=sys.stderr)
        sys.exit(143 if type(stopped).__name__ == "Terminated" else 130)
    except SightlineError as error:
        print(f"sightline: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except FileNotFoundError as error:
        print(f"sightline: there is no {error.filename}", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"sightline: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(MachineError.exit_code)
