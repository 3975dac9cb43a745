"""Our encoder as a Hugging Face folder that `transformers` loads: BERT, RoBERTa or DistilBERT, whichever it is."""

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
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json; says as whose encoder.

    How the text is pooled does not go with it, but for the pooler of BERT; neither does a head.
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
    write_text(folder / CONFIG, json.dumps(write_config(kind, config, words, ids), indent=2) + "\n")
    with whole_file(folder / WEIGHTS) as part:
        save_file(tensors, part, metadata={"format": "pt"})
    tokeniser.save(folder / TOKENISER)
    if isinstance(tokeniser, Tokeniser):
        _add_start_and_end(folder / TOKENISER, encoder)
    write_text(folder / "tokenizer_config.json", json.dumps(_tokeniser_config(encoder, tokeniser), indent=2) + "\n")
    return kind


def _described(encoder: Encoder) -> tuple[Kind, EncoderConfig]:
    """Which of the three models this is, and its configuration in their terms; an error if it is none."""
    config = encoder.config
    differences = {
        "norm": (config.norm, "post", config.norm == "post"),
        "embedding_norm": (config.embedding_norm, True, config.embedding_norm),
        "positions": (config.positions, "learned", config.positions != "rotary"),
    }
    for name, (found, wanted, fine) in differences.items():
        if not fine:
            raise UserError(
                f"this encoder's {name} is {found}, which BERT, RoBERTa and DistilBERT do not have; "
                f"train one with {name} {wanted} to take it to transformers"
            )
    if config.first_position:
        if config.first_position != encoder.specials.padding + 1:
            raise UserError(
                f"positions begin at {config.first_position}, in RoBERTa they do behind the id of padding, "
                f"{encoder.specials.padding}"
            )
        kind: Kind = "roberta"
    else:
        plain = config.parts == 0 and not config.pooler and config.epsilon == 1e-12
        kind = "distilbert" if plain and config.activation in ("gelu", "relu") else "bert"
    # BERT always has a table of parts: one of zeros changes nothing.
    parts = config.parts if kind == "distilbert" else max(1, config.parts)
    return kind, replace(config, positions="learned", scaled=False, parts=parts)


def _as_theirs(state: dict[str, Tensor], ours: EncoderConfig, theirs: EncoderConfig) -> dict[str, Tensor]:
    """What the three models have as tables and ours may compute."""
    state = dict(state)
    if ours.scaled:
        state["embedding.weight"] = state["embedding.weight"] * math.sqrt(ours.size)
    if ours.positions == "sinusoid":
        table = sinusoids(0, ours.longest, ours.size, state["embedding.weight"])
        state["positions.weight"] = torch.cat([table.new_zeros(ours.first_position, ours.size), table])
    if theirs.parts and not ours.parts:
        state["parts.weight"] = torch.zeros(theirs.parts, ours.size)
    return state


def _add_start_and_end(path: Path, encoder: Encoder) -> None:
    """Say in a file of ours what our batches do, for those who read only the file."""
    library = Tokenizer.from_file(str(path))
    ids = {name: getattr(encoder.specials, name) for name in ("start", "end")}
    spelled = {name: library.id_to_token(one) for name, one in ids.items()}
    start, end = spelled["start"], spelled["end"]
    library.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(spelled[name], ids[name]) for name in ids],
    )
    write_text(path, library.to_str(pretty=True))


def _tokeniser_config(encoder: Encoder, tokeniser: Tokeniser | PretrainedTokeniser) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": encoder.config.longest,
        "model_input_names": ["input_ids", *(["token_type_ids"] if encoder.config.parts > 1 else []), "attention_mask"],
    }
    for name, theirs in _TOKEN_NAMES.items():
        token = getattr(encoder.specials, name)
        if token is not None:
            config[theirs] = tokeniser.spell([token])[0]
    return config
