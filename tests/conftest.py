"""Shapes in signatures are checked here and only here: the hook must stand before the first import of sightline."""

import os

from jaxtyping import install_import_hook

# Tests run in several processes, and start others: one thread each is faster than threads that fight.
os.environ["OMP_NUM_THREADS"] = "1"

install_import_hook("sightline", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

from chromium import browser, pytest_terminal_summary, visit  # noqa: E402, F401 - pytest finds them here


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """As for the processes that tests start."""
    torch.set_num_threads(1)
