"""The page at its largest: 512 tokens, 6 layers, 8 heads. How large it is, how soon it can be used, and BertViz beside.

    python benchmarks/page.py --write
    python benchmarks/page.py --bertviz FOLDER --scripts FOLDER --write

Needs Chromium and Playwright. BertViz is measured where FOLDER holds its package (and IPython); its page loads scripts
from the web, which are taken from the other folder instead, as require.js, d3.js and jquery.js: nothing waits for a
network. A page can be used when it has drawn its words and what stands between them.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from report import machine, write_section
from sightline.explain.explanation import Explanation, Stack
from sightline.records import Record, Tokens
from sightline.view.page import write_page

SIZE, LAYERS, HEADS, REPEATS = 512, 6, 8, 5
PATIENCE = 60  # seconds
NEVER = f"not within {PATIENCE} s"
WORDS = (
    "time",
    "river",
    "stone",
    "walk",
    "green",
    "house",
    "paper",
    "light",
    "under",
    "water",
    "story",
    "number",
    "open",
)


def attention() -> tuple[list[str], np.ndarray]:
    """Words, and weights such as trained heads have: some look near, some anywhere; deeper layers are sharper."""
    rng = np.random.default_rng(0)
    words = [WORDS[i] for i in rng.integers(len(WORDS), size=SIZE)]
    near = -np.abs(np.arange(SIZE)[:, None] - np.arange(SIZE)[None]) / 40.0
    sharpness = 0.6 + 0.25 * np.arange(LAYERS)[:, None, None, None]
    scores = rng.normal(size=(LAYERS, HEADS, SIZE, SIZE)) * sharpness + near * (np.arange(HEADS) % 3)[:, None, None]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return words, (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def our_page(path: Path, words: list[str], weights: np.ndarray) -> None:
    side = Tokens(tuple(words))
    names = tuple(f"encoder.{layer}" for layer in range(LAYERS))
    records = tuple(
        Record(name, layer, head, side, side, weights[layer, head])
        for layer, name in enumerate(names)
        for head in range(HEADS)
    )
    stack = Stack("Inside the text", "self", names)
    write_page([Explanation("a long text", "classify", " ".join(words), "", records, (stack,))], path)


def bertviz_page(path: Path, words: list[str], weights: np.ndarray, package: Path) -> None:
    sys.path.insert(0, str(package))
    import torch
    from bertviz import head_view  # type: ignore[import-not-found]

    layers = [torch.from_numpy(layer).unsqueeze(0) for layer in weights]
    # Words that repeat would be one and the same to it.
    html = head_view(layers, [f"{word}{place}" for place, word in enumerate(words)], html_action="return")
    path.write_text(f"<!doctype html><meta charset=utf-8>{html.data}", encoding="utf-8")


OURS_READY = "() => document.documentElement.hasAttribute('data-ready')"
BERTVIZ_READY = f"() => document.querySelectorAll('svg text').length >= {2 * SIZE}"


def milliseconds(path: Path, ready: str, scripts: Path | None) -> list[float]:
    """From asking for the page until it can be used, in a fresh browser window each time."""
    from playwright.sync_api import Route, sync_playwright
    from playwright.sync_api import TimeoutError as Late

    def answer(route: Route) -> None:
        url = route.request.url
        if url.startswith("file:"):
            route.continue_()
            return
        name = next((name for name in ("require", "d3", "jquery") if name in url), None)
        if scripts is None or name is None:
            route.abort()
        else:
            route.fulfill(path=scripts / f"{name}.js", content_type="text/javascript")

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(REPEATS):
            window = browser.new_context(viewport={"width": 1280, "height": 900})
            page = window.new_page()
            page.set_default_timeout(1000 * PATIENCE)
            page.route("**/*", answer)
            begun = time.perf_counter()
            try:
                page.goto(path.as_uri())
                page.wait_for_function(ready)
            except Late:
                return []  # the window may not even close
            found.append(1000 * (time.perf_counter() - begun))
            window.close()
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bertviz", type=Path, help="a folder with its package and IPython")
    parser.add_argument("--scripts", type=Path, help="a folder with require.js, d3.js and jquery.js")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    options = parser.parse_args()
    words, weights = attention()
    makers: dict[str, tuple[Callable[..., None], tuple[Any, ...], str]] = {"Sightline": (our_page, (), OURS_READY)}
    if options.bertviz:
        makers["BertViz, head view"] = (bertviz_page, (options.bertviz,), BERTVIZ_READY)
    rows = ["| page | size | usable after (median) | slowest |", "|---|--:|--:|--:|"]
    with tempfile.TemporaryDirectory() as name:
        for tool, (make, more, ready) in makers.items():
            path = Path(name) / f"{tool.split(',')[0]}.html"
            make(path, words, weights, *more)
            times = milliseconds(path, ready, options.scripts)
            size = f"{path.stat().st_size / 1e6:.1f} MB"
            shown = [f"{statistics.median(times) / 1000:.2f} s", f"{max(times) / 1000:.2f} s"] if times else [NEVER] * 2
            rows.append(f"| {tool} | {size} | {' | '.join(shown)} |")
            print(rows[-1], flush=True)
    if options.write:
        body = f"## The page at {SIZE} tokens, {LAYERS} layers, {HEADS} heads\n\nMeasured on {machine()}, Chromium. "
        body += "BertViz loads its scripts from the web; here they were read from the disk.\n\n" + "\n".join(rows)
        body += "\n\nReproduce: `python benchmarks/page.py --write`; with BertViz, see the script."
        write_section("page", body)


if __name__ == "__main__":
    main()
