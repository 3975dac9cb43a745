"""Every task says how its run compares with predictions that need no model: at the end of training and in evaluate."""

from dataclasses import replace

import numpy as np
import pytest

import sightline
from sightline.data.source import Source
from sightline.outputs.simple_baselines import cell_means, likely_sentence, pixel_threshold, usual_tags, usual_text
from sightline.tasks.card import verdict
from sightline.tasks.train import train_task
from task_samples import sample

pytestmark = pytest.mark.unchecked_shapes
NAMES = {
    "tag": {"the usual tag of each word"},
    "span": {"the sentence with most words of the question", "no answer"},
    "translate": {"a copy of the source"},
    "summaries": {"the first sentence", "the first 5 words", "the target of the nearest source"},
    "caption": {"one caption for every image"},
    "grid": {"none marked", "all marked", "a threshold on the pixels"},
    "ask": {"the most frequent answer", "the cell in the row and the column that the question names"},
    "classify-text": {"linear", "nb-svm", "ngrams"},
}


@pytest.mark.parametrize("kind", NAMES)
def test_baselines_stand_beside_the_scores(kind, tmp_path):
    task, data, config, _ = sample(kind, tmp_path)
    config = replace(config, training=replace(config.training, steps=1, epochs=None, minutes=None))
    _, outcome = train_task(task, Source.of(data), tmp_path / "run", config)
    assert any(
        said in outcome.verdict for said in ("A BASELINE WON: ", "A BASELINE IS AS GOOD: ", "is above its baselines: ")
    )
    assert outcome.verdict[1:] in (tmp_path / "run" / "card.md").read_text()
    evaluation = sightline.load(tmp_path / "run").evaluate(str(data))
    assert evaluation.baselines.keys() >= NAMES[kind] - {"nb-svm", "ngrams"}
    assert evaluation.to_json()["baselines"] == evaluation.baselines
    assert evaluation.verdict


def test_the_verdict_is_of_the_metric_that_decides():
    baselines = {"a": {"f1": 50.0, "exact": 1.0}, "b": {"f1": 40.0, "exact": 9.0}}
    own = {"f1": 45.0, "exact": 10.0}
    assert verdict(own, baselines) == "A BASELINE WON: f1 45.00, and 50.00 of the baseline 'a'"
    assert (
        verdict(own, baselines, "exact") == "the run is above its baselines: exact 10.00, and 9.00 of the baseline 'b'"
    )
    assert verdict(own, {}) == ""


def test_of_error_rates_the_least_wins():
    baselines = {"a": {"wer": 50.0}, "b": {"wer": 90.0}}
    assert (
        verdict({"wer": 45.0}, baselines)
        == "the run is better than its baselines: wer 45.00, and 50.00 of the baseline 'a'"
    )
    assert verdict({"wer": 60.0}, baselines).startswith("A BASELINE WON: wer 60.00, and 50.00")
    assert verdict({"wer": 50.0}, baselines).startswith("A BASELINE IS AS GOOD")


def test_what_baselines_learn():
    tags = usual_tags([(("a", "b"), ("X", "O")), (("a", "c"), ("X", "O")), (("a",), ("O",))])
    assert tags == {"any": "O", "words": {"a": "X", "b": "O", "c": "O"}}
    assert usual_text(["a dog runs", "a dog sits", "blue sky"], 0).startswith("a dog")
    assert likely_sentence("Where is Bonn?", "Rome is old. Bonn is on the Rhine. It rains.") == "Bonn is on the Rhine."
    values = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    means = cell_means(values, 4)
    assert means.shape == (2, 2)
    assert means[1, 1] == values[4:, 4:].mean()
    dark = [np.array([[9.0, 1.0], [8.0, 2.0]])]
    fitted = pixel_threshold(dark, [np.array([[0, 1], [0, 1]])])
    assert (fitted["sign"] * dark[0] >= fitted["least"]).tolist() == [[False, True], [False, True]]
