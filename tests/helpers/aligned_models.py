"""What `test_alignment_models` and other tests share."""

import json
import random

import pytest

import runs
import sightline
from frozen_run import FROZEN
from sightline.align.links import GoldLinks
from sightline.text.tokeniser import Tokeniser

HAN = "一二三四五六七八"


@pytest.fixture(scope="module")
def backwards(tmp_path_factory):
    """The frozen run writes its letters backwards. Spelled in Chinese, every letter is a word."""
    run = sightline.load(FROZEN[0])
    data = json.loads((FROZEN[0] / "source.json").read_text())
    spelled = dict(zip("abcdefgh", HAN, strict=True))
    data["model"]["vocab"] = {spelled.get(piece, piece): index for piece, index in data["model"]["vocab"].items()}
    path = tmp_path_factory.mktemp("tokeniser") / "source.json"
    path.write_text(json.dumps(data))
    tokeniser = Tokeniser.load(path)
    return runs.translator(run.model, tokeniser, tokeniser, "backwards", config=run.config)


@pytest.fixture(scope="module")
def reversal():
    generator = random.Random(0)
    sources = ["".join(generator.sample(HAN, generator.randint(3, 5))) for _ in range(24)]
    links = [frozenset((len(text) - 1 - place, place) for place in range(len(text))) for text in sources]
    return sources, [text[::-1] for text in sources], [GoldLinks(one, one) for one in links]
