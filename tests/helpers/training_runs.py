"""What `test_survival` and other tests share."""

import pytest
import torch

from reversal import Reversal, small_model
from sightline.training.checkpoint import checkpoints
from sightline.training.folder import RunFolder, load_tensors
from sightline.training.loop import TrainingConfig, train

CONFIG = TrainingConfig(learning_rate=1e-2, warmup=5, steps=15, validate_every=4, averaged=3)


def last_state(folder):
    path = checkpoints(folder.path)[-1]
    return {**load_tensors(path / "model.safetensors"), **load_tensors(path / "optimiser.safetensors")}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without a break."""
    folder = RunFolder.create(tmp_path_factory.mktemp("whole") / "run")
    outcome = train(small_model(), Reversal(), CONFIG, folder, device="cpu")
    return folder, outcome
