"""The page of an output that was partly copied: marks that are read and seen, and coverage with its own unit."""

import re

import pytest

from chromium import choose, grave_problems, tab
from copiers import MODELS, explained, partly_copied
from page_samples import translation

pytestmark = pytest.mark.unchecked_shapes


def said(page):
    return re.sub("[\u2068\u2069]", "", page.locator(".sentence").inner_text())


def to_row(page, row):
    page.focus(".map")
    page.keyboard.press("Home")
    for _ in range(row):
        page.keyboard.press("ArrowDown")


def test_a_word_says_where_it_was_copied_from(visit):
    page = visit(partly_copied())
    to_row(page, 6)
    assert "Copied from ‘dow’ (place 10): 0.97 of its probability; p = 0.04." in said(page)
    assert page.locator(".chip.copied").all_inner_texts() == page.locator(".chip").nth(9).all_inner_texts()
    assert "dow" in page.locator(".chip.copied").inner_text()
    to_row(page, 2)
    assert said(page).endswith("Written; p = 0.98.")
    assert page.locator(".chip.copied").count() == 0
    assert "2 of 9 tokens were copied" in page.locator(".alignment").inner_text()


def test_whole_words(visit):
    page = visit(partly_copied())
    page.get_by_label("Whole words").check()
    page.wait_for_selector("html[data-settled]")
    to_row(page, 6)
    assert "Copied from ‘window’ (place 8): 0.94 of its probability; p = 0.07." in said(page)
    assert "1 of 8 words were copied" in page.locator(".alignment").inner_text()


def test_the_map_and_its_table_have_the_marks(visit):
    page = visit(partly_copied())
    page.click("summary:has-text('Table of the weights')")
    rows = page.locator("details.table tbody tr")
    rows.nth(6).locator("td").first.wait_for()  # the table is made when it is opened
    assert rows.nth(6).locator("td").all_inner_texts()[:2] == ["copied", "0.0400"]
    assert rows.nth(0).locator("td").all_inner_texts()[:2] == ["written", "0.9800"]
    assert page.locator("details.table thead th").all_inner_texts()[:2] == ["copied or written", "p"]
    with page.expect_download() as waiting:
        page.click("#svg")
    drawn = waiting.value.path().read_text(encoding="utf-8")
    assert [drawn.count(f">{mark}<") for mark in ("copied", "written", "0.04")] == [3, 7, 1]


def test_steps_and_lines_have_the_marks(visit):
    page = visit(partly_copied())
    tab(page, "replay")
    marks = page.locator(".step .how").all_inner_texts()
    assert marks == ["written"] * 6 + ["copied", "copied", "written", "copied"]
    page.locator(".step").nth(6).click()
    chosen = page.locator(".likeliest ul li").all_inner_texts()
    assert [re.sub(r"\s+", " ", one) for one in chosen] == ["write (p) 0.040", "copy 0.960"]
    assert "dow" in page.locator(".chip.copied").inner_text()
    tab(page, "lines")
    page.focus(".map")
    page.keyboard.press("End")
    assert "Copied from ‘</s>’ (place 13)" in said(page)


def test_coverage_has_its_own_scale(visit):
    one = partly_copied()
    page = visit(one)
    assert page.locator(".legend .unit").inner_text() == "weight"
    choose(page, "Attention", "Coverage: sum of earlier weights")
    assert page.locator(".legend .unit").inner_text() == "sum of weights"
    largest = one.of("coverage")[0].matrix().max()
    assert largest > 1
    assert page.locator(".legend span").nth(1).inner_text() == f"{largest:.2f}"
    to_row(page, 0)
    assert said(page).startswith("Nothing was attended to before ‘die’.")
    to_row(page, 9)
    assert said(page).startswith("Attended to before ‘</s>’: ")


def test_a_model_that_cannot_copy_has_no_marks(visit):
    page = visit(translation())
    assert "copied" not in page.locator("#panes").inner_text()
    tab(page, "replay")
    assert page.locator(".step .how").count() == 0


@pytest.mark.parametrize("kind", MODELS)
def test_explanations_of_models(visit, kind):
    page = visit(explained(kind))
    to_row(page, 0)
    assert re.search(r"Copied from ‘Zyx’ \(place 3\): 1\.00 of its probability; p = 0\.\d\d\.$", said(page))
    titles = page.get_by_label("Attention", exact=True).locator("option").all_inner_texts()
    assert ("The weights that copy, of all heads together" in titles) == (kind == "transformer")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(visit, dark):
    page = visit(partly_copied(), bypass_csp=True, color_scheme="dark" if dark else "light")
    for view in ("alignment", "lines", "replay"):
        tab(page, view)
        page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.wait_for_timeout(250)
        assert grave_problems(page) == [], view
