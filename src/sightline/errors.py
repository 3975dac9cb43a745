"""Errors for the user. The command line prints their one sentence and exits with their code."""

# What libraries say where a processor or a graphics card has no memory left.
NO_MEMORY = ("allocate memory", "out of memory", "failed to map segment")


def lacks_memory(error: BaseException) -> bool:
    """Whether the machine had too little memory: libraries raise other errors than `MemoryError` for that."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)


class SightlineError(Exception):
    """The base of the errors that are not our fault."""

    exit_code = 1

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class UserError(SightlineError):
    """What was given cannot be used: a file, an option, a value."""

    exit_code = 2


class MachineError(SightlineError):
    """The machine cannot do it: disk, memory, permissions."""

    exit_code = 3
