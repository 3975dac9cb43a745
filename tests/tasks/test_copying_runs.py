"""A run that copies: from a file of pairs to scores, pictures and exports, by command and in Python."""

import json

import pytest

import sightline
from invoke import run as invoke
from pairs import write_tsv
from sightline.errors import UserError
from sightline.synthetic.names import moved_names
from sightline.vocabulary import UNKNOWN

pytestmark = [pytest.mark.unchecked_shapes, pytest.mark.slow]

QUICK = [
    "tokeniser.method=words", "tokeniser.vocab_size=60", "model.embedding_size=24", "model.size=24",
    "batch_tokens=1024", "model.dropout=0.0", "smoothing=0.0", "training.learning_rate=0.01", "training.warmup=20",
    "training.validate_every=100", "validated=60",
]  # fmt: skip
COVERAGE = 'model.attention={"kind":"coverage","hidden_size":24}'
TEXT = "the letter of Karamaba came to Zozozozo today ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copying")
    write_tsv(folder / "train.tsv", moved_names(1200))
    return folder


@pytest.fixture(scope="module")
def copying(folder):
    """In its last fifty steps, coverage counts."""
    done = invoke(
        "train", "translate", "--data", "train.tsv", "--out", "run", "--model", "rnnsearch", "--copy", "--steps", "200",
        "--set", *QUICK, COVERAGE, "training.coverage_after=150", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def exact(path, **options):
    """The share of unseen messages that are written exactly, in percent."""
    messages = moved_names(100, seed=1)
    predictions = sightline.load(path).predict([x for x, _ in messages], **options)
    return sum(one.text == y for one, (_, y) in zip(predictions, messages, strict=True))


def test_unseen_names_are_moved_by_copying_alone(copying):
    assert exact(copying / "run") >= 99
    done = invoke(
        "train", "translate", "--data", "train.tsv", "--out", "plain", "--model", "rnnsearch", "--steps", "100",
        "--set", *QUICK, cwd=copying,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert exact(copying / "plain", keep_unknown=True) <= 1


def test_the_coverage_loss_is_logged_from_its_step_on(copying):
    lines = [json.loads(line) for line in (copying / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = {line["step"]: line.get("loss_coverage") for line in lines if not line.get("final")}
    assert logged[100] is None
    assert logged[200] > 0


def test_copied_words_stand_where_the_source_has_them(copying):
    run = sightline.load(copying / "run")
    (prediction,) = run.predict([TEXT])
    assert prediction.text == "Karamaba wrote to Zozozozo ."
    size = run.output.tokeniser.words
    assert [token - size for token in prediction.tokens if token >= size] == [3, 6]
    assert UNKNOWN not in prediction.tokens
    assert run.predict([TEXT], prefix="Zozozozo")[0].text.startswith("Zozozozo")
    batch = run.predict([TEXT, "", "Ada and Bob are friends ."])
    assert [batch[0].text, batch[2].text] == ["Karamaba wrote to Zozozozo .", "friends : Bob , Ada ."]
    assert batch[0].log_prob == pytest.approx(prediction.log_prob, abs=1e-4)


def test_a_penalty_of_search_leaves_log_probabilities_as_they_are(copying):
    run = sightline.load(copying / "run")
    plain, lowered = (run.predict([TEXT], coverage=coverage)[0] for coverage in (0.0, 3.0))
    assert plain.text == lowered.text
    assert lowered.log_prob == pytest.approx(plain.log_prob, abs=1e-4)
    assert lowered.score <= plain.score
    with pytest.raises(UserError, match=r"coverage is -1\.0; it must be at least 0"):
        run.predict([TEXT], coverage=-1.0)


def test_samples_and_ensembles_copy(copying):
    run = sightline.load(copying / "run")
    drawn = run.predict([TEXT], sample=True, best=3, temperature=0.5)[0]
    assert drawn.all[0].text == "Karamaba wrote to Zozozozo ."
    both = run.output.ensemble([run, sightline.load(copying / "run")])
    (prediction,) = both.predict([TEXT])
    assert prediction.text == "Karamaba wrote to Zozozozo ."
    assert prediction.log_prob == pytest.approx(run.predict([TEXT])[0].log_prob, abs=1e-4)


def test_an_ensemble_with_a_run_that_does_not_copy(copying):
    """In either order: what one copies is an unknown word to the other."""
    done = invoke(
        "train", "translate", "--data", "train.tsv", "--out", "other", "--from", "run", "--no-copy", "--steps", "4",
        cwd=copying,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, other = (sightline.load(copying / name) for name in ("run", "other"))
    texts = [
        run.output.ensemble(runs).predict([TEXT], beam=2)[0] for run in (one,) for runs in ([one, other], [other, one])
    ]
    assert "Karamaba" in texts[0].text
    assert texts[0].text == texts[1].text
    assert texts[0].log_prob == pytest.approx(texts[1].log_prob, abs=1e-5)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('after "Karamaba" had called , Zozozozo left the house .', "Zozozozo left when Karamaba called ."),
        ("after Karamaba had called , (Zozozozo) left the house .", "Zozozozo left when Karamaba called ."),
    ],
)
def test_copied_words_do_not_stick_together(source, expected, copying):
    """Signs around a name of the source may be left out; words of the output stand apart."""
    text = sightline.load(copying / "run").predict([source])[0].text
    assert len(text.split()) >= len(expected.split())


def test_explanations_say_what_was_copied(copying):
    run = sightline.load(copying / "run")
    explanation = run.explain(TEXT)
    assert [step.written for step in explanation.steps] == ["▁Karamaba", "▁wrote", "▁to", "▁Zozozozo", "▁.", "</s>"]
    first, second, _, fourth, *_ = (step.copied for step in explanation.steps)
    assert first.share > 0.99
    assert (first.place, second.place, fourth.place) == (3, None, 6)
    assert second.share == 0.0
    assert 0 <= first.gate < 0.5 < second.gate <= 1
    assert explanation.records[-1].name == "coverage"
    assert explanation.records[-1].matrix()[0].sum() == 0
    assert explanation.steps[0].likeliest[0].text == "▁Karamaba"
    data = json.loads(json.dumps(explanation.to_json()))
    assert data["steps"][0]["copied"]["place"] == 3
    assert type(explanation).from_json(data).steps == explanation.steps
    given = run.explain(TEXT, output="Zozozozo wrote to Quidibum .")
    assert [step.written for step in given.steps][::3][:2] == ["▁Zozozozo", "<unk>"]


def test_hiding_a_copied_word_costs_it_its_probability(copying):
    belief = sightline.load(copying / "run").explain(TEXT).belief
    assert belief is not None


def test_other_engines_are_refused(copying):
    done = invoke("export", "run", "--to", "onnx", "--out", "out", cwd=copying)
    assert done.returncode == 2
    assert "run copies words of its source, which no other engine can" in done.stderr


def test_a_run_can_begin_to_copy(copying):
    """`--from` a run that does not copy: only the gate is new."""
    done = invoke(
        "train", "translate", "--data", "train.tsv", "--out", "early", "--model", "rnnsearch", "--steps", "4",
        "--set", *QUICK, "training.validate_every=2", cwd=copying,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = invoke(
        "train", "translate", "--data", "train.tsv", "--out", "later", "--from", "early", "--copy", "--steps", "4",
        cwd=copying,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sightline.load(copying / "later").model.copying is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--copy", "--model", "seq2seq"], "copying needs attention to copy from"),
        (["--copy", "--model", "universal_transformer"], "copying needs one attention to copy from"),
        (
            ["--copy", "--set", "tokeniser.joint=false", "model.tied=none"],
            "copying needs one vocabulary for both sides",
        ),
        (["--model", "seq2seq", "--set", "training.coverage_after=5"], "coverage is of attention to the source"),
    ],
)
def test_what_cannot_copy_says_so(options, message, folder):
    done = invoke("train", "translate", "--data", "train.tsv", "--out", "no", "--steps", "2", *options, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (folder / "no").exists()
