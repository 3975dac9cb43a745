"""Word vectors from counts: exact, near for words of the same texts, and where an encoder begins."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sightline.data.ngrams import Rows
from sightline.data.plain import PlainFile
from sightline.data.store import Corpus, write_corpus
from sightline.tasks.latent import LONGEST, begin_with, text_rows, word_vectors
from sightline.tasks.linear import rarities
from sightline.tasks.pretrain import PretrainConfig, PretrainCourse
from sightline.tasks.reading_presets import pretrain_preset

SEA, TOWN = range(10, 40), range(40, 70)  # words of two kinds of texts
WORDS = 80


def texts(count: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.choice(SEA if number % 2 else TOWN, 12).tolist() + [5, 6] for number in range(count)]


def stored(folder: Path, rows: list[list[int]]) -> Corpus:
    return write_corpus(folder / "corpus", ((row, []) for row in rows))


def rows_of(folder: Path, count: int = 300) -> Rows:
    return text_rows(stored(folder, texts(count)))


def test_words_of_the_same_texts_are_near_each_other(tmp_path: Path) -> None:
    vectors = word_vectors(rows_of(tmp_path), WORDS, 8, 0)
    assert vectors is not None
    sea, town = vectors[SEA.start : SEA.stop], vectors[TOWN.start : TOWN.stop]
    assert (sea @ sea.T).mean() > 0.5 and (town @ town.T).mean() > 0.5
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


def test_too_few_texts_give_none(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 20)
    assert word_vectors(rows, WORDS, 8, 0) is None
    assert word_vectors(rows, WORDS, 4, 0) is not None


def test_long_texts_are_several_and_a_large_corpus_is_counted_in_part(tmp_path: Path) -> None:
    corpus = stored(tmp_path, [[7] * LONGEST + [8], [9], [], [10, 10, 11]])
    rows = text_rows(corpus)
    assert [rows.columns[a:b].tolist() for a, b in zip(rows.starts, rows.starts[1:], strict=False)] == [
        [7],
        [8],
        [9],
        [10, 11],
    ]
    some = text_rows(corpus, longest=2, most=(LONGEST + 5) // 2 + 1)
    assert set(some.columns.tolist()) == {7}  # every second text: of the first what may be counted, and an empty one


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
    torch.testing.assert_close(table.weight[1:3].detach(), torch.tensor([[usual, 0, 0, 0]] * 2))


@pytest.mark.parametrize("latent", [True, False])
def test_an_encoder_begins_with_them(tmp_path: Path, latent: bool) -> None:
    draw = np.random.default_rng(0)
    kinds = ["sail wave harbour gull tide", "street tram house window lamp"]
    lines = [" ".join(draw.choice(kinds[number % 2].split(), 8)) for number in range(400)]
    (tmp_path / "texts.txt").write_text("\n".join(f"{line} {number}" for number, line in enumerate(lines)) + "\n")
    config = pretrain_preset()
    assert PretrainConfig().latent
    small = config.from_json(
        config.to_json() | {"latent": latent, "model": config.model.to_json() | {"size": 8, "heads": 2}}
    )
    course = PretrainCourse(small)
    prepared = course.prepare(PlainFile(str(tmp_path / "texts.txt")), None, tmp_path)
    model = course.build(prepared)
    table = model.encoder.embedding.weight.detach()  # type: ignore[union-attr]
    (sail,), (wave,), (tram,) = prepared.reader.tokeniser.encode(["sail", "wave", "tram"])
    near, far = (torch.cosine_similarity(table[sail], table[other], dim=0) for other in (wave, tram))
    assert (prepared.vectors is not None) == latent
    assert bool(near > 0.8 and far < 0) == latent
