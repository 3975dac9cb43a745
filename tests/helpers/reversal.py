"""What `test_training` and other tests share."""

import torch

from sightline.decoding.search import Rules, greedy
from sightline.models.text_to_text import END, START
from sightline.models.transformer import TransformerConfig

WORDS, ROWS = 14, 48


class Reversal:
    """Sequences of three letters, to be written backwards."""

    def __init__(self, stop_at=None):
        generator = torch.Generator().manual_seed(0)
        self.source = torch.randint(4, WORDS, (ROWS, 3), generator=generator)
        start, end = torch.full((ROWS, 1), START), torch.full((ROWS, 1), END)
        self.target = torch.cat([start, self.source.flip(1), end], dim=1)
        self.stop_at, self.steps = stop_at, 0

    def epoch(self, number):
        generator = torch.Generator().manual_seed(number)
        return list(torch.randperm(ROWS, generator=generator).split(8))

    def batch(self, handle):
        return self.source[handle], self.target[handle]

    def tokens(self, batch):
        return batch[1][:, 1:].numel()

    def loss(self, model, batch):
        self.steps += 1
        if self.steps == self.stop_at:
            raise KeyboardInterrupt
        return model.loss(*batch, smoothing=0.1)

    def validate(self, model):
        found = greedy(model.step, model.begin(self.source), ROWS, Rules(START, END, max_length=6))
        right = sum(one.tokens == row for one, row in zip(found, self.source.flip(1).tolist(), strict=True))
        return {"exact": 100 * right / ROWS, "one": 1.0}


def small_model(dropout=0.1):
    torch.manual_seed(0)
    return TransformerConfig(16, 2, 32, 1, 1, dropout).build(WORDS, WORDS)
