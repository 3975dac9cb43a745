"""Sending Ctrl-C to a command in a test."""

import signal
import subprocess


def start_interruptible(command, **options):
    """Start a command that Ctrl-C can reach: a shell that runs the tests in the background has it ignored."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )
