"""The front end in a real browser: type, see the prediction, other outputs, the map and the panel; errors in words."""

import shutil
import time

import pytest

from chromium import cell_of, tip
from copiers import SOURCE, copier
from served_pages import Served, answered, look, open_page, problem, runs  # noqa: F401 - pytest finds the fixtures here
from server_samples import FIXTURES, Gate
from sightline.cli.serve import named
from sightline.serve import Limits

pytestmark = pytest.mark.unchecked_shapes

TOKEN = "s3cret"


@pytest.fixture(scope="module")
def served(runs):
    made = Served(runs, limits=Limits(characters=60, seconds=5.0))
    yield made
    made.stop()


def test_type_and_see(served, open_page, runs):
    page = open_page(served.address)
    look(page, "abcd")
    answered(page)
    expected = runs["frozen"].explain("abcd", measure=False)
    facts = page.locator(".fact dd").all_inner_texts()
    assert facts == ["abcd", expected.output]
    page.click("text=Other outputs (3)")
    others = page.locator(".others bdi").all_inner_texts()
    assert others == [one.text for one in expected.alternatives]
    truth = expected.of(expected.stacks[0].names[-1])[0].matrix()
    page.mouse.move(*cell_of(page, 1, 2))
    assert abs(tip(page)[1] - truth[1, 2]) < 1e-3
    assert "Nothing was measured" in page.locator(".belief").inner_text()
    page.get_by_label("Believe it? Measure the evidence too").check()
    page.get_by_role("button", name="Explain").click()
    page.wait_for_selector(".belief .finding")
    panel = page.locator(".belief").inner_text()
    measured = runs["frozen"].explain("abcd")
    for finding in measured.belief.findings:
        assert finding.sentence in panel


def test_copied_words_are_marked(open_page):
    run = copier("transformer")
    made = Served({"copier": run})
    try:
        page = open_page(made.address)
        look(page, SOURCE)
        answered(page)
        steps = run.explain(SOURCE, measure=False).steps
        page.click("#tab-replay")
        page.wait_for_selector(".step .how")
        marks = page.locator(".step .how").all_inner_texts()
    finally:
        made.stop()
    assert marks == ["copied" if step.copied.from_source else "written" for step in steps]


def test_two_runs_are_compared(served, open_page, runs):
    page = open_page(served.address, color_scheme="dark")
    page.wait_for_selector("html[data-open]")
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "light"
    page.get_by_label("Compare with").select_option("transformer")
    look(page, "the dog")
    answered(page)
    assert page.locator(".pane").count() == 2
    assert page.locator(".map").count() == 2
    outputs = [page.locator(".fact dd").nth(place).inner_text() for place in (1, 3)]
    expected = [runs[name].predict(["the dog"])[0].text for name in ("frozen", "transformer")]
    assert [text.split() for text in outputs] == [clean(text).split() for text in expected]
    page.get_by_label("Compare with").select_option("blind")  # one of them cannot be explained: the other still is
    look(page, "a cat")
    answered(page)
    assert page.locator(".map").count() == 1
    assert "blind has no attention" in page.locator(".notes").inner_text()


def clean(text):
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def test_errors_are_shown_kindly(served, open_page, runs, monkeypatch):
    page = open_page(served.address)
    look(page, "a" * 61)
    assert "61 of 60 characters" in page.locator(".count").inner_text()
    assert "too long: it has 61 characters, and this server takes 60" in problem(page)
    page.route("**/predict", lambda route: route.fulfill(status=422, body='{"error": "texts[0]: no such letter"}'))
    look(page, "abc")
    page.wait_for_selector("text=It says: texts[0]: no such letter.")
    page.unroute("**/predict")
    look(page, "ab")
    answered(page)
    assert page.locator("#problem").inner_text() == ""
    page.route("**/predict", lambda route: route.fulfill(status=503, body='{"error": "20 requests wait already"}'))
    look(page, "abc")
    assert "busy" in problem(page)
    page.unroute("**/predict")
    page.route("**/explain", lambda route: route.abort())
    look(page, "abcde")
    assert "does not answer" in problem(page)
    assert page.locator(".fact dd").all_inner_texts() == ["abcde", runs["frozen"].predict(["abcde"])[0].text]
    page.unroute("**/explain")
    gate = Gate(runs["frozen"], monkeypatch)
    look(page, "abc")
    page.wait_for_selector("text=Predicting…")
    assert gate.inside.wait(20)
    look(page, "hgfe")  # who asks again does not wait for what was asked before
    time.sleep(0.1)
    gate.opened.set()
    page.wait_for_selector(".fact dd:text-is('efgh')")
    answered(page)


ASKED = {
    "tag": {"Text": "Anna sees Bonn"},
    "span": {"Question": "where is it", "Text": "it is in the old house"},
    "pretrain": {"Text": "the <mask> dog sleeps"},
}


def test_every_kind_of_text_is_asked_for_and_shown(open_page, tmp_path):
    for kind in ASKED:
        shutil.copytree(FIXTURES / "runs" / kind / "run", tmp_path / kind)
    runs = named([tmp_path / kind for kind in ASKED])
    served = Served(runs)
    try:
        page = open_page(served.address)
        page.wait_for_selector("html[data-open]")
        for kind, texts in ASKED.items():
            page.get_by_label("Run", exact=True).select_option(kind)
            assert page.get_by_label("Beam").is_hidden()
            assert page.get_by_label("Question", exact=True).count() == (kind == "span")
            for label, text in texts.items():
                page.get_by_label(label, exact=True).fill(text)
            page.evaluate("() => document.documentElement.removeAttribute('data-answered')")
            page.get_by_role("button", name="Explain").click()
            answered(page)
            asked = tuple(texts.values())
            expected = runs[kind].explain(asked if len(asked) > 1 else asked[0], measure=False)
            assert page.locator(".fact dd").all_inner_texts()[-1] == expected.output
            assert page.locator(".fact dt").last.inner_text() == ("Answer" if kind == "span" else "Output")
            assert page.get_by_text("Table of the weights").count() == 1
            chosen = page.get_by_label("Attention", exact=True)
            if chosen.count():  # what was chosen for the run before is nothing that this one has
                assert chosen.evaluate("(select) => select.selectedIndex") >= 0
    finally:
        served.stop()


def test_a_token_is_asked_for(runs, open_page):
    guarded = Served(runs, token=TOKEN)
    try:
        page = open_page(guarded.address)
        assert "requires a token" in problem(page)
        page.get_by_label("Token").fill("other")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=has another token")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("html[data-open]")
        look(page, "ab")
        answered(page)
        page.goto(guarded.address + "/docs")
        page.wait_for_selector("html[data-ready]")
    finally:
        guarded.stop()


def test_the_documentation_can_be_tried(served, open_page):
    page = open_page(served.address, "/docs")
    page.wait_for_selector("html[data-ready]")
    assert page.locator(".address h2").all_inner_texts() == ["POST\n/predict", "POST\n/explain", "GET\n/health"]
    assert "at most 60 characters" in page.locator(".address").first.inner_text()
    page.get_by_role("button", name="Try GET /health").click()
    page.wait_for_selector(".address:nth-child(3) pre:visible")
    assert '"ready": true' in page.locator(".address:nth-child(3) pre").inner_text()
    page.get_by_label("Body", exact=True).first.fill('{"texts": ["abc"]}')
    page.get_by_role("button", name="Try POST /predict").click()
    page.wait_for_selector(".address:nth-child(1) pre:visible")
    assert '"cba"' in page.locator(".address:nth-child(1) pre").inner_text()


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_axe_finds_nothing_serious(served, open_page, path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(served.address, path, bypass_csp=True)
    if path == "/":
        look(page, "abcd")
        answered(page)
    else:
        page.wait_for_selector("html[data-ready]")
    found = axe.Axe().run(page)
    serious = [one["id"] for one in found.response["violations"] if one["impact"] in ("serious", "critical")]
    assert serious == []
