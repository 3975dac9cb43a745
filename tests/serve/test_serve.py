"""The server's answers: the library's own, and one kind sentence with the right status for everything else."""

import json
import time
import zlib
from base64 import b64decode

import pytest
from starlette.testclient import TestClient

from alike import assert_alike
from copiers import OUTPUT, SOURCE, copier
from server_samples import AT_HOME, FIXTURES, Gate, client_of, refused, some_runs
from sightline.explain.explanation import Explanation
from sightline.serve import Limits, application
from sightline.tasks.run import Run
from sightline.view.page import _asset
from sightline.view.page.live import DOCUMENTATION, FRONT, documentation_page, front_page
from sightline.view.page.packing import pack

pytestmark = pytest.mark.unchecked_shapes

LIMITS = Limits(body=4_000, texts=4, characters=40, measured=40, weights=10_000)


@pytest.fixture(scope="module")
def runs():
    return some_runs()


@pytest.fixture(scope="module")
def client(runs):
    with client_of(runs, limits=LIMITS) as client:
        yield client


def test_predictions_are_those_of_predict(client, runs):
    texts = ["abc", "hgfe", "", "abcdefgh"]
    found = client.post("/predict", json={"texts": texts, "best": 2, "beam": 3}).json()
    assert found["run"] == "frozen"
    expected = [one.all for one in runs["frozen"].predict(texts, best=2, beam=3)]
    assert [[one["text"] for one in some] for some in found["predictions"]] == [[o.text for o in s] for s in expected]
    for some, outputs in zip(found["predictions"], expected, strict=True):
        assert [one["log_prob"] for one in some] == pytest.approx([one.log_prob for one in outputs], abs=1e-5)


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({"beam": 1}, {"beam": 1}),
        ({"min_length": 6, "max_length": 7}, {"min_length": 6, "max_length": 7}),
        ({"no_repeat": 1}, {"no_repeat": 1}),
        ({"sample": True, "seed": 3, "temperature": 1.5}, {"sample": True, "seed": 3, "temperature": 1.5}),
        ({"length_penalty": 0}, {"length_penalty": 0.0}),
        ({"keep_unknown": True}, {"keep_unknown": True}),
        ({"prefix": "h"}, {"prefixes": ["h"]}),
    ],
)
def test_the_options_of_predict(client, runs, asked, options):
    texts = ["abca", "hh"]
    found = client.post("/predict", json={"texts": texts, **asked}).json()["predictions"]
    # Samples are drawn text by text, so that they do not depend on what else is asked for.
    assert [some[0]["text"] for some in found] == [runs["frozen"].predict([text], **options)[0].text for text in texts]


def test_long_texts_are_split(client, runs):
    text = "The dog sleeps. A cat sleeps."
    found = client.post("/predict", json={"texts": [text], "split": True, "run": "transformer"}).json()
    (expected,) = runs["transformer"].predict([text], split=True)
    assert found["predictions"][0][0]["text"] == expected.text
    refused(client.post("/predict", json={"texts": [text], "split": True, "best": 2}), 422, "split")


@pytest.mark.parametrize("run", ["frozen", "transformer"])
@pytest.mark.parametrize("measure", [False, True])
def test_an_explanation_is_the_librarys_own(client, runs, run, measure):
    found = client.post("/explain", json={"text": "abcd", "run": run, "measure": measure, "beam": 2}).json()
    expected = runs[run].explain("abcd", measure=measure, beam=2)
    assert_alike(found, json.loads(json.dumps(expected.to_json())))
    assert (found["belief"] is not None) == measure
    assert Explanation.from_json(found).output == expected.output


def test_an_explanation_says_which_words_were_copied():
    run = copier("rnnsearch")
    with client_of({"copier": run}) as client:
        found = client.post("/explain", json={"text": SOURCE, "output": OUTPUT}).json()
        described = client.get("/openapi.json").text
    assert_alike(found, json.loads(json.dumps(run.explain(SOURCE, OUTPUT, measure=False).to_json())))
    assert [step["copied"]["place"] for step in found["steps"][:2]] == [2, None]
    assert "Of a run that copies" in described


def test_an_explanation_packed_for_the_page(client, runs):
    found = client.post("/explain", json={"text": "abcd", "form": "page", "output": "dd"}).json()
    expected = pack([runs["frozen"].explain("abcd", "dd", measure=False)], "frozen")
    assert list(found) == list(expected)
    about, wanted = (json.loads(zlib.decompress(b64decode(one["about"]))) for one in (found, expected))
    assert_alike(about, wanted)


def test_what_takes_too_long_is_not_measured(client):
    found = client.post("/explain", json={"text": "abcdefgh" * 5, "measure": True}).json()
    assert found["belief"] is None
    assert "the limit of this server is 40" in found["notes"][0]


def test_what_is_too_large_is_not_sent(client):
    asked = {"text": "a" * 40, "output": "b" * 40, "run": "transformer", "beam": 1}
    refused(client.post("/explain", json=asked), 413, "weights", "top")
    assert client.post("/explain", json={**asked, "top": 2}).status_code == 200


def test_a_model_without_attention_says_so(client):
    refused(client.post("/explain", json={"text": "abc", "run": "blind"}), 422, "blind has no attention")
    assert client.post("/predict", json={"texts": ["abc"], "run": "blind"}).status_code == 200


def test_health(client):
    health, deadline = client.get("/health").json(), time.monotonic() + 60
    while health["waiting"] and time.monotonic() < deadline:  # for the end of what another test asked
        time.sleep(0.05)
        health = client.get("/health").json()
    assert health["ready"] is True
    assert [run["name"] for run in health["runs"]] == ["frozen", "transformer", "blind"]
    assert health["waiting"] == 0
    assert health["most_characters"] == 40
    assert health["most_beam"] == 16


GOOD = {"texts": ["abc"]}


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 422, "body"),
        (b"{", 400, "JSON"),
        (b"nonsense", 400, "not JSON"),
        (b'{"texts": ["\xff"]}', 400, "byte 12 of the body is not UTF-8"),
        ('{"texts": ["a"]}'.encode("utf-16"), 400, "UTF-8"),
        (b'{"texts": ["\\ud800"]}', 422, "texts[0]"),
        (b'{"texts": ' + b"[" * 100_0 + b"]" * 100_0 + b"}", 400, "8 deep"),
        (b'{"texts": ["a"], "x": ' + b'{"a":' * 8 + b"1" + b"}" * 9, 400, "8 deep"),
        (b'{"texts": ["a"], "beam": ' + b"9" * 3000 + b"}", 422, "beam"),
        (b'{"texts": ["a"], "length_penalty": NaN}', 422, "length_penalty"),
        (b'{"texts": ["a"], "length_penalty": 1e999}', 422, "length_penalty"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b'"text"', 422, "body"),
        (b'{"texts": "abc"}', 422, "texts"),
        (b'{"texts": []}', 422, "texts"),
        (b'{"texts": ["a", "a", "a", "a", "a"]}', 422, "4 items"),
        (b'{"texts": [1]}', 422, "texts[0]"),
        (b'{"texts": ["' + b"a" * 41 + b'"]}', 422, "40 characters"),
        (b'{"texts": ["a"], "beam": "5"}', 422, "beam"),
        (b'{"texts": ["a"], "beam": 1000000}', 422, "beam"),
        (b'{"texts": ["a"], "beam": true}', 422, "beam"),
        (b'{"texts": ["a"], "best": 6}', 422, "best is 6 and beam 5"),
        (b'{"texts": ["a"], "top": 6}', 422, "sample"),
        (b'{"texts": ["a"], "run": "../../etc/passwd"}', 422, "run"),
        (b'{"texts": ["a"], "betam": 5}', 422, "betam"),
        (b'{"texts": ["a"], "<script>' + b"x" * 500 + b'": 5}', 422, "<script>"),
        (b'{"texts": ["a"], "min_length": 9, "max_length": 3}', 422, "min"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_bodies_that_are_not_as_they_should_be(client, body, status, word):
    headers = {"content-type": "application/json"}
    refused(client.post("/predict", content=body, headers=headers), status, word)


def test_odd_texts_are_texts(client):
    texts = ["\x00", "\u202e\ufeff", "👩‍👩‍👧‍👦", " \n\t "]
    for run in ("frozen", "transformer"):
        assert client.post("/predict", json={"texts": texts, "run": run, "max_length": 9}).status_code == 200
        for text in (*texts, ""):
            response = client.post("/explain", json={"text": text, "run": run, "measure": True, "output": "ab"})
            assert response.status_code == 200, response.text


def test_an_impossible_wish_harms_nobody_else(client):
    """No repeated token and at least sixty of them: there is no such output."""
    wish = {"texts": ["abc", "a"], "no_repeat": 1, "min_length": 60, "beam": 1}
    refused(client.post("/predict", json=wish), 422, "no output has at least 60 tokens")
    assert client.post("/predict", json=GOOD).status_code == 200


@pytest.mark.parametrize("made", [front_page, documentation_page])
def test_the_pages_ask_nobody_else(made):
    document = made()
    addresses = {part.split('"')[0] for part in document.html.split("http")[1:] if part.startswith(("://", "s://"))}
    assert addresses <= {"://www.w3.org/2000/svg"}
    assert "connect-src 'self'" in document.policy
    assert "src=" not in document.html


def test_the_scripts_of_the_pages_set_text_and_never_markup():
    for module in {*FRONT, *DOCUMENTATION}:
        code = _asset(f"{module}.js")
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert forbidden not in code, f"{module}.js: {forbidden}"
        assert "</script" not in code
        assert "<!--" not in code


def test_the_schema_says_the_limits(client):
    schema = client.get("/openapi.json").json()
    request = schema["components"]["schemas"]["PredictRequest"]
    assert request["properties"]["texts"]["maxItems"] == 4
    assert request["properties"]["texts"]["items"]["maxLength"] == 40
    assert request["properties"]["run"]["enum"] == ["frozen", "transformer", "blind"]
    assert request["additionalProperties"] is False
    assert set(schema["paths"]) == {"/predict", "/explain", "/health"}
    for status in ("400", "401", "403", "408", "413", "415", "422", "503", "504"):
        content = schema["paths"]["/predict"]["post"]["responses"][status]["content"]["application/json"]
        assert content["schema"]["$ref"].endswith("/Error")


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        ("tag", ["Anna sees Bonn", ""]),
        ("span", [("where is it", "it is in the old house"), ("why", "")]),
        ("pretrain", ["the <mask> dog sleeps", "no mask"]),
    ],
)
def test_what_other_runs_answer(kind, items):
    """As the schema says, what `predict` gives; and what means nothing for them is refused."""
    jsonschema = pytest.importorskip("jsonschema_rs", reason="schemathesis is not installed")
    run = Run.load(FIXTURES / "runs" / kind / "run")
    firsts, *others = zip(*(items if run.input.two_texts else [(one,) for one in items]), strict=True)
    body = dict(zip(("texts", "texts2"), ([*firsts], *map(list, others)), strict=False))
    with client_of({kind: run}) as client:
        found = client.post("/predict", json=body).json()
        xs = [run.input.item(one) for one in items]
        expected = [run.output.to_json(x, one) for x, one in zip(xs, run.predict(items), strict=True)]
        assert_alike(found["predictions"], json.loads(json.dumps(expected)))
        schema = client.get("/openapi.json").json()
        said = schema["paths"]["/predict"]["post"]["responses"]["200"]
        assert said["description"] == run.output.answer["description"]
        shape = schema["components"]["schemas"]["Predictions"]
        jsonschema.validate(shape, found)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(shape, {**found, "predictions": [{}]})
        for option in ({"beam": 2}, {"split": True}, {"prefix": "a"}):
            refused(client.post("/predict", json={**body, **option}), 422, f"a run of {kind}", *option)
        one = {name.replace("s", ""): texts[0] for name, texts in body.items()}
        refused(client.post("/explain", json={**one, "shift": 1}), 422, "shift")
        explained = client.post("/explain", json=one).json()
        assert_alike(explained, json.loads(json.dumps(run.explain(items[0], measure=False).to_json())))


def test_no_answer_in_time(runs, monkeypatch):
    gate = Gate(runs["frozen"], monkeypatch)
    with client_of(runs, limits=Limits(seconds=1.5)) as client:
        refused(client.post("/predict", json=GOOD), 504, "1.5 seconds")
        gate.opened.set()
        assert client.post("/predict", json=GOOD).status_code == 200


def test_our_own_mistakes_are_not_the_clients(runs, monkeypatch, caplog):
    def broken(*arguments, **options):
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr(runs["frozen"].output, "search", broken)
    with client_of(runs) as client:
        sentence = refused(client.post("/predict", json=GOOD), 500)
        assert "secret" not in sentence
        assert "secret of the inside" in caplog.text
        assert client.post("/predict", json={**GOOD, "run": "transformer"}).status_code == 200


def test_limits_must_be_limits():
    from sightline.errors import UserError

    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="seconds"):
            Limits(seconds=wrong)


@pytest.mark.slow
def test_schemathesis_finds_no_mistake_of_ours(runs):
    """What the schema allows is answered as it says, and what it does not is refused as it says."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    app = application(runs, limits=Limits(characters=24, texts=3, beam=3, tokens=24, measured=8))
    with TestClient(app, base_url=AT_HOME) as client:
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        seen = set()
        for operation in schema.get_all_operations():
            good, bad = (operation.ok().as_strategy(generation_mode=mode) for mode in GenerationMode)

            @settings(
                max_examples=25,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=good | bad if operation.ok().body else good)
            def holds(case):
                sent = case.as_transport_kwargs(base_url=AT_HOME)
                response = client.request(sent["method"], sent["url"], **payload(sent))
                seen.add((case.path, response.status_code))
                assert response.status_code < 500, response.text
                # A schema cannot say that best is at most beam.
                case.validate_response(response, excluded_checks=[positive_data_acceptance])

            holds()
    assert {("/predict", 200), ("/predict", 422), ("/explain", 200), ("/explain", 422), ("/health", 200)} <= seen


def payload(sent):
    return {name: sent[name] for name in ("json", "content", "headers", "params") if sent.get(name) is not None}
