"""Made-up explanations for the tests of the page: sentences, hostile text, many scripts, long maps."""

import numpy as np

from sightline.explain.explanation import Belief, Calculation, Choice, Explanation, Finding, HeadCost, OutputStep, Stack
from sightline.records import Grid, Record, Tokens, TopK

SOURCE = ("▁the", "▁little", "▁cat", "▁is", "▁sleep", "ing", "▁on", "▁the", "▁win", "dow", "▁sill", ".", "</s>")
TARGET = ("▁die", "▁kleine", "▁Katze", "▁schläft", "▁auf", "▁der", "▁Fenster", "bank", ".", "</s>")
WHERE = (0, 1, 2, 4, 6, 7, 8, 10, 11, 12)
HOSTILE = (
    "</script><img src=x onerror=window.ran=1>",
    "<b>bold</b>",
    "\u202eevil\u202c",
    "\u200fمرحبا",
    "w" * 10_000,
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "a\x00b",
    "\ud800",
    "",
    " ",
    "{{script}}",
    "]]>&amp;\"'",
)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)


def words_of(texts, special):
    """A new word at each ▁, sign and special token."""
    numbers, number = [], -1
    for place, text in enumerate(texts):
        number += text.startswith("▁") or place in special or not text.isalpha()
        numbers.append(max(number, 0))
    return tuple(numbers)


def tokens(texts):
    special = tuple(place for place, text in enumerate(texts) if text == "</s>")
    return Tokens(tuple(texts), words_of(texts, special), special)


def belief(name, layers=1, heads=1):
    findings = tuple(
        Finding(*about, sentence)
        for *about, sentence in (
            ("entropy", "Entropy against uniform", 0.31, 1.0, "The weights are far from even: each word looks at few."),
            ("special", "Share on special tokens", 0.08, 0.077, "Little of the weight rests on the end."),
            ("first", "Share on the first position", 0.11, 0.077, "The first position is no sink here."),
            ("left_out", "Agreement with leave-one-out", 0.62, 0.0, "Words looked at more cost more when left out."),
            (
                "removal",
                "Removing the most looked at",
                4.7,
                0.4,
                "It costs twelve times what random removal costs.",
            ),
            ("uniform", "Score with even attention", 12.4, 33.9, "With equal weights the score falls to a third."),
        )
    )
    rng = np.random.default_rng(5)
    costs = tuple(
        HeadCost(f"{name}.{layer}" if layers > 1 else name, head, float(rng.exponential(0.2)) - 0.01)
        for layer in range(layers)
        for head in range(heads)
    )
    return Belief("the mean of the heads of the last layer", 9, findings, costs if heads > 1 else ())


def translation(seed=0, *, title="demo, German", layers=1, heads=1, source=SOURCE, target=TARGET, where=WHERE, shift=0):
    """A sentence and its translation: alignment with noise, exact calculations, plausible choices."""
    rng = np.random.default_rng(seed)
    rows, columns = tokens(target), tokens(source)
    sharp = np.zeros((len(target), len(source)))
    sharp[np.arange(len(target)), list(where)] = 4.0
    records, calculations = [], []
    for layer in range(layers):
        name = f"decoder.attention.{layer}" if layers > 1 else "decoder.attention"
        for head in range(heads):
            scores = (sharp * rng.uniform(0.3, 1.3) + rng.normal(size=sharp.shape)).astype(np.float32)
            weights = softmax(scores)
            values = rng.normal(size=(len(source), 16)).astype(np.float32)
            records.append(Record(name, layer, head, rows, columns, weights, scores))
            queries = rng.normal(size=(len(target), 16)).astype(np.float32)
            calculations.append(Calculation(name, head, values, queries, weights @ values, 64))
    names = tuple(dict.fromkeys(record.name for record in records))
    own = softmax(rng.normal(size=(len(source), len(source))) + 3 * np.eye(len(source)))
    records.append(Record("encoder.attention", 0, 0, columns, columns, own))
    return Explanation(
        title=title,
        task="translate",
        input=" ".join("".join(source[:-1]).replace("▁", " ").split()),
        output=" ".join("".join(target[:-1]).replace("▁", " ").split()),
        records=tuple(records),
        stacks=(
            Stack("From the output to the source", "cross", names),
            Stack("Inside the source", "self", ("encoder.attention",)),
        ),
        steps=tuple(step(text, rng) for text in target),
        calculations=tuple(calculations),
        alternatives=(
            Choice("Die kleine Katze schläft am Fenster.", 0.112),
            Choice("Das Kätzchen schläft auf der Fensterbank.", 0.064),
        ),
        belief=belief("decoder.attention", layers, heads),
        shift=shift,
    )


def step(text, rng):
    others = ("▁eine", "▁liegt", "▁am", "▁klein")
    taken = float(rng.uniform(0.5, 0.98))
    shares = np.sort(rng.dirichlet(np.ones(len(others))))[::-1] * (1 - taken) * 0.9
    likeliest = (Choice(text, taken), *map(Choice, others, map(float, shares)))
    return OutputStep(text, taken, likeliest)


def hostile():
    """Every text of the explanation is an attack or an oddity."""
    rng = np.random.default_rng(1)
    side = Tokens(HOSTILE, tuple(range(len(HOSTILE))), (1,))
    weights = softmax(3 * rng.normal(size=(len(HOSTILE), len(HOSTILE))))
    attack = HOSTILE[0]
    return Explanation(
        title=attack + "\x00\ud800",
        task=attack,
        input=" ".join(HOSTILE),
        output=attack,
        records=(Record(attack, 0, 0, side, side, weights, np.log(weights)),),
        stacks=(Stack(attack, "cross", (attack,)),),
        steps=tuple(OutputStep(text, 0.5, (Choice(text, 0.5), Choice(attack, 0.25))) for text in HOSTILE),
        alternatives=(Choice(attack, 0.1),),
        belief=Belief(attack, 3, (Finding(attack, attack, float("nan"), None, attack),), (HeadCost(attack, 0, 0.5),)),
        notes=(attack,),
    )


def scripts():
    """Chinese to Arabic with emoji."""
    source = ("我", "喜欢", "在", "北京", "的", "公园", "里", "散步", "😀", "。", "</s>")
    target = ("▁أحب", "▁المشي", "▁في", "▁حديقة", "▁بكين", "😀", ".", "</s>")
    return translation(3, title="中文 → العربية", source=source, target=target, where=(1, 7, 2, 5, 3, 8, 9, 10))


def pooled():
    """A review in one row, as a classifier reads it."""
    text = "the film is slow at first , but the last half hour is a small wonder and i left the cinema smiling"
    texts = (*text.split(), "</s>")
    scores = np.zeros((1, len(texts)))
    for word, score in {"slow": 1.6, "but": 1.2, "small": 2.0, "wonder": 3.6, "smiling": 3.1}.items():
        scores[0, texts.index(word)] = score
    record = Record("pool", 0, 0, Tokens(("positive",)), Tokens(texts, special=(len(texts) - 1,)), softmax(scores))
    steps = (OutputStep("positive", 0.93, (Choice("positive", 0.93), Choice("negative", 0.07))),)
    stack = Stack("What the review was read by", "pool", ("pool",))
    return Explanation("reviews", "classify", text, "positive", (record,), (stack,), steps)


def caption():
    """Words that look at places of an image."""
    words, grid = ("▁a", "▁dog", "▁runs", "</s>"), Grid(7, 9)
    place = np.stack(np.meshgrid(np.arange(7), np.arange(9), indexing="ij"), axis=-1).reshape(-1, 2)
    centres = np.array([(3, 4), (4, 2), (5, 5), (0, 8)])
    weights = softmax(-((place[None] - centres[:, None]) ** 2).sum(-1) / 3.0)
    record = Record("decoder.attention", 0, 0, tokens(words), grid, weights)
    stack = Stack("From the words to the image", "cross", ("decoder.attention",))
    return Explanation("captions", "caption", "dog.jpg", "a dog runs", (record,), (stack,))


def long(size=512, layers=6, heads=8, *, top=None, seed=0):
    """A long text that looks at itself, as large as a page has to bear."""
    rng = np.random.default_rng(seed)
    stems = "time river stone walk green house paper light under water story number small early winter open"
    texts = tuple("▁" + stems.split()[place] for place in rng.integers(16, size=size - 1))
    side = tokens((*texts, "</s>"))
    near = -np.abs(np.arange(size)[:, None] - np.arange(size)[None]) / 40.0
    records = []
    for layer in range(layers):
        for head in range(heads):
            weights = softmax(rng.normal(size=(size, size)) * (0.6 + 0.25 * layer) + near * (head % 3))
            kept = weights if top is None else largest(weights, top)
            records.append(Record(f"encoder.{layer}", layer, head, side, side, kept))
    names = tuple(f"encoder.{layer}" for layer in range(layers))
    text = " ".join(text[1:] for text in texts)
    return Explanation(
        "a long text", "classify", text, "science", tuple(records), (Stack("Inside the text", "self", names),)
    )


def largest(weights, top):
    places = np.argsort(-weights, axis=1)[:, :top].astype(np.int32)
    return TopK(places, np.take_along_axis(weights, places, axis=1), weights.shape[1])
