"""A server of runs that read recordings and arrays: files that are sent, and a microphone in a real browser."""

import io
from base64 import b64encode

import numpy as np
import pytest

pytest.importorskip("soundfile", reason="the extra sound is not installed")

from served_pages import Served, answered, open_page, problem  # noqa: F401 - pytest finds the fixture here
from server_samples import client_of, refused, some_runs
from sightline.explain.explanation import Explanation
from sightline.serve import Limits
from sound_files import encoded, tone
from sound_runs import array_transcriber, sound_classifier, transcriber

pytestmark = pytest.mark.unchecked_shapes

LIMITS = Limits(sound_seconds=4.0, image_bytes=400_000, decoding=120.0, seconds=240.0)  # for busy machines
SAMPLES = tone(8_000, 0.6)
WAV = encoded(SAMPLES, 8_000)


def sent(content):
    return b64encode(content).decode()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.fixture(scope="module")
def runs():
    made = {"heard": transcriber(), "words": sound_classifier(), "arrays": array_transcriber()}
    return {**made, "frozen": some_runs()["frozen"]}


@pytest.fixture(scope="module")
def client(runs):
    with client_of(runs, limits=LIMITS) as client:
        yield client


def test_recordings_are_heard_as_by_predict(client, runs):
    kinds = [WAV, encoded(SAMPLES, 8_000, "flac"), encoded(np.repeat(SAMPLES, 2), 16_000, "wav")]
    asked = {"recordings": [*map(sent, kinds)], "beam": 2}
    answers = client.post("/predict", json=asked).json()["predictions"]
    expected = runs["heard"].predict([WAV, WAV], beam=2)
    assert [one[0]["text"] for one in answers[:2]] == [one.text for one in expected]
    labels = client.post("/predict", json={"recordings": [sent(WAV)], "run": "words"}).json()["predictions"]
    assert labels[0]["label"] == runs["words"].predict([WAV])[0].label
    answer = client.post("/explain", json={"recording": sent(WAV)}).json()
    explanation, expected = Explanation.from_json(answer), runs["heard"].explain(WAV, measure=False)
    assert explanation.output == expected.output
    assert explanation.recording.seconds == pytest.approx(0.6)
    assert explanation.recording.wav.startswith(b"RIFF")
    np.testing.assert_array_equal(explanation.recording.values, expected.recording.values)
    np.testing.assert_allclose(explanation.records[0].matrix(), expected.records[0].matrix(), atol=1e-5)


def test_arrays_are_read_as_by_predict(client, runs):
    frames = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
    expected = runs["arrays"].predict([frames])[0].text
    for array in (frames, np.asfortranarray(frames)):
        answers = client.post("/predict", json={"arrays": [sent(npy(array))], "run": "arrays"}).json()["predictions"]
        assert answers[0][0]["text"] == expected
    assert client.post("/explain", json={"array": sent(npy(frames)), "run": "arrays"}).status_code == 200
    whole = npy(frames)
    objects = npy(np.array([{}], dtype=object))
    large = whole.replace(b"(40, 5)", b"(4000000000, 5)") if b"(40, 5)" in whole else whole
    for content, reason in (
        (whole[:-4], "bytes are there"),
        (objects, "objects"),
        (b"no", "no array"),
        (large, "array"),
    ):
        answer = client.post("/predict", json={"arrays": [sent(content)], "run": "arrays"})
        refused(answer, 422, "arrays[0] cannot be used: ")
        assert reason in answer.json()["error"]
    wide = client.post("/predict", json={"arrays": [sent(npy(np.ones((4, 6))))], "run": "arrays"})
    assert wide.status_code == 422
    assert "its frames are 6, and the model reads" in wide.json()["error"]


def test_what_is_refused_has_one_sentence(client):
    refused(client.post("/predict", json={"recordings": [sent(b"no sound")]}), 422, "recordings[0] cannot be used: ")
    long = encoded(tone(8_000, 5.0), 8_000, "flac")
    refused(client.post("/predict", json={"recordings": [sent(long)]}), 413, "too long: more than 4 seconds")
    refused(client.post("/predict", json={"images": [sent(WAV)]}), 422, "images")
    refused(client.post("/predict", json={"texts": ["a"]}), 422, "heard reads recordings: leave texts out")
    refused(client.post("/explain", json={}), 422, "heard reads recordings: give recording")
    mixed = {"recordings": [sent(WAV)], "run": "arrays"}
    refused(client.post("/predict", json=mixed), 422, "arrays reads arrays: leave recordings out, and give arrays")
    texts = {"texts": ["ab"], "recordings": [sent(WAV)], "run": "frozen"}
    refused(client.post("/predict", json=texts), 422, "frozen reads texts: leave recordings out")
    found = client.get("/health").json()
    assert [(run["files"], run["images"]) for run in found["runs"]] == [
        ("recordings", False),
        ("recordings", False),
        ("arrays", False),
        ("", False),
    ]
    assert found["most_sound_seconds"] == 4.0
    described = client.get("/openapi.json").json()["components"]["schemas"]
    for name, path in (("PredictRequest", "/predict"), ("ExplainRequest", "/explain")):
        assert client.post(path, json=described[name]["example"]).status_code == 200
        assert "image" not in described[name]["properties"]


def test_a_recording_is_dropped_or_spoken(runs, open_page):
    served = Served(runs, limits=LIMITS)
    try:
        page = open_page(served.address, bypass_csp=False)
        page.context.set_default_timeout(120_000)
        page.wait_for_selector("html[data-open]")
        assert page.locator("h1").inner_text() == "Speak, or drop a recording, and see the attention of the model"
        field = page.get_by_label("Recording", exact=True)
        field.set_input_files({"name": "tone.wav", "mimeType": "audio/wav", "buffer": WAV})
        answered(page)
        expected = runs["heard"].explain(WAV, measure=False)
        assert page.locator(".fact dd").all_inner_texts() == ["tone.wav", expected.output]
        assert page.locator(".heard-map canvas").is_visible()
        page.get_by_role("button", name="Play", exact=True).click()
        page.wait_for_selector(".heard-map[data-at='0.600']", state="attached")
        page.get_by_role("button", name="Record", exact=True).click()
        page.wait_for_function("() => parseFloat(document.querySelector('.microphone .hint').textContent) > 0.4")
        page.get_by_role("button", name="Stop and explain").click()
        page.wait_for_selector(".fact dd:text-is('microphone.wav')")
        answered(page)
        seconds = float(page.locator(".player .value").inner_text().split()[2])
        assert 0.4 < seconds <= 4.0
        page.get_by_label("Run", exact=True).select_option("words")
        page.get_by_role("button", name="Explain", exact=True).click()
        page.wait_for_selector(".heard .written bdi:text-matches('^(one|two|three)$')")
        answered(page)
        field.set_input_files({"name": "no.wav", "mimeType": "audio/wav", "buffer": b"no sound"})
        assert "It says: recordings[0] cannot be used: " in problem(page)
        page.get_by_label("Run", exact=True).select_option("arrays")
        assert page.locator(".microphone").is_hidden()
    finally:
        served.stop()


def test_the_live_page_with_a_recording_is_accessible(runs, open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    served = Served({"heard": runs["heard"]}, limits=LIMITS)
    try:
        page = open_page(served.address, bypass_csp=True)
        page.context.set_default_timeout(120_000)
        page.wait_for_selector("html[data-open]")
        page.get_by_label("Recording", exact=True).set_input_files(
            {"name": "tone.wav", "mimeType": "audio/wav", "buffer": WAV}
        )
        answered(page)
        violations = axe.Axe().run(page).response["violations"]
        assert [one["id"] for one in violations if one["impact"] in ("serious", "critical")] == []
    finally:
        served.stop()
