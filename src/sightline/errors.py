"""Errors that speak to the user. The command line prints their one sentence and leaves with their exit code."""


class SightlineError(Exception):
    """The base of the errors that are not our fault."""

    exit_code = 1


class UserError(SightlineError):
    """What was given cannot be used: a file, an option, a value."""

    exit_code = 2


class MachineError(SightlineError):
    """The machine cannot do it: disk, memory, permissions."""

    exit_code = 3
