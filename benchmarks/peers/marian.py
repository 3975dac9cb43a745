"""Hugging Face Marian: its model and its attention by SDPA in an ordinary loop, and its `generate`."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jobs import HF_EVERYWHERE, LONGEST
from shared import (
    BETAS,
    CLIP,
    DROPOUT,
    EPSILON,
    RATE,
    SIZES,
    SMOOTHING,
    Batches,
    Timed,
    sentences,
    time_decoding,
    time_steps,
    trainable,
)
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from sightline.vocabulary import END, PADDING, START

IGNORED = -100


def config_of(words: int, everywhere: bool = False) -> MarianConfig:
    """Sizes as ours. ``everywhere``: dropout of weights and activations too, which our model does not have."""
    size, heads, feed_forward, layers = SIZES.values()
    inner = DROPOUT if everywhere else 0.0
    return MarianConfig(
        vocab_size=words,
        d_model=size,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=feed_forward,
        decoder_ffn_dim=feed_forward,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=2048,
        dropout=DROPOUT,
        attention_dropout=inner,
        activation_dropout=inner,
        pad_token_id=PADDING,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
    )


def optimise(model: torch.nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """The rest of an ordinary step."""
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def train(job: dict[str, Any]) -> Timed:
    batches = Batches(job["data"])
    model = MarianMTModel(config_of(batches.words, job["tool"] == HF_EVERYWHERE)).train()
    model.set_attn_implementation("sdpa")
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=0.0, fused=True)

    def step(source_rows: Any, target_rows: Any) -> None:
        source, target = torch.from_numpy(source_rows), torch.from_numpy(target_rows)
        labels = target[:, 1:].masked_fill(target[:, 1:] == PADDING, IGNORED)
        logits = model(
            input_ids=source,
            attention_mask=(source != PADDING).long(),
            decoder_input_ids=target[:, :-1],
            use_cache=False,
        ).logits
        # Its own loss knows no smoothing, its trainer's is slower: this is the fast way that an ordinary loop has.
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=SMOOTHING)
        optimise(model, optimiser, loss)

    timed = time_steps(job, step, batches)
    return timed._replace(more={"parameters": trainable(model)})


def padded(rows: list[list[int]], end: bool = True) -> Tensor:
    whole = [[*row, END] if end else row for row in rows]
    longest = max(map(len, whole))
    return torch.tensor([[*row, *[PADDING] * (longest - len(row))] for row in whole])


def decode(job: dict[str, Any]) -> Timed:
    model = MarianMTModel.from_pretrained(Path(job["data"]) / "marian", attn_implementation="sdpa").eval()
    _, tokens = sentences(job)
    length = job["length"]
    options: dict[str, Any] = {"num_beams": job["beam"], "do_sample": False, "max_new_tokens": (length or LONGEST) + 1}
    if length:
        options["min_new_tokens"] = length + 1  # as many steps as ours, which writes the end in the last one
    if job["beam"] > 1:
        options["early_stopping"] = True  # stops as ours does, and earlier than it would by itself

    def search(rows: list[int]) -> list[list[int]]:
        source = padded([tokens[i] for i in rows])
        found = model.generate(input_ids=source, attention_mask=(source != PADDING).long(), **options)
        outputs = [[token for token in row[1:] if token != PADDING] for row in found.tolist()]
        ends = [length or (row.index(END) if END in row else LONGEST) for row in outputs]
        return [row[:end] for row, end in zip(outputs, ends, strict=True)]

    with torch.inference_mode():
        return time_decoding(job, search)
