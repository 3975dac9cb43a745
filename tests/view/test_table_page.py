"""The page of a table in a real browser: step through the passes by buttons and keys."""

from dataclasses import replace

import pytest

from asked import ROWS, explained, large, made_pass, norway
from chromium import download, tab
from sightline.explain.explanation import Belief, Finding
from sightline.models.asking import Program

pytestmark = pytest.mark.unchecked_shapes


def state(page):
    """The number of the pass that is shown, the rows that are selected, and the cells that are printed."""
    said = page.locator(".asked > .sentence").inner_text()
    rows = page.locator(".asked tbody tr")
    selected = [row for row in range(rows.count()) if "selected" in (rows.nth(row).get_attribute("class") or "")]
    return said.split()[1], selected, page.locator(".asked td.printed bdi").all_inner_texts()


def test_buttons_and_keys_step_through_the_passes(visit):
    page = visit(norway())
    assert state(page) == ("1", list(range(7)), [])
    page.get_by_role("button", name="Next").click()
    assert state(page) == ("2", [0, 2, 4, 5], [])
    assert "rows where Nation matches 'Norway'" in page.locator(".asked > .sentence").inner_text()
    assert page.locator(".asked td.chosen").count() == len(ROWS)
    page.focus(".program .step[aria-current=step]")
    page.keyboard.press("ArrowDown")
    assert state(page) == ("3", [5], [])
    assert page.evaluate("document.activeElement.textContent").startswith("3 max")
    page.keyboard.press("End")
    assert state(page) == ("4", [5], ["2002"])
    assert page.get_by_role("button", name="Next").is_disabled()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    assert state(page)[0] == "1"
    page.locator(".program .step").nth(2).click()
    assert state(page)[0] == "3"


def test_words_have_the_weights_of_the_pass(visit):
    explanation = norway()
    page = visit(explanation)
    page.locator(".program .step").nth(1).click()
    chips = page.locator(".asked .chip")
    shown = [chips.nth(i).locator(".number").inner_text() for i in range(10)]
    weights = explanation.table.passes[1].word_weights
    assert shown == [f"{weight:.2f}" if weight >= 0.01 else "" for weight in weights]


def test_the_replay_steps_through_the_table_too(visit):
    page = visit(norway())
    tab(page, "replay")
    page.locator("h1").click()  # away from the tabs, which have arrow keys of their own
    page.keyboard.press("ArrowRight")
    assert state(page)[0] == "2"
    page.focus(".program .step[aria-current=step]")
    page.keyboard.press("ArrowRight")  # once, not twice
    assert state(page)[0] == "3"


def test_rows_and_columns_that_are_left_out_are_counted(visit):
    page = visit(large(3000, 60, 45))
    gaps = page.locator(".asked tbody .left-out[colspan]").all_inner_texts()
    assert len(gaps) > 2
    assert all(text.startswith("… ") and "row" in text for text in gaps)
    assert page.locator(".asked thead .left-out").count() == 2
    box, region = (page.locator(one).bounding_box() for one in (".asked td.chosen >> nth=0", ".asked .scroll"))
    assert region["x"] <= box["x"] <= region["x"] + region["width"] - box["width"] + 2  # it was scrolled to


def test_a_long_cell_has_all_of_it_in_its_title(visit):
    program = Program((made_pass("print", 0, {0: 0.9}, [1], 1, 1),), None, ((0, 0),), 0.0)
    long = "<img src=x onerror=alert(1)> " + "word " * 100
    page = visit(explained(program, ["a"], [[long]], ["which"], ["print a"], "it"))
    cell = page.locator(".asked tbody td")
    assert cell.get_attribute("title") == long
    assert "…" in cell.inner_text()
    assert page.locator("img").count() == 0


def test_the_table_is_saved_with_the_map(visit):
    page = visit(norway())
    page.locator(".program .step").nth(3).click()
    _, svg = download(page, "#svg")
    assert svg.count(b"Lillehammer") == 2
    assert b"Pass 4 of 4" in svg


def test_a_program_without_passes_is_shown_with_its_question(visit):
    page = visit(explained(Program((), None, (), 0.0), ["a"], [["b"]], ["why"], [], "no answer"))
    assert page.locator(".fact dd").all_inner_texts() == ["why", "no answer"]
    assert page.locator(".asked").count() == 0


def test_the_evidence_is_about_passes(visit):
    finding = Finding("passes", "Leave out a pass", 0.5, 0.75, "the answer changes without 2 of 4 passes")
    page = visit(replace(norway(), belief=Belief("the program", 4, (finding,))))
    assert "Measured on the program (4 passes)." in page.locator(".belief").inner_text()


def test_two_answers_side_by_side_and_a_narrow_window(visit):
    page = visit(norway(), norway())
    assert page.locator(".asked table").count() == 2
    page.set_viewport_size({"width": 380, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(visit, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(norway(), bypass_csp=True, color_scheme="dark" if dark else "light")
    for step in range(4):
        page.locator(".program .step").nth(step).click()
        page.wait_for_timeout(250)
        found = axe.Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], step
