"""What `test_serve_browser` and other tests share."""

import asyncio
import threading

import pytest

from server_samples import some_runs
from sightline.serve import application
from sightline.serve.server import Server, bind


class Served:
    """A server in a thread of this process, whose runs a test can reach."""

    def __init__(self, runs, **options):
        self.listening = bind("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        started = threading.Event()
        self.server = Server(application(runs, **options), started.set)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self.listening])))
        self.thread.start()
        assert started.wait(20)

    def stop(self):
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(20)
        self.listening.close()


@pytest.fixture(scope="module")
def runs():
    return some_runs()


@pytest.fixture
def open_page(browser):
    """Open an address. Anything that is asked of another origin, and any error of the script, fails the test."""
    asked, wrong, contexts = [], [], []

    def go(address, path="/", **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on(
            "request", lambda one: None if one.url.startswith((address, "data:", "blob:")) else asked.append(one.url)
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        page.goto(address + path)
        return page

    yield go
    for context in contexts:
        context.close()
    assert asked == []
    assert wrong == []


def look(page, text):
    page.get_by_label("Text", exact=True).fill(text)
    page.keyboard.press("Control+Enter")


def answered(page):
    page.wait_for_selector("html[data-answered][data-settled]")


def problem(page):
    page.wait_for_selector("#problem .problem")
    return page.locator("#problem").inner_text()
