"""Evaluating a run and comparing several: in Python and by command, held against sacreBLEU on what they predicted."""

import json
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

import runs
import sightline
from sightline import cli
from sightline import metrics as scores
from sightline.errors import UserError
from sightline.inputs.text import SourceText
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.outputs.searched import Prediction, Searched
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.evaluate import compare, evaluate
from sightline.tasks.task import Example
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig
from sightline.view.charts import lines_by_length

pytestmark = [pytest.mark.unchecked_shapes, pytest.mark.slow]

METRICS = {"bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"}


def make_pairs(count, seed):
    """Letters, and the same letters as capitals; some are long."""
    draw = random.Random(seed)
    sources = [" ".join(draw.choices("abcdef", k=draw.choice([3, 4, 12, 16]))) for _ in range(count)]
    return [Example(source, source.upper()) for source in sources]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs of the same model, one trained for longer, and pairs that neither has seen."""
    folder = tmp_path_factory.mktemp("compared")
    for name, pairs in (("train", make_pairs(150, 0)), ("test", make_pairs(60, 1))):
        lines = [json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    for name, steps in (("short", 12), ("long", 30)):
        config = TranslateConfig(
            model=RNNSearchConfig(16, 24, dropout=0.0),
            tokeniser=TokeniserConfig(method="words", vocab_size=40),
            training=TrainingConfig(learning_rate=3e-2, warmup=5, steps=steps),
            metric="rougeL",
            batch_tokens=300,
        )
        runs.trained_on("translate", folder / "train.jsonl", folder / name, config)
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    """The command line in this process, which is quicker than another: exit code, output, errors."""
    monkeypatch.chdir(folder)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sightline", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as leave:
            code = leave.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def found(folder):
    return sightline.load(folder / "short").evaluate(make_pairs(60, 1), beam=2)


def lengths(evaluation):
    return evaluation.run.output.lengths(evaluation)


def test_scores_are_those_of_the_predictions(folder, found):
    texts, references = [one.text for one in found.predictions], [one.y for one in found.examples]
    translator = sightline.load(folder / "short")
    again = translator.predict([one.x for one in found.examples], beam=2)
    assert texts == [one.text for one in again]
    assert set(found.values) == METRICS | {"perplexity"}
    assert found.values["bleu"] == BLEU().corpus_score(texts, [references]).score
    assert found.values["chrf"] == CHRF().corpus_score(texts, [references]).score
    assert 0 < found.values["bleu"] < 100
    assert found.values["perplexity"] == pytest.approx(translator.output.perplexity(translator, found.examples))


def test_every_length_has_the_score_of_its_pairs(found):
    assert [part.bucket.label for part in lengths(found)] == ["1–9", "10–14", "15–19"]
    assert sorted(row for part in lengths(found) for row in part.bucket.rows) == list(range(60))
    for part in lengths(found):
        chosen = [(found.predictions[row].text, *found.examples[row]) for row in part.bucket.rows]
        texts, sources, references = (list(side) for side in zip(*chosen, strict=True))
        words = {len(source.split()) for source in sources}
        assert part.bucket.least <= min(words)
        assert max(words) <= part.bucket.most
        assert list(part.values) == ["rougeL", "bleu", "chrf"]
        assert part.values["bleu"] == pytest.approx(BLEU().corpus_score(texts, [references]).score)
        assert part.values["chrf"] == pytest.approx(CHRF().corpus_score(texts, [references]).score)
        assert part.values["rougeL"] == pytest.approx(scores.rouge("rougeL")(texts, references).value)


def test_the_worst_come_first(found):
    worst = found.worst(7)
    assert len(worst) == 7
    for one in worst:
        assert one["chrf"] == pytest.approx(CHRF().sentence_score(one["prediction"], [one["reference"]]).score)
    values, sentences = [one["chrf"] for one in worst], found.extra["each"]["chrf"]
    assert values == sorted(values) == sorted(sentences)[:7]
    assert values[0] < max(sentences)
    assert len(found.worst(1000)) == 60


def test_predicting_goes_in_parts_and_says_how_far_it_is(folder, found, monkeypatch):
    monkeypatch.setattr(SourceText, "at_once", 25)
    heard = []
    again = evaluate(sightline.load(folder / "short"), found.examples, beam=2, on_predicted=heard.append)
    assert [count for count in heard if count] == [25, 25, 10]
    assert [one.text for one in again.predictions] == [one.text for one in found.predictions]


def test_lines_and_scripts_of_references_are_seen(folder):
    translator = sightline.load(folder / "short")
    lines = translator.evaluate([Example("a b", "A\nB"), Example("b a", "B A")], beam=1)
    assert set(lines.values) == METRICS | {"rougeLsum", "perplexity"}
    assert "lcs:lines" in lines.extra["signatures"]["rougeLsum"]
    chinese = translator.evaluate([Example("a b", "冬天很冷"), Example("b a", "北京")], beam=1)
    assert "tok:zh" in chinese.extra["signatures"]["bleu"]
    given = translator.evaluate([Example("a b", "冬天很冷"), Example("b a", "北京")], beam=1, bleu_tokenise="char")
    assert "tok:char" in given.extra["signatures"]["bleu"]
    with pytest.raises(UserError, match="no row of pairs to score"):
        evaluate(translator, [])


def test_evaluate_gives_everything_as_json(command, found, tmp_path):
    out = tmp_path / "new" / "predictions.jsonl"
    options = ["--data", "test.jsonl", "--beam", "2", "--json", "--errors", "3", "--out", out]
    code, printed, errors = command("evaluate", "short", *options)
    assert (code, errors) == (0, "")
    data = json.loads(printed)
    assert data["pairs"] == 60
    assert data["perplexity"] == found.values["perplexity"]
    for name in METRICS:
        assert data[name]["value"] == found.values[name]
    assert "tok:13a" in data["bleu"]["signature"]
    assert [(part["least"], part["most"], part["unit"]) for part in data["by_length"]] == [
        (1, 9, "words"),
        (10, 14, "words"),
        (15, 19, "words"),
    ]
    assert [set(part) - {"least", "most", "unit", "pairs"} for part in data["by_length"]] == [
        {"rougeL", "bleu", "chrf"}
    ] * 3, "the run was trained for rougeL"
    assert data["errors"] == found.worst(3)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(row["source"], row["reference"]) for row in rows] == found.examples
    assert [row["prediction"] for row in rows] == [one.text for one in found.predictions]
    assert [row["log_prob"] for row in rows] == [one.log_prob for one in found.predictions]
    for name in ("chrf", "exact", "rouge1", "rouge2", "rougeL"):
        mean = sum(row[name] for row in rows) / 60
        expected = sum(found.extra["each"]["chrf"]) / 60 if name == "chrf" else found.values[name]
        assert mean == pytest.approx(expected)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_evaluate_prints_tables(command, found):
    options = ["--data", "test.jsonl", "--beam", "2", "--bleu-tokenise", "char"]
    code, plain, _ = command("evaluate", "short", *options)
    assert code == 0
    for name in ("bleu", "chrf", "exact", "tokenised bleu", "rouge1", "rouge2", "rougeL", "perplexity"):
        assert re.search(rf"^{name} +\d", plain, flags=re.MULTILINE), name
    assert "tok:char|" in plain
    assert "60 pairs" in plain
    assert "10–14" not in plain
    assert "reference" not in plain
    code, whole, _ = command("evaluate", "short", *options, "--by-length", "--errors", "2")
    assert code == 0
    for part in lengths(found):
        row = rf"^{part.bucket.label} +{len(part.bucket.rows)} +{part.values['rougeL']:.2f} "
        assert re.search(row, whole, flags=re.MULTILINE)
    for error in found.worst(2):
        assert f"   source      {error['source']}\n   prediction  {error['prediction']}\n" in whole
        assert f"   reference   {error['reference']}\n" in whole


def test_comparing_gives_what_evaluating_gives(folder, found):
    translators = {name: sightline.load(folder / name) for name in ("short", "long")}
    both = compare(translators, found.examples, beam=2, metrics=("bleu", "rougeL", "bleu"), samples=200)
    assert list(both.resampled) == ["bleu", "rougeL"]
    other = evaluate(translators["long"], found.examples, beam=2)
    for metric, compared in both.resampled.items():
        assert compared["short"].value == pytest.approx(found.values[metric])
        assert compared["long"].value == pytest.approx(other.values[metric])
        assert compared["long"].difference == pytest.approx(other.values[metric] - found.values[metric])
        assert all(one.interval[0] < one.value < one.interval[1] for one in compared.values())
        assert both.extra[metric]["signature"] == found.extra["signatures"][metric]
    for part, short, long in zip(both.extra["bleu"]["by_length"], lengths(found), lengths(other), strict=True):
        expected = {"short": short.values["bleu"], "long": long.values["bleu"]}
        assert part["runs"] == pytest.approx(expected)


class Written(TranslationOutput):
    """Texts that were written before, instead of a model's."""

    def scored(self, run, xs, *others, **options):
        return [Searched([Prediction(text, 0.0, 0.0)]) for text in self.texts]


def written(texts):
    made = runs.translator(torch.nn.Module(), None, None)
    output = Written(made.config)
    output.texts = texts
    return replace(made, output=output)


def test_a_better_system_is_found_better():
    """Outputs made by hand: one system errs in every second sentence, another in one more, the third in none."""
    references = [f"sentence number {row} of a test" for row in range(100)]
    wrong = "something else altogether"
    first = [wrong if row % 2 else text for row, text in enumerate(references)]
    near = [wrong, *first[1:]]
    systems = {name: written(texts) for name, texts in (("first", first), ("near", near), ("all", references))}
    found = compare(systems, [Example(text, text) for text in references], metrics=("exact", "bleu"))
    exact = found.resampled["exact"]
    assert [one.value for one in exact.values()] == [50, 49, 100]
    assert [one.difference for one in exact.values()] == [None, -1, 50]
    assert exact["first"].interval[0] == pytest.approx(40, abs=2), "of a binomial with 100 draws and p = 0.5"
    assert exact["first"].interval[1] == pytest.approx(60, abs=2)
    assert exact["all"].interval == (100, 100)
    assert exact["near"].p == pytest.approx(0.99**100, abs=0.05), "resamples without the sentence have no difference"
    assert exact["all"].p == found.resampled["bleu"]["all"].p == 1 / 1001


def test_compare_as_json_and_as_tables(command, tmp_path):
    options = ["--data", "test.jsonl", "--beam", "1", "--samples", "100", "--metrics", "chrf", "exact"]
    code, printed, errors = command("compare", "short", "long", *options, "--json")
    assert (code, errors) == (0, "")
    data = json.loads(printed)
    assert (data["pairs"], data["samples"], data["seed"]) == (60, 100, 0)
    assert list(data["metrics"]) == ["chrf", "exact"]
    runs = data["metrics"]["chrf"]["runs"]
    assert list(runs) == ["short", "long"]
    assert (runs["short"]["difference"], runs["short"]["p"]) == (None, None)
    assert 0 < runs["long"]["p"] <= 1
    assert sum(part["pairs"] for part in data["metrics"]["chrf"]["by_length"]) == 60
    picture = tmp_path / "by_length.svg"
    code, tables, errors = command("compare", "short", "long", *options, "--out", picture)
    assert (code, errors) == (0, "")
    for name, run in runs.items():
        low, high = run["interval"]
        assert re.search(rf"{name} +{run['value']:.2f} +{low:.2f} – {high:.2f}", tables)
    assert f"{runs['long']['difference']:+.2f}" in tables
    assert "chrf by length" in tables
    drawn = picture.read_text(encoding="utf-8")
    for text in ("short", "long", "1–9", "length of the source in words", "chrF"):
        assert f">{text}</text>" in drawn
    assert command("compare", "short", "long", *options, "--seed", "1", "--json")[1] != printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "short"], "given 1 run; expected two or more"),
        (["compare"], "given 0 runs; expected two or more"),
        (["compare", "short", "./short"], "given twice"),
        (["compare", "short", "train.jsonl"], "there is no run folder train.jsonl"),
        (["compare", "short", "long", "--samples", "0"], "--samples is 0"),
        (["compare", "short", "long", "--beam", "0"], "--beam is 0"),
        (["compare", "short", "long", "--metrics"], "--metrics has no value"),
        (
            ["compare", "short", "long", "--out", "picture.gif"],
            "picture.gif; expected a name that ends in .png or .svg",
        ),
        (["evaluate", "short", "--errors", "-1"], "--errors is -1"),
        (["evaluate", "short", "--beam", "0"], "--beam is 0"),
        (["evaluate", "short", "--out", "predictions.csv"], "predictions.csv; expected a name that ends in .jsonl"),
        (["evaluate", "short", "--bleu-tokenise", "klingon"], "klingon"),
    ],
)
def test_wrong_use_is_one_sentence(command, folder, arguments, message):
    before = sorted(path.name for path in folder.iterdir())
    code, printed, errors = command(*arguments, "--data", "test.jsonl")
    assert code == 2
    assert message in re.sub(r"[│\s]+", " ", printed + errors)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_program_itself_compares(folder):
    """In a process of its own, where nothing was imported before."""
    command = [sys.executable, "-W", "error", "-m", "sightline", "compare", "short", "long", "--data", "test.jsonl"]
    done = subprocess.run([*command, "--beam", "1"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "tok:13a" in done.stdout


def test_charts_take_any_name_and_any_number(tmp_path):
    names = ["$x_1$", "_hidden", "<b>", *(f"run {i}" for i in range(9))]
    lines = {name: [10.0 + place, 20.0] for place, name in enumerate(names)}
    path = lines_by_length(["1–9", "10+"], [1, 1200], lines, tmp_path / "chart.svg", score="bleu")
    drawn = path.read_text(encoding="utf-8")
    for text in ("$x_1$", "_hidden", "&lt;b&gt;", "run 8", "1 pair", "1,200 pairs"):
        assert f">{text}</text>" in drawn or f"> {text}</text>" in drawn, text
    alone = lines_by_length(["30+"], [5], {"one": [0.0], "two": [0.0]}, tmp_path / "alone.png", score="bleu")
    assert alone.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.png", "chart.svg"]
