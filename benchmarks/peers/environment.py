"""The environment of the peers: one for all of them and us, so that every tool runs on the same build of torch.

Standard library only: this runs before anything is installed.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
REQUIREMENTS = HERE / "requirements.txt"
DEFAULT = HERE / ".venv"

# Without these, glibc gives large tensors back to the system after every step: a third of a step, for every tool alike.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}


def interpreter(env: Path) -> Path:
    return env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def is_active(env: Path) -> bool:
    return Path(sys.prefix).resolve() == env.resolve()


def set_up(env: Path) -> Path:
    """Make the environment unless it stands already, and say where its Python is."""
    python, mark = interpreter(env), env / ".ready"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return python
    print(f"setting up {env}: torch, the peers and Sightline; once", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # torch comes first and pinned: asked for by another package, it would bring gigabytes.
    subprocess.run([*pip, _pinned("torch")], check=True)
    subprocess.run([*pip, "--no-deps", "--requirement", str(REQUIREMENTS)], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(REPOSITORY)], check=True)
    mark.write_text(wanted, encoding="utf-8")
    return python


def _pinned(package: str) -> str:
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def variables(threads: int) -> dict[str, str]:
    """The same environment variables for every tool."""
    return {
        **os.environ,
        **ALLOCATOR,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_OFFLINE": "1",  # nothing is fetched: all models are made here
        "PYTHONWARNINGS": "ignore",
    }
