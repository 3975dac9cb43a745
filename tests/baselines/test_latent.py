"""Word vectors from counts: exact, near for words of the same texts, and where an encoder begins."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from runs import prepared_as, trained_on
from sightline.baselines.linear import LONGEST, OWN, Bags, _one_way_round, begin_with, rarities, text_rows, word_vectors
from sightline.cli.train import preset
from sightline.data.store import Corpus, write_corpus
from sightline.tasks.configs.pretrain import PretrainConfig
from sightline.tasks.prepare import Prepared
from sightline.tasks.pretrain import PRETRAIN
from sightline.tasks.train import build, started
from sightline.training.folder import load_tensors

SEA, TOWN = range(10, 40), range(40, 70)  # words of two kinds of texts
WORDS = 80


def texts(count: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [[*draw.choice(SEA if number % 2 else TOWN, 12).tolist(), 5, 6] for number in range(count)]


def stored(folder: Path, rows: list[list[int]]) -> Corpus:
    return write_corpus(folder / "corpus", ((row, []) for row in rows))


def rows_of(folder: Path, count: int = 300) -> Bags:
    return text_rows(stored(folder, texts(count)), 0)


def test_words_of_the_same_texts_are_near_each_other(tmp_path: Path) -> None:
    vectors = word_vectors(rows_of(tmp_path), WORDS, 8, 0)
    assert vectors is not None
    sea, town = vectors[SEA.start : SEA.stop], vectors[TOWN.start : TOWN.stop]
    assert (sea @ sea.T).mean() > 0.5
    assert (town @ town.T).mean() > 0.5
    assert (sea @ town.T).mean() < -0.5
    there = np.zeros(WORDS, dtype=bool)
    there[[5, 6, *SEA, *TOWN]] = True
    np.testing.assert_allclose(np.linalg.norm(vectors[there], axis=1), 1, atol=1e-5)
    assert not vectors[~there].any()


def test_they_are_those_of_the_whole_decomposition(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    dense = np.zeros((len(rows), WORDS))
    for text in range(len(rows)):
        dense[text, rows.columns[rows.starts[text] : rows.starts[text + 1]]] = 1
    there = dense.any(axis=0)
    dense *= rarities(rows, WORDS)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    _, values, directions = np.linalg.svd(dense, full_matrices=False)
    exact = (directions[:2] * values[:2, None]).T  # the two kinds stand out; behind them all values are alike
    exact[there] -= exact[there].mean(axis=0)
    exact[there] /= np.linalg.norm(exact[there], axis=1, keepdims=True)
    vectors = word_vectors(rows, WORDS, 2, 0)
    assert vectors is not None
    np.testing.assert_allclose(vectors @ vectors.T, exact @ exact.T, atol=1e-3)


def test_the_seed_decides(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    one, again, other = (word_vectors(rows, WORDS, 8, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)  # type: ignore[arg-type]


def test_too_few_texts_or_words_give_none(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 20)
    assert word_vectors(rows, WORDS, 8, 0) is None
    assert word_vectors(rows, WORDS, 4, 0) is not None
    assert word_vectors(rows_of(tmp_path / "more"), WORDS, WORDS - 8, 0) is None


def test_directions_point_one_way() -> None:
    """As they come, it depends on the number of threads."""
    found = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    other = found * torch.tensor([1.0, -1.0, -1.0, 1.0])
    torch.testing.assert_close(_one_way_round(found), _one_way_round(other), rtol=0, atol=0)
    torch.testing.assert_close(_one_way_round(found).abs(), found.abs(), rtol=0, atol=0)


def test_words_that_no_text_tells_apart_have_no_vector(tmp_path: Path) -> None:
    rows = text_rows(stored(tmp_path, [list(range(10, 60))] * 50), 0)
    vectors = word_vectors(rows, WORDS, 4, 0)
    assert vectors is not None
    assert not vectors.any()


def counted(rows: Bags) -> list[tuple[int, ...]]:
    return sorted(tuple(rows.columns[a:b].tolist()) for a, b in zip(rows.starts, rows.starts[1:], strict=False))


def test_long_texts_are_several_texts(tmp_path: Path) -> None:
    corpus = stored(tmp_path, [[7] * LONGEST + [8], [9], [], [10, 10, 11]])
    assert counted(text_rows(corpus, 0)) == [(7,), (8,), (9,), (10, 11)]


def test_a_large_corpus_is_counted_in_part_whatever_its_order(tmp_path: Path) -> None:
    corpus = stored(tmp_path, [[10, 11] if number % 2 else [20, 21] for number in range(400)])
    some = text_rows(corpus, 0, most=200)
    assert len(some) == 100
    assert set(counted(some)) == {(10, 11), (20, 21)}
    few = text_rows(corpus, 0, texts=30)
    assert len(few) == 30
    assert len(few.columns) == 60
    assert counted(text_rows(stored(tmp_path / "long", [[7] * 1000]), 0, longest=10, most=95)) == [(7,)] * 10


def test_a_table_keeps_its_padding_and_its_scale() -> None:
    table = nn.Embedding(6, 4, padding_idx=0)
    with torch.no_grad():
        table.weight.mul_(0.1)
        table.weight[0].zero_()
    before = table.weight.detach().clone()
    vectors = np.zeros((6, 4), dtype=np.float32)
    vectors[[0, 1, 2], 0] = 1
    begin_with(table, vectors)
    assert not table.weight[0].any()
    torch.testing.assert_close(table.weight[3:], before[3:])
    usual = float(before.norm(dim=1).median())
    torch.testing.assert_close(table.weight[1:3].detach(), torch.tensor([[usual, 0, 0, 0]] * 2) + OWN * before[1:3])


def written(folder: Path) -> Path:
    """A file with lines of two kinds."""
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    kinds = ["sail wave harbour gull tide", "street tram house window lamp"]
    lines = [" ".join(draw.choice(kinds[number % 2].split(), 8)) for number in range(400)]
    (folder / "texts.txt").write_text("\n".join(f"{line} {number}" for number, line in enumerate(lines)) + "\n")
    return folder / "texts.txt"


def config_with(**fields: Any) -> PretrainConfig:
    config = preset(PRETRAIN.variants[0])
    model = config.model.to_json() | {"size": 8, "heads": 2}
    return config.from_json(config.to_json() | {"model": model} | fields)


def prepared_from(folder: Path, **fields: Any) -> Prepared:
    """What is prepared from lines of two kinds."""
    data = written(folder)  # nothing is kept apart: the seed does not choose texts
    with prepared_as("pretrain", data, folder / "data", config_with(**fields), valid=data) as (prepared, _):
        return prepared


@pytest.mark.parametrize("latent", [True, False])
def test_an_encoder_begins_with_them(tmp_path: Path, latent: bool) -> None:
    assert PretrainConfig().latent
    prepared = prepared_from(tmp_path, latent=latent)
    model = build(prepared)
    table = model.encoder.embedding.weight.detach()  # type: ignore[union-attr]
    (sail,), (wave,), (tram,) = prepared.input.reader.tokeniser.encode(["sail", "wave", "tram"])
    near, far = (torch.cosine_similarity(table[sail], table[other], dim=0) for other in (wave, tram))
    assert (prepared.output.vectors is not None) == latent
    assert bool(near > 0.8 and far < 0) == latent
    assert ("latent" in " ".join(prepared.lines())) == latent


def test_the_seed_of_the_run_is_theirs(tmp_path: Path) -> None:
    prepared = prepared_from(tmp_path, seed=1)
    expected = word_vectors(text_rows(prepared.corpus, 1), prepared.input.reader.words, 8, 1)
    assert expected is not None
    np.testing.assert_array_equal(prepared.output.vectors, expected)


def test_what_goes_on_keeps_its_own(tmp_path: Path) -> None:
    data, out, config = written(tmp_path), tmp_path / "run", config_with()
    trained_on("pretrain", data, out, replace(config, training=replace(config.training, steps=2, validate_every=2)))
    with prepared_as("pretrain", data, tmp_path / "other", config, start=out) as (prepared, _):
        model = build(prepared, started(PRETRAIN, PRETRAIN.variants[0], out))
    table = model.state_dict()["encoder.embedding.weight"]
    torch.testing.assert_close(
        table, load_tensors(out / "model.safetensors")["encoder.embedding.weight"], rtol=0, atol=0
    )
