"""What a run learns from and is validated with must not change between its start and a resume."""

import shutil
from dataclasses import replace

import pytest
import torch

import sightline
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.tasks.train import train_task
from sightline.training.folder import CHECKSUMS, MODEL, PREPARED, RunFolder, load_tensors, save_tensors
from task_samples import RUNS, sample

pytestmark = pytest.mark.unchecked_shapes


@pytest.mark.parametrize("kind", ["translate", "grid"])
def test_every_stored_file_is_checked_when_a_run_is_resumed(kind, tmp_path):
    task, data, config, _ = sample(kind, tmp_path)
    config = replace(config, training=replace(config.training, steps=1, epochs=None, minutes=None))
    out = tmp_path / "run"
    train_task(task, Source.of(data), out, config)
    folder = RunFolder.open(out)
    sealed = folder.read_json(PREPARED)
    stored = [path.relative_to(out).as_posix() for path in (out / "data").rglob("*") if path.is_file()]
    assert {*stored} - {PREPARED} <= sealed.keys()
    assert kind == "grid" or {name for name in sealed if not name.startswith("data/")}
    folder.verify_data()
    for name in sealed:
        content = (out / name).read_bytes()
        (out / name).write_bytes(content + b"x")
        with pytest.raises(UserError, match="is damaged"):
            folder.verify_data()
        (out / name).write_bytes(content)
    folder.unseal()  # as in a training that was interrupted
    names = ("valid.jsonl", "split.json", "images.jsonl")
    valid = next(path for path in (out / "data").rglob("*") if path.name in names)
    valid.write_text(valid.read_text().replace("1", "2").replace("a", "e"))
    with pytest.raises(UserError, match=valid.name):
        train_task(task, None, out, config)


def test_weights_that_are_no_numbers_are_named(tmp_path):
    shutil.copytree(RUNS / "classify-text" / "run", tmp_path / "run")
    (tmp_path / "run" / CHECKSUMS).unlink()
    tensors = load_tensors(tmp_path / "run" / MODEL)
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    save_tensors(tmp_path / "run" / MODEL, {**tensors, name: torch.full_like(tensors[name], float("nan"))})
    with pytest.raises(UserError, match=f"the weights {name} are no longer numbers"):
        sightline.load(tmp_path / "run")
