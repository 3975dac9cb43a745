"""Pages of real runs in a real browser: what is shown is what the model did."""

import numpy as np
import pytest

import sightline
from chromium import cell_of, tab, tip
from frozen_run import FROZEN
from pairs import make_pairs, write_tsv
from sightline.models.transformer import TransformerConfig
from sightline.tasks.configs.translate import TranslateConfig

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_tsv(folder / "pairs.tsv", make_pairs(150))
    config = TranslateConfig(model=TransformerConfig(16, 2, 32, 2, 3, dropout=0.0))
    transformer = sightline.train(folder / "pairs.tsv", folder / "transformer", config=config, steps=3)
    return {"rnnsearch": sightline.load(FROZEN[-1]), "transformer": transformer}


@pytest.mark.parametrize("kind", ["rnnsearch", "transformer"])
def test_a_run_is_shown_as_it_was(runs, visit, kind):
    explanation = runs[kind].explain("abcd", beam=2)
    page = visit(explanation)
    truth = np.mean([record.matrix() for record in explanation.of(explanation.stacks[0].names[-1])], axis=0)
    for row, column in [(0, 0), (truth.shape[0] - 1, truth.shape[1] - 1)]:
        page.mouse.move(*cell_of(page, row, column))
        assert abs(tip(page)[1] - truth[row, column]) < 1e-3
    panel = page.locator(".belief").first.inner_text()
    for finding in explanation.belief.findings:
        assert finding.sentence in panel
    tab(page, "replay")
    page.click("text=Show the calculation")
    page.locator("h1").click()
    page.keyboard.press("Home")  # it begins at the word that was pointed at
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.calculate [data-step="2"]')
    assert "The same as the model's own" in page.locator(".calculation").inner_text(), "the page's sums, by its own"
    shown = page.locator(".likeliest .number").all_inner_texts()
    assert shown == [f"{one.probability:.3f}" for one in explanation.steps[1].likeliest]


def test_two_runs_stand_side_by_side(runs, visit):
    page = visit(*(run.explain("abcd", measure=False) for run in runs.values()))
    assert page.locator(".map").count() == 2
