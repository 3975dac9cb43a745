"""The image encoder of a run: where a new run gets it, what places it makes, and its file in the run folder."""

from typing import Any

import torch

from sightline.errors import UserError
from sightline.models.image_to_text import Places
from sightline.nn.image import ImageEncoder, ImageEncoderConfig
from sightline.tasks.loading import Saved
from sightline.training.folder import RunFolder, save_tensors

ENCODER = "encoder.safetensors"


def new_encoder(config: Any, earlier: Any) -> ImageEncoder:
    """That of the run to go on from where it does not learn; else a new one, with what it has learnt before."""
    if earlier is not None and earlier.input.how != config.encoder:
        raise UserError(f"{earlier.name} has another image encoder, and what goes on from it keeps that one")
    if earlier is not None and earlier.input.encoder is not None:
        return earlier.input.encoder
    torch.manual_seed(config.seed)
    return config.encoder.build(pretrained=earlier is None)


def places_of(how: ImageEncoderConfig, encoder: ImageEncoder) -> Places:
    """The annotations that an encoder makes of every image."""
    return Places(encoder.annotation_size, *encoder.grid(how.size, how.size))


def save_encoder(folder: RunFolder, encoder: ImageEncoder | None) -> None:
    """One that does not learn, so that a run needs no package that it came from; others are a part of the model."""
    if encoder is not None:
        save_tensors(folder.path / ENCODER, dict(encoder.state_dict()))


def load_encoder(saved: Saved, how: ImageEncoderConfig) -> ImageEncoder | None:
    """What `save_encoder` saved; to be used, not to learn."""
    if not how.frozen:
        return None
    return saved._replace(weights=saved.path / ENCODER).model(how.build).requires_grad_(False)
