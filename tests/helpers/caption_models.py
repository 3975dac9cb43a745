"""What `test_captioning_models` and other tests share."""

import torch

from sightline.attention import AdditiveConfig, AttentionConfig, ComposedConfig, HardConfig
from sightline.models.captioning_transformer import CaptioningTransformerConfig
from sightline.models.image_to_text import Places
from sightline.models.show_attend_tell import ShowAttendTellConfig, hard, soft
from sightline.vocabulary import END, PADDING, START

PLACES = Places(6, 2, 3)

WORDS = 20

SMALL = {"embedding_size": 12, "size": 8, "dropout": 0.0}

MODELS = {
    "soft": ShowAttendTellConfig(**SMALL, attention=soft(5)),
    "soft, projected, with positions, tied": ShowAttendTellConfig(
        **SMALL, annotation_size=8, positions=True, normalised=False, tied=True
    ),
    "hard": ShowAttendTellConfig(**SMALL, attention=hard(5)),
    "straight-through, two layers": ShowAttendTellConfig(
        **SMALL,
        layers=2,
        attention=ComposedConfig(AdditiveConfig(5), HardConfig("straight_through")),
    ),
    "gru, two heads": ShowAttendTellConfig(
        **SMALL,
        cell="gru",
        attention=AttentionConfig.from_json({"kind": "multi_head", "heads": 2, "inner": "additive"}),
    ),
    "no attention": ShowAttendTellConfig(**SMALL, attention=None),
    "transformer": CaptioningTransformerConfig(12, 2, 24, 0, 2, 0.0),
    "transformer, places look at each other": CaptioningTransformerConfig(
        12, 2, 24, 1, 1, 0.0, norm="post", tied=False
    ),
}


def captions(lengths=(3, 4, 1)):
    """Random places and captions, padded behind."""
    target = torch.full((len(lengths), max(lengths) + 2), PADDING)
    for i, length in enumerate(lengths):
        target[i, : length + 2] = torch.tensor([START, *torch.randint(4, WORDS, (length,)).tolist(), END])
    return torch.randn(len(lengths), PLACES.count, PLACES.size, dtype=torch.float64), target
