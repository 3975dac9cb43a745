"""Arrays of numbers in files (.npy) that are mapped and not loaded: a stranger's header breaks in many ways."""

from pathlib import Path
from typing import Literal

import numpy as np


def mapped(path: Path, mode: Literal["r", "r+"] = "r") -> np.memmap:
    """The array in a file, nothing of it read yet; a `ValueError` where there is none that can be read safely.

    Pickles are refused. NumPy parses headers with Python's own tokeniser, whose errors are of many kinds.
    """
    try:
        return np.lib.format.open_memmap(path, mode)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path.name}: {str(error).partition(chr(10))[0][:200]}") from None
