"""What `test_classify` and other tests share."""

import random

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from sightline.export.encoders import export_encoder
from sightline.interop.tokens import PretrainedTokeniser
from sightline.models.encoder import EncoderConfig

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st"]


def texts(count, seed=0, length=6):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, length))) for _ in range(count)]


def order(text):
    """Which of two words comes first: a bag of words cannot tell."""
    words = text.split()
    return "yes" if words.index("up") < words.index("down") else "no"


def ordered(count, seed=0):
    draw = random.Random(seed)
    rows = []
    for text in texts(count, seed):
        words = [*text.split(), "up", "down"]
        draw.shuffle(words)
        rows.append((" ".join(words), order(" ".join(words))))
    return rows


def bert(folder):
    """A folder as Hugging Face's, with random weights."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "up", "down", "a", "##b"]
    library = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    tokeniser = PretrainedTokeniser.load(folder / "tokenizer.json")
    shape = EncoderConfig(
        size=16, heads=2, feed_forward=32, layers=1, norm="post", positions="learned", max_length=64, parts=2,
        embedding_norm=True, scaled=False, pooling="first", pooler=True, epsilon=1e-12,
    )  # fmt: skip
    export_encoder(shape.build(tokeniser.words, tokeniser.specials), tokeniser, folder)
    return folder
