"""Words out of subwords, moved rows and means, against sums done by hand."""

import numpy as np
import pytest

from sightline import Record, Slots, Tokens
from sightline.records import TopK
from sightline.text.words import word_numbers
from sightline.view.words import mean_record, merge_words, shifted

pytestmark = pytest.mark.fast

COLUMNS = Tokens(("▁stand", "ing", "▁out", "side", "</s>"), words=(0, 0, 1, 1, 2), special=(4,))
ROWS = Tokens(("▁steh", "en", "</s>"), words=(0, 0, 0), special=(2,))
WEIGHTS = np.array(
    [[0.1, 0.2, 0.3, 0.3, 0.1], [0.5, 0.1, 0.0, 0.2, 0.2], [0.0, 0.0, 0.0, 0.25, 0.75]], dtype=np.float32
)
MERGED = [[(0.3 + 0.6) / 2, (0.6 + 0.2) / 2, (0.1 + 0.2) / 2], [0.0, 0.25, 0.75]]


def record(weights=WEIGHTS, rows=ROWS, columns=COLUMNS, **more):
    return Record("cross", 0, 0, rows, columns, weights, **more)


def largest(weights, k):
    places = np.argsort(-weights, axis=1)[:, :k].astype(np.int32)
    return TopK(places, np.take_along_axis(weights, places, axis=1), weights.shape[1])


def test_columns_are_summed_and_rows_averaged():
    merged = merge_words(record(scores=WEIGHTS))
    assert merged.columns == Tokens(("standing", "outside", "</s>"), (0, 1, 2), (2,))
    assert merged.rows.texts == ("stehen", "</s>"), "a special token stays apart, whatever word it is numbered as"
    np.testing.assert_allclose(merged.matrix(), MERGED, atol=1e-6)
    assert merged.scores is None


def test_largest_weights_stay_sparse():
    merged = merge_words(record(largest(WEIGHTS, 5)))
    assert isinstance(merged.weights, TopK)
    np.testing.assert_allclose(merged.matrix(), MERGED, atol=1e-6)
    cut = largest(WEIGHTS, 2)
    np.testing.assert_allclose(merge_words(record(cut)).matrix(), merge_words(record(cut.dense())).matrix(), atol=1e-6)


def test_a_row_of_largest_weights_without_any():
    none = TopK(np.full((3, 2), -1, dtype=np.int32), np.zeros((3, 2), dtype=np.float32), 5)
    assert merge_words(record(none)).matrix().tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("▁",), "␣"),
        (("▁", "▁"), "␣"),
        (("un", "##aff", "##able"), "unaffable"),
        (("un@@", "aff@@", "able"), "unaffable"),
        (("##",), "##"),
        (("▁snow", "<0xE2>", "<0x98>", "<0x83>"), "snow☃"),
        (("<0xE2>",), "�"),
    ],
)
def test_the_text_of_a_word(pieces, text):
    axis = Tokens(pieces, words=(0,) * len(pieces))
    merged = merge_words(record(np.ones((1, len(pieces)), dtype=np.float32), Slots(1), axis))
    assert merged.columns.texts == (text,)
    assert merged.matrix().tolist() == [[len(pieces)]]


def test_without_words_nothing_changes():
    plain = record(rows=Slots(3), columns=Tokens(COLUMNS.texts, None, (4,)))
    merged = merge_words(plain)
    assert (merged.rows, merged.columns) == (plain.rows, plain.columns)
    np.testing.assert_array_equal(merged.matrix(), WEIGHTS)


@pytest.mark.parametrize("weights", [WEIGHTS, largest(WEIGHTS, 5)], ids=["all", "largest"])
def test_moved_rows(weights):
    zeros = np.zeros(5)
    np.testing.assert_array_equal(shifted(record(weights), 1).matrix(), [zeros, WEIGHTS[0], WEIGHTS[1]])
    np.testing.assert_array_equal(shifted(record(weights), -2).matrix(), [WEIGHTS[2], zeros, zeros])
    np.testing.assert_array_equal(shifted(record(weights), 7).matrix(), [zeros, zeros, zeros])
    np.testing.assert_array_equal(record(weights).matrix(), WEIGHTS, "the original is as it was")
    assert shifted(record(weights), 0).matrix() is not None


def test_the_mean_of_heads():
    other = Record("cross", 0, 3, ROWS, COLUMNS, largest(1 - WEIGHTS, 5))
    mean = mean_record([record(), other])
    np.testing.assert_allclose(mean.matrix(), np.full((3, 5), 0.5), atol=1e-6)
    assert (mean.name, mean.layer, mean.head) == ("cross", 0, -1)
    with pytest.raises(ValueError, match="same rows"):
        mean_record([record(), record(np.ones((3, 5)), columns=Slots(5))])
    with pytest.raises(ValueError, match="no record"):
        mean_record([])


def test_letters_of_a_transcript_are_put_together():
    letters = (*"it's", "▁", *"one", "</s>")
    assert word_numbers(letters, (8,), spelled=True) == (0, 0, 0, 0, 1, 1, 1, 1, 2)
    assert word_numbers(letters, (8,)) is None
    assert word_numbers((*"你好", "</s>"), (2,), spelled=True) == (0, 1, 2)
    axis = Tokens(letters, word_numbers(letters, (8,), spelled=True), (8,))
    record = Record("a", 0, 0, axis, Tokens(("x",)), np.ones((9, 1), np.float32))
    assert [text.lstrip("▁") for text in merge_words(record).rows.texts] == ["it's", "one", "</s>"]
