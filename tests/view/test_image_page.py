"""Images on the page, in a real browser: words and cells are chosen, and the map lies over the image."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from chromium import download, png_size, tab, tip
from image_samples import GRID, PEAKS, WORDS, captioned, classified, labelled
from sightline.picture import Picture

pytestmark = pytest.mark.unchecked_shapes

LOOKED = ".captioned .sight canvas"
# the mean light in each place of the image, as it is on the screen
LIGHT = """(canvas) => {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const { data } = context.getImageData(0, 0, width, height);
  const [sums, counts] = [new Array(24).fill(0), new Array(24).fill(0)];
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) {
    const place = Math.floor((y * 4) / height) * 6 + Math.floor((x * 6) / width);
    sums[place] += data[(y * width + x) * 4];
    counts[place] += 1;
  }
  return sums.map((sum, place) => sum / counts[place]);
}"""


def light(page):
    return np.array(page.locator(LOOKED).evaluate(LIGHT))


def said(page, part):
    return re.sub("[\u2068\u2069]", "", page.locator(f"{part} .sentence").inner_text())


def middle(page, place):
    """Where a place of the image is in the window."""
    box = page.locator(LOOKED).bounding_box()
    row, column = divmod(place, GRID.width)
    across, down = (column + 0.5) * box["width"] / GRID.width, (row + 0.5) * box["height"] / GRID.height
    return box["x"] + across, box["y"] + down


def test_a_word_lights_what_it_looked_at(visit):
    grey = Picture.of(np.full((120, 180, 3), 200, dtype=np.uint8), "grey.png")  # what is uneven is the map's
    explanation = replace(captioned(), image=grey)
    weights = explanation.records[0].weights
    page = visit(explanation, accept_downloads=True)
    assert page.locator(".written button").all_inner_texts() == list(WORDS)
    for row in (1, 3):
        page.locator(".written button").nth(row).hover()
        assert page.locator(".written [aria-current]").inner_text() == WORDS[row]
        assert int(light(page).argmax()) == PEAKS[row]
        place = f"row {PEAKS[row] // GRID.width + 1}, column {PEAKS[row] % GRID.width + 1}"
        assert said(page, ".captioned").startswith(f"‘{WORDS[row]}’ attended to ‘{place}’ {weights[row].max():.2f}")
    page.locator(".written [aria-current]").focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "End", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.textContent") == WORDS[2]
    assert page.locator(".written [aria-current]").inner_text() == WORDS[2]
    page.mouse.move(*middle(page, PEAKS[2]))
    text, number = tip(page)
    assert text.startswith("row 3, column 2")
    assert abs(number - weights[2].max()) < 1e-3
    _, content = download(page, "#svg")
    drawing = ElementTree.fromstring(content)
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in WORDS] == list(WORDS)
    images = [image.get("href") for image in drawing.iter("{http://www.w3.org/2000/svg}image")]
    assert len(images) == len(WORDS)
    assert len(set(images)) == len(WORDS)
    assert all(image.startswith("data:image/jpeg;base64,") for image in images)
    tab(page, "heads")
    page.wait_for_selector(".thumb[data-drawn]")
    for row in (1, 3):
        page.locator(".written button").nth(row).click()
        lit = np.array(page.locator(".thumb canvas").evaluate(LIGHT))
        assert int(lit.argmax()) == PEAKS[row]
    tab(page, "replay")
    assert page.locator(".replay .over canvas").is_visible()
    assert "Its probability was" in said(page, ".replay")
    tab(page, "alignment")
    page.get_by_label("Image without the map").check()
    page.wait_for_selector("html[data-settled]")
    assert np.ptp(light(page)) < 1


def test_outside_of_what_was_seen_there_is_no_weight(visit):
    attack = "</script><img src=x onerror=window.ran=1>"
    page = visit(captioned((attack, "</s>"), name=attack, fit="crop", shape=(64, 64)))
    page.mouse.move(*middle(page, 6))
    assert page.locator("#tip").inner_text() == "outside of what the model saw"
    page.mouse.move(*middle(page, 8))
    assert tip(page)[0].startswith("row ")
    assert page.evaluate("[window.ran, document.images.length]") == [None, 0]
    assert attack[:20] in page.locator(LOOKED).get_attribute("aria-label")


def test_cells_have_labels_and_show_where_they_looked(visit):
    explanation = labelled()
    page = visit(explanation)
    page.wait_for_selector(".counts li")
    page.focus(".labelled canvas")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    share = explanation.cells.probabilities[1, 2]
    assert said(page, ".labelled") == f"Row 2, column 3: crack, probability {share:.2f}."
    assert said(page, ".captioned").startswith("‘row 2, column 3’ attended to")
    assert f"{explanation.records[0].weights[8].max():.2f}" in said(page, ".captioned")
    page.focus(LOOKED)  # the image itself can be asked too
    page.keyboard.press("End")
    assert said(page, ".captioned").startswith("‘row 2, column 6’")
    page.mouse.click(*middle(page, 20))
    assert said(page, ".captioned").startswith("‘row 4, column 3’")


def test_cells_without_an_image_and_a_broken_image(visit):
    one = captioned()
    cut = replace(one, image=replace(one.image, content=one.image.content[:60]))
    page = visit(labelled(maps=False, image=False), cut, accept_downloads=True)
    page.wait_for_selector(".counts li")
    assert "20 none, 3 crack, 1 pothole" in page.locator(".labelled canvas").get_attribute("aria-label")
    page.wait_for_selector("html[data-settled] .map")  # the map of the words, without the image
    assert png_size(download(page, "#png")[1])[0] > 800


def test_a_label_has_its_evidence_and_axe_finds_nothing_serious(visit):
    page = visit(classified(), captioned(), labelled(), bypass_csp=True)
    page.wait_for_selector(".counts li")
    first = page.locator(".pane").first
    assert first.locator(".labels li").first.inner_text().split() == ["circle", "83.0", "%"]
    assert first.locator(".fact dd").all_inner_texts() == ["shapes.png", "circle"]
    assert first.locator(".passages, .written").count() == 0
    assert first.locator(LOOKED).is_visible()
    counts = [text.split() for text in page.locator(".counts li").all_inner_texts()]
    assert counts == [["none", "20"], ["crack", "3"], ["pothole", "1"]]
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for _ in range(2):  # in light and in dark colours
        found = axe.Axe().run(page)
        assert [one["id"] for one in found.response["violations"] if one["impact"] in ("serious", "critical")] == []
        page.click("#theme")
        page.wait_for_selector("html[data-settled]")
