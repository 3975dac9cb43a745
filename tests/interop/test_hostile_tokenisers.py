"""A tokenizer.json that was made to do harm is refused in one sentence, by a process that can be killed."""

import json
import os

import pytest

from foreign_models import word_pieces
from hostile_folders import hostile_huggingface, hostile_tokenisers
from sightline.errors import UserError
from sightline.interop.pieces import Pieces
from sightline.interop.tokens import PretrainedTokeniser, check_sizes

CASES = hostile_tokenisers()
GOOD = json.loads(word_pieces().to_str())
TEXT = "the unhappy cat aaaaaaaaaaaaaaaaaaaaaaaaaaa"


@pytest.fixture
def written(tmp_path):
    def write(case):
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps({**GOOD, **CASES.get(case, {})}))
        return path

    return write


@pytest.mark.parametrize(
    "case",
    ["a replacement of a million for each character", "a precompiled map that is too short", "a pattern that is none"],
)
def test_a_hostile_tokeniser_is_one_sentence(case, written):
    path = written(case)
    with pytest.raises(UserError) as error:
        Pieces(path).encode(TEXT)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError):
        PretrainedTokeniser.load(path)


@pytest.mark.parametrize(
    "case", ["two million template tokens", "a template that repeats the text", "a special token of a million ids"]
)
def test_unreasonable_sizes_are_refused_before_the_library_sees_them(case):
    with pytest.raises(UserError, match="post_processor adds more than 64 tokens"):
        check_sizes({**GOOD, **CASES[case]}, "a.json")


def test_a_tokeniser_that_does_not_come_back_is_killed_and_started_again(written, monkeypatch):
    pieces = Pieces(written("good"))
    expected = pieces.encode("the cat")
    process = pieces._process._process
    os.kill(process.pid, 19)  # SIGSTOP
    monkeypatch.setattr("sightline.interop.pieces.WORKING", 0.2)
    with pytest.raises(UserError, match="too much time or memory"):
        pieces.encode("the cat")
    assert process.poll() is not None
    monkeypatch.setattr("sightline.interop.pieces.WORKING", 60.0)
    assert pieces.encode("the cat") == expected


def test_there_are_enough_for_the_benchmark():
    assert len(hostile_huggingface()) >= 40
