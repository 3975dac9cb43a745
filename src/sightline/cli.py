"""The `sightline` command. Nothing here imports torch: `--help` must answer at once."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sightline import __version__
from sightline.errors import MachineError, SightlineError, UserError

DESCRIPTION = """Train attention models on your own data and see what they attend to.

Start with: sightline demo
"""


def demo(
    out: Path = Path("runs/demo"),
    steps: int = 300,
    attention: str = "additive",
    seed: int = 0,
    threads: int = 1,
) -> None:
    """Train a small attention model on built-in data, score it on unseen data and draw what it attends to.

    The data is a little phone book written as text (k3 a7 z1 …) and questions about it (z? a?). The same model is
    trained once more with weights that depend on positions only: what attention adds is the difference.

    Args:
        out: Folder for the picture (attention.png) and the records of attention (records.json).
        steps: Training steps of each of the two models.
        attention: The mechanism, by name; see `sightline mechanisms`.
        seed: The same seed gives the same data, the same model and the same score.
        threads: Processor threads. A model this small is fastest on one.
    """
    from sightline.demo import run_demo

    run_demo(out, steps, attention, seed, threads)


def mechanisms(json: bool = False) -> None:
    """List every score, normaliser and mechanism there is, built in and installed.

    Args:
        json: Print JSON instead of a table.
    """
    from sightline.catalogue import print_catalogue

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
    from sightline.catalogue import check_mechanism

    sys.exit(check_mechanism(mechanism, normaliser, heads, seed, output))


COMMANDS: dict[str, Callable[..., None]] = {"demo": demo, "mechanisms": mechanisms, "check": check}


def main() -> None:
    """Run the command; turn errors into one sentence and an exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"sightline {__version__}")
        return
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="sightline", description=DESCRIPTION, sort_subcommands=False
        )
    except KeyboardInterrupt:
        print("sightline: stopped", file=sys.stderr)
        sys.exit(130)
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
