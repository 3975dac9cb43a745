"""Options and fields that have a new name: the old one works for a release, with a warning; run folders stay silent."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from invoke import run
from sightline.cli import options
from sightline.cli.options import current_names
from sightline.config import BUILT_IN, Config, ConfigError, override
from sightline.models.encoder import EncoderConfig
from sightline.models.han import HANConfig
from sightline.tasks.configs.caption import CaptionConfig
from sightline.tasks.configs.classify import ClassifyConfig
from sightline.tasks.configs.span import SpanConfig
from sightline.tasks.configs.tag import TagConfig
from sightline.tasks.registry import task_of
from sightline.tasks.task import imported

pytestmark = pytest.mark.fast

FIXTURE = Path(__file__).parents[1] / "fixtures" / "run-format-1"
RUNS = sorted((FIXTURE.parent / "runs").glob("*/run"))
NEW = {
    "longest": "max_length", "words": "vocab_size", "minimum": "min_frequency", "deviation": "init_std",
    "floors": "baselines",
}  # fmt: skip


@dataclass(frozen=True)
class Layer(Config):
    width: int = 4
    family: ClassVar[str] = "renamed_layer"
    kind: ClassVar[str] = "plain"
    renamed: ClassVar[Mapping[str, str]] = {"size": "width"}


@dataclass(frozen=True)
class Other(Layer):
    depth: int = 1
    kind: ClassVar[str] = "other"
    renamed: ClassVar[Mapping[str, str]] = {**Layer.renamed, "layers": "depth"}


@dataclass(frozen=True)
class Whole(Config):
    layer: Layer = field(default_factory=Layer)
    spare: Layer | None = None
    max_length: int = 10
    kind: ClassVar[str] = "whole"
    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length", "encoder": "layer"}


@pytest.fixture(autouse=True)
def _kinds(monkeypatch):
    monkeypatch.setitem(BUILT_IN, "renamed_layer", {"plain": f"{__name__}:Layer", "other": f"{__name__}:Other"})


def test_a_file_with_old_names_is_read_in_silence(caplog):
    data = {"kind": "whole", "longest": 3, "encoder": {"kind": "other", "size": 5, "layers": 2}}
    assert Whole.from_json(data) == Whole(Other(5, 2), None, 3)
    assert data["longest"] == 3  # what was given is not changed
    assert not caplog.records


def test_both_names_are_an_error():
    with pytest.raises(ConfigError, match="'longest' and 'max_length'; the first is the second by its old name"):
        Whole.from_json({"longest": 3, "max_length": 4})


def test_what_is_written_has_the_new_names():
    assert Whole.from_json({"longest": 3}).to_json()["max_length"] == 3


@pytest.mark.parametrize(
    ("assignments", "expected", "warned"),
    [
        (["longest=3"], Whole(max_length=3), ["longest is now called max_length"]),
        (["max_length=3", "layer.width=2"], Whole(Layer(2), max_length=3), []),
        (["layer.size=7"], Whole(Layer(7)), ["layer.size is now called layer.width"]),
        (["encoder.size=7"], Whole(Layer(7)), ["encoder.size is now called layer.width"]),
        (["encoder=other"], Whole(Other()), ["encoder is now called layer"]),
        (["layer.layers=3", "layer=other"], Whole(Other(4, 3)), ["layer.layers is now called layer.depth"]),
        (["spare.size=9"], Whole(spare=Layer(9)), ["spare.size is now called spare.width"]),
    ],
)
def test_an_old_name_in_set_works_with_a_warning(caplog, assignments, expected, warned):
    assert override(Whole(), assignments) == expected
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == warned
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_name_that_never_was_is_still_an_error():
    with pytest.raises(ConfigError, match="there is no field 'sise'; there is kind, width"):
        override(Whole(), ["layer.sise=3"])
    with pytest.raises(ConfigError, match="there is no field 'layers'"):
        override(Whole(), ["layer.layers=3"])  # of another kind


def test_arguments_of_commands_get_their_new_names(monkeypatch, caplog):
    monkeypatch.setitem(options.RENAMED, "train", {"--most-length": "--max-length", "--quick": "--fast"})
    given = ["--most-length", "3", "--most_length=4", "--quick", "--max-length", "5", "quick", "--text=--quick"]
    expected = ["--max-length", "3", "--max-length=4", "--fast", "--max-length", "5", "quick", "--text=--quick"]
    assert current_names("train", given) == expected
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "--most-length is now called --max-length",
        "--most_length is now called --max-length",
        "--quick is now called --fast",
    ]
    assert current_names("predict", given) == given


def test_a_command_warns_and_works(monkeypatch, tmp_path):
    monkeypatch.setitem(options.RENAMED, "predict", {"--most-length": "--max-length"})
    old = run("predict", FIXTURE, "--text", "1 May 2020", "--most-length", "3", cwd=tmp_path)
    new = run("predict", FIXTURE, "--text", "1 May 2020", "--max-length", "3", cwd=tmp_path)
    assert (old.returncode, old.stdout) == (0, new.stdout)
    warning = "sightline: --most-length is now called --max-length; the old name works in this release only\n"
    assert (old.stderr, new.stderr) == (warning, "")


def test_a_plain_command_warns_and_works(monkeypatch, tmp_path):
    monkeypatch.setitem(options.RENAMED, "mechanisms", {"--as-json": "--json"})
    done = run("mechanisms", "--as-json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{")
    assert "--as-json is now called --json" in done.stderr


def leaves(data, path=()):
    """Every value of nested objects, by the names that lead to it."""
    if not isinstance(data, dict):
        return {path: data}
    return {key: leaf for name, inner in data.items() for key, leaf in leaves(inner, (*path, name)).items()}


@pytest.mark.parametrize("folder", [FIXTURE, *RUNS], ids=lambda path: f"{path.parent.name}-{path.name}")
def test_configurations_of_old_runs_are_read_and_written_with_the_new_names(folder, caplog):
    about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = imported(task_of(folder).variant_of(about["task"]).config).from_json(about["config"])
    old, new = leaves(about["config"]), leaves(config.to_json())
    assert not {name for path in new for name in path} & NEW.keys()
    renamed = {tuple(NEW.get(name, name) for name in path): value for path, value in old.items()}
    assert {path: new[path] for path in renamed} == renamed
    assert type(config).from_json(config.to_json()) == config
    assert not caplog.records


def test_old_runs_have_every_old_name():
    texts = [(folder / "config.json").read_text(encoding="utf-8") for folder in RUNS]
    assert all(any(f'"{name}"' in text for text in texts) for name in NEW)


@pytest.mark.parametrize(
    ("config", "old", "new"),
    [
        (ClassifyConfig(), "tokeniser.words=60", "tokeniser.vocab_size=60"),
        (CaptionConfig(), "tokeniser.minimum=1", "tokeniser.min_frequency=1"),
        (CaptionConfig(), "longest=20", "max_length=20"),
        (SpanConfig(), "longest=200", "max_length=200"),
        (SpanConfig(model=EncoderConfig()), "model.longest=700", "model.max_length=700"),
        (ClassifyConfig(model=HANConfig()), "model.longest=7", "model.max_length=7"),
        (ClassifyConfig(model=HANConfig()), "model.deviation=0.5", "model.init_std=0.5"),
        (TagConfig(), "model.deviation=0.5", "model.init_std=0.5"),
        (ClassifyConfig(), "longest=64", "max_length=64"),
        (ClassifyConfig(), "floors=false", "baselines=false"),
    ],
)
def test_old_fields_of_tasks_can_be_set_with_a_warning(caplog, config, old, new):
    changed = override(config, [new])
    assert changed != config
    assert not caplog.records
    assert override(config, [old]) == changed
    before, after = (one.partition("=")[0] for one in (old, new))
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [f"{before} is now called {after}"]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("longest=2", "max_length is 2"),
        ("tokeniser.words=2", "vocab_size of method 'words' is at least"),
        ("tokeniser.minimum=0", "min_frequency is at least 1"),
        ("tokeniser.minimum=true", r"tokeniser\.min_frequency: expected int"),
        ("model.deviation=0", r"init_std is 0\.0"),
        ("floors=3", r"baselines: expected bool"),
    ],
)
def test_errors_have_the_new_name(assignment, message):
    with pytest.raises(ConfigError, match=message):
        override(ClassifyConfig(), [assignment])
