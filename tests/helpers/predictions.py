"""What `test_prediction` and other tests share."""

import random

import pytest

import runs
import sightline
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.tasks.configs.translate import TranslateConfig
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training.loop import TrainingConfig

LEXICON = {"ka": "red", "lo": "cat", "mi": "sun", "nu": "old", "pe": "ice", "ra": "wet", "so": "dog", "tu": "big"}

WORDS = TokeniserConfig(method="words", vocab_size=100, joint=False)

CONFIG = TranslateConfig(
    model=RNNSearchConfig(24, 32, dropout=0.0),
    tokeniser=WORDS,
    training=TrainingConfig(learning_rate=1e-2, warmup=20),
    smoothing=0.0,
    metric="exact",
    batch_tokens=800,
)


def make_name(draw):
    return draw.choice("BDFGKMPRSTZ") + "".join(draw.choice("aeiou") + draw.choice("bdfgklmnprstz") for _ in range(3))


def make_pairs(count, seed, names=2):
    """Words of a small lexicon and names, and their translation backwards. Every name is a new one."""
    draw, pairs = random.Random(seed), []
    for _ in range(count):
        words = draw.choices(list(LEXICON), k=draw.randint(1, 4))
        for _ in range(draw.randint(0, names)):
            words.insert(draw.randint(0, len(words)), make_name(draw))
        pairs.append((" ".join(words), " ".join(LEXICON.get(word, word) for word in reversed(words))))
    return pairs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prediction")
    rows = "".join(f"{source}\t{target}\n" for source, target in make_pairs(1500, seed=0))
    (folder / "pairs.tsv").write_text(f"source\ttarget\n{rows}")
    sightline.train(folder / "pairs.tsv", folder / "run", config=CONFIG, steps=180)
    return folder / "run"


@pytest.fixture(scope="module")
def translator(run):
    return sightline.load(run)


@pytest.fixture(scope="module")
def texts():
    return [source for source, _ in make_pairs(30, seed=7)]


def texts_of(predictions):
    return [one.text for one in predictions]


@pytest.fixture(scope="module")
def stranger(run):
    """A run with a vocabulary of its own."""
    tokeniser = train_tokeniser(["other words"], TokeniserConfig(method="words", vocab_size=20, min_frequency=1))
    model = CONFIG.model.build(tokeniser.words, tokeniser.words)
    made = runs.translator(model, tokeniser, tokeniser, config=CONFIG)
    return runs.saved(made, run.parent / "stranger", weights="untrained")
