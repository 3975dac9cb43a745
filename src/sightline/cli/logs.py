"""What the library logs, as a command shows it: plain sentences on standard error."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _Printed(logging.Handler):
    """Writes to what standard error is at that time: programs and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"sightline: {self.format(record)}", file=sys.stderr)


@contextmanager
def printed_log() -> Iterator[None]:
    """Print warnings and errors of the package inside the block, and leave logging as it was."""
    handler, log = _Printed(logging.WARNING), logging.getLogger("sightline")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
