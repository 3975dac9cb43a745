"""Encoders that others trained: a Hugging Face folder of BERT, RoBERTa, DistilBERT or MiniLM into our own encoder.

The folder may come from a stranger: weights are read from safetensors and never from a pickle, and what config.json
says is compared with what the file holds before anything of that size is made. `transformers` is not needed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sightline.errors import UserError
from sightline.interop.huggingface import CONFIG, LARGEST_CONFIG, PARTS, PICKLES, TOKENISER, WEIGHTS
from sightline.interop.pretrained_names import Kind, read_config, tensor_names, tensor_shapes
from sightline.interop.pretrained_tokens import PretrainedTokeniser
from sightline.interop.tokens import CUT, read_json
from sightline.models.encoder import Encoder, EncoderConfig

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
