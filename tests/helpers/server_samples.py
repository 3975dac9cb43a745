"""A server for the tests: runs to serve, a client in this process, and a process of its own on a free port."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from starlette.testclient import TestClient

from runs import translator
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.transformer import TransformerConfig
from sightline.serve import application
from sightline.tasks.run import Run
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser

FIXTURES = Path(__file__).parents[1] / "fixtures"
FROZEN = sorted(FIXTURES.glob("run-format-*"))
TEXTS = ["the old dog sleeps", "a dog and the cat", "cats sleep, dogs dream"] * 20
AT_HOME = "http://127.0.0.1:8000"


def made(config, name):
    """A tiny model with random weights, sharp enough to look somewhere."""
    import torch

    torch.manual_seed(0)
    tokeniser = train_tokeniser(TEXTS, TokeniserConfig(vocab_size=400))
    model = config.build(tokeniser.words, tokeniser.words).eval()
    for parameter in model.parameters():
        parameter.data *= 2
    return translator(model, tokeniser, tokeniser, name)


def some_runs():
    """The frozen run, a Transformer, and a model without any attention."""
    return {
        "frozen": replace(Run.load(FROZEN[-1]), name="frozen"),
        "transformer": made(TransformerConfig(16, 2, 32, 1, 1, dropout=0.0), "transformer"),
        "blind": made(Seq2SeqConfig(8, 8, dropout=0.0), "blind"),
    }


@contextlib.contextmanager
def client_of(runs, **options):
    """A client of an application that lives as long as the block."""
    with TestClient(application(runs, **options), base_url=AT_HOME) as client:
        yield client


def refused(response, status, *words):
    """A small JSON with one sentence."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    sentence = response.json()["error"]
    assert len(sentence) < 400
    for word in words:
        assert word in sentence
    return sentence


class Gate:
    """Holds the worker inside a run's predictions until it is opened; says what it was asked to do together."""

    def __init__(self, run, monkeypatch):
        self.inside, self.opened, self.batches = threading.Event(), threading.Event(), []
        raw = Run.raw

        def held(self_, xs, **options):
            if self_ is run:
                self.batches.append(list(xs))
                self.inside.set()
                assert self.opened.wait(60)
            return raw(self_, xs, **options)

        monkeypatch.setattr(Run, "raw", held)


@contextlib.contextmanager
def process_of(*arguments, **environment):
    """`sightline serve` in a process of its own: (process, port). Killed at the end if it still lives."""
    command = [sys.executable, "-W", "error", "-m", "sightline", "serve", *map(str, arguments), "--port", "0"]
    started = subprocess.Popen(
        [*command, "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        line = started.stdout.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if port is None:
            started.kill()
            pytest.fail(f"{line}{started.stderr.read()}")
        started.stdout.readline()
        yield started, int(port[1])
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def head(path, length, **headers):
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    text = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{more}"
    return (text + (f"content-length: {length}\r\n\r\n" if length is not None else "\r\n")).encode()


def read_answer(connection):
    """(status, headers, parsed body) of one answer."""
    content = b""
    while b"\r\n\r\n" not in content:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError(f"closed after {content!r}")
        content += part
    start, _, body = content.partition(b"\r\n\r\n")
    lines = start.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    while len(body) < int(headers["content-length"]):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("closed inside the body")
        body += part
    return int(lines[0].split()[1]), headers, json.loads(body)


def post(port, path, data):
    """One request on a connection of its own."""
    body = json.dumps(data).encode()
    with connect(port) as connection:
        connection.sendall(head(path, len(body)) + body)
        return read_answer(connection)
