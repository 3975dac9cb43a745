"""The server as a process: slow clients, too many of them, and a stop in the middle of the work."""

import json
import signal
import socket
import sys
import threading
import time

import pytest

from frozen_run import FROZEN
from invoke import run
from server_samples import connect, head, post, process_of, read_answer
from sightline.cli.serve import named

RUN = FROZEN[-1]
BODY = json.dumps({"texts": ["abc"]}).encode()


@pytest.fixture(scope="module")
def port():
    with process_of(RUN, "--max-reading", "1", "--max-waiting", "2", "--max-connections", "24") as (process, port):
        yield port
        assert process.poll() is None, "whatever the tests did, it still lives"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_it_answers(port):
    status, headers, found = post(port, "/predict", {"texts": ["abc", "hgfe"]})
    assert status == 200
    assert [some[0]["text"] for some in found["predictions"]] == ["cba", "efgh"]
    assert found["run"] == RUN.name
    assert "server" not in headers


def test_no_path_of_the_disk_is_shown(port):
    _, _, found = post(port, "/explain", {"text": "abc"})
    assert found["title"] == RUN.name
    assert str(RUN.parent) not in json.dumps(found)


def test_a_connection_is_kept(port):
    with connect(port) as connection:
        for _ in range(3):
            connection.sendall(head("/predict", len(BODY)) + BODY)
            assert read_answer(connection)[0] == 200
        connection.sendall((head("/predict", len(BODY)) + BODY) * 2)  # one behind the other, without waiting
        assert read_answer_twice(connection) == [200, 200]


def read_answer_twice(connection):
    content = b""
    while content.count(b'"predictions"') < 2:
        content += connection.recv(65536)
    return [int(part[:3]) for part in content.split(b"HTTP/1.1 ")[1:]]


def test_a_client_that_says_nothing_is_let_go(port):
    began = time.monotonic()
    with connect(port) as silent, connect(port) as slow:
        slow.sendall(head("/predict", len(BODY))[:40])
        for connection in (silent, slow):
            status, headers, found = read_answer(connection)
            assert (status, headers["connection"]) == (408, "close")
            assert "within 1 seconds" in found["error"]
            assert connection.recv(1) == b""
    assert time.monotonic() - began < 8


def test_a_slow_body_is_not_waited_for(port):
    with connect(port) as connection:
        connection.sendall(head("/predict", 1000))
        for _ in range(8):  # a byte now and then does not help: what counts is when the body is whole
            connection.sendall(b" ")
            time.sleep(0.1)
        before = time.monotonic()
        status, headers, found = read_answer(connection)
        assert time.monotonic() - before < 5
        assert (status, headers["connection"]) == (408, "close")
        assert "did not arrive within 1 seconds" in found["error"]
        assert post(port, "/predict", {"texts": ["abc"]})[0] == 200


def test_a_huge_body_is_refused_before_it_has_come(port):
    with connect(port) as connection:
        connection.sendall(head("/predict", 10**12))
        status, _, found = read_answer(connection)
        assert status == 413
        assert "1,048,576 bytes" in found["error"]


@pytest.mark.parametrize("more", [{}, {"content_length": "5"}], ids=["alone", "with a length"])
def test_a_body_in_chunks_is_refused_before_its_chunks_are_read(port, more):
    """A chunk of one byte takes as long as a large one, so a client could keep the server busy."""
    with connect(port) as connection:
        connection.sendall(head("/predict", None, transfer_encoding="chunked", **more) + b"1\r\na\r\n" * 20_000)
        status, headers, found = read_answer(connection)
        assert (status, headers["connection"]) == (411, "close")
        assert "Content-Length" in found["error"]
    assert post(port, "/predict", {"texts": ["abc"]})[0] == 200


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00\x01" * 10, b"GET / HTTP/1.1\r\n\r\n", b"A" * 70_000])
def test_what_is_not_http(port, noise):
    with connect(port) as connection:
        connection.sendall(noise)
        status, _, found = read_answer(connection)
        assert status == 400
        assert "HTTP" in found["error"] or "host" in found["error"]


def test_a_full_queue_and_too_many_connections_are_refused(port):
    """Much work for one worker: two wait, the others are told to come back, and nobody is forgotten."""
    work = {"texts": ["abcdefgh" * 12] * 60, "beam": 4}
    found = []
    threads = [threading.Thread(target=lambda: found.append(post(port, "/predict", work))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    statuses = sorted(status for status, _, _ in found)
    assert len(statuses) == 6
    assert set(statuses) == {200, 503}
    refused = next(one for one in found if one[0] == 503)
    assert refused[1]["retry-after"] == "1"
    assert "2 requests wait already" in refused[2]["error"]
    idle = [connect(port) for _ in range(24)]
    try:
        status, headers, answer = post(port, "/predict", {"texts": ["abc"]})
        assert (status, headers["retry-after"]) == (503, "1")
        assert "connections" in answer["error"]
    finally:
        for connection in idle:
            connection.close()


@pytest.mark.slow
def test_a_stop_answers_what_was_accepted():
    with process_of(RUN, SIGHTLINE_TOKEN="") as (process, port):
        pass_on = {"texts": ["abcdefgh" * 4] * 8}
        open_connections = [connect(port) for _ in range(8)]
        body = json.dumps(pass_on).encode()
        for connection in open_connections:
            connection.sendall(head("/predict", len(body)) + body)
        idle = connect(port)
        while json.loads(get(port, "/health"))["waiting"] == 0:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        for connection in open_connections:
            status, _, found = read_answer(connection)
            assert status == 200
            assert len(found["predictions"]) == 8
            connection.close()
        assert process.wait(20) == 0
        idle.close()
        assert "every request was answered" in process.stderr.read()
        with pytest.raises(OSError):
            connect(port)


def get(port, path):
    with connect(port) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        return json.dumps(read_answer(connection)[2])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "name the run folder"),
        (("nothing-here",), "nothing-here"),
        ((RUN, "--port", "70000"), "--port is 70000"),
        ((RUN, "--host", "no such host"), "no address for --host no such host"),
        ((RUN, "--host", "0.0.0.0", "--port", "0"), "give a --token"),
        ((RUN, "--token", "two words"), "without spaces"),
        ((RUN, "--max-seconds", "0"), "the limit on seconds is 0"),
    ],
    ids=str,
)
def test_what_cannot_be_served(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.delenv("SIGHTLINE_TOKEN", raising=False)
    done = run("serve", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", RUN, "--port", taken.getsockname()[1], cwd=tmp_path)
    assert done.returncode == 2
    assert "choose another --port" in done.stderr


def test_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = run("serve", RUN, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'sightline[serve]'" in done.stderr


def test_names_are_those_of_the_folders():
    found = named([RUN, RUN])
    assert list(found) == [RUN.name, f"{RUN.name} (2)"]
    assert [run.name for run in found.values()] == list(found)
