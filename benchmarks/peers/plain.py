"""torch.nn.Transformer with embeddings and an output layer around it, in an ordinary loop."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from marian import PADDING, optimise
from shared import BETAS, DROPOUT, EPSILON, RATE, SIZES, SMOOTHING, Batches, Timed, time_steps, trainable
from torch import Tensor, nn


class PlainTransformer(nn.Module):
    """What its tutorial builds: tied embeddings, sinusoids, the stock module, normalised before the layers as ours."""

    def __init__(self, words: int, longest: int = 2048) -> None:
        super().__init__()
        size, heads, feed_forward, layers = SIZES.values()
        self.embedding = nn.Embedding(words, size, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        self.output = nn.Linear(size, words)
        self.output.weight = self.embedding.weight
        self.stack = nn.Transformer(
            size, heads, layers, layers, feed_forward, DROPOUT, batch_first=True, norm_first=True
        )
        self.dropout, self.scale = nn.Dropout(DROPOUT), math.sqrt(size)
        angles = torch.arange(longest).unsqueeze(1) * 10_000 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1), persistent=False)

    def place(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]])  # type: ignore[index]

    def forward(self, source: Tensor, words: Tensor) -> Tensor:
        hidden = source == PADDING
        causal = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        features = self.stack(
            self.place(source),
            self.place(words),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return self.output(features)


def train(job: dict[str, Any]) -> Timed:
    batches = Batches(job["data"])
    model = PlainTransformer(batches.words).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=0.0, fused=True)

    def step(source_rows: Any, target_rows: Any) -> None:
        source, target = torch.from_numpy(source_rows), torch.from_numpy(target_rows)
        logits = model(source, target[:, :-1])
        wanted = target[:, 1:].flatten()
        loss = F.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=PADDING, label_smoothing=SMOOTHING)
        optimise(model, optimiser, loss)

    timed = time_steps(job, step, batches)
    return timed._replace(more={"parameters": trainable(model)})
