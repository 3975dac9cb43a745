"""Encoders that others trained: a Hugging Face folder of BERT, RoBERTa, DistilBERT or MiniLM into our own encoder.

The folder may come from a stranger: weights are read from safetensors and never from a pickle, and what config.json
says is compared with what the file holds before anything of that size is made. `transformers` is not needed.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sightline.errors import UserError
from sightline.interop.huggingface import CONFIG, LARGEST_CONFIG, PARTS, PICKLES, TOKENISER, WEIGHTS
from sightline.interop.tokens import CUT, PretrainedTokeniser, read_json
from sightline.models.encoder import Encoder, EncoderConfig
from sightline.nn.transformer import Activation

# BERT, RoBERTa and DistilBERT: what their configurations mean for our encoder, and what their tensors are called.


Kind = Literal["bert", "roberta", "distilbert"]
CLASSES: dict[str, str] = {"bert": "BertModel", "roberta": "RobertaModel", "distilbert": "DistilBertModel"}
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
ACTIVATION_NAMES: dict[Activation, str] = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
MOST = {"layers": 200, "size": 16_384, "heads": 1_024, "feed_forward": 131_072, "longest": 1 << 20, "parts": 16}
MOST_WORDS = 4_000_000


@dataclass(frozen=True)
class Field:
    """What a field of the configuration is called, in BERT's and RoBERTa's files and in DistilBERT's."""

    bert: str
    distilbert: str


FIELDS = {
    "size": Field("hidden_size", "dim"),
    "heads": Field("num_attention_heads", "n_heads"),
    "feed_forward": Field("intermediate_size", "hidden_dim"),
    "layers": Field("num_hidden_layers", "n_layers"),
    "dropout": Field("hidden_dropout_prob", "dropout"),
    "attention_dropout": Field("attention_probs_dropout_prob", "attention_dropout"),
    "activation": Field("hidden_act", "activation"),
}

# A layer's modules: ours, BERT's (and RoBERTa's), DistilBERT's.
_LAYER = (
    ("attention.project_query", "attention.self.query", "attention.q_lin"),
    ("attention.project_keys", "attention.self.key", "attention.k_lin"),
    ("attention.project_values", "attention.self.value", "attention.v_lin"),
    ("attention.output", "attention.output.dense", "attention.out_lin"),
    ("around_attention.normalise", "attention.output.LayerNorm", "sa_layer_norm"),
    ("feed_forward.widen", "intermediate.dense", "ffn.lin1"),
    ("feed_forward.narrow", "output.dense", "ffn.lin2"),
    ("around_feed_forward.normalise", "output.LayerNorm", "output_layer_norm"),
)


def tensor_names(kind: Kind, config: EncoderConfig) -> dict[str, str]:
    """Our names of the encoder's tensors → theirs, without the prefix that a model with a head puts before them."""
    names = {
        "embedding.weight": "embeddings.word_embeddings.weight",
        "positions.weight": "embeddings.position_embeddings.weight",
    }
    if config.parts:
        names["parts.weight"] = "embeddings.token_type_embeddings.weight"
    for part in ("weight", "bias"):
        names[f"embedding_norm.{part}"] = f"embeddings.LayerNorm.{part}"
        if config.pooler:
            names[f"pooler.{part}"] = f"pooler.dense.{part}"
        for layer in range(config.layers):
            for ours, bert, distilbert in _LAYER:
                theirs = f"transformer.layer.{layer}.{distilbert}"
                theirs = theirs if kind == "distilbert" else f"encoder.layer.{layer}.{bert}"
                names[f"layers.{layer}.{ours}.{part}"] = f"{theirs}.{part}"
    return names


def tensor_shapes(config: EncoderConfig, words: int) -> dict[str, tuple[int, ...]]:
    """The shapes that the tensors of our encoder have, without building it."""
    size, wide = config.size, config.feed_forward
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (words, size),
        "positions.weight": (config.longest + config.first_position, size),
        "parts.weight": (config.parts, size),
        "pooler.weight": (size, size),
    }
    for name in tensor_names("bert", config):
        if name in shapes:
            continue
        if name.endswith("bias"):
            shapes[name] = (wide,) if name.endswith("widen.bias") else (size,)
        elif "normal" in name or "norm" in name:
            shapes[name] = (size,)
        else:
            widening, narrowing = name.endswith("widen.weight"), name.endswith("narrow.weight")
            shapes[name] = (wide, size) if widening else (size, wide) if narrowing else (size, size)
    return shapes


def read_config(data: dict[str, Any], where: str) -> tuple[Kind, EncoderConfig, int, int]:
    """Kind, our configuration, words and the id of padding, from a stranger's config.json."""
    kind = data.get("model_type")
    if kind not in list(CLASSES):  # a list: what stands there may be anything, also what no set can hold
        found = repr(kind)[:60] if kind is not None else "none"
        raise UserError(
            f"{where}: model_type is {found}; encoders of type {', '.join(CLASSES)} can be read (MiniLM is a bert)"
        )
    if data.get("position_embedding_type", "absolute") != "absolute":
        found = repr(data["position_embedding_type"])[:60]
        raise UserError(f"{where}: position_embedding_type is {found}; only absolute positions can be read")
    if data.get("is_decoder") or data.get("add_cross_attention"):
        raise UserError(f"{where} is a decoder, which reads only what came before; only encoders can be read")
    field = {name: one.distilbert if kind == "distilbert" else one.bert for name, one in FIELDS.items()}
    numbers = {
        name: _whole(data, field[name], where, MOST[name]) for name in ("size", "heads", "feed_forward", "layers")
    }
    positions = _whole(data, "max_position_embeddings", where, MOST["longest"], 512)
    padding = _whole(data, "pad_token_id", where, MOST_WORDS, 1 if kind == "roberta" else 0, least=0)
    words = _whole(data, "vocab_size", where, MOST_WORDS)
    # RoBERTa numbers its positions behind the id of its padding, a habit of the library it was made with.
    first = padding + 1 if kind == "roberta" else 0
    parts = 0
    if kind != "distilbert":
        parts = _whole(data, "type_vocab_size", where, MOST["parts"], 1 if kind == "roberta" else 2)
    activation = data.get(field["activation"], "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise UserError(f"{where}: {field['activation']} is {repr(activation)[:60]}; there is {', '.join(ACTIVATIONS)}")
    if positions <= first:
        raise UserError(f"{where}: max_position_embeddings is {positions}; it must be above {first}")
    try:
        config = EncoderConfig(
            size=numbers["size"],
            heads=numbers["heads"],
            feed_forward=numbers["feed_forward"],
            layers=numbers["layers"],
            dropout=_share(data, field["dropout"], where),
            attention_dropout=_share(data, field["attention_dropout"], where),
            norm="post",
            positions="learned",
            longest=positions - first,
            first_position=first,
            activation=ACTIVATIONS[activation],
            parts=parts,
            embedding_norm=True,
            scaled=False,
            pooling="first",
            # DistilBERT's configuration does not say: its normalisations have it in the code.
            epsilon=1e-12 if kind == "distilbert" else _share(data, "layer_norm_eps", where, 1e-12),
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if padding >= words:
        raise UserError(f"{where}: pad_token_id is {padding}, but there are only {words:,} words")
    return kind, config, words, padding


def write_config(kind: Kind, config: EncoderConfig, words: int, ids: dict[str, int]) -> dict[str, Any]:
    """The other way round: what goes into config.json. ``ids`` are those of special tokens, by the names of fields."""
    data: dict[str, Any] = {"architectures": [CLASSES[kind]], "model_type": kind, "vocab_size": words, **ids}
    for name, field in FIELDS.items():
        value = getattr(config, name)
        data[field.distilbert if kind == "distilbert" else field.bert] = (
            ACTIVATION_NAMES[config.activation] if name == "activation" else value
        )
    data["max_position_embeddings"] = config.longest + config.first_position
    if kind == "distilbert":
        return data | {"sinusoidal_pos_embds": False}
    return data | {
        "type_vocab_size": config.parts,
        "layer_norm_eps": config.epsilon,
        "position_embedding_type": "absolute",
    }


def _whole(data: dict[str, Any], name: str, where: str, most: int, otherwise: int | None = None, least: int = 1) -> int:
    value = data.get(name, otherwise)
    if type(value) is not int or not least <= value <= most:
        found = "missing" if value is None else f"{value!r}"[:60]
        raise UserError(f"{where}: {name} is {found}; a whole number from {least} to {most:,} is expected")
    return value


def _share(data: dict[str, Any], name: str, where: str, otherwise: float = 0.1) -> float:
    value = data.get(name, otherwise)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise UserError(f"{where}: {name} is {f'{value!r}'[:60]}; a number from 0 and below 1 is expected")
    return float(value)


Pooling = Literal["attention", "first", "mean"]
# What a model with a head puts before the names of its encoder.
PREFIXES = ("", "bert.", "roberta.", "distilbert.", "model.")


class Pretrained(NamedTuple):
    """What a folder holds. ``kind`` is whose encoder it is, ``name`` the folder's."""

    config: EncoderConfig
    tensors: dict[str, Tensor]
    tokeniser: PretrainedTokeniser
    words: int
    kind: Kind
    name: str

    def build(self) -> Encoder:
        """The encoder with these weights. What reads with attention (pooling) is new and has to be trained."""
        encoder = self.config.build(self.words, self.tokeniser.specials)
        missing, unexpected = encoder.load_state_dict(self.tensors, strict=False)
        assert not unexpected
        assert all(name.startswith("pool.") for name in missing)
        return encoder


def load_pretrained(folder: str | Path, pooling: Pooling | None = None) -> Pretrained:
    """Read a folder with config.json, model.safetensors and tokenizer.json.

    ``pooling`` says how one vector is made of a text; left out, it is what the folder was trained with: its pooler's
    (the first token), or what sentence-transformers was told.
    """
    path = Path(folder)
    _check_files(path)
    where = str(path / CONFIG)
    kind, config, words, padding = read_config(read_json(path / CONFIG, LARGEST_CONFIG), where)
    tokeniser = PretrainedTokeniser.load(path / TOKENISER)
    if tokeniser.specials.padding != padding:
        found = tokeniser.specials.padding
        raise UserError(f"{where}: pad_token_id is {padding}, but {TOKENISER} has padding at {found}")
    if tokeniser.words > words:
        raise UserError(f"{where}: vocab_size is {words:,}, but {TOKENISER} has ids up to {tokeniser.words - 1:,}")
    try:
        with safe_open(path / WEIGHTS, framework="pt") as file:
            config, tensors = _read(file, path / WEIGHTS, kind, config, words, _pooling(path, pooling))
    except SafetensorError as error:
        raise UserError(f"{path / WEIGHTS} cannot be read: {str(error)[: 2 * CUT]}") from None
    except OSError as error:
        raise UserError(f"{path / WEIGHTS} cannot be read: {error.strerror or error}") from None
    return Pretrained(config, tensors, tokeniser, words, kind, path.name or path.resolve().name)


def _check_files(path: Path) -> None:
    if not path.is_dir():
        raise UserError(f"there is no folder {path}; a folder with {CONFIG}, {WEIGHTS} and {TOKENISER} is expected")
    if not (path / CONFIG).is_file():
        raise UserError(f"{path} has no {CONFIG}; it is not the folder of a Hugging Face model")
    if not (path / WEIGHTS).is_file():
        if (path / PARTS).is_file():
            raise UserError(
                f"{path} has its weights in several files; save them as one, {WEIGHTS} "
                "(model.save_pretrained(folder, max_shard_size='100GB'))"
            )
        pickles = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
        if pickles:
            raise UserError(
                f"{path} has its weights only in {pickles[0]}, a pickle, which can run any code when it is read; where "
                f"you trust it, convert it: AutoModel.from_pretrained({str(path)!r}).save_pretrained(folder) writes "
                f"{WEIGHTS}"
            )
        raise UserError(f"{path} has no {WEIGHTS}; it is not the folder of a Hugging Face model")
    if not (path / TOKENISER).is_file():
        raise UserError(
            f"{path} has no {TOKENISER}, so texts cannot be cut into tokens; save the fast tokeniser there "
            f"(AutoTokenizer.from_pretrained(...).save_pretrained({str(path)!r}))"
        )


def _pooling(path: Path, asked: Pooling | None) -> Pooling | None:
    """How a vector is made of a text: as asked, as sentence-transformers was told, or None, as the weights have it."""
    said = path / "1_Pooling" / CONFIG
    if asked is not None or not said.is_file():
        return asked
    options = read_json(said, LARGEST_CONFIG)
    return "mean" if options.get("pooling_mode_mean_tokens") is True else None


def _read(
    file: Any, path: Path, kind: Kind, config: EncoderConfig, words: int, pooling: Pooling | None
) -> tuple[EncoderConfig, dict[str, Tensor]]:
    """The tensors by our names, all of them there and of the right shape; and what pools."""
    names = _plain_names(file.keys())
    has_pooler = kind != "distilbert" and "pooler.dense.weight" in names
    config = replace(config, pooling=pooling or "first", pooler=has_pooler and pooling in (None, "first"))
    shapes = tensor_shapes(config, words)
    wanted = tensor_names(kind, config)
    for ours, theirs in wanted.items():
        if theirs not in names:
            raise UserError(f"{path} has no tensor {theirs}; it does not hold what config.json describes")
        found = tuple(file.get_slice(names[theirs]).get_shape())
        if found != shapes[ours]:
            raise UserError(f"{path}: {names[theirs]} has the shape {found}, config.json describes {shapes[ours]}")
    tensors = {}
    for ours, theirs in wanted.items():
        tensor = file.get_tensor(names[theirs])
        if not tensor.is_floating_point():
            raise UserError(f"{path}: {names[theirs]} holds {tensor.dtype}; numbers with a fraction are expected")
        tensor = tensor.to(torch.float32)
        if not tensor.isfinite().all():
            raise UserError(f"{path}: {names[theirs]} holds a value that is not a number")
        tensors[ours] = tensor
    return config, tensors


def _plain_names(keys: list[str]) -> dict[str, str]:
    """Names of the encoder's own tensors, without a head's prefix and as they are written today → as they stand."""
    table = "embeddings.word_embeddings.weight"
    prefix = next((prefix for prefix in PREFIXES if prefix + table in keys), "")
    found = {}
    for key in keys:
        name = key.removeprefix(prefix)
        # The oldest BERT folders have TensorFlow's names for a normalisation.
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        found[name] = key
    return found
