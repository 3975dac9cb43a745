"""Configuration: frozen dataclasses to JSON and back, and the lazy table of kinds.

A configuration stands beside the class it configures and builds it. In Python, types compose; in JSON a nested
configuration is an object with a ``"kind"``, looked up in the table below (built in) or among the installed entry
points (third parties). Nothing is ever imported because a file named it: a kind that is in neither is an error.
"""

import dataclasses
import difflib
import functools
import importlib
import importlib.metadata
import json
import logging
import math
import reprlib
import types
import typing
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_ATTENTION = "sightline.attention"

# family -> kind -> where its configuration lives. Strings, so that listing kinds imports nothing.
BUILT_IN: dict[str, dict[str, str]] = {
    "score": {
        "dot": f"{_ATTENTION}.dot:DotConfig",
        "scaled_dot": f"{_ATTENTION}.dot:ScaledDotConfig",
        "general": f"{_ATTENTION}.dot:GeneralConfig",
        "cosine": f"{_ATTENTION}.dot:CosineConfig",
        "additive": f"{_ATTENTION}.additive:AdditiveConfig",
        "concat": f"{_ATTENTION}.additive:AdditiveConfig",
        "fixed": f"{_ATTENTION}.fixed:FixedConfig",
    },
    "relative_position": {
        "rotary": f"{_ATTENTION}.position:RotaryConfig",
        "alibi": f"{_ATTENTION}.position:AlibiConfig",
        "t5": f"{_ATTENTION}.position:T5BucketsConfig",
    },
    "normaliser": {
        "softmax": f"{_ATTENTION}.normalisers:SoftmaxConfig",
        "sparsemax": f"{_ATTENTION}.normalisers:SparsemaxConfig",
        "entmax15": f"{_ATTENTION}.normalisers:Entmax15Config",
        "hard": f"{_ATTENTION}.hard:HardConfig",
    },
    "attention": {
        "composed": f"{_ATTENTION}.compose:ComposedConfig",
        "local": f"{_ATTENTION}.local:LocalConfig",
        "coverage": f"{_ATTENTION}.coverage:CoverageConfig",
        "location_aware": f"{_ATTENTION}.location:LocationAwareConfig",
        "multi_head": f"{_ATTENTION}.multi_head:MultiHeadConfig",
        "addressing": f"{_ATTENTION}.addressing:AddressingConfig",
    },
    "pooling": {"pooling": f"{_ATTENTION}.pooling:PoolingConfig"},
    "text_to_text": {
        "seq2seq": "sightline.models.seq2seq:Seq2SeqConfig",
        "luong": "sightline.models.luong:LuongConfig",
        "grammar": "sightline.models.grammar:GrammarConfig",
        "rnnsearch": "sightline.models.rnnsearch:RNNSearchConfig",
        "transformer": "sightline.models.transformer:TransformerConfig",
        "universal_transformer": "sightline.models.universal_transformer:UniversalTransformerConfig",
    },
    "image_encoder": {
        "cnn": "sightline.nn.image:CNNConfig",
        "efficientnet_lite0": "sightline.nn.efficientnet:EfficientNetLite0Config",
        "timm": "sightline.nn.timm:TimmConfig",
    },
    "image_to_labels": {"attentive": "sightline.models.image_to_labels:ImageToLabelsConfig"},
    "image_to_text": {
        "show_attend_tell": "sightline.models.show_attend_tell:ShowAttendTellConfig",
        "transformer": "sightline.models.captioning_transformer:CaptioningTransformerConfig",
    },
    "series_to_labels": {"attentive": "sightline.models.series_to_labels:SeriesToLabelsConfig"},
    "series_to_text": {
        "listen_attend_spell": "sightline.models.listen_attend_spell:ListenAttendSpellConfig",
        "ctc": "sightline.models.listen_attend_spell:CTCConfig",
        "transformer": "sightline.models.series_transformer:SeriesTransformerConfig",
    },
    "thinking": {
        "fixed": "sightline.nn.thinking:FixedRepeatsConfig",
        "act": "sightline.nn.thinking:AdaptiveConfig",
        "ponder": "sightline.nn.thinking:PonderingConfig",
    },
    "series_to_series": {
        "encoder_decoder": "sightline.models.series_to_series:SeriesToSeriesConfig",
        "ntm": "sightline.models.turing:TuringMachineConfig",
        "dnc": "sightline.models.computer:NeuralComputerConfig",
        "lstm": "sightline.models.recurrent_steps:RecurrentStepsConfig",
        "transformer": "sightline.models.transformer_steps:TransformerStepsConfig",
        "universal": "sightline.models.transformer_steps:UniversalStepsConfig",
    },
    "asker": {
        "neural_programmer": "sightline.models.neural_programmer:NeuralProgrammerConfig",
        "cell_reader": "sightline.models.cell_reader:CellReaderConfig",
    },
    "series_to_positions": {"pointer": "sightline.models.pointer:PointerConfig"},
    "grid_model": {
        "at_once": "sightline.models.grid_at_once:AtOnceConfig",
        "sequential": "sightline.models.grid_sequential:SequentialConfig",
        "single": "sightline.models.grid_at_once:SingleConfig",
    },
    "text_model": {
        "attentive": "sightline.models.attentive:AttentiveConfig",
        "han": "sightline.models.han:HANConfig",
        "encoder": "sightline.models.encoder:EncoderConfig",
        "nb_svm": "sightline.models.nb_svm:NBSVMConfig",
        "universal": "sightline.models.universal:UniversalConfig",
    },
}


LOG = logging.getLogger(__name__)
SomeConfig = TypeVar("SomeConfig", bound="Config")


class ConfigError(ValueError):
    """A configuration that cannot be read, said in one sentence."""


class Config(ABC):  # noqa: B024 - each family has a build() of its own
    """The base of every configuration: a frozen dataclass with a family and a kind."""

    family: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    renamed: ClassVar[Mapping[str, str]] = {}  # earlier names of fields: runs have them, and --set warns of them

    def to_json(self) -> dict[str, Any]:
        """A dictionary that `json` can write, every field in it."""
        assert dataclasses.is_dataclass(self)
        fields = {field.name: _encode(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return {"kind": self.kind, **fields} if self.kind else fields

    @classmethod
    def from_json(cls: "type[SomeConfig]", data: Any) -> "SomeConfig":
        """Read what `to_json` wrote. ``data`` may be the dictionary, or a kind's name for all its defaults."""
        config = _decode_config(cls, data, cls.kind or cls.family or cls.__name__)
        return typing.cast(SomeConfig, config)

    @classmethod
    def read_name(cls, name: str) -> dict[str, object]:
        """What a bare name stands for where this family is expected: that kind, with its defaults."""
        return {"kind": name}

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False)

    @classmethod
    def loads(cls: "type[SomeConfig]", text: str) -> "SomeConfig":
        try:
            return cls.from_json(json.loads(text, object_pairs_hook=_without_duplicates))
        except json.JSONDecodeError as error:
            raise ConfigError(f"not JSON: {error}") from None
        except RecursionError:
            raise ConfigError("nested too deeply to be a configuration") from None
        except ValueError as error:  # also a number too long to be one
            raise error if isinstance(error, ConfigError) else ConfigError(f"not JSON: {error}") from None


def kinds(family: str) -> list[str]:
    """The names of every kind of a family, built in and installed, without importing any of them."""
    return sorted({*BUILT_IN.get(family, {}), *_entry_points(family)})


def config_class(family: str, kind: str) -> type[Config]:
    """The configuration class of a kind. Built-in kinds cannot be replaced by an installed package."""
    table = BUILT_IN.get(family, {})
    if kind in table:
        module, _, name = table[kind].partition(":")
        return getattr(importlib.import_module(module), name)
    installed = _entry_points(family)
    if kind in installed:
        loaded = installed[kind].load()
        if not (isinstance(loaded, type) and issubclass(loaded, Config) and loaded.family == family):
            raise ConfigError(f"the entry point {installed[kind].value!r} is not a configuration of family {family!r}")
        return loaded
    raise ConfigError(f"{family} has no kind {_short(kind)}{_nearest(kind, kinds(family))}")


def override(config: SomeConfig, assignments: Sequence[str]) -> SomeConfig:
    """The configuration with some fields changed: ``("model.size=256", "model.attention=additive")``.

    A value is read as JSON where it is JSON and as text where it is not; what the field takes is checked as in a file.
    The fields of a kind can be set with its name, in any order: ``("encoder=cnn", "encoder.size=32")``.
    """
    data = config.to_json()
    whole_ones: list[list[str]] = []  # what was given whole, by its name or as JSON
    for given, value in sorted(map(_assignment, assignments), key=lambda one: one[0].count(".")):
        path = _current_path(type(config), data, given)
        *parents, last = path.split(".")
        if any(parents[: len(one)] == one for one in whole_ones):
            data = type(config).from_json(data).to_json()  # what was given has all of its fields from here on
            whole_ones.clear()
        node, whole = data, True
        for name in parents:
            if name in node and node[name] is None:
                node[name] = {}  # what was left out begins with its defaults
            if not isinstance(node.get(name), dict):
                advice = "" if name in node else _nearest(name, list(node))
                raise ConfigError(f"{path}: there is no {name!r} with fields{advice}")
            node, whole = node[name], bool(node[name])
        if whole and last not in node:
            below = [f"{name}.{last}" for name, inner in node.items() if isinstance(inner, dict) and last in inner]
            advice = f"; did you mean {below[0]!r}?" if below else _nearest(last, list(node))
            raise ConfigError(f"{path}: there is no field {last!r}{advice}")
        if isinstance(value, str) and isinstance(node.get(last), dict) and "kind" not in node[last]:
            raise ConfigError(
                f"{path} is no choice between kinds; set one of its fields: {_some_fields(path, node[last])}"
            )
        node[last] = value
        whole_ones += [[*parents, last]] if isinstance(value, str | dict) else []
        data = data if whole else type(config).from_json(data).to_json()
    return type(config).from_json(data)


def _current_path(kind: type[Config], data: dict[str, Any], path: str) -> str:
    """The path with the new names of fields that were renamed, and a warning where it has an old one."""
    names: list[str] = []
    node: Any = data
    for name in path.split("."):
        names.append(kind.renamed.get(name, name))
        node = node.get(names[-1]) if isinstance(node, dict) else None
        kind = _class_below(kind, names[-1], node)
    current = ".".join(names)
    if current != path:
        LOG.warning(f"{path} is now called {current}; the old name works in this release only")
    return current


def _class_below(kind: type[Config], name: str, data: Any) -> type[Config]:
    """The configuration class of a field, which its data may name; `Config` where the field is no configuration."""
    hint = _type_hints(kind).get(name)
    below = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, Config)]
    if not below:
        return Config
    named = data if isinstance(data, str) else data.get("kind") if isinstance(data, dict) else None
    try:
        return config_class(below[0].family, named) if isinstance(named, str) else below[0]
    except ConfigError:  # the name is refused where it is read
        return below[0]


def _assignment(text: str) -> tuple[str, Any]:
    """A field and what it becomes. ``encoder.kind=cnn`` is ``encoder=cnn``."""
    path, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} sets nothing; expected a field and a value, such as model.size=256")
    try:
        decoded = json.loads(value)
    except json.JSONDecodeError:
        decoded = value
    path = path.strip()
    return (path.removesuffix(".kind") if isinstance(decoded, str) else path), decoded


def _some_fields(path: str, fields: dict[str, Any]) -> str:
    return ", ".join(f"{path}.{name}=…" for name in list(fields)[:3])


def _entry_points(family: str) -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=f"sightline.{family}")}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a field stand twice, and readers differ in which one counts: here neither does."""
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the field {_short(twice)} occurs twice")
    return data


def _short(value: Any) -> str:
    """A value as it is shown in an error: never a screenful."""
    return reprlib.repr(value)


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there is {', '.join(known) or 'none'}"


def _encode(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_json()
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode_config(expected: type[Config], data: Any, where: str) -> Config:
    if isinstance(data, str):
        data = expected.read_name(data)
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected an object or the name of a kind, found {_short(data)}")
    data = dict(data)
    kind = data.pop("kind", expected.kind)
    if not isinstance(kind, str):
        raise ConfigError(f"{where}.kind: expected a name, found {_short(kind)}")
    if not kind and not dataclasses.is_dataclass(expected):
        raise ConfigError(f"{where}: kind is missing; there is {', '.join(kinds(expected.family))}")
    # A class of this very kind is there already; nothing has to be looked up.
    chosen = (
        expected
        if kind == expected.kind and dataclasses.is_dataclass(expected)
        else config_class(expected.family, kind)
    )
    if not issubclass(chosen, expected):
        raise ConfigError(f"{where}: kind {kind!r} is not a {expected.__name__}")
    hints = _type_hints(chosen)
    names = [field.name for field in dataclasses.fields(chosen)]  # type: ignore[arg-type]
    for old, new in chosen.renamed.items():
        if old in data and new in data:
            raise ConfigError(f"{where} has the fields {old!r} and {new!r}; the first is the second by its old name")
        if old in data:
            data[new] = data.pop(old)
    for name in data:
        if name not in names:
            raise ConfigError(f"{where} has no field {_short(name)}{_nearest(name, names)}")
    values = {name: _decode(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        return chosen(**values)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, ConfigError) else ConfigError(f"{where}: {error}") from None


@functools.cache
def _type_hints(owner: type) -> dict[str, Any]:
    return get_type_hints(owner)


def _decode(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(hint, value, where)
    if origin is Literal:
        if value not in get_args(hint):
            raise ConfigError(f"{where}: expected one of {', '.join(map(repr, get_args(hint)))}, found {_short(value)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list, found {_short(value)}")
        return tuple(_decode(get_args(hint)[0], item, where) for item in value)
    if isinstance(hint, type) and issubclass(hint, Config):
        return value if isinstance(value, hint) else _decode_config(hint, value, where)
    return _decode_plain(hint, value, where)


def _decode_union(hint: Any, value: Any, where: str) -> Any:
    options = get_args(hint)
    if value is None and type(None) in options:
        return None
    (option,) = [option for option in options if option is not type(None)]
    return _decode(option, value, where)


def _decode_plain(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            raise ConfigError(f"{where}: expected a number that fits, found {_short(value)}") from None
    # bool is an int to Python; to a reader of a file it is not.
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where}: expected {hint.__name__}, found {_short(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: expected a finite number, found {_short(value)}")
    return value
