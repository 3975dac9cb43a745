"""Configuration: JSON there and back, clear errors, and third parties by entry point."""

import json

import pytest

from sightline import config as config_module
from sightline.attention import (
    AdditiveConfig,
    AlibiConfig,
    AttentionConfig,
    ComposedConfig,
    LocalConfig,
    MultiHeadConfig,
    ScaledDotConfig,
    SparsemaxConfig,
)
from sightline.config import ConfigError, config_class, kinds
from sightline.testing import check_attention, laws

pytestmark = pytest.mark.fast


def test_nested_configs_survive_json():
    config = MultiHeadConfig(
        heads=4, key_heads=2, inner=ComposedConfig(ScaledDotConfig(AlibiConfig()), SparsemaxConfig()), bias=False
    )
    data = json.loads(config.dumps())
    assert data["inner"]["score"] == {"kind": "scaled_dot", "relative": {"kind": "alibi"}}
    assert AttentionConfig.from_json(data) == config


def test_names_stand_for_defaults():
    assert AttentionConfig.from_json("additive") == ComposedConfig(AdditiveConfig())
    assert AttentionConfig.from_json("concat") == ComposedConfig(AdditiveConfig())
    assert AttentionConfig.from_json("local") == LocalConfig()
    found = AttentionConfig.from_json({"kind": "multi_head", "heads": 2, "inner": "additive"})
    assert found == MultiHeadConfig(heads=2, inner=ComposedConfig(AdditiveConfig()))


def test_every_kind_loads_and_says_its_name():
    for family in config_module.BUILT_IN:
        for kind in kinds(family):
            found = config_class(family, kind)
            assert found.family == family
            assert found.kind == ("additive" if kind == "concat" else kind)


WRONG = {
    '{"kind": "multihead"}': "attention has no kind 'multihead'; did you mean 'multi_head'?",
    '{"kind": "multi_head", "head": 2}': "attention has no field 'head'; did you mean 'heads'?",
    '{"kind": "multi_head", "heads": "2"}': "attention.heads: expected int, found '2'",
    '{"kind": "multi_head", "heads": true}': "attention.heads: expected int, found True",
    '{"kind": "multi_head", "heads": 2.5}': "attention.heads: expected int, found 2.5",
    '{"kind": "multi_head", "bias": 1}': "attention.bias: expected bool, found 1",
    '{"kind": "multi_head", "heads": 0}': "attention: heads is 0; it must be at least 1",
    '{"kind": "composed", "score": {"kind": "additiv"}}': "score has no kind 'additiv'; did you mean 'additive'?",
    '{"kind": "composed", "score": 3}': "attention.score: expected an object or the name of a kind, found 3",
    '{"kind": "composed", "score": {"kind": "cosine", "strength": NaN}}': "strength: expected a finite number",
    '{"kind": "local", "place": "here"}': "attention.place: expected one of 'monotonic', 'predicted', found 'here'",
    '{"kind": ["composed"]}': r"attention.kind: expected a name, found \['composed'\]",
    '{"kind": "os.system"}': "attention has no kind 'os.system'",
    "[1, 2]": "expected an object or the name of a kind",
    "{": "not JSON",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_json_is_one_sentence(text):
    with pytest.raises(ConfigError, match=WRONG[text]) as caught:
        AttentionConfig.loads(text)
    assert "\n" not in str(caught.value)


STRANGER = '''
from dataclasses import dataclass
from typing import ClassVar

import torch
from sightline.attention import Score, ScoreConfig


class Distance(Score):
    """Near is alike: minus the squared distance."""

    def forward(self, query, keys, position):
        return -(query.unsqueeze(-2) - keys.unsqueeze(-3)).square().sum(-1)


@dataclass(frozen=True)
class DistanceConfig(ScoreConfig):
    kind: ClassVar[str] = "distance"

    def build(self, query_size, key_size, *, heads=()):
        return Distance()
'''


@pytest.fixture
def _an_installed_stranger(tmp_path, monkeypatch):
    """A package of somebody else's, as pip would leave it: a module, and metadata with an entry point."""
    (tmp_path / "stranger.py").write_text(STRANGER)
    metadata = tmp_path / "stranger-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    points = "[sightline.score]\ndistance = stranger:DistanceConfig\nfake = os:getcwd\ndot = stranger:DistanceConfig\n"
    (metadata / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_an_installed_stranger")
def test_a_stranger_is_found_by_its_entry_point_and_keeps_the_laws():
    assert "distance" in kinds("score")
    config = AttentionConfig.from_json("distance")
    assert check_attention(config) == list(laws())
    check_attention(MultiHeadConfig(heads=2, inner=ComposedConfig(config.score, SparsemaxConfig())))
    wrapped = AttentionConfig.from_json({"kind": "multi_head", "heads": 4, "key_heads": 2, "inner": "distance"})
    check_attention(wrapped)


@pytest.mark.usefixtures("_an_installed_stranger")
def test_a_stranger_cannot_replace_what_is_built_in_nor_be_anything():
    assert config_class("score", "dot").__module__ == "sightline.attention.dot"
    with pytest.raises(ConfigError, match="the entry point 'os:getcwd' is not a configuration of family 'score'"):
        config_class("score", "fake")
