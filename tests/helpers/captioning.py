"""Made images on the disk, and tiny captioners for the tests of captions."""

from dataclasses import replace

import torch
from PIL import Image

from sightline.inputs.image import ImageInput
from sightline.models.captioning_transformer import CaptioningTransformerConfig
from sightline.models.image_to_text import Places
from sightline.models.show_attend_tell import ShowAttendTellConfig, hard, soft
from sightline.nn.image import CNNConfig
from sightline.outputs.captions import CaptionOutput
from sightline.synthetic.shapes import made_shapes
from sightline.tasks.caption import CAPTION
from sightline.tasks.configs.caption import CaptionConfig
from sightline.tasks.run import Run
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training.loop import TrainingConfig

ENCODER = CNNConfig(size=16, channels=(8, 8), blocks=0)
SOFT = ShowAttendTellConfig(embedding_size=8, size=8, attention=soft(8), dropout=0.0)
HARD = replace(SOFT, attention=hard(8))
FLOOR = replace(SOFT, attention=None)
TRANSFORMER = CaptioningTransformerConfig(size=8, heads=2, feed_forward=8, decoder_layers=1, dropout=0.0)
MODELS = {"soft": SOFT, "hard": HARD, "floor": FLOOR, "transformer": TRANSFORMER}


def written(folder, count=12, seed=0, language="en", size=32):
    """Images as PNG files with a table beside them; also what was made."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    made = made_shapes(count, seed, size, language)
    rows = ["image\tcaption"]
    for number, one in enumerate(made):
        name = f"images/{seed}-{number}.png"
        Image.fromarray(one.pixels).save(folder / name)
        rows += [f"{name}\t{caption}" for caption in one.captions]
    table = folder / f"captions-{seed}.tsv"
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return table, made


def tiny(model=SOFT, steps=2, **changes):
    """A configuration that trains in a moment."""
    training = TrainingConfig(learning_rate=1e-2, warmup=10, steps=steps, validate_every=3, patience=100)
    words = TokeniserConfig(method="words", vocab_size=100, lower=True, min_frequency=1)
    # Untrained models do not know when to end: short captions keep the tests short.
    config = CaptionConfig(
        model=model, encoder=ENCODER, tokeniser=words, training=training, max_length=10, batch_rows=8
    )
    return replace(config, **changes)


def captioner(model=SOFT, texts=("a red circle left of a blue square", "there is a green star"), name="tiny"):
    """A run of `caption` with random weights, sharp enough to look somewhere."""
    torch.manual_seed(0)
    tokeniser = train_tokeniser(
        list(texts), TokeniserConfig(method="words", vocab_size=100, lower=True, min_frequency=1)
    )
    encoder = ENCODER.build()
    places = Places(encoder.annotation_size, *encoder.grid(16, 16))
    built = model.build(places, tokeniser.words, encoder)
    for parameter in built.parameters():
        parameter.data *= 2
    config = tiny(model, max_length=9)
    seen, written_as = ImageInput(config, places), CaptionOutput(config, tokeniser)
    return Run(CAPTION, CAPTION.variants[0], built.eval(), seen, written_as, config, name)


def read_images(run, *images):
    """What the model of a run is given of these images."""
    return run.input.collate([parts[0] for parts in run.encode(images)])
