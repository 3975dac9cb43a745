"""Shapes in signatures are checked here and only here: the hook must stand before the first import of sightline."""

from jaxtyping import install_import_hook

install_import_hook("sightline", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tests run in several processes: one thread each is faster than threads that fight."""
    torch.set_num_threads(1)
