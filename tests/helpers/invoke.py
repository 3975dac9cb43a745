"""Commands in this process: what a shell would see, without the seconds that a new process takes to import torch.

At least one test of every command starts a process of its own; the many cases of one command go through here.
"""

import contextlib
import io
import os
import sys
from subprocess import CompletedProcess

import torch


def run(*arguments, cwd, stdin=b""):
    """Output, errors and exit code of `sightline ARGUMENTS` in the folder ``cwd``, with these bytes to read."""
    from sightline.cli import main

    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before, folder, threads, given = sys.argv, os.getcwd(), torch.get_num_threads(), sys.stdin
    sys.argv, code = ["sightline", *map(str, arguments)], 0
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        os.chdir(cwd)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            main()
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        os.chdir(folder)
        sys.argv, sys.stdin = before, given
        torch.set_num_threads(threads)
    texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (output, errors)]
    return CompletedProcess(arguments, code, *texts)
