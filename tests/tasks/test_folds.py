"""Small data: cross-validation, and what is said of few validation rows."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import sightline
from runs import prepared_as
from sightline.data.checking import PairReport
from sightline.data.source import Source
from sightline.data.splitting import fold_keys
from sightline.errors import UserError
from sightline.tasks.folds import cross_validate, interval
from sightline.tasks.prepare import Prepared
from task_samples import sample

pytestmark = pytest.mark.unchecked_shapes


def test_folds_divide_all_keys_and_each_stratum():
    draw = np.random.default_rng(0)
    keys, strata = draw.integers(0, 50, 200).astype(np.uint64), np.zeros(200, np.int64)
    strata = (keys % 3).astype(np.int64)
    parts = [fold_keys(keys, strata, (number, 4), "texts").tolist() for number in range(4)]
    assert sorted(key for part in parts for key in part) == np.unique(keys).tolist()
    for stratum in range(3):
        sizes = [sum(key % 3 == stratum for key in part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
    with pytest.raises(UserError, match="--folds is 30, and there are 50 different texts; expected 2 for each"):
        fold_keys(np.arange(50, dtype=np.uint64), np.zeros(50, np.int64), (0, 30), "texts")


def test_the_interval_is_that_of_a_t_test():
    """Three values: mean ± 4.303 s / √3."""
    found = interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2
    assert found["high"] - 2 == pytest.approx(4.303 / math.sqrt(3))


def test_folds_of_pairs_share_neither_sources_nor_targets(tmp_path):
    data = tmp_path / "data.tsv"
    data.write_text("source\ttarget\n" + "".join(f"a{n} b\tc{n // 2} d\n" for n in range(30)))
    (tmp_path / "sample").mkdir()
    config = sample("translate", tmp_path / "sample").config
    apart = []
    for number in range(3):
        with prepared_as("translate", data, tmp_path / f"data{number}", config, fold=(number, 3)) as (prepared, rows):
            apart += [one.x for one in prepared.valid]
            assert prepared.report.in_validation == 30 - rows.count - len(prepared.valid) > 0
            for side in range(2):
                assert not {one[side] for one in rows} & {one[side] for one in prepared.valid}
    assert sorted(apart) == sorted(f"a{n} b" for n in range(30))


def test_pairs_that_folds_leave_out_are_said(tmp_path, caplog, monkeypatch):
    data, config = tmp_path / "data.tsv", sample("translate", tmp_path).config
    data.write_text("source\ttarget\n" + "".join(f"a{n} b\tc d\n" for n in range(30)))
    said = "fold 1 of 3 leaves no pairs to train on, because all pairs outside it have targets that are in it too"
    with pytest.raises(UserError, match=said), prepared_as("translate", data, tmp_path / "d", config, fold=(0, 3)):
        raise AssertionError

    def train_task(task, source, out, config, fold, on_report):
        report = PairReport(in_validation=fold[0])
        on_report(Prepared(None, None, None, [], config, task, report), None)
        return None, SimpleNamespace(scores={"bleu": 1.0})

    monkeypatch.setattr("sightline.tasks.folds.train_task", train_task)
    cross_validate(None, Source.of(str(data)), tmp_path / "run", config, 3)
    assert "in each fold, up to 2 pairs are left out of training, because their target" in caplog.text


def test_a_run_is_cross_validated(tmp_path):
    task, data, config, _ = sample("classify-text", tmp_path)
    config = replace(config, training=replace(config.training, steps=1, epochs=None, minutes=None))
    sightline.train(str(data), tmp_path / "out" / "run", task=task, config=config, folds=2)
    about = json.loads((tmp_path / "out" / "run" / "about.json").read_text())
    assert all(one["low"] <= one["mean"] <= one["high"] for one in about["folds"].values())
    assert "Cross-validated" in (tmp_path / "out" / "run" / "card.md").read_text()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run"]
    with pytest.raises(UserError, match="leave out --valid"):
        sightline.train(str(data), tmp_path / "other", task=task, config=config, folds=2, valid=str(data))


def test_twenty_pairs_have_two_to_validate_on_and_that_is_said(tmp_path):
    data = tmp_path / "data.tsv"
    data.write_text("source\ttarget\n" + "".join(f"a{n} b\tc{n} d\n" for n in range(20)))
    (tmp_path / "sample").mkdir()
    _, _, config, _ = sample("translate", tmp_path / "sample")
    with prepared_as("translate", data, tmp_path / "data", config) as (prepared, rows):
        assert len(prepared.valid) == 2
        assert rows.count == 18
        said = "only 2 pairs to validate on: a score of so few says little"
        assert prepared.lines()[-1] == f"{said}; cross-validate with --folds 5, or give --valid"
        assert replace(prepared, crossed=True).lines()[-1] == said
