"""Our Transformer as a Hugging Face folder that `transformers` loads.

With pre-norm it is a Pegasus (Zhang et al. 2020), with post-norm a Marian (Junczys-Dowmunt et al. 2018): both have the
paper's sinusoids in two halves, embeddings times √d, and an output bias. What people get wrong: mBART and PLBart also
normalise their embeddings, and M2M100's sinusoids have other wavelengths.
"""

import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sightline.errors import UserError
from sightline.export.encoders import set_template, write_json
from sightline.export.engine import library
from sightline.files import whole_file
from sightline.interop.huggingface import CONFIG, TOKENISER, WEIGHTS
from sightline.models.text_to_text import TextToText
from sightline.models.transformer import Transformer
from sightline.models.universal_transformer import UniversalTransformer
from sightline.nn.annotating import sinusoids
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import END, PADDING, SPELLINGS, START, UNKNOWN

POSITIONS = 1024
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "silu": "silu"}
_PROJECTIONS = {"project_query": "q_proj", "project_keys": "k_proj", "project_values": "v_proj", "output": "out_proj"}
# The modules of a layer: ours and theirs.
_MODULES = {
    **{f"attention.{ours}": f"self_attn.{theirs}" for ours, theirs in _PROJECTIONS.items()},
    **{f"cross.{ours}": f"encoder_attn.{theirs}" for ours, theirs in _PROJECTIONS.items()},
    "around_attention.normalise": "self_attn_layer_norm",
    "around_cross.normalise": "encoder_attn_layer_norm",
    "around_feed_forward.normalise": "final_layer_norm",
    "feed_forward.widen": "fc1",
    "feed_forward.narrow": "fc2",
}
_IDS = {"decoder_start_token_id": START, "bos_token_id": START, "eos_token_id": END, "pad_token_id": PADDING}


def write_huggingface(model: TextToText, source: Tokeniser, target: Tokeniser, folder: Path) -> str:
    """Write configuration, weights and tokeniser. Returns the architecture."""
    library("transformers")
    _check(model, source, target)
    assert isinstance(model, Transformer)
    kind = "pegasus" if model.config.norm == "pre" else "marian"
    write_json(folder / CONFIG, _config(model, kind))
    generation = {**_IDS, "suppress_tokens": [PADDING, START], "num_beams": 5, "max_length": POSITIONS}
    write_json(folder / "generation_config.json", generation)
    with whole_file(folder / WEIGHTS) as part:
        save_file(_tensors(model), part, metadata={"format": "pt"})
    _write_tokeniser(source, folder)
    return kind


def _check(model: TextToText, source: Tokeniser, target: Tokeniser) -> None:
    if not isinstance(model, Transformer):
        if isinstance(model, UniversalTransformer):
            raise UserError("transformers has no model from text to text that repeats one layer; use Sightline")
        raise UserError("transformers has no recurrent model from text to text; export this run to onnx")
    if model.config.positions != "sinusoid":
        raise UserError(
            f"positions are {model.config.positions}, and transformers has no such model from text to text; export "
            f"this run to ctranslate2 or onnx"
        )
    if not source.same_as(target):
        raise UserError(
            "source and target have vocabularies of their own, and models of transformers have one; export this run to "
            "ctranslate2 or onnx, or train one with a joint tokeniser"
        )


def _config(model: Transformer, kind: str) -> dict[str, Any]:
    ours = model.config
    sides = {
        f"{side}_{name}": value
        for side, layers in (("encoder", ours.encoder_layers), ("decoder", ours.decoder_layers))
        for name, value in (("layers", layers), ("attention_heads", ours.heads), ("ffn_dim", ours.feed_forward))
    }
    words = model.output.out_features
    return {
        "model_type": kind,
        "architectures": ["PegasusForConditionalGeneration" if kind == "pegasus" else "MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": words,
        **({"decoder_vocab_size": words, "share_encoder_decoder_embeddings": True} if kind == "marian" else {}),
        "d_model": ours.size,
        **sides,
        "max_position_embeddings": POSITIONS,
        "activation_function": _ACTIVATIONS[ours.activation],
        "scale_embedding": True,
        "dropout": ours.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "tie_word_embeddings": ours.tied == "all",
        **_IDS,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


def _tensors(model: Transformer) -> dict[str, Tensor]:
    """Every tensor by its name in transformers; tied tensors are written once."""
    tensors: dict[str, Tensor] = {"final_logits_bias": model.output.bias.unsqueeze(0)}
    if model.config.tied == "all":
        tensors["model.shared.weight"] = model.target_embedding.weight
    else:
        tensors["model.shared.weight"] = model.source_embedding.weight
        tensors["lm_head.weight"] = model.output.weight
        tensors["model.encoder.embed_tokens.weight"] = model.source_embedding.weight
        tensors["model.decoder.embed_tokens.weight"] = model.target_embedding.weight
    table = sinusoids(0, POSITIONS, model.config.size, torch.empty(0))
    tensors |= {f"model.{side}.embed_positions.weight": table for side in ("encoder", "decoder")}
    for name, tensor in model.state_dict().items():
        if layer := re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.(weight|bias)", name):
            side, number, module, part = layer.groups()
            tensors[f"model.{side}.layers.{number}.{_MODULES[module]}.{part}"] = tensor
        elif norm := re.fullmatch(r"(encoder|decoder)_norm\.(weight|bias)", name):
            tensors[f"model.{norm[1]}.layer_norm.{norm[2]}"] = tensor
    return {name: tensor.detach().to("cpu", torch.float32).contiguous().clone() for name, tensor in tensors.items()}


def _write_tokeniser(tokeniser: Tokeniser, folder: Path) -> None:
    """Ours, which also appends the end token: in transformers the tokeniser does that."""
    end = SPELLINGS[END]
    set_template(tokeniser.save(folder / TOKENISER), single=f"$A {end}", special_tokens=[(end, END)])
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": POSITIONS,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "pad_token": SPELLINGS[PADDING],
        "unk_token": SPELLINGS[UNKNOWN],
        "bos_token": SPELLINGS[START],
        "eos_token": end,
    }
    write_json(folder / "tokenizer_config.json", config)
