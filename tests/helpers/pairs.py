"""What `test_translate` and other tests share."""

import random

QUICK = (
    *("model.size=32", "model.embedding_size=24", "model.dropout=0.0", "tokeniser.method=characters"),
    *(
        "tokeniser.vocab_size=40",
        "training.learning_rate=0.01",
        "training.warmup=30",
        "metric=exact",
        "batch_tokens=400",
    ),
)


def make_pairs(count, seed=0):
    """Three letters, and the same three backwards."""
    draw = random.Random(seed)
    words = {"".join(draw.choices("abcdefgh", k=3)) for _ in range(4 * count)}
    return [(word, word[::-1]) for word in sorted(words)[:count]]


def write_tsv(path, pairs):
    path.write_text("source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path
