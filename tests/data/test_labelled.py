"""Texts and labels out of files: forms, columns, bad rows with their places, splitting, reading into tokens."""

import gzip
import json
from collections import Counter

import numpy as np
import pytest

from runs import prepared_as, read_as
from sightline.data.batches import BatchPlan
from sightline.data.checking import RowLimits
from sightline.data.source import Source
from sightline.data.splitting import normalise
from sightline.errors import UserError
from sightline.tasks.configs.classify import ClassifyConfig
from sightline.tasks.task import Example
from sightline.text.encoding import TextEncoder
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.vocabulary import END, PADDING, START


def read(path, labels="one", **options):
    """The examples of a file, and what was left out."""
    return read_as("classify", path, config=ClassifyConfig(labels=labels), **options)


def examples(path, **options):
    return read(path, **options)[0]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


ROWS = [Example("a good one", "pos"), Example("", "neg")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "text\tlabel\na good one\tpos\n\tneg\n"),
        ("a.csv", 'label,other,text\npos,1,a good one\nneg,2,""\n'),
        ("a.jsonl", '{"text": "a good one", "label": "pos"}\n{"text": "", "label": "neg"}\n'),
        ("b.tsv", "a good one\tpos\n\tneg\n"),
        ("c.tsv", "Review\tScore\na good one\tpos\n\tneg\n"),
        ("d.jsonl", '{"sentence": "a good one", "target": "pos"}\n{"sentence": "", "target": "neg"}\n'),
    ],
)
def test_every_form_gives_the_same_rows(tmp_path, name, text):
    assert examples(write(tmp_path / name, text)) == ROWS
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert examples(packed) == ROWS


def test_parquet_has_numbers_and_lists(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"text": ["a", "b"], "label": [0, 1], "labels": [["x", "y"], []]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert [row.y for row in examples(tmp_path / "a.parquet")] == ["0", "1"]
    several = examples(tmp_path / "a.parquet", columns=("text", "labels"), labels="several")
    assert [row.y for row in several] == [("x", "y"), ()]


def test_pairs_and_named_columns(tmp_path):
    path = write(tmp_path / "a.tsv", "text\ttext2\tlabel\na\tb\tsame\n")
    assert examples(path) == [Example(("a", "b"), "same")]
    assert examples(path, columns=("text2", "label")) == [Example("b", "same")]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("id\tbody\tclass\n1\ta\tb\n", "name the columns to use"),
        ("text\tbody\n1\ta\n", "none of them is called label"),
        ("sentence\treview\tlabel\na\tb\tc\n", "each of which may be the text"),
        ("text\ttarget\tscore\na\tb\tc\n", "each of which may be the label"),
    ],
)
def test_columns_that_cannot_be_told_are_asked_for(tmp_path, header, expected):
    with pytest.raises(UserError, match=expected):
        read(write(tmp_path / "a.tsv", header))


@pytest.mark.parametrize(
    ("kind", "cell", "problem"),
    [
        ("one", '""', "missing label"),
        ("one", "null", "missing label"),
        ("one", '["a"]', "several labels"),
        ("one", json.dumps("x" * 600), "label too long"),
        ("several", "null", "missing label"),
        ("number", '"three"', "label is no number: found 'three'"),
        ("number", "NaN", "label is no number"),
        ("number", "true", "label is no number"),
    ],
)
def test_bad_labels_have_a_place_and_a_reason(tmp_path, kind, cell, problem):
    path = write(tmp_path / "a.jsonl", f'{{"text": "a", "label": "1"}}\n{{"text": "b", "label": {cell}}}\n')
    kept, report = read(path, labels=kind, limits=RowLimits(1000, 0.5))
    assert len(kept) == 1
    assert report.left_out.total() == 1
    (place,) = report.places
    assert place.startswith(f"{path}:2: ")
    assert problem in place
    assert "'label'" in place


def test_other_bad_rows_too(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        '{"text": 5, "label": "a"}\n[]\n{"text": "a"}\n{"text": "a\\u0000", "label": "b"}\n'
        '{"text": "", "label": "c"}\n',
    )
    for found, expected in zip(read(path)[1].places, ("not text", "bad JSON", "missing field", "NUL"), strict=True):
        assert expected in found


def test_too_many_bad_rows_stop_it(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "a\tb\n" * 50 + "a\t\n" * 2)
    with pytest.raises(UserError, match=r"2 of 52 rows are bad .*a\.tsv:52: missing label.*max_bad_share"):
        read(path, limits=RowLimits())


def test_several_labels_in_a_cell(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\na\tx|y|x\nb\t\nc\tz, w\n")
    for separator in (None, "|"):  # found, or given
        found = examples(path, labels="several", separator=separator)
        assert [row.y for row in found] == [("x", "y"), (), ("z, w",)]
    assert [row.y for row in examples(path, labels="several", separator=",")] == [("x|y|x",), (), ("z", "w")]
    assert ClassifyConfig().for_source(Source.of(path, separator="|")).labels == "several"
    with pytest.raises(UserError, match="--labels several"):
        ClassifyConfig(labels="number").for_source(Source.of(path, separator="|"))


def test_a_very_long_text_is_read_from_csv(tmp_path):
    text = "word " * 100_000
    assert examples(write(tmp_path / "a.csv", f"text,label\n{text},a\n"))[0].x == text


def split(rows, folder, share=0.1, seed=0, labels="one"):
    """What training begins with, and the rows that it trains on."""
    with prepared_as("classify", rows, folder, ClassifyConfig(labels=labels, valid_share=share, seed=seed)) as found:
        return found[0], list(found[1])


def test_the_report_says_balance_skew_and_single_labels(tmp_path):
    pairs = [(f"text {i}", "no") for i in range(98)] + [("x", "yes"), ("x", "no"), ("", "no"), ("", "no")]
    report = split(pairs, tmp_path)[0].report
    lines = "\n".join(report.lines())
    assert "2 labels: no 101 (99.0%), yes 1 (1.0%)" in lines
    assert "the labels are skewed: always predicting 'no' is right in 99.0% of the rows" in lines
    assert "with one example each, which training takes: 'yes'" in lines
    assert "2 texts are empty" in lines
    assert report.duplicates == 1
    assert report.contradicting == 1


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a"] * 20, "all 20 rows have the label 'a'; expected at least two"),
        ([str(i / 7) for i in range(20)], "--labels number"),
        ([f"a text {i}" for i in range(20)], "wrong column"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(labels, expected):
    _, report = read([(f"t{i}", label) for i, label in enumerate(labels)])
    with pytest.raises(UserError, match=expected):
        report.check()


def test_numbers_are_summed_up_exactly():
    values = [1e9 + i for i in range(10)]
    _, report = read([(f"t{i}", value) for i, value in enumerate(values)], labels="number")
    assert report.mean == pytest.approx(np.mean(values), rel=1e-15)
    assert report.spread == pytest.approx(np.std(values), rel=1e-9)


def made(count, seed=0):
    draw = np.random.default_rng(seed)
    labels = draw.choice(["a", "b", "c"], size=count, p=[0.7, 0.25, 0.05]).tolist()
    # every tenth text stands there again, once with its blanks written otherwise
    texts = [
        f"text {i - i % 10}" if i % 10 == 1 else f"text  {i - i % 10} " if i % 10 == 2 else f"text {i}"
        for i in range(count)
    ]
    return list(zip(texts, labels, strict=True))


@pytest.mark.slow
def test_the_split_keeps_texts_together_and_shares_alike(tmp_path):
    rows = made(2000)
    prepared, train = split(rows, tmp_path, seed=3)
    valid = prepared.valid
    assert len(train) + len(valid) == 2000
    assert not {normalise(one.x) for one in train} & {normalise(one.x) for one in valid}
    whole, part = Counter(label for _, label in rows), Counter(one.y for one in valid)
    for label, count in whole.items():
        assert part[label] / count == pytest.approx(0.1, abs=0.03)
    backwards, _ = split(rows[::-1], tmp_path / "backwards", seed=3)
    assert sum(one in valid for one in backwards.valid) > 0.9 * len(valid)
    assert split(rows, tmp_path / "again", seed=3)[0].valid == valid
    assert split(rows, tmp_path / "other", seed=4)[0].valid != valid


def test_single_texts_go_to_training_and_numbers_are_split_by_size(tmp_path):
    rows = [(f"t{i}", "a" if i else "rare") for i in range(30)]
    assert "rare" not in {one.y for one in split(rows, tmp_path)[0].valid}
    numbers = [(f"t{i}", float(i)) for i in range(1000)]
    valid = split(numbers, tmp_path / "numbers", labels="number")[0].valid
    tenths = Counter(int(one.y) // 100 for one in valid)
    assert set(tenths.values()) == {10}


@pytest.fixture(scope="module")
def tokeniser():
    return train_tokeniser(
        ["a b c d e f g h. Go home. 你好。"] * 2, TokeniserConfig("words", vocab_size=40, lower=True)
    )


def test_texts_lose_their_middle_and_pairs_share_the_room(tokeniser):
    reader = TextEncoder(tokeniser)
    ids = tokeniser.encode(["a b c d e f g h"])[0]
    assert reader.read(["a b c d e f g h"]).rows == [[START, *ids, END]]
    cut = reader.read(["a b c d e f g h", "a", ""], longest=6)
    assert cut.rows[0] == [START, ids[0], *ids[5:], END]
    assert cut.rows[1:] == [[START, ids[0], END], [START, END]]
    assert cut.cut == 1
    pairs = TextEncoder(tokeniser, pairs=True)
    found = pairs.read([("a", "a b c d e f g h"), ("a b", "c")], longest=8)
    assert found.rows[0] == [START, ids[0], END, ids[0], *ids[5:], END]
    assert found.cut == 1
    words, parts = pairs.pad(found.rows)
    assert parts.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0]]
    assert words[1, 6:].tolist() == [PADDING, PADDING]
    for wrong, texts in ((reader, [("a", "b")]), (pairs, ["a"])):
        with pytest.raises(UserError, match="as the model was trained on"):
            wrong.read(texts)


def test_documents_are_sentences_with_ends_and_never_cut(tokeniser):
    reader = TextEncoder(tokeniser, sentences=True)
    (row,) = reader.read(["Go home. Home a go. 你好。"], longest=8).rows
    sentences = tokeniser.encode(["Go home.", "Home a go.", "你好。"])
    assert row == [token for sentence in sentences for token in (*sentence, END)]
    assert reader.read(["", " \n "]).rows == [[END], [END]]
    assert reader.pad([[5, END]])[1] is None
    with pytest.raises(UserError, match="reads one text"):
        TextEncoder(tokeniser, pairs=True, sentences=True)


def test_batches_of_single_texts_have_a_budget_and_a_limit_of_rows():
    lengths = np.array([5] * 100 + [50] * 10 + [500])
    plan = BatchPlan(lengths, None, tokens=100, seed=1, rows=8)
    batches = plan.epoch(0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(111))
    for batch in batches:
        width = lengths[batch].max()
        assert len(batch) <= 8
        assert len(batch) == 1 or width * len(batch) <= 100
    assert max(map(len, batches)) == 8


def test_lines_of_json_need_not_agree_about_what_is_optional(tmp_path):
    """The first line decides nothing: a field that others have is read, and None where it is missing."""
    rows = [
        {"question": "who?", "text": "Ann sleeps, says Ann.", "answer": "Ann"},
        {"question": "who?", "text": "Ann sleeps, says Ann.", "answer": "Ann", "start": 17},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [row.y[1] for row in read_as("span", path)[0]] == [0, 17]


def test_a_label_is_never_wholly_kept_apart(tmp_path):
    rows = [(f"text {i}", "rare" if i % 20 == 0 else "often") for i in range(60)]
    prepared, train = split(rows, tmp_path, 0.9)
    assert {row.y for row in train} == {row.y for row in prepared.valid} == {"rare", "often"}


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(UserError, match="2 columns that are called 'text'"):
        read(write(tmp_path / "a.tsv", "text\ttext\tlabel\na\tb\tc\n"))
