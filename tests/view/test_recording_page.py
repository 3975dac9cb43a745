"""Recordings on the page, in a real browser: they play, a cursor runs, and a word plays what it attended to."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from chromium import download, png_size, tab, tip
from recordings import PEAKS, SECONDS, heard, labelled, watched

pytestmark = pytest.mark.unchecked_shapes

# What is given to the sound card (when, from which second, how many seconds), and where the cursor goes.
LISTEN = """() => {
  const start = AudioBufferSourceNode.prototype.start;
  window.started = [];
  AudioBufferSourceNode.prototype.start = function (...given) {
    window.started.push([...given, this.buffer.duration]);
    return start.apply(this, given);
  };
  const map = document.querySelector(".heard-map");
  window.moves = [];
  const note = () => window.moves.push([Number(map.dataset.at), parseFloat(map.querySelector(".cursor").style.left)]);
  new MutationObserver(note).observe(map, { attributes: true, attributeFilter: ["data-at"] });
}"""


def cursor(page):
    """Where the cursor is, in seconds by its own account, and in pixels of the window."""
    box = page.locator(".cursor").bounding_box()
    return float(page.locator(".heard-map").get_attribute("data-at")), box["x"] + box["width"] / 2


def ended(page, at):
    page.wait_for_selector(f".heard-map[data-at='{at:.3f}']", state="attached")
    page.wait_for_selector(".player button:text-is('Play')")


def test_it_plays_and_a_cursor_runs_through_the_map(visit):
    page = visit(heard())
    page.evaluate(LISTEN)
    page.get_by_role("button", name="Play").click()
    ended(page, SECONDS)
    times, places = zip(*page.evaluate("window.moves"), strict=True)
    assert any(0 < at < SECONDS for at in times)  # it advances
    assert sorted(times) == list(times)
    assert sorted(places) == list(places)
    end = cursor(page)
    assert page.locator(".player .value").inner_text() == "1.50 / 1.50 s"
    assert page.evaluate("window.started") == [[0, 0, SECONDS, SECONDS]]
    slider = page.get_by_label("Position in the recording")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(".heard-map").get_attribute("data-at") == "0.010"
    slider.fill("0.75")
    middle = cursor(page)
    assert middle[0] == 0.75
    # the cursor is where the time is, and the map is below it: what is pointed at there is of this time
    canvas = page.locator(".heard-map canvas").bounding_box()
    left = 2 * middle[1] - end[1]
    for row, peak in enumerate(PEAKS):
        across = left + (end[1] - left) * (peak + 0.5) * 0.04 / SECONDS
        page.mouse.move(across, canvas["y"] + 110 + 6 + 22 * (row + 0.5))
        text, weight = tip(page)
        assert weight == pytest.approx(float(heard().records[0].weights[row].max()), abs=1e-3)
        assert abs(float(re.search(r"(\d\.\d+) s", text)[1]) - (peak + 0.5) * 0.04) < 0.011


def test_a_word_plays_what_it_attended_to(visit):
    page = visit(heard())
    page.evaluate(LISTEN)
    for row in (2, 0):
        page.locator(".written button").nth(row).click()
        stretch = [
            (PEAKS[row] - 2) * 0.04,
            (PEAKS[row] + 3) * 0.04,
        ]  # three columns, and one beside each
        ended(page, stretch[1])
        when, start, seconds, _ = page.evaluate("window.started.at(-1)")
        assert [when, start, start + seconds] == pytest.approx([0, *stretch])
    page.keyboard.press("ArrowRight")  # by keys alone
    assert page.locator(".written [aria-current]").inner_text() == "two"
    assert "Most of it: 0.44 s to 0.56 s." in page.locator(".heard .sentence").inner_text()
    page.keyboard.press("Enter")
    ended(page, 0.6)
    assert page.evaluate("window.started.at(-1)[1]") == pytest.approx(0.4)
    assert "shortest stretch that holds 90 % of its attention" in page.locator(".heard .hint").inner_text()


def test_it_is_saved_replayed_and_compared(visit):
    page = visit(heard(), accept_downloads=True)
    drawing = ElementTree.fromstring(download(page, "#svg")[1])
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"one", "two", "three", "0.0 s", "1.4"} <= set(texts)
    assert len([*drawing.iter("{http://www.w3.org/2000/svg}image")]) >= 1
    assert png_size(download(page, "#png")[1])[0] > 800
    tab(page, "replay")
    assert page.locator(".replay .over canvas").bounding_box()["height"] > 100
    for view in ("heads", "lines", "alignment"):
        tab(page, view)


def test_clips_and_labels_and_axe_finds_nothing_serious(visit):
    page = visit(labelled(), watched(), bypass_csp=True)
    label, clip = (page.locator(".pane").nth(number) for number in range(2))
    assert label.locator(".written button").all_inner_texts() == ["two"]
    assert label.locator(".fact dt").first.inner_text() == "Recording"
    clip.locator(".written button").nth(1).click()
    page.wait_for_selector(".heard-map[data-at='0.600']", state="attached")  # without sound the frames run
    assert clip.locator(".strip .number").all_inner_texts() == ["0.46 s: 0.27", "0.50 s: 0.43", "0.54 s: 0.27"]
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for _ in range(2):  # in light and in dark colours
        found = axe.Axe().run(page)
        assert [one["id"] for one in found.response["violations"] if one["impact"] in ("serious", "critical")] == []
        page.click("#theme")
        page.wait_for_selector("html[data-settled]")
