"""Our encoder as a Hugging Face folder that `transformers` loads: a BERT, RoBERTa or DistilBERT."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors
from torch import Tensor

from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.interop.huggingface import CONFIG, TOKENISER, WEIGHTS
from sightline.interop.pretrained import Kind, tensor_names, write_config
from sightline.interop.tokens import PretrainedTokeniser
from sightline.models.encoder import Encoder, EncoderConfig
from sightline.nn.annotating import sinusoids
from sightline.text.tokeniser import Tokeniser

_TOKEN_NAMES = {
    "padding": "pad_token",
    "unknown": "unk_token",
    "start": "cls_token",
    "end": "sep_token",
    "mask": "mask_token",
}


def export_encoder(encoder: Encoder, tokeniser: Tokeniser | PretrainedTokeniser, folder: Path) -> Kind:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json. Returns the architecture.

    The pooling of the text is not exported, except the pooler of BERT; neither is a head.
    """
    kind, config = _described(encoder)
    words = encoder.embedding.num_embeddings
    state = {name: tensor.detach().to("cpu", torch.float32) for name, tensor in encoder.state_dict().items()}
    state = _as_theirs(state, encoder.config, config)
    names = tensor_names(kind, config)
    tensors = {theirs: state[ours].contiguous().clone() for ours, theirs in names.items()}
    specials = encoder.specials
    ids = {"pad_token_id": specials.padding}
    if kind != "distilbert":
        ids |= {"bos_token_id": specials.start, "eos_token_id": specials.end}
    write_json(folder / CONFIG, write_config(kind, config, words, ids))
    with whole_file(folder / WEIGHTS) as part:
        save_file(tensors, part, metadata={"format": "pt"})
    path = tokeniser.save(folder / TOKENISER)
    if isinstance(tokeniser, Tokeniser):  # our batches add start and end; in transformers the tokeniser does
        start, end = tokeniser.spell([specials.start, specials.end])
        pair = f"{start} $A {end} $B:1 {end}:1"
        special_tokens = [(start, specials.start), (end, specials.end)]
        set_template(path, single=f"{start} $A {end}", pair=pair, special_tokens=special_tokens)
    write_json(folder / "tokenizer_config.json", _tokeniser_config(encoder, tokeniser))
    return kind


def write_json(path: Path, data: dict[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=2) + "\n")


def set_template(path: Path, **template: Any) -> None:
    """Add special tokens to every text that a file of a tokeniser reads."""
    library = Tokenizer.from_file(str(path))
    library.post_processor = processors.TemplateProcessing(**template)
    write_text(path, library.to_str(pretty=True))


def _described(encoder: Encoder) -> tuple[Kind, EncoderConfig]:
    """Which of the three architectures this is, and its configuration in their terms; an error if it is none."""
    config = encoder.config
    differences = {
        "norm": (config.norm, "post", config.norm == "post"),
        "embedding_norm": (config.embedding_norm, True, config.embedding_norm),
        "positions": (config.positions, "learned", config.positions != "rotary"),
    }
    for name, (value, needed, fine) in differences.items():
        if not fine:
            raise UserError(
                f"this encoder's {name} is {value}, which BERT, RoBERTa and DistilBERT do not have; "
                f"train one with {name} {needed} to export it to transformers"
            )
    if config.first_position:
        if config.first_position != encoder.specials.padding + 1:
            raise UserError(
                f"positions begin at {config.first_position}; in RoBERTa they begin after the id of padding, "
                f"{encoder.specials.padding}"
            )
        kind: Kind = "roberta"
    else:
        plain = config.parts == 0 and not config.pooler and config.epsilon == 1e-12
        kind = "distilbert" if plain and config.activation in ("gelu", "relu") else "bert"
    # BERT always has a table of segments: one of zeros changes nothing.
    parts = config.parts if kind == "distilbert" else max(1, config.parts)
    return kind, replace(config, positions="learned", scaled=False, parts=parts)


def _as_theirs(state: dict[str, Tensor], ours: EncoderConfig, theirs: EncoderConfig) -> dict[str, Tensor]:
    """Tables of the three architectures that ours may compute instead."""
    state = dict(state)
    if ours.scaled:
        state["embedding.weight"] = state["embedding.weight"] * math.sqrt(ours.size)
    if ours.positions == "sinusoid":
        table = sinusoids(0, ours.max_length, ours.size, state["embedding.weight"])
        state["positions.weight"] = torch.cat([table.new_zeros(ours.first_position, ours.size), table])
    if theirs.parts and not ours.parts:
        state["parts.weight"] = torch.zeros(theirs.parts, ours.size)
    return state


def _tokeniser_config(encoder: Encoder, tokeniser: Tokeniser | PretrainedTokeniser) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": encoder.config.max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if encoder.config.parts > 1 else []), "attention_mask"],
    }
    for name, theirs in _TOKEN_NAMES.items():
        token = getattr(encoder.specials, name)
        if token is not None:
            config[theirs] = tokeniser.spell([token])[0]
    return config
