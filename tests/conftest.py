"""Shapes in signatures are checked here and only here: the hook must stand before the first import of sightline."""

import os

from jaxtyping import config as shapes
from jaxtyping import install_import_hook

# Tests run in several processes, and start others: one thread each is faster than threads that fight.
os.environ["OMP_NUM_THREADS"] = "1"
# Some virtual machines say that they have Intel's matrix registers and stop a program that uses them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

install_import_hook("sightline", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

from chromium import browser, pytest_terminal_summary, visit  # noqa: E402, F401 - pytest finds them here

# Checking every call takes as long as the calls. It is done where parts are tested one by one; here whole trainings and
# commands are run, whose parts have been there before.
WHOLE = {
    *("test_bench", "test_browser", "test_browser_runs", "test_caption_commands", "test_caption_shapes"),
    *("test_classify", "test_classify_commands", "test_cli", "test_evaluation", "test_examples"),
    *("test_export", "test_floors", "test_frozen_runs", "test_matrix"),
    *("test_going_on", "test_image_page", "test_prediction_command", "test_pretrain", "test_readme", "test_serve"),
    *("test_serve_browser", "test_serve_classify", "test_serve_images", "test_serve_worker", "test_span"),
    *("test_survival", "test_tag", "test_task_contract", "test_train_options", "test_translate", "test_view"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before the fixtures of a module, which train."""
    shapes.update("jaxtyping_disable", item.path.stem in WHOLE)


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """As for the processes that tests start."""
    torch.set_num_threads(1)
