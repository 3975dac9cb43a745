"""A server of runs that read images: what is sent, what is refused, and the page that takes a dropped image."""

import io
import json
import zlib
from base64 import b64decode, b64encode

import numpy as np
import pytest
import torch
from PIL import Image

from alike import assert_alike
from captioning import ENCODER, FLOOR, captioner
from served_pages import Served, answered, open_page, problem  # noqa: F401 - pytest finds the fixture here
from server_samples import client_of, refused, some_runs
from sightline.explain.explanation import Explanation
from sightline.inputs.grid import GridFacts, GridInput
from sightline.inputs.image import ImageInput
from sightline.models.grid_at_once import AtOnceConfig
from sightline.models.image_to_labels import ImageToLabelsConfig
from sightline.models.image_to_text import Places
from sightline.outputs.cells import CellsOutput
from sightline.outputs.image_labels import ImageLabelsOutput
from sightline.outputs.label_scores import Labels
from sightline.serve import Limits
from sightline.synthetic.shapes import made_shapes
from sightline.tasks.classify import CLASSIFY
from sightline.tasks.configs.classify_images import ImageClassifyConfig
from sightline.tasks.configs.grid import GridConfig
from sightline.tasks.grid import GRID
from sightline.tasks.run import Run

pytestmark = pytest.mark.unchecked_shapes

LIMITS = Limits(images=3, image_bytes=60_000, pixels=90_000)


def encoded(pixels, kind="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def sent(content):
    return b64encode(content).decode()


PIXELS = [one.pixels for one in made_shapes(3, 0, 48)]
FILES = [encoded(pixels) for pixels in PIXELS]


def gridder():
    """Cells of 16 pixels, with random weights."""
    config = GridConfig(model=AtOnceConfig(width=4, cell_size=8, rnn_size=4, pixel_width=0), most_cells=12)
    facts = GridFacts(("none", "crack"), (0, 255), (9, 9), 16, 3, 0.0)
    torch.manual_seed(1)
    reading, output = GridInput(config, facts), CellsOutput(config, facts)
    model = config.build(reading, output)
    return Run(GRID, GRID.variants[0], model.eval(), reading, output, config, "roads")


def classifier():
    """Three labels, with random weights."""
    labels = Labels("one", ("circle", "square", "star"), (3, 3, 3))
    config = ImageClassifyConfig(model=ImageToLabelsConfig(size=8, heads=2, dropout=0.0), encoder=ENCODER)
    torch.manual_seed(2)
    encoder = ENCODER.build()
    reading = ImageInput(config, Places(encoder.annotation_size, *encoder.grid(16, 16)))
    reading.learning = encoder
    output = ImageLabelsOutput(config, labels, reading)
    model = config.build(reading, output)
    return Run(CLASSIFY, CLASSIFY.variant_of("classify_images"), model.eval(), reading, output, config, "kinds")


@pytest.fixture(scope="module")
def runs():
    return {
        "shapes": captioner(name="shapes"),
        "floor": captioner(FLOOR, name="floor"),
        "frozen": some_runs()["frozen"],
        "roads": gridder(),
        "kinds": classifier(),
    }


@pytest.fixture(scope="module")
def client(runs):
    with client_of(runs, limits=LIMITS) as client:
        yield client


def test_captions_are_those_of_predict(client, runs):
    asked = {"images": [*map(sent, FILES)], "beam": 3, "best": 2}
    found = client.post("/predict", json=asked).json()["predictions"]
    expected = [one.all for one in runs["shapes"].predict(FILES, best=2, beam=3)]
    assert [[one["text"] for one in some] for some in found] == [[one.text for one in some] for some in expected]
    for some, outputs in zip(found, expected, strict=True):
        assert [one["log_prob"] for one in some] == pytest.approx([one.log_prob for one in outputs], abs=1e-4)
    assert len({some[0]["log_prob"] for some in found}) == 3  # the images are told apart
    kinds = [encoded(PIXELS[0], "JPEG", quality=95), encoded(PIXELS[0], "WEBP", lossless=True)]
    assert client.post("/predict", json={"images": [*map(sent, kinds)]}).status_code == 200


def test_text_to_text_beside_them(client, runs):
    found = client.post("/predict", json={"texts": ["abc"], "run": "frozen"}).json()["predictions"]
    assert found[0][0]["text"] == runs["frozen"].predict(["abc"])[0].text


def test_cells_of_images(client, runs):
    asked = {"images": [sent(FILES[0]), sent(encoded(PIXELS[1][:20]))], "run": "roads"}
    found = client.post("/predict", json=asked).json()["predictions"]
    expected = runs["roads"].predict([PIXELS[0], np.ascontiguousarray(PIXELS[1][:20])])
    for one, truth in zip(found, expected, strict=True):
        assert (one["cell"], one["classes"]) == (16, ["none", "crack"])
        assert one["labels"] == truth.labels.tolist()
        np.testing.assert_allclose(one["probabilities"], truth.probs[:, :, 1], atol=1e-4)
    answer = client.post("/explain", json={"image": sent(FILES[0]), "run": "roads", "measure": True}).json()
    kept = Explanation.from_json(answer)
    np.testing.assert_array_equal(kept.cells.labels, expected[0].labels)
    np.testing.assert_array_equal(kept.image.pixels(), PIXELS[0])
    large = sent(encoded(np.zeros((100, 100, 3), np.uint8)))
    refused(client.post("/predict", json={"images": [large], "run": "roads"}), 422, "49 cells", "most_cells")
    for given in ({"beam": 2}, {"prefix": "a"}):
        refused(client.post("/predict", json={**asked, **given}), 422, *given)
    refused(client.post("/explain", json={"image": asked["images"][0], "run": "roads", "output": "a"}), 422, "output")


def test_labels_of_images(client, runs):
    asked = {"images": [*map(sent, FILES)], "run": "kinds"}
    found = client.post("/predict", json=asked).json()["predictions"]
    assert_alike(found, [one._asdict() for one in runs["kinds"].predict(FILES)])
    one = {"image": sent(FILES[0]), "run": "kinds"}
    for more in ({}, {"measure": True}, {"output": "star"}):
        answer = client.post("/explain", json={**one, **more}).json()
        label = more.get("output")
        expected = runs["kinds"].explain(FILES[0], label, measure=more.get("measure", False))
        assert_alike(answer, json.loads(json.dumps(expected.to_json())))
    refused(client.post("/explain", json={**one, "beam": 2}), 422, "beam")
    refused(client.post("/explain", json={**one, "output": "odd"}), 422, "has no label 'odd'")
    refused(client.post("/predict", json={**asked, "best": 2}), 422, "best")


@pytest.mark.parametrize("measure", [False, True])
def test_an_explanation_is_the_librarys_own(client, runs, measure):
    found = client.post("/explain", json={"image": sent(FILES[0]), "measure": measure}).json()
    expected = json.loads(json.dumps(runs["shapes"].explain(FILES[0], measure=measure).to_json()))
    assert_alike(found, expected)
    kept = Explanation.from_json(found)
    np.testing.assert_array_equal(kept.image.pixels(), PIXELS[0])
    assert (kept.belief is not None) == measure


def test_an_explanation_packed_for_the_page(client):
    found = client.post("/explain", json={"image": sent(FILES[1]), "form": "page"}).json()
    (about,) = json.loads(zlib.decompress(b64decode(found["about"])))["explanations"]
    content = zlib.decompress(b64decode(found[about["image"]["block"]]))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content)).convert("RGB")), PIXELS[1])


def test_what_does_not_fit_is_refused(client):
    one = sent(FILES[0])
    refused(client.post("/predict", json={"texts": ["a"]}), 422, "shapes reads images", "give images")
    refused(client.post("/predict", json={"run": "shapes"}), 422, "give images")
    refused(client.post("/predict", json={"images": [one], "run": "frozen"}), 422, "frozen reads texts")
    refused(client.post("/predict", json={"run": "frozen"}), 422, "give texts")
    refused(client.post("/predict", json={"images": []}), 422, "images")
    refused(client.post("/predict", json={"images": [one] * 4}), 422, "images", "3")
    refused(client.post("/predict", json={"images": [one], "prefix": "a"}), 422, "prefix")
    refused(client.post("/explain", json={"text": "a"}), 422, "give image")
    refused(client.post("/explain", json={"image": one, "run": "frozen"}), 422, "reads texts")
    refused(client.post("/explain", json={"image": one, "run": "floor"}), 422, "no attention")
    refused(client.post("/explain", json={"image": one, "text": "a"}), 422, "leave text out")


def bomb():
    """A small file that says it is very large."""
    stream = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"just a text", 422, "it is no image"),
        (b"", 422, "at least 1"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "it is no image"),
        (FILES[0][:100], 422, "cannot be used: it is"),
        (encoded(np.zeros((400, 400, 3), np.uint8)), 413, "400 × 400 pixels, expected at most 90,000"),
        (bomb(), 413, "too large"),
        (bytes(60_001), 422, "80000"),
        (encoded(np.zeros((1, 1, 3), np.uint8)), 200, ""),
    ],
    ids=["text", "empty", "svg", "cut", "large", "bomb", "bytes", "pixel"],
)
def test_hostile_images(client, content, status, words):
    for address, given in (("/predict", {"images": [sent(content)]}), ("/explain", {"image": sent(content)})):
        found = client.post(address, json=given)
        if status == 200:
            assert found.status_code == 200
        else:
            refused(found, status, words)
    assert client.get("/health").json()["ready"]


def test_what_is_no_base64_is_refused(client):
    url = "data:image/png;base64," + sent(FILES[0])
    refused(client.post("/predict", json={"images": [url]}), 422, "images[0] is not base64", "before the comma")
    refused(client.post("/explain", json={"image": "a\u00e9?"}), 422, "image is not base64")
    refused(client.post("/predict", json={"images": [sent(FILES[0]), "??"]}), 422, "images[1]")


def test_bodies_may_be_as_large_as_images_and_no_larger(runs):
    noise = np.random.default_rng(0).integers(0, 255, (130, 150, 3), dtype=np.uint8)
    large = sent(encoded(noise))
    limits = Limits(body=2_000, images=3, image_bytes=60_000)
    with client_of(runs, limits=limits) as client:
        assert len(large) > 70_000
        assert client.post("/predict", json={"images": [large]}).status_code == 200
        refused(client.post("/predict", json={"images": [large, large]}), 413, "82,000 bytes")
    with client_of({"frozen": runs["frozen"]}, limits=limits) as client:
        refused(client.post("/predict", json={"texts": ["a" * 3_000]}), 413, "2,000 bytes")
    with client_of(runs, limits=Limits(held=1_000)) as client:
        refused(client.post("/predict", json={"images": [large]}), 503, "too many large requests")
        assert client.post("/predict", json={"texts": ["ab"], "run": "frozen"}).status_code == 200


def test_health_and_schema_say_what_is_taken(client, runs):
    found = client.get("/health").json()
    assert (found["most_images"], found["most_image_bytes"], found["most_pixels"]) == (3, 60_000, 90_000)
    about = {one["name"]: one for one in found["runs"]}
    assert [about[name]["task"] for name in ("shapes", "roads", "kinds")] == ["caption", "grid", "classify"]
    assert all(about[name]["images"] for name in ("shapes", "roads", "kinds"))
    assert not about["frozen"]["images"]
    described = client.get("/openapi.json").json()["components"]["schemas"]
    example = described["PredictRequest"]["example"]
    assert client.post("/predict", json=example).status_code == 200
    assert client.post("/explain", json=described["ExplainRequest"]["example"]).status_code == 200
    assert described["PredictRequest"]["additionalProperties"] is False
    with client_of({"frozen": runs["frozen"]}) as plain:
        assert "image" not in json.dumps(plain.get("/openapi.json").json()["components"]["schemas"]["PredictRequest"])


DROP = """([name, kind, content]) => {
  const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, { type: "image/png" }));
  const options = { bubbles: true, cancelable: true };
  if (kind === "paste") document.dispatchEvent(new ClipboardEvent("paste", { ...options, clipboardData: data }));
  else document.dispatchEvent(new DragEvent("drop", { ...options, dataTransfer: data }));
}"""


def test_an_image_is_dropped_pasted_or_chosen(runs, open_page):
    served = Served(runs, limits=LIMITS)
    try:
        page = open_page(served.address)
        page.wait_for_selector("html[data-open]")
        assert page.locator("h1").inner_text() == "Drop an image and see the attention of the model"
        assert page.get_by_label("Text", exact=True).is_hidden()
        for place, (name, kind) in enumerate([("one.png", "drop"), ("two.png", "paste"), ("three.png", "choose")]):
            page.evaluate("() => document.documentElement.removeAttribute('data-answered')")
            if kind == "choose":
                page.get_by_label("Image", exact=True).set_input_files(
                    {"name": name, "mimeType": "image/png", "buffer": FILES[place]}
                )
            else:
                page.evaluate(DROP, [name, kind, sent(FILES[place])])
            answered(page)
            expected = runs["shapes"].explain(FILES[place], measure=False)
            assert page.locator(".fact dd").all_inner_texts() == [name, expected.output]
            words = page.locator(".written button").all_inner_texts()
            assert [word.lstrip("·") for word in words] == [one.written.lstrip("▁") for one in expected.steps]
            assert page.locator(".captioned .sight canvas").is_visible()
            assert page.locator(".drop img").evaluate("(image) => image.naturalWidth") == 48
        page.get_by_label("Compare with").select_option("floor")  # has no attention: its caption stands there
        assert page.locator("option[value=frozen]").last.evaluate("(option) => option.hidden")
        page.get_by_role("button", name="Explain").click()
        page.wait_for_selector("text=floor has no attention")
        page.wait_for_selector(".captioned")
        assert page.locator(".captioned").count() == 1
        page.evaluate(DROP, ["bad.png", "drop", sent(b"no image at all")])
        assert "It says: images[0] cannot be used: it is no image" in problem(page)
        page.evaluate(DROP, ["large.png", "drop", sent(bytes(70_000))])
        page.wait_for_selector("text=That file is too large")
        page.get_by_label("Compare with").select_option("")
        page.get_by_label("Run", exact=True).select_option("roads")
        assert page.get_by_label("Beam").is_hidden()
        page.evaluate(DROP, ["road.png", "drop", sent(FILES[0])])
        page.wait_for_selector(".fact dd:text-is('road.png')")
        answered(page)
        counts = np.bincount(runs["roads"].predict([PIXELS[0]])[0].labels.ravel(), minlength=2)
        shown = [text.split() for text in page.locator(".counts li").all_inner_texts()]
        assert shown == [["none", str(counts[0])], ["crack", str(counts[1])]]
        page.get_by_label("Run", exact=True).select_option("kinds")
        page.get_by_role("button", name="Explain").click()
        page.wait_for_selector(f".fact dd:text-is('{runs['kinds'].predict(FILES[:1])[0].label}')")
        answered(page)
        assert page.locator(".captioned .sight canvas").is_visible()
        page.get_by_label("Run", exact=True).select_option("frozen")
        assert page.get_by_label("Image", exact=True).is_hidden()
        page.get_by_label("Text", exact=True).fill("abcd")
        page.get_by_role("button", name="Explain").click()
        page.wait_for_selector(".fact dd:text-is('abcd')")
        answered(page)
    finally:
        served.stop()


def test_axe_finds_nothing_serious(runs, open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    served = Served({"shapes": runs["shapes"]}, limits=LIMITS)
    try:
        page = open_page(served.address, bypass_csp=True)
        page.wait_for_selector("html[data-open]")
        found = axe.Axe().run(page)  # the answer is that of the page that stands alone
        assert [one["id"] for one in found.response["violations"] if one["impact"] in ("serious", "critical")] == []
    finally:
        served.stop()
