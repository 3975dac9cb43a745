"""The `sightline` command. Nothing here imports torch: `--help` must answer at once."""

import io
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress

from sightline import __version__
from sightline.cli import parsers
from sightline.cli.logs import printed_log
from sightline.cli.options import Command, current_names, nearest
from sightline.cli.parser_train import train
from sightline.errors import MachineError, SightlineError, UserError, lacks_memory

DESCRIPTION = """usage: sightline COMMAND [OPTIONS]

Train attention models on your own data and see what they attend to.

Start with: sightline demo

Choose a command; `sightline COMMAND --help` lists its options. Every command
also takes --no-kernels: compute with PyTorch's operations only (slower).

"""
NO_KERNELS = "--no-kernels"
PIPE_CLOSED = 141  # 128 + SIGPIPE
COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": parsers.DEMO,
    "train": train,
    **{command.name: command for command in vars(parsers).values() if isinstance(command, Command)},
}


def _help() -> str:
    width = max(map(len, COMMANDS)) + 4
    lines = []
    for name, command in COMMANDS.items():
        text = (command.help if isinstance(command, Command) else command.__doc__ or "").partition("\n\n")[0]
        lines += textwrap.wrap(text, 80, initial_indent=f"  {name}".ljust(width), subsequent_indent=" " * width)
    return "\n".join([DESCRIPTION, *lines])


def _run(arguments: Sequence[str]) -> None:
    if NO_KERNELS in arguments:
        from sightline import kernels

        kernels.disable()
        arguments = [argument for argument in arguments if argument != NO_KERNELS]
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        COMMANDS[name](current_names(name, arguments[1:]))
    elif name in ("", "-h", "--help"):
        print(_help())
        sys.exit(0 if name else 2)
    else:
        raise UserError(f"there is no command {name}; {nearest(name, COMMANDS)}")


def main() -> None:
    """Run the command; turn errors into one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without "…" in its encoding still shows the help
            stream.reconfigure(errors="replace")
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"sightline {__version__}")
        return
    try:
        try:
            with printed_log():
                _run(sys.argv[1:])
        finally:  # --help leaves with SystemExit
            sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough: end as other tools do
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python reports it once more
        sys.exit(PIPE_CLOSED)
    except KeyboardInterrupt as stopped:
        print("sightline: stopped", file=sys.stderr)
        sys.exit(143 if type(stopped).__name__ == "Terminated" else 130)
    except SightlineError as error:
        print(f"sightline: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (MemoryError, RuntimeError, ImportError) as error:
        if not lacks_memory(error):
            raise
        advice = "smaller batches (--batch-tokens, --set batch_tokens=1024 or batch=4) or a smaller --preset need less"
        print(f"sightline: the memory of this machine is not enough; {advice}", file=sys.stderr)
        sys.exit(MachineError.exit_code)
    except FileNotFoundError as error:
        print(f"sightline: there is no {error.filename}", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"sightline: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(MachineError.exit_code)
