"""The examples run, draw a picture, and what they show holds."""

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from sightline.synthetic.morse import CODE, RATE, made_morse

pytestmark = pytest.mark.unchecked_shapes

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_quickly(name, tmp_path, monkeypatch):
    """Import an example by its path, run it with --quick, and give back what it measured and drew."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    out = tmp_path / "pictures" / f"{name}.png"
    measured = module.main(out=out, quick=True)
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    return measured


@pytest.fixture
def run(tmp_path, monkeypatch):
    return lambda name: run_quickly(name, tmp_path, monkeypatch)


def test_gradient_reaches_far_inputs_through_attention(run, capsys):
    untrained = run("gradient_distance")[0]
    attention, last_state = untrained.typical("attention"), untrained.typical("last state only")
    assert attention[-1] > 10 * last_state[-1]
    assert attention[0] < last_state[0]  # all states share the gradient: close to the end attention has less
    assert attention.max() < 10 * attention.min()
    assert "wrote" in capsys.readouterr().out


@pytest.mark.slow
def test_attention_recalls_over_distance_and_gru_what_was_marked(run, capsys):
    measured = run("recall_distance")
    furthest = max(measured.accuracies["GRU", "asked"])
    assert measured.accuracies["self-attention", "asked"][furthest] > 0.9
    assert measured.accuracies["GRU", "asked"][furthest] < 0.6
    assert measured.accuracies["GRU", "marked"][furthest] > 0.9
    assert all(time > 0 for times in measured.milliseconds.values() for time in times.values())
    assert "wrote" in capsys.readouterr().out


def test_normalisers_go_from_soft_to_hard(run, capsys):
    measured = run("normalisers")
    names = ["softmax", "1.5-entmax", "sparsemax", "hard"]
    for weights in measured.weights.values():
        assert weights.sum().item() == pytest.approx(1)
    counts = [int((measured.weights[name] > 0).sum()) for name in names]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(measured.scores)
    assert counts[-1] == 1
    for softer, harder in itertools.pairwise(names):
        assert (measured.nonzero[softer] >= measured.nonzero[harder]).all()
    assert (measured.nonzero["hard"] == 1).all()
    for name in names:  # the warmer, the more is read
        assert (measured.nonzero[name].diff() >= 0).all()
    assert "wrote" in capsys.readouterr().out


def test_morse_code_is_made_heard_and_drawn(run, capsys):
    """In so short a time nothing is learnt; that a trained model hears is tested with tones."""
    measured = run("morse")
    assert measured.words > 0
    assert 0 < measured.inside <= 1
    assert "wrote" in capsys.readouterr().out


def test_tables_are_asked_and_drawn(run, capsys):
    """In so short a time nothing is learnt; that a trained model answers is tested with its task."""
    measured = run("table_programs")
    assert 0 <= measured.right <= 1
    assert 0 < measured.chance < 1
    assert "wrote" in capsys.readouterr().out


def test_vectors_are_copied_through_a_memory_and_drawn(run, capsys):
    """In so short a time nothing is learnt; that a trained machine copies is tested with its task."""
    measured = run("copy_memory")
    assert measured.trained > 0
    assert measured.longer > 0
    assert 0 < measured.same_slot < 1
    assert "wrote" in capsys.readouterr().out


def test_made_morse_has_the_code_and_the_times_of_its_letters():
    for one, again in zip(made_morse(5, 7), made_morse(5, 7), strict=True):
        assert np.array_equal(one.samples, again.samples)
        letters = one.text.replace(" ", "")
        assert len(one.times) == len(letters)
        loud = np.abs(one.samples) > 0.2
        for letter, (start, end) in zip(letters, one.times, strict=True):
            keyed = loud[round(start * RATE) : round(end * RATE)].mean()
            dots = sum(3 if sign == "-" else 1 for sign in CODE[letter])
            assert abs(keyed / 0.66 - dots / (dots + len(CODE[letter]) - 1)) < 0.25  # of a sine, two thirds are loud
        behind = loud[round(one.times[-1][1] * RATE) + 100 :]
        assert behind.mean() < 0.01
