"""The run folder: complete on its own, no pickle in it, every file whole and checksummed.

::

    config.json          every field, the format's version, where the weights come from
    model.safetensors    what predict uses
    metrics.jsonl        one line for each thing measured
    checksums.json       of every file that the run needs
    data/                what it learns from and is validated with, with checksums of its own
    checkpoints/step-N/  for resuming
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sightline.errors import MachineError, UserError
from sightline.files import (
    RECORDS,
    SETTINGS,
    check_tensors,
    make_folder,
    open_lock,
    open_regular,
    read_json,
    read_text,
    whole_file,
    write_text,
)

try:
    import fcntl
except ImportError:  # no such thing on Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
LARGEST_JSON = 64 << 20  # bytes of a sealed file
MOST_FILES = 1_000  # that a run needs
NAMED = 255  # characters of a name that are said
NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
CONFIG, MODEL, METRICS, CHECKSUMS = "config.json", "model.safetensors", "metrics.jsonl", "checksums.json"
EXPORT = "sightline.json"  # of a folder that `export` wrote
LOCK, PREPARING, LAUNCH, DATA = ".lock", ".preparing", ".launch", "data"
PREPARED = f"{DATA}/{CHECKSUMS}"


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """A new run. A folder that holds one already is refused: nothing is overwritten."""
        if (path / CONFIG).exists():
            raise UserError(f"{path} holds a run already; choose another folder, or resume it: sightline resume {path}")
        if (path / DATA).exists() and not (path / PREPARING).exists():  # it may hold what the run is to learn from
            raise UserError(f"{path} has a folder 'data' already, where a run keeps its own; choose another folder")
        make_folder(path)
        return cls(path)

    @classmethod
    @contextmanager
    def creating(cls, path: Path, overwrite: bool = False) -> Iterator["RunFolder"]:
        """A new run while its data is prepared. Data that cannot be used leaves nothing behind, nor does an interrupt;
        what a killed process leaves, the next try clears away. With ``overwrite``, an earlier run is kept aside until
        then."""
        if overwrite and (path / CONFIG).exists():
            cls(path).read_config()  # or else it is no run
            with cls(path).locked():
                pass  # nobody trains it
            path = path.absolute()
            aside = path.with_name(f".{path.name}.replaced")
            if aside.exists():
                raise UserError(f"{aside} holds a run from before a killed --overwrite; move or remove it first")
            path.rename(aside)
            try:
                with cls.creating(path) as folder:
                    yield folder
            except BaseException as error:
                try:
                    aside.rename(path)
                except OSError as failure:
                    where = f"the earlier run could not be moved back, and is in {aside}"
                    raise MachineError(f"{error}; {where}: {failure.strerror}") from error
                raise
            shutil.rmtree(aside, ignore_errors=True)
            return
        was_there = path.exists()
        folder = cls.create(path)
        marker = path / PREPARING
        with _opened(marker) as file:
            _lock(file, f"another process is preparing {path}; wait for it, or choose another folder")
            shutil.rmtree(path / DATA, ignore_errors=True)  # a process was killed while it prepared the data
            try:
                yield folder
            except BaseException:
                shutil.rmtree(path / DATA, ignore_errors=True)
                file.close()  # Windows neither removes an open file nor moves its folder
                marker.unlink(missing_ok=True)
                if not was_there:
                    shutil.rmtree(path, ignore_errors=True)
                raise

    @classmethod
    def open(cls, path: Path, without: Collection[str] = ()) -> "RunFolder":
        """An existing run, with every file as it was written, but for those that are not asked for."""
        if not path.is_dir():
            raise UserError(f"there is no run folder {path}")
        if (path / EXPORT).is_file():
            raise UserError(f"{path} is an export of a run, which only predict reads; name the run")
        if not (path / CONFIG).exists():
            raise UserError(f"{path} is not a run folder: it has no {CONFIG}")
        folder = cls(path)
        folder.verify(without)
        return folder

    def write_json(self, name: str, data: Any) -> None:
        write_text(self.path / name, json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        path = self.path / name
        try:
            return read_json(path)
        except OSError as error:
            raise _missing(path, error) from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error}") from None

    def write_config(self, data: dict[str, Any]) -> None:
        self.write_json(CONFIG, {"format": FORMAT, **data})
        (self.path / PREPARING).unlink(missing_ok=True)  # now there is a run to resume

    def read_config(self) -> dict[str, Any]:
        data = self.read_json(CONFIG)
        if not isinstance(data, dict) or not isinstance(data.get("format"), int):
            raise UserError(f"{self.path / CONFIG} is damaged: it names no format")
        if data["format"] > FORMAT:
            raise UserError(
                f"{self.path} was written by a newer Sightline (format {data['format']}, this one reads up to {FORMAT})"
            )
        return data

    def began_with(self, launch: str | None) -> bool:
        """Whether this launch of several processes made the run (`sightline.training.ranks.launch_id`)."""
        path = self.path / LAUNCH
        return path.is_file() and read_text(path, errors="replace") == launch

    def begin_with(self, launch: str) -> None:
        write_text(self.path / LAUNCH, launch)

    def add_metrics(self, **values: Any) -> None:
        """One line more in metrics.jsonl."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values, ensure_ascii=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / METRICS
        if not path.exists():
            return []
        lines = read_text(path, RECORDS, errors="replace").splitlines()
        return [record for line in lines if isinstance(record := _json_or_none(line), dict)]

    def rewind_metrics(self, step: int, pending: bool) -> None:
        """Only what was measured up to a step, to which training goes back; also when the last line was cut short."""
        if not (self.path / METRICS).exists():
            return
        kept = [
            line
            for line in self.metrics()
            if line.get("step", 0) < step or (line.get("step") == step and not pending and not line.get("final"))
        ]
        write_text(self.path / METRICS, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While a process trains the run no other may; the system lets go of the lock with the process.

        Half-written files of killed processes are removed: no other process writes here.
        """
        with _opened(self.path / LOCK) as file:
            _lock(file, f"another process is training {self.path}; wait for it, or stop it")
            self._sweep()
            yield

    def _sweep(self) -> None:
        (self.path / PREPARING).unlink(missing_ok=True)  # there is a run, or it could not be trained
        for folder in (self.path, self.path / DATA, self.path / "checkpoints"):
            for part in folder.glob(".*.part*"):
                shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)

    def seal(self, names: list[str]) -> None:
        """Write the checksums of the files that the run needs."""
        self.write_json(CHECKSUMS, {name: checksum(self.path / name) for name in names})

    def unseal(self) -> None:
        """The files are about to change: what the checksums say will not be true."""
        (self.path / CHECKSUMS).unlink(missing_ok=True)

    def verify(self, without: Collection[str] = ()) -> None:
        """Every sealed file is there and is what was written, but for those that are not asked for."""
        if not (self.path / CHECKSUMS).exists():
            return  # training has not come to its first end
        verify_files(self.path, self.read_json(CHECKSUMS), CHECKSUMS, without, self._advice)

    def seal_data(self, names: Collection[str]) -> None:
        """Write the checksums of the prepared data and of these files: none may change while the run learns."""
        stored = [path for path in sorted((self.path / DATA).rglob("*")) if path.is_file()]
        there = [path.relative_to(self.path).as_posix() for path in stored]
        self.write_json(PREPARED, {name: checksum(self.path / name) for name in (*there, *names) if name != PREPARED})

    def verify_data(self) -> None:
        """Everything that `seal_data` saw is what it was. Runs of earlier versions have no such checksums."""
        if (self.path / PREPARED).exists():
            try:
                verify_files(self.path, self.read_json(PREPARED), PREPARED)
            except UserError as error:
                raise UserError(f"{error}; without its data as it was, the run cannot be resumed") from None

    def tidy(self, kept: Collection[str] = ()) -> int:
        """Remove what predictions do not need: checkpoints, and data but for these names; how many bytes that is."""
        if not (self.path / CHECKSUMS).exists():
            raise UserError(f"{self.path} has not ended: it needs its checkpoints; first: sightline resume {self.path}")
        removed = 0
        with self.locked():
            for path in (self.path / "checkpoints", self.path / "tensorboard", *(self.path / DATA).glob("*")):
                if path.name in kept and path.parent == self.path / DATA:
                    continue
                files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
                removed += sum(one.lstat().st_size for one in files)
                path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path, ignore_errors=True)
        return removed

    def _advice(self, name: str) -> str:
        """What is left where the weights are lost."""
        last = max(
            (self.path / "checkpoints").glob("step-*"), key=lambda path: (len(path.name), path.name), default=None
        )
        return f"; the weights of its last checkpoint are in {last}" if name == MODEL and last is not None else ""


def _opened(path: Path) -> FileIO:
    """Our own file to lock. Users do not know its name, so errors name the folder."""
    try:
        return open_lock(path)
    except OSError as error:
        raise MachineError(f"cannot write to the folder {path.parent}: {error.strerror or error}") from error


def _lock(file: FileIO, held: str) -> None:
    """Or say that another process has it; the system lets go of it with the process."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(held) from None


def _missing(path: Path, error: OSError) -> Exception:
    """What a disk cannot read now is not missing."""
    return UserError(f"{path} is missing: the run folder is not complete") if error.errno in NOT_THERE else error


def _json_or_none(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def checksum(path: Path) -> str:
    if path.suffix == ".safetensors" and path.stat().st_size > SETTINGS:  # before all of it is read
        check_tensors(path)
    with open_regular(path, LARGEST_JSON if path.suffix == ".json" else None) as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def verify_files(
    folder: Path,
    checksums: Any,
    listed: str,
    without: Collection[str] = (),
    advice: Callable[[str], str] = lambda name: "",
    linked: bool = False,
) -> None:
    """Every file is there and is what was written, by the checksums that the file ``listed`` holds.

    ``linked``: a name may be a link that leads out of the folder. What a disk cannot read now is an OSError: it says
    nothing about those files, so they must not be reported as damaged.
    """
    if not isinstance(checksums, dict) or not all(isinstance(one, str) for one in checksums.values()):
        raise UserError(f"{folder / listed} is damaged: it holds no checksums")
    if len(checksums) > MOST_FILES:
        raise UserError(f"{folder / listed} is damaged: it holds {len(checksums):,} checksums")
    for name, expected in checksums.items():
        if name in without:
            continue
        try:
            path = (folder / name).resolve()
            actual = checksum(path) if linked or folder.resolve() in path.parents else None
        except (OSError, ValueError, RuntimeError) as error:  # no file can have that name; links that go round
            if isinstance(error, OSError) and error.errno not in NOT_THERE:
                raise
            raise UserError(f"{folder / name[:NAMED]} is missing: the folder is not complete") from None
        if actual is None:
            raise UserError(f"{folder / listed} names {name[:NAMED]!r}, which is outside the folder")
        if actual != expected:
            raise UserError(f"{folder / name} is damaged: its checksum is not the one in {listed}{advice(name)}")


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors, whole or not at all. Shared ones (tied embeddings) are written once."""
    seen: dict[int, str] = {}
    alone, same = {}, {}
    for name, tensor in tensors.items():
        first = seen.setdefault(tensor.data_ptr() if tensor.numel() else id(tensor), name)
        if first == name or tensors[first].shape != tensor.shape:
            alone[name] = tensor.detach().contiguous()
        else:
            same[name] = first
    with whole_file(path) as part:
        part.touch()
        mode = part.stat().st_mode  # safetensors makes files that only their owner reads; runs are to be passed on
        try:
            save_file(alone, str(part), metadata={"same": json.dumps(same)})
            part.chmod(mode)
        except SafetensorError as error:  # its way of saying that the disk is full
            raise MachineError(f"cannot write {path}: {error}") from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `save_tensors` wrote. The format holds numbers and names, never code."""
    from safetensors import safe_open

    try:
        check_tensors(path)
        tensors = load_file(str(path))
        with safe_open(str(path), framework="pt") as file:
            same = json.loads((file.metadata() or {}).get("same", "{}"))
        return {**tensors, **{name: tensors[first] for name, first in same.items()}}
    except OSError as error:
        raise _missing(path, error) from None
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def average(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several checkpoints' parameters, summed in float64."""
    return {
        name: torch.stack([state[name].double() for state in states]).mean(dim=0).to(first.dtype)
        if first.is_floating_point()
        else first
        for name, first in states[-1].items()
    }
