"""Tags of running documents: how they are split, and that predictions keep the rules of the scheme."""

import json
import random

import pytest

import sightline
from runs import prepared_as
from sightline.data.splitting import BLOCKS
from sightline.metrics import spans_of
from sightline.models.crf import CrfTags, allowed_tags
from sightline.models.encoder import EncoderConfig
from sightline.tasks.configs.tag import TagConfig
from sightline.text.tokeniser import TokeniserConfig
from sightline.text.words import to_whole_words
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes


def config(steps=2, **options):
    training = TrainingConfig(learning_rate=0.02, warmup=5, steps=steps, validate_every=steps, averaged=1)
    words = TokeniserConfig("words", vocab_size=60, min_frequency=1)
    model = EncoderConfig(size=16, heads=2, feed_forward=16, layers=1, dropout=0.0, positions="rotary")
    return TagConfig(model=model, tokeniser=words, training=training, batch_rows=64, **options)


def sentence(document, number, scheme="IOB2"):
    """Words that name their document; a name of one or two words."""
    inner = ("B-PER", "I-PER") if scheme == "IOB2" else ("I-PER", "I-PER")
    return [(f"d{document}", "O"), ("mr", inner[0]), (f"w{document % 7}{number % 5}", inner[1]), ("x", "O")]


def conll(path, documents, between, scheme="IOB2"):
    """Documents with these lines between them."""
    blocks = []
    for number, count in enumerate(documents):
        lines = ("\n".join("\t".join(pair) for pair in sentence(number, one, scheme)) for one in range(count))
        blocks.append("\n\n".join(lines))
    path.write_text(between + f"\n\n{between}".join(blocks) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("between", ["-DOCSTART-\tO\n\n", "# newdoc\n", "\n"])
def test_documents_are_on_one_side_of_a_split(tmp_path, between):
    data = conll(tmp_path / "data.conll", [random.Random(0).randint(2, 8) for _ in range(30)], between)
    with prepared_as("tag", data, tmp_path / "data", config()) as (prepared, rows):
        training, apart = ({one.x[0] for one in some} for some in (rows, prepared.valid))
        lines = prepared.lines()
    assert training
    assert apart
    assert not training & apart
    assert any(line.startswith("validation sentences are those of") and "of 30 documents" in line for line in lines)


def test_where_no_documents_are_marked_validation_gets_blocks(tmp_path):
    data = conll(tmp_path / "data.conll", [1] * 200, "")
    with prepared_as("tag", data, tmp_path / "data", config()) as (prepared, _):
        apart = sorted(int(one.x[0][1:]) for one in prepared.valid)
        lines = prepared.lines()
    block = 200 // BLOCKS
    assert {number // block for number in apart} == {apart[0] // block, apart[-1] // block}
    assert len(apart) == 2 * block
    assert any(f"of {BLOCKS} blocks" in line for line in lines)


def test_a_table_may_name_its_documents(tmp_path):
    rows = [(*zip(*sentence(document, one), strict=True), document) for document in range(20) for one in range(4)]
    lines = (json.dumps({"words": words, "tags": tags, "doc_id": number}) for words, tags, number in rows)
    (tmp_path / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with prepared_as("tag", tmp_path / "data.jsonl", tmp_path / "data", config()) as (prepared, training):
        assert not {one.x[0] for one in training} & {one.x[0] for one in prepared.valid}


@pytest.mark.parametrize("crf", [False, True])
def test_predictions_keep_the_rules_that_training_data_keeps(tmp_path, crf):
    data = conll(tmp_path / "data.conll", [5] * 12, "-DOCSTART-\tO\n\n")
    trained = sightline.train(data, tmp_path / "run", task="tag", config=config(), crf=crf)
    assert isinstance(trained.model, CrfTags) is crf
    draw = random.Random(1)
    texts = [draw.choices(["d1", "mr", "w11", "x"], k=draw.randint(1, 9)) for _ in range(40)]
    loaded = sightline.load(tmp_path / "run")
    names = loaded.output.labels.names
    for text, one, again in zip(texts, trained.predict(texts), loaded.predict(texts), strict=True):
        assert one == again
        assert allowed_tags(names).breaks([names.index(tag) for tag in one.tags]) == 0, (text, one.tags)
        assert all(0 <= share <= 1 + 1e-9 for share in one.probabilities)
    assert trained.explain(texts[0], measure=False).output


def test_data_that_begins_spans_with_i_is_not_forced_into_another_scheme(tmp_path):
    data = conll(tmp_path / "data.conll", [5] * 12, "-DOCSTART-\tO\n\n", scheme="IOB1")
    data.write_text(data.read_text() + "\nmr\tI-PER\nw1\tB-PER\n")
    with prepared_as("tag", data, tmp_path / "data", config()) as (prepared, _):
        assert prepared.output.allowed is None
    assert spans_of(["I-PER", "B-PER"]) == [(0, 1, "PER"), (1, 2, "PER")]


@pytest.mark.parametrize(
    ("text", "part", "whole"),
    [
        ("in Bonn, 1949", "o", "Bonn"),
        ("in Bonn", "n", "in"),
        ("a-b c", "b", "b"),
        ("他在柏林", "柏", "柏"),
        ("ab", "ab", "ab"),
    ],
)
def test_answers_are_whole_words(text, part, whole):
    start = text.index(part)
    first, behind = to_whole_words(text, start, start + len(part))
    assert text[first:behind] == whole
