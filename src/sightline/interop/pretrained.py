"""Pretrained encoders: a Hugging Face folder of BERT, RoBERTa, DistilBERT or MiniLM into our own encoder.

The folder is untrusted: weights are read from safetensors and never from a pickle, and config.json is compared with the
file of weights before memory of that size is allocated. `transformers` is not needed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sightline.errors import UserError
from sightline.interop.huggingface import CONFIG, LARGEST_CONFIG, TOKENISER, WEIGHTS, check_folder
from sightline.interop.tokens import CUT, PretrainedTokeniser, read_json
from sightline.models.encoder import Encoder, EncoderConfig
from sightline.nn.transformer import Activation

# --- BERT, RoBERTa and DistilBERT: their configurations and the names of their tensors.

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
MOST = {"layers": 200, "size": 16_384, "heads": 1_024, "feed_forward": 131_072, "max_length": 1 << 20, "parts": 16}
MOST_WORDS = 4_000_000


# Fields of our configuration: their names in the files of BERT and RoBERTa, and of DistilBERT.
FIELDS = {
    "size": ("hidden_size", "dim"),
    "heads": ("num_attention_heads", "n_heads"),
    "feed_forward": ("intermediate_size", "hidden_dim"),
    "layers": ("num_hidden_layers", "n_layers"),
    "dropout": ("hidden_dropout_prob", "dropout"),
    "attention_dropout": ("attention_probs_dropout_prob", "attention_dropout"),
    "activation": ("hidden_act", "activation"),
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
    """Our names of the encoder's tensors → theirs, without the prefix of a model with a head."""
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
                stack, theirs = ("transformer", distilbert) if kind == "distilbert" else ("encoder", bert)
                names[f"layers.{layer}.{ours}.{part}"] = f"{stack}.layer.{layer}.{theirs}.{part}"
    return names


def tensor_shapes(config: EncoderConfig, words: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of our encoder, without building it."""
    size, wide = config.size, config.feed_forward
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (words, size),
        "positions.weight": (config.max_length + config.first_position, size),
        "parts.weight": (config.parts, size),
        "pooler.weight": (size, size),
    }
    for name in tensor_names("bert", config):
        rows, columns = wide if ".widen." in name else size, wide if ".narrow." in name else size
        shapes.setdefault(name, (rows,) if name.endswith("bias") or "norm" in name else (rows, columns))
    return shapes


def read_config(data: dict[str, Any], where: str) -> tuple[Kind, EncoderConfig, int, int]:
    """Kind, our configuration, vocabulary size and the id of padding, from an untrusted config.json."""
    kind = data.get("model_type")
    if kind not in list(CLASSES):  # a list: the value may be anything, also something unhashable
        named = "none" if kind is None else repr(kind)[:60]
        raise UserError(
            f"{where}: model_type is {named}; encoders of type {', '.join(CLASSES)} can be read (MiniLM is a bert)"
        )
    if data.get("position_embedding_type", "absolute") != "absolute":
        named = repr(data["position_embedding_type"])[:60]
        raise UserError(f"{where}: position_embedding_type is {named}; only absolute positions can be read")
    if data.get("is_decoder") or data.get("add_cross_attention"):
        raise UserError(f"{where} is a decoder, which attends only to earlier tokens; only encoders can be read")
    field = {name: names[kind == "distilbert"] for name, names in FIELDS.items()}
    numbers: dict[str, Any] = {
        name: _whole(data, field[name], where, MOST[name]) for name in ("size", "heads", "feed_forward", "layers")
    }
    positions = _whole(data, "max_position_embeddings", where, MOST["max_length"], 512)
    padding = _whole(data, "pad_token_id", where, MOST_WORDS, 1 if kind == "roberta" else 0, least=0)
    words = _whole(data, "vocab_size", where, MOST_WORDS)
    # RoBERTa numbers its positions after the id of its padding, as fairseq does.
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
            **numbers,
            dropout=_share(data, field["dropout"], where),
            attention_dropout=_share(data, field["attention_dropout"], where),
            norm="post",
            positions="learned",
            max_length=positions - first,
            first_position=first,
            activation=ACTIVATIONS[activation],
            parts=parts,
            embedding_norm=True,
            scaled=False,
            pooling="first",
            # DistilBERT has it in the code of its normalisations, not in the configuration.
            epsilon=1e-12 if kind == "distilbert" else _share(data, "layer_norm_eps", where, 1e-12),
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if padding >= words:
        raise UserError(f"{where}: pad_token_id is {padding}, but there are only {words:,} words")
    return kind, config, words, padding


def write_config(kind: Kind, config: EncoderConfig, words: int, ids: dict[str, int]) -> dict[str, Any]:
    """The inverse: the content of config.json. ``ids`` are those of special tokens, by the names of fields."""
    data: dict[str, Any] = {"architectures": [CLASSES[kind]], "model_type": kind, "vocab_size": words, **ids}
    for name, names in FIELDS.items():
        value = getattr(config, name)
        data[names[kind == "distilbert"]] = ACTIVATION_NAMES[value] if name == "activation" else value
    data["max_position_embeddings"] = config.max_length + config.first_position
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
        given = "missing" if value is None else f"{value!r}"[:60]
        raise UserError(f"{where}: {name} is {given}; a whole number from {least} to {most:,} is expected")
    return value


def _share(data: dict[str, Any], name: str, where: str, otherwise: float = 0.1) -> float:
    value = data.get(name, otherwise)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise UserError(f"{where}: {name} is {f'{value!r}'[:60]}; a number from 0 and below 1 is expected")
    return float(value)


Pooling = Literal["attention", "first", "mean"]
# The prefixes of an encoder's tensors in a model with a head.
PREFIXES = ("", "bert.", "roberta.", "distilbert.", "model.")


class Pretrained(NamedTuple):
    """The content of a folder. ``kind`` is the architecture, ``name`` the folder's."""

    config: EncoderConfig
    tensors: dict[str, Tensor]
    tokeniser: PretrainedTokeniser
    words: int
    kind: Kind
    name: str

    def build(self) -> Encoder:
        """The encoder with these weights. Pooling by attention is new and has to be trained."""
        encoder = self.config.build(self.words, self.tokeniser.specials)
        missing, unexpected = encoder.load_state_dict(self.tensors, strict=False)
        assert not unexpected
        assert all(name.startswith("pool.") for name in missing)
        return encoder


def load_pretrained(folder: str | Path, pooling: Pooling | None = None) -> Pretrained:
    """Read a folder with config.json, model.safetensors and tokenizer.json.

    ``pooling`` is how one vector is made of a text; by default as in the folder's training: its pooler (the first
    token), or the setting of sentence-transformers.
    """
    path = Path(folder)
    check_folder(path, f"expected a folder with {CONFIG}, {WEIGHTS} and {TOKENISER}", split=False)
    where = str(path / CONFIG)
    kind, config, words, padding = read_config(read_json(path / CONFIG, LARGEST_CONFIG), where)
    tokeniser = PretrainedTokeniser.load(path / TOKENISER)
    if tokeniser.specials.padding != padding:
        own = tokeniser.specials.padding
        raise UserError(f"{where}: pad_token_id is {padding}, but {TOKENISER} has padding at {own}")
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


def _pooling(path: Path, given: Pooling | None) -> Pooling | None:
    """How a vector is made of a text: as given, as sentence-transformers is set, or None, as the weights have it."""
    settings = path / "1_Pooling" / CONFIG
    if given is not None or not settings.is_file():
        return given
    return "mean" if read_json(settings, LARGEST_CONFIG).get("pooling_mode_mean_tokens") is True else None


def _read(
    file: Any, path: Path, kind: Kind, config: EncoderConfig, words: int, pooling: Pooling | None
) -> tuple[EncoderConfig, dict[str, Tensor]]:
    """The tensors by our names, complete and of the right shapes; and the configuration with its pooling."""
    names = _plain_names(file.keys())
    has_pooler = kind != "distilbert" and "pooler.dense.weight" in names
    config = replace(config, pooling=pooling or "first", pooler=has_pooler and pooling in (None, "first"))
    shapes = tensor_shapes(config, words)
    needed = tensor_names(kind, config)
    for ours, theirs in needed.items():  # all shapes before any tensor is read
        if theirs not in names:
            raise UserError(f"{path} has no tensor {theirs}; it does not hold what config.json describes")
        shape = tuple(file.get_slice(names[theirs]).get_shape())
        if shape != shapes[ours]:
            raise UserError(f"{path}: {names[theirs]} has the shape {shape}, config.json describes {shapes[ours]}")
    tensors = {}
    for ours, theirs in needed.items():
        tensor = file.get_tensor(names[theirs])
        if not tensor.is_floating_point():
            raise UserError(f"{path}: {names[theirs]} holds {tensor.dtype}; numbers with a fraction are expected")
        tensor = tensor.to(torch.float32)
        if not tensor.isfinite().all():
            raise UserError(f"{path}: {names[theirs]} holds a value that is not a number")
        tensors[ours] = tensor
    return config, tensors


def _plain_names(keys: list[str]) -> dict[str, str]:
    """Current names of the encoder's own tensors, without the prefix of a head → the names in the file."""
    table = "embeddings.word_embeddings.weight"
    prefix = next((prefix for prefix in PREFIXES if prefix + table in keys), "")
    names = {}
    for key in keys:
        name = key.removeprefix(prefix)
        # The oldest BERT folders have TensorFlow's names for a normalisation.
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        names[name] = key
    return names
