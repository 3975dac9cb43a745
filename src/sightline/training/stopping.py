"""Ctrl-C and SIGTERM during training: handled between steps."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM: a cluster wants its machine back. As for Ctrl-C, what was done is saved."""


class Stopping:
    """While it is open, a signal is remembered, and the loop asks for it between steps.

    ``at_once`` says that nothing is half done (during a validation, which may take long): then the signal is raised
    where it comes. A second Ctrl-C is always raised: ``forced``, whatever is half done. A second SIGTERM is not: a
    scheduler sends it to all processes of a job, and the launcher of the job passes it on to its own.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self.at_once = False
        self.forced = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        if threading.current_thread() is threading.main_thread():  # only this thread may set handlers, and gets signals
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        again = self.asked is not None
        if again and number == signal.SIGTERM:
            return
        self.forced = again and not self.at_once
        self.asked = number
        if self.at_once or again:
            raise self.error()

    def error(self) -> KeyboardInterrupt:
        """What to raise for the signal that came."""
        return Terminated() if self.asked == signal.SIGTERM else KeyboardInterrupt()
