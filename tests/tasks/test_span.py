"""Where an answer stands: what is read, what is learnt, long texts, and texts that do not say."""

import json
import random
from dataclasses import replace

import pytest
import torch

import sightline
from invoke import run
from runs import read_as, trained_on
from sightline.inputs.question import QuestionInput
from sightline.models.attentive import AttentiveConfig
from sightline.models.heads import SpanHead
from sightline.outputs.span import NONE, SpanOutput, answer_tokens
from sightline.tasks.configs.span import SpanConfig
from sightline.tasks.task import Example
from sightline.text.encoding import TextEncoder
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes

KEYS, VALUES = ["ka", "kb", "kc", "kd", "ke", "kf"], ["va", "vb", "vc", "vd", "ve", "vf"]
SMALL = AttentiveConfig(embedding_size=24, size=48, dropout=0.0, word_dropout=0.0, init_std=1.0)
ALONE = replace(SMALL, annotations="embedding")


def config(steps=150, model=SMALL, rate=0.02, **options):
    training = TrainingConfig(learning_rate=rate, warmup=50, steps=steps, validate_every=steps, averaged=1)
    words = TokeniserConfig("words", vocab_size=60, min_frequency=1)
    return SpanConfig(model=model, tokeniser=words, training=training, batch_rows=64, **options)


def unanswered(question, text):
    return Example((question, text), ((), -1))


def behind_keys(count, seed=0, none=0.0):
    """The answer is the word behind the key that is asked for; sometimes the key is not there."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        keys = draw.sample(KEYS, 4)
        pairs = [(key, draw.choice(VALUES)) for key in keys[:3]]
        text = " ".join(word for pair in pairs for word in pair)
        if draw.random() < none:
            found.append(unanswered(keys[3], text))
        else:
            key, value = draw.choice(pairs)
            found.append(Example((key, text), ((value,), text.index(key) + 3)))
    return found


def write(path, asked, start=True):
    columns = ["question", "text", "answer"] + (["start"] if start else [])
    with path.open("w", encoding="utf-8") as file:
        file.write("\t".join(columns) + "\n")
        for x, (answers, first) in asked:
            answer = answers[0] if answers else ""
            place = [str(first) if answers else ""] if start else []
            file.write("\t".join([*x, answer, *place]) + "\n")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    data = write(folder / "train.tsv", behind_keys(800, none=0.25))
    return folder, sightline.train(data, folder / "run", task="span", config=config(220))


def test_the_word_behind_the_asked_key(trained):
    _, answerer = trained
    found = answerer.evaluate(behind_keys(150, seed=9, none=0.25))
    assert found.values["exact"] >= 90
    assert found.extra["answered"]["exact"] >= 90
    said = [one.answer == "" for one in found.predictions]
    right = [not one.y[0] for one in found.examples]
    assert sum(a == b for a, b in zip(said, right, strict=True)) >= 135, "it knows where there is no answer"


def test_a_model_that_sees_each_word_alone_fails_at_it(tmp_path):
    data = write(tmp_path / "train.tsv", behind_keys(300))
    alone, _ = trained_on("span", data, tmp_path / "run", config(50, ALONE))
    found = alone.evaluate(behind_keys(100, seed=9))
    assert found.values["exact"] < 60
    assert all(one.answer for one in found.predictions), "without empty answers in training there is always one"


def test_answers_say_where_they_stand(trained):
    folder, answerer = trained
    loaded = sightline.load(folder / "run")
    pairs = [one.x for one in behind_keys(20, seed=3, none=0.3)] + [("ka", ""), ("ka", "  ")]
    for (_, text), one, other in zip(pairs, answerer.predict(pairs), loaded.predict(pairs), strict=True):
        assert one.answer == other.answer
        assert 0 <= one.probability <= 1
        if one.answer:
            assert text[one.start : one.end] == one.answer
        else:
            assert one.start is None
    assert loaded.output.unanswered
    assert "that finds the answer" in (folder / "run" / "card.md").read_text()


def test_long_texts_are_read_in_stretches(trained):
    _, answerer = trained
    plan = replace(answerer.config, max_length=10, overlap=2, longest_answer=30)
    short = replace(answerer, input=QuestionInput(plan, answerer.input.reader), output=SpanOutput(plan))
    (stretches,) = short.encode([("ka", ("kb va " * 40).strip())])
    assert len(stretches) == 20
    assert all(len(stretch.tokens) <= 10 for stretch in stretches)
    covered = {token for stretch in stretches for token in range(stretch.first, stretch.behind)}
    assert covered == set(range(80))
    text = "kb va kc vb kd vc " * 8 + "ka vf " + "kd ve kb va kc vb " * 8
    (found,) = short.predict([("ka", text)])
    assert (found.answer, found.start) == ("vf", text.index("vf"))


def test_gold_is_the_pieces_of_the_answer_and_nothing_else():
    text = "The old town of Kraków, Poland"
    reader = TextEncoder(train_tokeniser([text] * 3, TokeniserConfig(vocab_size=400)), pairs=True)
    ((stretch,),) = QuestionInput(SpanConfig(overlap=0), reader).encode([("where?", text)])
    for answer in ("old", "Kraków", "Kraków, Poland", "The"):
        first, last = answer_tokens(text, ((answer,), text.index(answer)), stretch.places)
        assert text[stretch.places[first][0] : stretch.places[last][1]].strip() == answer
    assert answer_tokens(text, ((), -1), stretch.places) is None


def test_the_pointer_on_nothing_is_the_first_token_and_only_where_asked_for():
    reader = TextEncoder(
        train_tokeniser(["ka va"], TokeniserConfig("words", vocab_size=10, min_frequency=1)), pairs=True
    )
    texts = QuestionInput(SpanConfig(), reader).collate(reader.read([("ka", "va ka")]).rows)
    for none in (False, True):
        model = SpanHead(replace(SMALL, pairs=True).build(reader.words), none=none).eval()
        lowest = torch.finfo(torch.float32).min
        possible = (model.scores(texts)[0, 0] > lowest).tolist()
        assert possible == [none, False, False, True, True, False]
    assert NONE == 0


def test_going_on_ends_like_not_stopping(tmp_path):
    data = write(tmp_path / "train.tsv", behind_keys(60))
    plan = config(4)
    plan = replace(plan, training=replace(plan.training, validate_every=2, cooldown=0.0))
    whole, _ = trained_on("span", data, tmp_path / "whole", plan)

    def stop(progress, scores):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained_on("span", data, tmp_path / "parts", plan, on_scores=stop)
    parts, _ = trained_on("span", None, tmp_path / "parts", plan)
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], tensor)


def test_rows_whose_answer_is_not_there_are_bad_and_named(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"question": "q", "context": "one two two", "answer": "two"},
        {"question": "q", "context": "one two two", "answer": "three"},
        {"question": "q", "context": "one", "answer": ""},
        {"question": "q", "context": "one two", "answer": {"text": ["two", "one two"], "answer_start": [4, 0]}},
        {"question": "q", "context": "one two", "answer": {"text": [], "answer_start": []}},
        {"question": "q", "context": "one two", "answer": 7},
        {"question": " ", "context": "one two", "answer": "one"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kept, report = read_as("span", path)
    assert [one.y for one in kept] == [
        (("two",), 4), ((), -1), (("two", "one two"), 4), ((), -1),
    ]  # fmt: skip
    assert report.left_out == {"answer not in text": 1, "answer is not text": 1, "no question": 1}
    assert "a.jsonl:2: answer not in text: found 'three'" in report.places[0]
    table = tmp_path / "b.tsv"
    table.write_text("question\ttext\tanswer\tstart\nq\tone two two\ttwo\t8\nq\tone two\ttwo\t1\nq\tone\tone\tx\n")
    ((_, (_, start)),), report = read_as("span", table)
    assert start == 8
    assert [place.split(": ")[1] for place in report.places] == ["answer not at start", "bad start"]


def test_by_command(trained, tmp_path):
    folder, _ = trained

    def said(*arguments, code=0):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    write(tmp_path / "test.tsv", behind_keys(30, seed=4), start=False)
    assert json.loads(said("evaluate", folder / "run", "--data", "test.tsv", "--json"))["f1"] >= 85
    assert "exact" in said("evaluate", folder / "run", "--data", "test.tsv", "--errors", "2")
    pair = "kb\tka va kb vc kd ve"
    assert said("predict", folder / "run", "--text", pair) == "vc\n"
    row = json.loads(said("predict", folder / "run", "--text", pair, "--format", "jsonl"))
    assert (row["answer"], row["start"], row["end"]) == ("vc", 9, 11)
    assert "line 1 has no tab" in said("predict", folder / "run", "--text", "kb", code=2)
    dry = said("train", "span", "--data", "test.tsv", "--out", "dry", "--dry-run", "--steps", "2")
    assert "questions a second" in dry
    write(tmp_path / "none.tsv", [unanswered("ka", f"kb {value}") for value in VALUES])
    message = said("train", "span", "--data", "none.tsv", "--out", "no", code=2)
    assert "none of the 6 questions has an answer" in message
    assert not (tmp_path / "no").exists()
