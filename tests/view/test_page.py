"""The page as text: whole, shut off from the network, exact enough, and safe whatever the tokens are."""

import base64
import copy
import hashlib
import html
import json
import re
import shutil
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

import sightline
from page_samples import HOSTILE, caption, hostile, largest, long, pooled, softmax, translation
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.records import Cells, Frames, Record, Slots, Tokens
from sightline.view.page import MODULES, _asset, fragment, joined, page, write_page
from task_samples import RUNS


class Elements(HTMLParser):
    """The tags of a document with their attributes, and what stands inside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.found, self.inside, self.open = [], {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.open = dict(attributes).get("id", tag) if tag in ("script", "style", "title") else None

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open:
            self.inside[self.open] = self.inside.get(self.open, "") + data


def read(text):
    """What the page's own reader would find: the description, and the blocks by name."""
    inside = {
        key: zlib.decompress(base64.b64decode(content))
        for key, content in Elements(text).inside.items()
        if key == "about" or key.startswith("block-")
    }
    return json.loads(inside["about"]), inside


def numbers(content, start, count, kind):
    """The numbers that are stored plane by plane, one by one and slowly: the reference for the script's reader."""
    size = np.dtype(kind).itemsize
    raw = bytes(content[start + plane * count + i] for i in range(count) for plane in range(size))
    return np.frombuffer(raw, dtype=np.dtype(kind).newbyteorder("<"))


def weights_of(about, blocks, explanation, place):
    one = about["explanations"][explanation]
    info = one["maps"][place]
    shape = one["axes"][info["rows"]]["size"], one["axes"][info["columns"]]["size"]
    width = info["top"] or shape[1]
    content = blocks[info["block"]]
    codes = numbers(content, 0, shape[0] * width, np.uint16).reshape(shape[0], width)
    values = info["low"] + codes * (info["span"] / about["steps"])
    if info["top"] is None:
        return values
    places = numbers(content, 2 * codes.size, codes.size, np.int32).reshape(codes.shape)
    full = np.zeros(shape)
    for row in range(shape[0]):
        for column, value in zip(places[row], values[row], strict=True):
            if column >= 0:
                full[row, column] = value
    return full


def test_weights_come_back():
    explanation = translation(layers=2, heads=2)
    about, blocks = read(page([explanation]))
    for place, record in enumerate(explanation.records):
        np.testing.assert_allclose(weights_of(about, blocks, 0, place), record.matrix(), atol=1e-5)


def test_the_largest_weights_alone_come_back():
    weights = softmax(np.random.default_rng(0).normal(size=(5, 40)) * 2)
    side = Slots(40), Slots(5)
    kept = largest(weights, 3)
    kept.places[2, 2] = -1  # a row with fewer
    record = Record("a", 0, 0, side[1], side[0], kept)
    about, blocks = read(page([Explanation("t", "x", "", "", (record,), ())]))
    np.testing.assert_allclose(weights_of(about, blocks, 0, 0), record.matrix(), atol=1e-5)
    assert about["explanations"][0]["stacks"] == [{"title": "a", "kind": "cross", "layers": [[0]]}]


def test_odd_weights_come_back():
    weights = np.array([[np.nan, 3.5, -0.5, 0.0]], dtype=np.float32)
    record = Record("a", 0, 0, Slots(1), Slots(4), weights)
    about, blocks = read(page([Explanation("t", "x", "", "", (record,), ())]))
    np.testing.assert_allclose(weights_of(about, blocks, 0, 0), [[0.0, 3.5, -0.5, 0.0]], atol=1e-4)


def test_many_weights_are_rounded_but_to_less_than_a_thousandth():
    explanation = long(300, layers=6, heads=8)
    text = page([explanation])
    about, blocks = read(text)
    assert about["steps"] == 4095
    np.testing.assert_allclose(weights_of(about, blocks, 0, 17), explanation.records[17].matrix(), atol=1.3e-4)


def test_scores_and_vectors_come_back():
    explanation = translation()
    about, blocks = read(page([explanation]))
    found = about["explanations"][0]["maps"][0]["calculation"]
    calculation, record = explanation.calculations[0], explanation.records[0]
    start = 0
    for truth in (calculation.values, calculation.queries, calculation.contexts, record.scores):
        numbers_here = numbers(blocks[found["block"]], start, truth.size, np.float32)
        np.testing.assert_array_equal(numbers_here.reshape(truth.shape), truth)
        start += truth.nbytes
    assert found["size"] == 64
    assert found["vectors"] == [16, 16]


def test_calculations_stay_within_their_room(monkeypatch):
    monkeypatch.setattr("sightline.view.page.packing.ROOM", 1000)
    about, _ = read(page([translation(layers=2, heads=2)]))
    left_out = [one["calculation"] and one["calculation"]["left_out"] for one in about["explanations"][0]["maps"]]
    assert left_out == [True, True, False, True, None]  # the first head of the last layer is the one that is kept


def test_every_text_comes_back():
    explanation = hostile()
    about, _ = read(page([explanation]))
    one = about["explanations"][0]
    assert tuple(one["axes"][0]["texts"]) == HOSTILE
    assert one["belief"]["findings"][0]["value"] is None  # JSON knows no NaN
    assert (one["title"], one["notes"], one["input"]) == (explanation.title, [*explanation.notes], explanation.input)


def test_hostile_text_adds_no_element():
    plain, attacked = (Elements(page([one])) for one in (translation(), hostile()))
    tags = [tag for tag, attributes in attacked.found if not attributes.get("id", "").startswith("block-")]
    assert tags == [tag for tag, attributes in plain.found if not attributes.get("id", "").startswith("block-")]
    assert attacked.inside["title"] == HOSTILE[0] + "\ufffd\ufffd"


@pytest.mark.parametrize("kind", ["classify-text", "tag", "grid"])
def test_hostile_labels_and_file_names_add_no_element(kind, tmp_path):
    """An image may lie anywhere: the page has its name, and neither its folder nor anything that runs."""
    run, item = sightline.load(RUNS / kind / "run"), "ga di gi"
    if run.input.reads_files:
        item = tmp_path / "private" / "<img src=x onerror=window.ran=1>.png"
        item.parent.mkdir()
        shutil.copy(next((RUNS / kind / "images").glob("*.png")), item)
    hostile = copy.copy(run.output)
    field = "facts" if kind == "grid" else "labels"
    names = getattr(hostile, field).names
    setattr(hostile, field, replace(getattr(hostile, field), names=tuple(f"{HOSTILE[0]} {name}" for name in names)))
    texts = [page([replace(run, output=one).explain(item, measure=False)]) for one in (run.output, hostile)]
    plain, attacked = (
        [tag for tag, about in Elements(text).found if not about.get("id", "").startswith("block-")] for text in texts
    )
    assert plain == attacked
    assert "img" not in attacked
    about = json.dumps(read(texts[1])[0])
    assert "onerror=window.ran=1" in about
    assert "private" not in about


def test_the_policy_names_the_script_and_the_style_and_nothing_else():
    elements = Elements(page([translation()]))
    policy = next(a["content"] for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(elements.inside[kind].encode()).digest()).decode()
        assert rules.pop(f"{kind}-src") == f"'sha256-{digest}'"
    assert rules.pop("img-src") == "data: blob:"
    assert set(rules.values()) == {"'none'"}
    assert "default-src" in rules


def test_nothing_is_asked_of_the_network():
    text = page([translation()])
    addresses = set(re.findall(r"https?://[^\s\"'<)]*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name that is never fetched
    assert not any("src" in attributes or "href" in attributes for _, attributes in Elements(text).found)


def test_the_scripts_set_text_and_never_markup():
    for module in MODULES:
        code = _asset(f"{module}.js")
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert forbidden not in code, f"{module}.js: {forbidden}"
        assert "</script" not in code
        assert "<!--" not in code
        assert len(code.splitlines()) <= 400


def test_the_modules_join_in_their_order(monkeypatch):
    assert not re.search(r"^(import|export) ", joined(), re.MULTILINE)
    monkeypatch.setattr("sightline.view.page.MODULES", ("dom", "axis", "text"))
    with pytest.raises(ValueError, match=r"axis\.js imports mergedText, rightToLeft, visible, which text\.js does not"):
        joined()


def test_every_module_is_listed():

    found = {
        entry.name.removesuffix(".js") for entry in files("sightline.view.page").iterdir() if entry.name.endswith(".js")
    }
    assert found == set(MODULES)


def test_the_page_says_attended_and_gives_no_reasons():
    text = "".join(_asset(f"{module}.js") for module in MODULES) + _asset("template.html")
    assert "attended to" in text
    assert "because of" not in text.lower()
    assert "trust" not in text.lower()


@pytest.mark.parametrize(
    "columns", [Frames(3, 0.02), Slots(3), Cells(("age", "</script>", "c"), 1), Tokens(("a", "b", "c"))]
)
def test_every_axis_is_described(columns):
    record = Record("a", 0, 0, Slots(1), columns, np.full((1, 3), 1 / 3, dtype=np.float32))
    about, _ = read(page([Explanation("t", "x", "", "", (record,), ())]))
    axis = about["explanations"][0]["axes"][1]
    assert (axis["kind"], axis["size"]) == (type(columns).__name__, 3)


def test_axes_that_are_the_same_are_kept_once():
    about, _ = read(page([translation(layers=3, heads=4)]))
    assert len(about["explanations"][0]["axes"]) == 2


def test_several_stand_on_one_page():
    about, blocks = read(page([translation(0, title="one"), pooled(), caption()]))
    assert about["title"] == "one · reviews · captions"
    assert weights_of(about, blocks, 1, 0).shape == (1, 23)
    assert weights_of(about, blocks, 2, 0).shape == (4, 63)


def test_nothing_is_not_a_page():
    with pytest.raises(UserError, match="nothing to show"):
        page([])


def test_a_page_is_written_whole(tmp_path):
    path = write_page([translation(), hostile()], tmp_path / "folder" / "page.html")
    assert path.read_text(encoding="utf-8") == page([translation(), hostile()])
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]


def test_a_title_can_be_given():
    elements = Elements(page([translation()], title="<mine> {{script}}"))
    assert elements.inside["title"] == "<mine> {{script}}"


def test_a_fragment_is_one_frame_that_holds_the_page():
    text = fragment(hostile())
    elements = Elements(text)
    assert [tag for tag, _ in elements.found] == ["iframe"]
    (_, attributes) = elements.found[0]
    assert attributes["srcdoc"] == page([hostile()])
    assert attributes["sandbox"] == "allow-scripts allow-downloads"
    assert html.unescape(text).count("<iframe") == 1
