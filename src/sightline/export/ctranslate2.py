"""Our Transformer as a CTranslate2 model: the fastest engine for it on a CPU.

What people get wrong: its own sinusoids have other wavelengths than the paper's, so the table is exported too; sources
need their end token, and outputs may be empty; int8 conversion writes into the arrays it is given, so it gets copies.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.attention import MultiHead
from sightline.errors import UserError
from sightline.export.engine import SOURCE, TARGET, library, spelled
from sightline.models.text_to_text import TextToText
from sightline.models.transformer import Transformer
from sightline.models.universal_transformer import UniversalTransformer
from sightline.nn.annotating import sinusoids
from sightline.nn.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual
from sightline.vocabulary import END, SPELLINGS, START, UNKNOWN

POSITIONS = 2048  # rows of the table of sinusoids: the longest source and output
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}


def write_ctranslate2(model: TextToText, folder: Path, int8: bool = False) -> None:
    """Write the model beside its tokenisers, which are in the folder already."""
    library("ctranslate2")
    if not isinstance(model, Transformer):
        if isinstance(model, UniversalTransformer):
            raise UserError("CTranslate2 runs a stack of layers once, and this run's model repeats one; use Sightline")
        raise UserError("CTranslate2 runs Transformers only, and this run's model is recurrent; export it to onnx")
    spec = _spec(model)
    for register, name in ((spec.register_source_vocabulary, SOURCE), (spec.register_target_vocabulary, TARGET)):
        register(spelled(folder / name))
    config = spec.config
    config.unk_token, config.bos_token, config.eos_token = (SPELLINGS[one] for one in (UNKNOWN, START, END))
    config.decoder_start_token, config.add_source_eos = SPELLINGS[START], True
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    spec.save(str(folder))


def _spec(model: Transformer) -> Any:
    from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec

    config = model.config
    shape: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": common_spec.Activation[_ACTIVATIONS[config.activation]],
    }
    if config.positions == "rotary":
        shape |= {"rotary_dim": 0, "rotary_interleave": True}  # 0: all features of a head
    encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **shape)
    decoder = transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.heads, **shape)
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    if config.positions == "sinusoid":
        table = sinusoids(0, POSITIONS, config.size, torch.empty(0))
        encoder.position_encodings.encodings = _array(table)
        decoder.position_encodings.encodings = _array(table)
    for to, layer in zip(encoder.layer, model.encoder, strict=True):
        assert isinstance(layer, EncoderLayer)
        _attention(to.self_attention, layer.attention, layer.around_attention)
        _feed_forward(to.ffn, layer.feed_forward, layer.around_feed_forward)
    for to, layer in zip(decoder.layer, model.decoder, strict=True):
        assert isinstance(layer, DecoderLayer)
        _attention(to.self_attention, layer.attention, layer.around_attention)
        _attention(to.attention, layer.cross, layer.around_cross, cross=True)
        _feed_forward(to.ffn, layer.feed_forward, layer.around_feed_forward)
    if config.norm == "pre":
        _norm(encoder.layer_norm, model.encoder_norm)
        _norm(decoder.layer_norm, model.decoder_norm)
    _linear(decoder.projection, model.output)
    return TransformerSpec(encoder, decoder)


def _attention(to: Any, attention: nn.Module, around: Residual, cross: bool = False) -> None:
    assert isinstance(attention, MultiHead)
    _norm(to.layer_norm, around.normalise)
    query, memory = [attention.project_query], [attention.project_keys, attention.project_values]
    for linear, layers in zip(to.linear, [query, memory] if cross else [query + memory], strict=False):
        _linear(linear, *layers)
    _linear(to.linear[-1], attention.output)


def _feed_forward(to: Any, layer: FeedForward, around: Residual) -> None:
    _norm(to.layer_norm, around.normalise)
    _linear(to.linear_0, layer.widen)
    _linear(to.linear_1, layer.narrow)


def _norm(to: Any, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    to.gamma, to.beta = _array(norm.weight), _array(norm.bias)


def _linear(to: Any, *layers: nn.Linear) -> None:
    """Layers with the same input become one."""
    to.weight = _array(torch.cat([layer.weight for layer in layers]))
    to.bias = _array(torch.cat([layer.bias for layer in layers]))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float32, copy=True).numpy()
