"""A run of ours as a Hugging Face Marian model and as a CTranslate2 model, and proof that they say the same."""

import shutil
from pathlib import Path
from typing import Any, cast

import ctranslate2
import torch
from ctranslate2.converters import transformers as converters
from marian import config_of, padded
from transformers import MarianMTModel

from sightline.errors import UserError
from sightline.models.transformer import Transformer
from sightline.tasks.run import Run
from sightline.vocabulary import END, PADDING, SPELLINGS, START

CLOSE = 1e-3


def export(run: Path, folder: Path, texts: list[str]) -> dict[str, Any]:
    """Write both, compare logits and greedy outputs, and give the sentences as tokens."""
    translator = Run.load(run)
    ours: Any = translator.model
    if not isinstance(ours, Transformer) or (ours.config.norm, ours.config.positions) != ("post", "sinusoid"):
        raise UserError(f"{run} is no Transformer normalised after its layers (model.norm=post): Marian knows no other")
    words = ours.target_embedding.weight.shape[0]
    theirs = MarianMTModel(config_of(words)).eval()
    copy_model(ours, theirs)
    theirs.save_pretrained(folder / "marian")
    convert(theirs, folder / "ctranslate2")
    tokens = [tokens for (tokens,) in cast("list[tuple[list[int]]]", translator.encode(texts))]
    return {
        "words": words,
        "tokens": tokens,
        "logits_differ": compare_logits(ours, theirs, tokens[:16]),
        "engine_differs": compare_engine(theirs, folder / "ctranslate2", tokens[:16]),
    }


@torch.no_grad()
def copy_model(ours: Transformer, theirs: Any) -> None:
    """Our weights into Marian, layer by layer."""
    theirs.model.shared.weight.copy_(ours.target_embedding.weight)
    theirs.final_logits_bias.copy_(ours.output.bias.unsqueeze(0))
    layers: list[Any] = [*ours.encoder, *ours.decoder]
    for source, to in zip(layers, [*theirs.model.encoder.layers, *theirs.model.decoder.layers], strict=True):
        _attention(source.attention, to.self_attn)
        _copy(source.around_attention.normalise, to.self_attn_layer_norm)
        if hasattr(source, "cross"):
            _attention(source.cross, to.encoder_attn)
            _copy(source.around_cross.normalise, to.encoder_attn_layer_norm)
        _copy(source.feed_forward.widen, to.fc1)
        _copy(source.feed_forward.narrow, to.fc2)
        _copy(source.around_feed_forward.normalise, to.final_layer_norm)


def _attention(source: Any, to: Any) -> None:
    pairs = ("project_query", "q_proj"), ("project_keys", "k_proj"), ("project_values", "v_proj")
    for ours, theirs in (*pairs, ("output", "out_proj")):
        _copy(getattr(source, ours), getattr(to, theirs))


def _copy(source: Any, to: Any) -> None:
    to.weight.copy_(source.weight)
    to.bias.copy_(source.bias)


class Loader(converters.MarianMTLoader):
    """The stock loader cuts off the last word as padding and starts from nothing; here neither is so."""

    def _remove_pad_weights(self, spec: Any) -> None:
        return

    def set_decoder(self, spec: Any, decoder: Any) -> None:
        converters.BartLoader.set_decoder(self, spec, decoder)


def convert(model: Any, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    loader = Loader()
    with torch.no_grad():
        spec = loader.get_model_spec(model)
    names = [*SPELLINGS, *map(str, range(len(SPELLINGS), model.config.vocab_size))]
    loader.set_vocabulary(spec, names)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = SPELLINGS[1], SPELLINGS[START], SPELLINGS[END]
    spec.config.decoder_start_token = SPELLINGS[START]
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir(parents=True)
    spec.save(str(folder))


@torch.no_grad()
def compare_logits(ours: Transformer, theirs: Any, tokens: list[list[int]]) -> float:
    """The largest difference, with the sources as their own targets."""
    source = padded(tokens)
    words = padded([[START, *row] for row in tokens], end=False)
    expected = theirs(input_ids=source, attention_mask=(source != PADDING).long(), decoder_input_ids=words).logits
    real = words != PADDING
    found = float((ours.logits(source, words)[real] - expected[real]).abs().max())
    if not found < CLOSE:
        raise UserError(f"the logits of Marian are off by {found:.2g}: the weights were not carried over as they are")
    return found


@torch.no_grad()
def compare_engine(theirs: Any, folder: Path, tokens: list[list[int]]) -> float:
    """How far the engine's log-probability of Marian's own outputs is off, at most, per token."""
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1, inter_threads=1)
    targets = [row[:12] for row in tokens]
    names = [[*map(str, row), SPELLINGS[END]] for row in tokens]
    found = engine.score_batch(names, [list(map(str, row)) for row in targets])
    source, words = padded(tokens), padded([[START, *row] for row in targets], end=False)
    logits = theirs(input_ids=source, attention_mask=(source != PADDING).long(), decoder_input_ids=words).logits
    log_probs = torch.log_softmax(logits, dim=-1)
    worst = 0.0
    for i, (one, target) in enumerate(zip(found, targets, strict=True)):
        wanted = log_probs[i, : len(target)].gather(-1, torch.tensor(target).unsqueeze(-1)).squeeze(-1)
        worst = max(worst, float((wanted - torch.tensor(one.log_probs[: len(target)])).abs().max()))
    if not worst < CLOSE:
        raise UserError(f"the log-probabilities of CTranslate2 are off by {worst:.2g}: it was not converted as it is")
    return worst
