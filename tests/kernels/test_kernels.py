"""Every kernel equals its reference, values and gradients; the switch; and a library that leaves malloc alone."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernel_gains import NO_KERNELS, Case, cases
from kernel_gains import kernels as modules_of_the_folder
from sightline import kernels
from sightline.kernels import additive, dropout, loss, maxout, products, ragged, softmax

KERNELS = modules_of_the_folder()
CASES = {
    (name, case): one
    for name, named in cases(size=8, rows=6, words=40, length=16).items()
    for case, one in named.items()
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_file_of_the_folder_is_a_kernel_with_its_gain(name):
    kernel = KERNELS[name]
    assert all(callable(getattr(kernel, part)) for part in ("fast", "reference", "supported"))
    assert "benchmarks/kernel_gains.py" in kernel.__doc__, "it states its gain, and the command that measures it"
    assert any(name == one for one, _ in CASES)


def test_every_other_file_of_the_folder_is_named():
    folder = Path(kernels.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {*KERNELS, *NO_KERNELS, "__init__"}


def test_no_private_name_of_pytorch_without_a_probe():
    """But for the operations of oneDNN, which are tried out first, and the dictionaries of hooks."""
    private = set()
    for path in Path(kernels.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                private.add((path.stem, node.attr))
    named = {(stem, name) for stem, name in private if name not in ("_replace", "_multiplied", "_offset", "_unseen")}
    assert named <= {
        ("products", "_reorder_linear_weight"),
        ("products", "_linear_pointwise"),
        ("transformer_search", "_look_back"),
        ("transformer_search", "_look_at_source"),
        ("transformer_search", "_look_with_weights"),
        ("transformer_search", "_with_copies"),
    }


@pytest.mark.parametrize("name", [name for name in CASES if name[0] != "dropout"], ids=" ".join)
def test_fast_equals_the_reference(name, monkeypatch):
    kernel, case = KERNELS[name[0]], CASES[name]
    torch.manual_seed(1)
    fast = case.run(kernel.fast)
    monkeypatch.setattr(kernels, "_on", False)
    torch.manual_seed(1)
    for one, other in zip(fast, case.run(kernel.reference), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_fast_dropout_equals_the_reference():
    """With the same masks values and gradients are the same; the masks are others, of the same distribution."""
    x, y = (torch.randn(60, 80, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ones, rate = torch.ones(60, 80, dtype=torch.float64), 0.25
    torch.manual_seed(3)
    mask = dropout.fast(torch.zeros(()), ones, rate)
    torch.manual_seed(3)
    fast = Case((x, y, rate)).run(dropout.fast)
    expected = Case((x, y, mask)).run(lambda x, y, mask: x + y * mask)
    for one, other in zip(fast, expected, strict=True):
        torch.testing.assert_close(one, other)
    reference = dropout.reference(torch.zeros(()), ones, rate)
    for one in (mask, reference):
        assert one.unique().tolist() == pytest.approx([0, 4 / 3])
        assert float((one == 0).double().mean()) == pytest.approx(rate, abs=0.03)


def test_the_switch_takes_the_references(monkeypatch):
    samples = [
        (softmax, softmax.softmax, "softmax", "7 keys"),
        (maxout, maxout.maxout, "maxout", ""),
        (loss, loss.smoothed_cross_entropy, "loss", "smoothed"),
        (additive, additive.additive_scores, "additive", ""),
    ]
    for kernel, function, *name in samples:
        taken = []
        with monkeypatch.context() as patch:
            fast = kernel.fast
            patch.setattr(kernel, "fast", lambda *a, fast=fast, taken=taken: taken.append(1) or fast(*a))
            patch.setattr(kernel, "supported", lambda *_: True)
            function(*CASES[tuple(name)].arguments)
            assert taken
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "_on", False)
            patch.setattr(kernel, "fast", lambda *_, taken=taken: taken.append(2))
            function(*CASES[tuple(name)].arguments)
            assert taken == [1]
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_on", False)
        weight = torch.randn(products.WORTH // 32, 32)
        assert not products.supported(weight)
        assert products.Product(weight).packed is None
        assert not ragged.supported(*CASES["ragged", "GRU"].arguments)
        assert not dropout.supported(weight, 0.1)


@pytest.mark.parametrize(("switch", "expected"), [("off", "False"), ("on", "True"), (None, "True")])
def test_the_switch_is_read_from_the_environment(switch, expected):
    script = "from sightline import kernels; print(kernels.enabled()); kernels.disable(); print(kernels.enabled())"
    environment = {name: value for name, value in os.environ.items() if name != "SIGHTLINE_KERNELS"}
    environment |= {} if switch is None else {"SIGHTLINE_KERNELS": switch}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == [expected, "False"]


def test_operations_of_other_meaning_are_not_trusted(monkeypatch):
    """A private name that PyTorch gives to something else is found out by its value."""

    class Other:
        _reorder_linear_weight = staticmethod(lambda weight, rows: weight)
        _linear_pointwise = staticmethod(lambda x, weight, bias, then, *_: x @ weight)  # not transposed

    class Changed(Other):
        _linear_pointwise = staticmethod(lambda x, weight: x)  # of other arguments

    for mkldnn in (Other, Changed, object):
        with monkeypatch.context() as patch:
            patch.setattr(torch.ops, "mkldnn", mkldnn, raising=False)
            assert products._operations.__wrapped__() == ()


def test_loading_and_training_leave_malloc_alone(tmp_path):
    """Only the command line tunes it. In a process of its own, where every way to glibc's `mallopt` is watched."""
    script = f"""
import ctypes
calls = []
class Watched(ctypes.CDLL):
    def __getattr__(self, name):
        if name in ("mallopt", "madvise", "malloc"):
            calls.append(name)
        return super().__getattr__(name)
ctypes.CDLL = Watched
import sightline
rows = [("one two", "two one"), ("three", "three"), ("two", "two"), ("one three", "three one")] * 8
run = sightline.train(rows, {str(tmp_path / "run")!r}, valid=rows[:4], size="tiny", steps=1, device="cpu")
sightline.load({str(tmp_path / "run")!r}).predict(["one two"])
print(calls)
from sightline.cli.common import set_up
set_up(1)
print("mallopt" in calls)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-2:] == ["[]", str(sys.platform.startswith("linux"))]
