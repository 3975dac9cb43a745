"""Our Transformer as a Hugging Face folder that `transformers` loads.

Normalised before its layers it is a Pegasus (Zhang et al. 2020), after them a Marian (Junczys-Dowmunt et al. 2018):
both have the paper's sinusoids in two halves, embeddings times √d, and a bias of the output. What people get wrong:
mBART and PLBart also normalise their embeddings, and M2M100's waves are of other lengths.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors
from torch import Tensor, nn

from sightline.attention import MultiHead
from sightline.errors import UserError
from sightline.export.engine import transformers_library
from sightline.files import whole_file, write_text
from sightline.interop.huggingface import CONFIG, TOKENISER, WEIGHTS
from sightline.models.text_to_text import TextToText
from sightline.models.transformer import Transformer
from sightline.nn.annotating import sinusoids
from sightline.nn.transformer import DecoderLayer, EncoderLayer
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import END, PADDING, SPELLINGS, START, UNKNOWN

POSITIONS = 1024
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "silu": "silu"}
_PROJECTIONS = {"project_query": "q_proj", "project_keys": "k_proj", "project_values": "v_proj", "output": "out_proj"}


def write_huggingface(model: TextToText, source: Tokeniser, target: Tokeniser, folder: Path) -> str:
    """Write configuration, weights and tokeniser; says as whose model."""
    transformers_library()
    _check(model, source, target)
    assert isinstance(model, Transformer)
    kind = "pegasus" if model.config.norm == "pre" else "marian"
    write_text(folder / CONFIG, json.dumps(_config(model, kind), indent=2) + "\n")
    generation: dict[str, Any] = {
        "decoder_start_token_id": START,
        "bos_token_id": START,
        "eos_token_id": END,
        "pad_token_id": PADDING,
        "suppress_tokens": [PADDING, START],
        "num_beams": 5,
        "max_length": POSITIONS,
    }
    write_text(folder / "generation_config.json", json.dumps(generation, indent=2) + "\n")
    with whole_file(folder / WEIGHTS) as part:
        save_file(_tensors(model), part, metadata={"format": "pt"})
    _write_tokeniser(source, folder)
    return kind


def _check(model: TextToText, source: Tokeniser, target: Tokeniser) -> None:
    if not isinstance(model, Transformer):
        raise UserError("transformers has no recurrent model from text to text; export this run to onnx")
    if model.config.positions != "sinusoid":
        raise UserError(
            f"positions are {model.config.positions}, and no model of transformers' from text to text has these beside "
            f"sinusoids' other parts; export this run to ctranslate2 or onnx"
        )
    if not source.same_as(target):
        raise UserError(
            "source and target have vocabularies of their own, and models of transformers' have one; export this run "
            "to ctranslate2 or onnx, or train one with a joint tokeniser"
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
        "decoder_start_token_id": START,
        "bos_token_id": START,
        "eos_token_id": END,
        "pad_token_id": PADDING,
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


def _tensors(model: Transformer) -> dict[str, Tensor]:
    """Everything by its name over there; what is tied stands once."""
    found: dict[str, Tensor] = {"final_logits_bias": model.output.bias.unsqueeze(0)}
    table = sinusoids(0, POSITIONS, model.config.size, torch.empty(0))
    sides = {"encoder": (model.encoder, model.source_embedding), "decoder": (model.decoder, model.target_embedding)}
    if model.config.tied == "all":
        found["model.shared.weight"] = model.target_embedding.weight
    else:
        found["model.shared.weight"] = model.source_embedding.weight
        found["lm_head.weight"] = model.output.weight
        for side, (_, embedding) in sides.items():
            found[f"model.{side}.embed_tokens.weight"] = embedding.weight
    for side, (layers, _) in sides.items():
        found[f"model.{side}.embed_positions.weight"] = table
        for number, layer in enumerate(layers):
            assert isinstance(layer, EncoderLayer | DecoderLayer)
            found |= _layer(f"model.{side}.layers.{number}", layer)
    if model.config.norm == "pre":
        found |= _both("model.encoder.layer_norm", model.encoder_norm)
        found |= _both("model.decoder.layer_norm", model.decoder_norm)
    return {name: tensor.detach().to("cpu", torch.float32).contiguous().clone() for name, tensor in found.items()}


def _layer(name: str, layer: EncoderLayer | DecoderLayer) -> dict[str, Tensor]:
    found = _attention(f"{name}.self_attn", layer.attention)
    found |= _both(f"{name}.self_attn_layer_norm", layer.around_attention.normalise)
    if isinstance(layer, DecoderLayer):
        found |= _attention(f"{name}.encoder_attn", layer.cross)
        found |= _both(f"{name}.encoder_attn_layer_norm", layer.around_cross.normalise)
    found |= _both(f"{name}.fc1", layer.feed_forward.widen)
    found |= _both(f"{name}.fc2", layer.feed_forward.narrow)
    return found | _both(f"{name}.final_layer_norm", layer.around_feed_forward.normalise)


def _attention(name: str, attention: nn.Module) -> dict[str, Tensor]:
    assert isinstance(attention, MultiHead)
    found: dict[str, Tensor] = {}
    for ours, theirs in _PROJECTIONS.items():
        found |= _both(f"{name}.{theirs}", getattr(attention, ours))
    return found


def _both(name: str, layer: Any) -> dict[str, Tensor]:
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


def _write_tokeniser(tokeniser: Tokeniser, folder: Path) -> None:
    """Ours, which also puts the end behind a text: over there that is the tokeniser's business."""
    path, end = tokeniser.save(folder / TOKENISER), SPELLINGS[END]
    library = Tokenizer.from_file(str(path))
    library.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, END)])
    write_text(path, library.to_str(pretty=True))
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
    write_text(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
