"""With SIGHTLINE_SHAPES=on, shapes in signatures are checked: the hook must come before the first import of sightline.

Checking takes as long as the calls, so `make test` leaves it out and `make test-long`, which CI runs too, has it.
"""

import os

from jaxtyping import config as shapes
from jaxtyping import install_import_hook

# Tests run in several processes, and start others: one thread each is faster than threads that fight.
os.environ["OMP_NUM_THREADS"] = "1"
# Some virtual machines say that they have Intel's matrix registers and stop a program that uses them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

CHECKED = os.environ.get("SIGHTLINE_SHAPES") == "on"
if CHECKED:
    install_import_hook("sightline", "checker.checked")

import pytest  # noqa: E402
import torch  # noqa: E402

from chromium import browser, pytest_terminal_summary, visit  # noqa: E402, F401 - pytest finds them here


def pytest_collection_modifyitems(items):
    """A test that opens a browser is known by its fixtures."""
    for item in items:
        if {"browser", "visit"} & set(item.fixturenames):
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before the fixtures of a module, which train.

    Checking every call takes as long as the calls. It is done where parts are tested one by one; files marked
    `unchecked_shapes` run whole trainings and commands, whose parts are tested elsewhere.
    """
    shapes.update("jaxtyping_disable", item.get_closest_marker("unchecked_shapes") is not None)


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """As for the processes that tests start."""
    torch.set_num_threads(1)
