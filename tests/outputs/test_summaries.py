"""Summaries: scores against the source, baselines, long sources, limits of the search, warm starts."""

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import sightline
from invoke import run as invoke
from sightline.baselines.nearest import NEAREST, NearestSources
from sightline.cli.train import preset
from sightline.data.source import Source
from sightline.data.store import TokenBlock
from sightline.errors import UserError
from sightline.metrics import rouge
from sightline.metrics.texts import words_of
from sightline.outputs.simple_baselines import best_count, first_sentence, first_words
from sightline.outputs.summaries import SummaryOutput
from sightline.tasks.configs.summarise import SummariseConfig
from sightline.tasks.configs.translate import WITHOUT_LOOK
from sightline.tasks.summarise import COPYING, SUMMARISE
from sightline.tasks.task import Example
from sightline.tasks.train import train_task
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training.folder import load_tensors, save_tensors
from sightline.vocabulary import UNKNOWN
from task_samples import RUNS, sample

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that reads 8 tokens of a source, after a few steps; and its data."""
    folder = tmp_path_factory.mktemp("summaries")
    task, data, config, _ = sample("summaries", folder)
    config = replace(config, max_source=8, training=replace(config.training, steps=5, epochs=None, minutes=None))
    reports = []
    run, outcome = train_task(
        task,
        Source.of(data),
        folder / "run",
        config,
        on_report=lambda prepared, model: reports.extend(prepared.lines()),
    )
    return run, outcome, data, reports


# What nearest sources are


def similarities(sources, query):
    """TF-IDF cosines, as they are defined."""
    counted = [Counter(words_of(one)) for one in sources]
    rarity = {
        w: math.log((1 + len(sources)) / (1 + sum(w in one for one in counted))) + 1 for one in counted for w in one
    }

    def vector(counts):
        return np.array([counts.get(w, 0) * rarity[w] for w in sorted(rarity)])

    own = vector({w: n for w, n in Counter(words_of(query)).items() if w in rarity})
    return [float(vector(one) @ own / max(1e-12, np.linalg.norm(vector(one)))) for one in counted]


def test_the_nearest_source_is_that_of_tf_idf_cosines(tmp_path):
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(list("abcdefgh"), size=draw.integers(1, 9))) for _ in range(60)]
    sources, queries = texts[:40], [*texts[40:], "x y z", ""]
    nearest = NearestSources.fit((one, f"target {number} é") for number, one in enumerate(sources))
    nearest.save(tmp_path)
    loaded = NearestSources.load(tmp_path)
    for query in queries:
        expected = similarities(sources, query)
        for one in (nearest, loaded):
            place = one.place(query)
            assert expected[place] == pytest.approx(max(expected), abs=1e-5)
            assert one.targets([query]) == [f"target {place} é"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sources", lambda one: one + 1000),
        ("starts", lambda one: one.flip(0)),
        ("words", lambda one: one.flip(0)),
        ("ends", lambda one: one + 1),
        ("times", lambda one: one[:-1]),
        ("times", lambda one: one.float()),
        ("texts", lambda one: one[:-1]),
    ],
)
def test_a_damaged_file_is_refused(name, change, tmp_path):
    NearestSources.fit([("a b c", "x"), ("b c d", "y")]).save(tmp_path)
    tensors = load_tensors(tmp_path / NEAREST)
    save_tensors(tmp_path / NEAREST, {**tensors, name: change(tensors[name]).contiguous()})
    with pytest.raises(UserError, match="damaged"):
        NearestSources.load(tmp_path)


# First sentences and first words


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Rain fell. It stopped.", "Rain fell."),
        ("rain fell . it stopped .", "rain fell ."),  # cut into tokens, in small letters
        ("rain fell", "rain fell"),
        ("... Rain fell! It stopped.", "Rain fell!"),
        ("下雨了。雨停了。", "下雨了。"),
        ("", ""),
    ],
)
def test_the_first_sentence(text, sentence):
    assert first_sentence(text) == sentence


@pytest.mark.parametrize(
    ("text", "count", "words"),
    [("a  b c", 2, "a  b"), ("a b", 5, "a b"), ("", 3, ""), ("我们去北京", 2, "我们"), ("at 北京 now", 2, "at 北")],
)
def test_the_first_words(text, count, words):
    assert first_words(text, count) == words


def test_how_many_first_words_score_best():
    sources = [f"{name} met on Monday in the town hall" for name in ("Ann", "Bea", "Cleo")]
    targets = [" ".join(one.split()[:3]) for one in sources]
    assert best_count(sources, targets, lambda texts: rouge("rougeL")(texts, targets).value) == 3


# A run


def test_baselines_are_named_and_scored(trained):
    run, outcome, data, _ = trained
    assert outcome.verdict
    card = (run.folder / "card.md").read_text(encoding="utf-8")
    evaluation = sightline.load(run.folder).evaluate(str(data))
    for name in ("the first sentence", "the target of the nearest source"):
        assert f"| {name} |" in card
        assert evaluation.baselines[name].keys() >= {"rougeL", "rouge2_stem", "unsupported"}
    assert not any("copy of the source" in name for name in evaluation.baselines)
    rows = [line.split("\t") for line in data.read_text(encoding="utf-8").splitlines()[1:]]
    first = [first_sentence(source) for source, _ in rows]
    score = rouge("rougeL")(first, [target for _, target in rows]).value
    assert evaluation.baselines["the first sentence"]["rougeL"] == pytest.approx(score)


def test_the_target_of_a_source_of_the_training_data_is_its_own(trained):
    run, _, data, _ = trained
    rows = [line.split("\t") for line in data.read_text(encoding="utf-8").splitlines()[1:]]
    held = {json.loads(line)[0] for line in (run.folder / "data" / "valid.jsonl").read_text().splitlines()}
    targets = NearestSources.load(run.folder).targets([source for source, _ in rows])
    own = [target == near for (source, target), near in zip(rows, targets, strict=True) if source not in held]
    assert len(own) > 30
    assert all(own)


def test_evaluate_says_what_summaries_are_made_of(trained):
    run, _, data, _ = trained
    done = invoke("evaluate", str(run.folder), "--data", str(data), "--errors", "3", "--threads", "1", cwd=run.folder)
    assert done.returncode == 0, done.stderr
    for said in ("rougeL stem", "the run", "2-grams that stand in the summary before", "references", "ROUGE-L "):
        assert said in done.stdout
    assert "of 40 of 40 texts only the beginning is read" in done.stderr
    evaluation = run.evaluate(str(data))
    made = evaluation.to_json(2)["made_of"]
    assert made["names"] is True
    assert made["references"]["unsupported"] == 0
    assert made["summaries"].keys() == made["references"].keys() >= {"novel_1", "repeated_3", "copied"}


def test_errors_list_what_the_source_does_not_have(trained):
    run, _, _, _ = trained
    evaluation = run.evaluate(
        [Example("ge bi Oslo so 4 ko.", "ge in Oslo 4"), Example("ba be Rome so 7 bi.", "ba in Rome 7")]
    )
    evaluation.predictions[0] = evaluation.predictions[0]._replace(text="ge in Bonn 4 12.4 12.4")
    rows = [run.output.scored_row(evaluation, number) for number in range(2)]
    assert rows[0]["not_in_source"] == ["12.4", "Bonn"]
    assert run.output.shown_error(rows[0]).endswith("not in the source: 12.4, Bonn")
    rows[1]["not_in_source"] = []
    assert "not in the source" not in run.output.shown_error(rows[1])


def test_text_without_capitals_has_no_names(trained):
    run, _, _, _ = trained
    evaluation = run.evaluate([Example("ge bi oslo so 4 ko.", "ge in rome 5")])
    assert evaluation.to_json()["made_of"]["names"] is False
    said = [one for one in run.output.tables(evaluation) if isinstance(one, str)]
    assert "names are not counted: capitals mark no names in the references" in said


@pytest.mark.parametrize("metric", ["rougeL_stem", "unsupported", "repeated_2"])
def test_compare_takes_the_scores_against_the_source(metric, trained):
    run, _, data, _ = trained
    comparison = run.compare([replace(run, name="other")], str(data), metrics=[metric], samples=20).to_json()
    assert comparison["metrics"][metric]["signature"]
    assert comparison["metrics"][metric]["runs"]["other"]["difference"] == 0


# Long sources


def test_long_sources_are_cut_and_counted(trained):
    run, _, _, reports = trained
    assert any("sources have more than 8 tokens" in line for line in reports)
    sources = np.load(run.folder / "data" / "train" / "source_offsets.npy")
    assert np.diff(sources).max() == 8
    text = "ge bi Oslo so 4 ko. du ba ge bi ko du."
    assert [len(part) for (part,) in run.input.encode([text, "ge bi"])] == [8, 2]
    assert run.input.count_cut([text, "ge bi", ""]) == 1
    assert run.predict([text]) == run.predict([f"{text} ba be bi"])
    (part,) = run.input.encode([text])[0]
    (words,) = run.input.attended(run.model, run.input.collate([part]), [text], [[UNKNOWN, UNKNOWN]])
    assert {word.text for word in words if word} <= {"ge", "bi", "Oslo", "so", "4", "ko", ".", "du"}
    assert run.explain(text, measure=False).records[0].weights.shape[-1] in (8, 9)
    whole = replace(run.config, max_source=None)
    assert type(run.input)(whole, run.input.tokeniser).count_cut([text]) == 0


def test_what_was_cut_off_is_no_longer_copied_from():
    config = SummariseConfig(max_source=3)
    output = SummaryOutput(config, train_tokeniser(["a b c d"], TokeniserConfig(method="words", min_frequency=1)))
    words = output.tokeniser.words
    block = TokenBlock(
        np.arange(5, 12), np.array([2, 5]), np.array([5, words + 1, words + 2, words + 3]), np.array([2, 2])
    )
    (cut,) = output.stored([block])
    assert cut.source.tolist() == [5, 6, 7, 8, 9]
    assert cut.source_lengths.tolist() == [2, 3]
    assert cut.target.tolist() == [5, words + 1, words + 2, UNKNOWN]
    assert (output.longest, output.cut) == (2, 1)


# Search


def test_no_three_tokens_are_repeated_unless_asked(trained):
    run, _, _, _ = trained
    assert run.output.options({}).no_repeat == 3
    assert run.output.options({"no_repeat": 0}).no_repeat == 0
    assert run.output.validation_options().no_repeat == 3
    letters = replace(run.config, tokeniser=replace(run.config.tokeniser, method="characters"))
    assert SummaryOutput(letters, run.output.tokeniser).options({}).no_repeat == 0


def test_no_summary_is_longer_than_the_longest_one_of_the_training_data(trained):
    run, _, _, _ = trained
    assert run.output.longest == sightline.load(run.folder).output.longest == 4
    longer = run.predict(["ge bi Oslo so 4 ko."], min_length=6, max_length=7)
    assert 6 <= len(longer[0].tokens) <= 7
    assert len(run.predict(["ge bi Oslo so 4 ko."])[0].tokens) <= 4


def test_limits_are_options_of_predict_and_evaluate(trained):
    run, _, data, _ = trained
    given = ("--min-length", "6", "--max-length", "6", "--no-repeat", "2", "--threads", "1")
    done = invoke(
        "predict", str(run.folder), "--text", "ge bi Oslo so 4 ko.", "--format", "jsonl", *given, cwd=run.folder
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["prediction"].replace("<unk>", "x").split()) == 6
    done = invoke("evaluate", str(run.folder), "--data", str(data), "--json", *given, cwd=run.folder)
    assert done.returncode == 0, done.stderr


# Runs of before, and of the other task


def test_a_run_without_baselines_has_the_first_sentence(trained, tmp_path):
    run, _, _, _ = trained
    kept = replace(run, folder=tmp_path)
    assert kept.output.baseline_scores(kept, [Example("a b. c", "a")]).keys() == {"the first sentence"}


def test_a_run_of_summarise_from_before_is_one_of_translate():
    run = sightline.load(RUNS / "summarise" / "run")
    assert run.task.name == "translate"
    assert run.config.metric == "rougeL"


def test_summaries_start_from_translations_and_decide_by_their_own_metric(trained, tmp_path):
    run, _, data, _ = trained
    for task, metric, start in (("translate", "bleu", run.folder), ("summarise", "rougeL", tmp_path / "translate")):
        done = invoke(
            "train", task, "--data", str(data), "--out", task, "--from", str(start), "--steps", "1", "--threads", "1",
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        config = json.loads((tmp_path / task / "config.json").read_text())
        assert (config["task"], config["config"]["metric"]) == (task, metric)


def test_models_copy_where_they_can():
    (variant,) = SUMMARISE.variants
    assert set(COPYING) == set(variant.models) - set(WITHOUT_LOOK)
    for name in variant.models:
        assert preset(variant, name, "tiny").model.copying == (name in COPYING)


def test_max_source_is_checked():
    with pytest.raises(ValueError, match="max_source is 0"):
        SummariseConfig(max_source=0)
