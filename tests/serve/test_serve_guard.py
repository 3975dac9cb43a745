"""What stands before the server: who may ask, how much, and what every answer carries."""

import json

import pytest

from server_samples import AT_HOME, client_of, refused, some_runs
from sightline.serve import Limits

GOOD = {"texts": ["abc"]}


@pytest.fixture(scope="module")
def runs():
    return some_runs()


@pytest.fixture(scope="module")
def client(runs):
    with client_of(runs, limits=Limits(body=4_000)) as client:
        yield client


def test_large_bodies_are_refused(client):
    big = b'{"texts": ["' + b"a" * 5000 + b'"]}'
    headers = {"content-type": "application/json"}
    refused(client.post("/predict", content=big, headers=headers), 413, "4,000 bytes")
    refused(client.post("/predict", content=iter([big[:2000], big[2000:]]), headers=headers), 413, "4,000 bytes")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_forms_are_refused(client, kind):
    refused(client.post("/predict", content=json.dumps(GOOD), headers={"content-type": kind}), 415, "application/json")


def test_compressed_bodies_are_refused(client):
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    refused(client.post("/predict", content=b"{}", headers=headers), 415, "compressed")


@pytest.mark.parametrize("path", ["/etc/passwd", "/../../etc/passwd", "/static/x", "/redoc", "/predict/", "/%00"])
def test_nothing_else_is_there(client, path):
    refused(client.get(path), 404, "/docs")


@pytest.mark.parametrize(("method", "path"), [("GET", "/predict"), ("PUT", "/explain"), ("POST", "/health")])
def test_other_methods_are_refused(client, method, path):
    response = client.request(method, path, headers={"content-type": "application/json"}, content=b"{}")
    refused(response, 405, method)
    assert response.headers["allow"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.com"])
def test_other_names_are_refused(client, host):
    """A page of evil.example whose name was made to point here would be of one origin with the server."""
    for method, path in (("GET", "/health"), ("POST", "/predict"), ("GET", "/")):
        refused(client.request(method, path, headers={"host": host}), 403, "--allow-host")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9", "127.0.0.1:8000", "[::1]:8000", "127.8.8.8", "localhost."]
)
def test_the_names_of_this_machine(client, host):
    assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["", "[::1].evil.com", "127.0.0.1:9@evil.com", "[::1", "::1", "127.0.0.1:", "localhost:x", "a b", "[::1]:8000.b"],
)
def test_a_valid_host_must_be_named(client, host):
    refused(client.get("/health", headers={"host": host}), 400, "host")


def test_more_names_can_be_allowed(runs):
    with client_of(runs, hosts=("models.example",)) as client:
        assert client.get("/health", headers={"host": "Models.example:8000"}).status_code == 200
        refused(client.get("/health", headers={"host": "other.example"}), 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "http://localhost:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_pages_elsewhere_cannot_drive_it(client, headers):
    refused(client.post("/predict", json=GOOD, headers=headers), 403, "other sites")


def test_its_own_page_can(client):
    headers = {"origin": AT_HOME, "sec-fetch-site": "same-origin"}
    assert client.post("/predict", json=GOOD, headers=headers).status_code == 200


def test_no_other_site_may_read(client):
    preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for response in (client.get("/health", headers=preflight), client.options("/predict", headers=preflight)):
        assert not any(name.startswith("access-control") for name in response.headers)


def test_a_token(runs):
    with client_of(runs, token="s3cret") as client:
        response = client.post("/predict", json=GOOD)
        refused(response, 401, "requires a token")
        assert response.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer other", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret", "Bearer", "Bearer é"):
            headers = {"authorization": wrong.encode("latin-1")}
            refused(client.get("/health", headers=headers), 401)
        for path in ("/health", "/openapi.json"):
            refused(client.get(path), 401)
            assert client.get(path, headers={"authorization": "Bearer s3cret"}).status_code == 200
        assert client.get("/openapi.json", headers={"authorization": "bearer s3cret"}).json()["security"]
        for path in ("/", "/docs"):
            page = client.get(path)
            assert page.status_code == 200
            assert "frozen" not in page.text


def test_headers_of_safety(client):
    for path in ("/", "/docs", "/health", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (json.dumps({"texts": ["abc"]}).encode("utf-16-le"), "byte 0"),
        (json.dumps({f"k{i}": 0 for i in range(200)}).encode(), "64 fields"),
        (b'{"texts": [' + b"[]," * 1100 + b"[]]}", "1,000 lists"),
    ],
)
def test_bodies_that_would_take_long_are_refused_at_once(client, body, words):
    refused(client.post("/predict", content=body, headers={"content-type": "application/json"}), 400, words)


def test_colons_in_a_text_are_no_fields(client):
    assert client.post("/predict", json={"texts": [":" * 300 + "[" * 1200]}).status_code == 200
