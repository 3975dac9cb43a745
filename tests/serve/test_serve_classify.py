"""A server of runs that classify: labels with their probabilities, and the words that were looked at."""

import json
import zlib
from base64 import b64decode

import pytest

from alike import assert_alike
from labelling import ATTENTIVE, CHINESE, HAN, TEXT, made
from served_pages import Served, answered, look, open_page  # noqa: F401 - pytest finds the fixture here
from server_samples import client_of, refused, some_runs
from sightline.serve import Limits

pytestmark = pytest.mark.unchecked_shapes

LIMITS = Limits(measured=40)


@pytest.fixture(scope="module")
def runs():
    from dataclasses import replace

    return {
        "reviews": made(HAN, name="reviews"),
        "pairs": made(replace(ATTENTIVE, pairs=True), pairs=True, name="pairs"),
        "topics": made(kind="several", name="topics"),
        "stars": made(kind="number", name="stars"),
        "frozen": some_runs()["frozen"],
    }


@pytest.fixture(scope="module")
def client(runs):
    with client_of(runs, limits=LIMITS) as client:
        yield client


def test_labels_are_those_of_predict(client, runs):
    texts = [TEXT, CHINESE, ""]
    found = client.post("/predict", json={"texts": texts}).json()
    assert found["run"] == "reviews"
    expected = [one._asdict() for one in runs["reviews"].predict(texts)]
    assert_alike(found["predictions"], expected)
    assert list(found["predictions"][0]) == ["label", "probability", "probabilities"]


def test_several_labels_numbers_and_pairs(client, runs):
    several = client.post("/predict", json={"texts": [TEXT], "run": "topics"}).json()["predictions"][0]
    expected = runs["topics"].predict([TEXT])[0]
    assert several["label"] == list(expected.label)
    number = client.post("/predict", json={"texts": [TEXT], "run": "stars"}).json()["predictions"][0]
    assert number["label"] == pytest.approx(runs["stars"].predict([TEXT])[0].label, rel=1e-5)
    assert number["probabilities"] is None
    pair = client.post("/predict", json={"texts": [TEXT], "texts2": ["the film"], "run": "pairs"}).json()
    assert_alike(pair["predictions"], [runs["pairs"].predict([(TEXT, "the film")])[0]._asdict()])


def test_text_to_text_beside_them(client, runs):
    found = client.post("/predict", json={"texts": ["abc"], "run": "frozen"}).json()["predictions"]
    assert found[0][0]["text"] == runs["frozen"].predict(["abc"])[0].text


def test_what_does_not_fit_is_refused(client):
    refused(client.post("/predict", json={"texts": ["a"], "beam": 2}), 422, "a run of classify", "beam")
    refused(client.post("/predict", json={"texts": ["a"], "run": "pairs"}), 422, "two texts", "texts2 none")
    asked = {"texts": ["a", "b"], "texts2": ["c"], "run": "pairs"}
    refused(client.post("/predict", json=asked), 422, "texts has 2, texts2 1")
    for run in ("reviews", "frozen"):
        refused(client.post("/predict", json={"texts": ["a"], "texts2": ["b"], "run": run}), 422, "texts2")
        refused(client.post("/explain", json={"text": "a", "text2": "b", "run": run}), 422, "one text")
    refused(client.post("/explain", json={"text": "a", "run": "pairs"}), 422, "give text2")
    refused(client.post("/explain", json={"text": "a", "shift": 1}), 422, "shift")
    refused(client.post("/explain", json={"text": "a", "output": "odd"}), 422, "has no label 'odd'")


@pytest.mark.parametrize("measure", [False, True])
def test_an_explanation_is_the_librarys_own(client, runs, measure):
    found = client.post("/explain", json={"text": TEXT, "measure": measure}).json()
    expected = runs["reviews"].explain(TEXT, measure=measure)
    assert_alike(found, json.loads(json.dumps(expected.to_json())))
    assert found["highlights"]["words"][0]["text"] == "The"
    pair = client.post("/explain", json={"text": TEXT, "text2": "the film", "run": "pairs"}).json()
    assert pair["highlights"]["texts"] == [TEXT, "the film"]


def test_an_explanation_packed_for_the_page(client, runs):
    found = client.post("/explain", json={"text": CHINESE, "form": "page"}).json()
    about = json.loads(zlib.decompress(b64decode(found["about"])))
    (marks,) = (one["highlights"] for one in about["explanations"])
    pieces = [piece for one in marks["passages"] for piece in one["pieces"]]
    assert "".join(piece[0] for piece in pieces) == CHINESE
    expected = runs["reviews"].explain(CHINESE, measure=False).highlights
    assert [piece[1] for piece in pieces] == pytest.approx([one.weight for one in expected.words], rel=1e-4)


def test_health_says_what_runs_do(client):
    found = {one["name"]: one for one in client.get("/health").json()["runs"]}
    assert (found["reviews"]["task"], found["reviews"]["pairs"], found["reviews"]["model"]) == (
        "classify",
        False,
        "HAN",
    )
    assert found["pairs"]["pairs"] is True
    assert found["reviews"]["labels"] == ["bad", "fair", "good"]
    assert list(found["frozen"])[:4] == ["name", "model", "parameters", "task"]
    frozen = found["frozen"]
    assert (frozen["task"], frozen["searches"], frozen["pairs"], frozen["labels"]) == ("translate", True, False, [])


def test_a_server_without_them_is_as_it_was(runs):
    with client_of({"frozen": runs["frozen"]}) as client:
        refused(client.post("/predict", json={"texts": ["a"], "texts2": ["b"]}), 422, "texts2")
        described = json.dumps(client.get("/openapi.json").json())
        assert "Labelled" not in described
        assert "text2" not in described


def test_the_page_shows_label_and_highlights(runs, open_page):
    served = Served(runs, limits=LIMITS)
    try:
        page = open_page(served.address)
        page.wait_for_selector("html[data-open]")
        assert page.get_by_label("Beam").is_hidden()
        assert page.get_by_label("Second text").is_hidden()
        look(page, TEXT)
        answered(page)
        expected = runs["reviews"].explain(TEXT, measure=False)
        assert page.locator(".fact dd").all_inner_texts() == [expected.output]
        shown = page.locator(".labels li").all_inner_texts()
        assert expected.output in shown[0]
        assert f"{100 * expected.highlights.probability:.1f} %" in shown[0]
        assert page.locator(".weighed").count() == 3
        assert page.locator(".looked").all_inner_texts() == [one.text for one in expected.highlights.words]
        strongest = max(expected.highlights.words, key=lambda one: one.in_sentence)
        shares = page.locator(".looked").evaluate_all("all => all.map((one) => one.style.getPropertyValue('--share'))")
        assert shares[expected.highlights.words.index(strongest)] == "100%"
        page.get_by_label("Run", exact=True).select_option("pairs")
        page.get_by_label("Second text").fill("the film")
        look(page, TEXT)
        answered(page)
        assert page.locator(".passage").all_inner_texts() == [TEXT, "the film"]
        page.get_by_label("Run", exact=True).select_option("frozen")
        assert page.get_by_label("Beam").is_visible()
        look(page, "abcd")
        answered(page)
        assert page.locator(".fact dd").all_inner_texts()[0] == "abcd"
        assert page.locator(".marked").count() == 0
    finally:
        served.stop()
