"""A real browser for the tests of the page, and the ways in which a person uses it.

Where Chromium or Playwright is missing, tests are left out and the session says how many; with
SIGHTLINE_BROWSER=required that is a failure.
"""

import io
import os
import re
import shutil
import struct
import zlib

import pytest

from sightline.view.page import write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REQUIRED = os.environ.get("SIGHTLINE_BROWSER") == "required"
LEFT_OUT = "browser test left out: "
NUMBER = re.compile(r"\d\.\d+$")


def missing():
    """Why no browser can be used here, or nothing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed"
    return None if CHROMIUM else "Chromium is not installed"


@pytest.fixture(scope="session")
def browser():
    reason = missing()
    if reason and REQUIRED:
        pytest.fail(f"{reason}, and SIGHTLINE_BROWSER=required")
    if reason:
        pytest.skip(LEFT_OUT + reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # a microphone that beeps, and nobody who has to allow it
        fake = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *fake], timeout=180_000)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Open explanations as a file. Whatever the page asks for, or any error, fails the test."""
    asked, wrong, contexts = [], [], []

    def go(*explanations, **options):
        path = write_page(explanations, tmp_path / "page.html")
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()

        def judge(route):
            if route.request.url == path.as_uri() or route.request.url.startswith(("data:", "blob:")):
                return route.continue_()
            asked.append(route.request.url)
            return route.abort()

        page.route("**/*", judge)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert asked == []
    assert wrong == []


def cell_of(page, row, column):
    """The middle of a cell in the window, found from outside: by the frame of the map and by where the tip appears."""
    page.locator(".map").scroll_into_view_if_needed()
    whole = page.locator(".map .spacer").bounding_box()
    size = float(page.locator(".zoom .value").inner_text().removesuffix(" px"))
    rows = int(re.search(r"(\d+) rows?", page.locator(".map").get_attribute("aria-label"))[1])
    top = whole["y"] + whole["height"] - 8 - rows * size
    without, within = whole["x"], whole["x"] + 220
    while within - without > 1:  # where labels end and cells begin
        middle = (without + within) / 2
        page.mouse.move(middle, top + size / 2)
        if page.locator("#tip").is_visible():
            within = middle
        else:
            without = middle
    return within + (column + 0.5) * size, top + (row + 0.5) * size


def tip(page):
    text = page.locator("#tip").inner_text()
    return text, float(NUMBER.search(text)[0])


def tab(page, view):
    page.click(f"#tab-{view}")
    page.wait_for_selector(f"html[data-settled] #tab-{view}[aria-selected=true]")


def choose(page, label, option):
    page.get_by_label(label, exact=True).select_option(label=option)
    page.wait_for_selector("html[data-settled]")


def download(page, button):
    with page.expect_download() as waiting:
        page.click(button)
    return waiting.value.suggested_filename, waiting.value.path().read_bytes()


def grave_problems(page):
    """What axe finds on a page that is serious or critical: the rule and the element."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        if REQUIRED:
            pytest.fail("axe-playwright-python is not installed, and SIGHTLINE_BROWSER=required")
        pytest.skip(f"{LEFT_OUT}axe-playwright-python is not installed")
    problems = Axe().run(page).response["violations"]
    grave = [one for one in problems if one["impact"] in ("serious", "critical")]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in grave]


def png_size(content):
    """The size of a PNG, and that its pixels unpack and are not all alike."""
    stream = io.BytesIO(content)
    assert stream.read(8) == b"\x89PNG\r\n\x1a\n"
    pixels = b""
    while True:
        length, kind = struct.unpack(">I4s", stream.read(8))
        data = stream.read(length)
        stream.read(4)
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[:8])
        pixels += data if kind == b"IDAT" else b""
        if kind == b"IEND":
            break
    assert len(set(zlib.decompress(pixels))) > 20
    return width, height


def pytest_terminal_summary(terminalreporter):
    """How many tests there was no browser for. `conftest` imports this: every session says it."""
    left_out = [report for report in terminalreporter.getreports("skipped") if LEFT_OUT in str(report.longrepr)]
    if left_out:
        terminalreporter.write_line(f"{len(left_out)} browser tests were left out: install Chromium and Playwright")
