"""The `sightline` command. Nothing here imports torch: `--help` must answer at once."""

import io
import sys
from collections.abc import Callable, Sequence

import tyro

from sightline import __version__
from sightline.cli.logs import printed_log
from sightline.cli.options import Command, current_names
from sightline.cli.parser_train import train
from sightline.cli.parsers import (
    BENCH,
    COMPARE,
    EVALUATE,
    PREDICT,
    RESUME,
    VIEW,
    align,
    check,
    demo,
    export,
    mechanisms,
    saliency,
    serve,
)
from sightline.errors import MachineError, SightlineError, UserError

DESCRIPTION = """Train attention models on your own data and see what they attend to.

Start with: sightline demo
"""
# Commands made of declared options, and plain functions whose options tyro reads off their signatures.
DECLARED: dict[str, Callable[[Sequence[str]], None]] = {
    "train": train,
    **{command.name: command for command in (RESUME, EVALUATE, COMPARE, PREDICT, VIEW, BENCH)},
}
FUNCTIONS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "align": align,
    "serve": serve,
    "export": export,
    "saliency": saliency,
    "mechanisms": mechanisms,
    "check": check,
}
ORDER = (
    *("demo", "train", "resume", "evaluate", "compare", "predict", "view", "align", "serve", "export", "saliency"),
    *("bench", "mechanisms", "check"),
)


def _listed(name: str) -> Callable[..., None]:
    """A command as the list of commands shows it."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]

    def shown() -> None: ...

    command = DECLARED[name]
    shown.__doc__ = command.help if isinstance(command, Command) else command.__doc__
    return shown


def _run() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in DECLARED:
        DECLARED[name](current_names(name, sys.argv[2:]))
        return
    if name in FUNCTIONS:
        tyro.cli(FUNCTIONS[name], prog=f"sightline {name}", args=current_names(name, sys.argv[2:]))
        return
    commands = {one: _listed(one) for one in ORDER}
    tyro.extras.subcommand_cli_from_dict(commands, prog="sightline", description=DESCRIPTION, sort_subcommands=False)


def main() -> None:
    """Run the command; turn errors into one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no "…" still gets its help
            stream.reconfigure(errors="replace")
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"sightline {__version__}")
        return
    try:
        with printed_log():
            _run()
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
