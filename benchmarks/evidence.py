"""Does the panel tell attention that is the cause from attention that is not? ``python benchmarks/evidence.py --write``

Two small models on made data, five seeds each. Reversal: an attention decoder writes the source backwards, and finds
each symbol by looking at it. Counting: a classifier says how many of the tokens are of the first half of the alphabet;
the final states of its encoder, which have counted already, go past the pooling attention straight to the label. Every
token is needed there alike, whichever was looked at.

The bars stand first in this file. They were written before anything was trained.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from jaxtyping import Float, Int
from torch import Tensor, nn

from report import write_section
from sightline.attention.pooling import PoolingConfig
from sightline.decoding.search import Rules, greedy
from sightline.explain.capture import capture
from sightline.explain.evidence import Subject, TextSubject, believe
from sightline.explain.evidence.subject import PoolSubject
from sightline.models.luong import LuongConfig
from sightline.models.recurrent import RecurrentModel
from sightline.nn.annotating import TokenEmbedding
from sightline.nn.rnn import BidirectionalEncoder
from sightline.vocabulary import END, PADDING, START

CAUSE_AT_LEAST = 5.0  # hiding what was looked at most costs this many times what hiding others costs: reversal
NO_CAUSE_AT_MOST = 1.5  # counting. And the maps of reversal with their columns permuted must stay below the first bar.

KINDS = ("reversal", "counting")
SEEDS = range(5)
SYMBOLS, SHORTEST, LONGEST = 12, 5, 10
FIRST = 4  # the symbols come behind padding, unknown, start and end
WORDS = FIRST + SYMBOLS
SIZE, BATCH, RATE, MOST_STEPS, GOOD_ENOUGH = 64, 32, 4e-3, 1_500, 0.99
SENTENCES, DOCUMENTS = 20, 100  # measured: of documents more, each has a single row


class Measured(NamedTuple):
    """One seed of one model. Costs in nats for each row; ``among_all``: a random one of all, not of the others."""

    model: str
    seed: int
    steps: int
    accuracy: float
    looked_at: float
    others: float
    ratio: float
    among_all: float
    permuted: float
    uniform: float
    agreement: float
    seconds: float


class Counter(nn.Module):
    """Embedding, BiGRU, pooling attention, label; and the shortcut from the encoder's final states to the label."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(WORDS, SIZE, PADDING)
        self.encoder = BidirectionalEncoder("gru", SIZE, SIZE)
        self.pooling = PoolingConfig().build(2 * SIZE)
        self.label = nn.Linear(4 * SIZE, LONGEST + 1)

    def forward(self, tokens: Int[Tensor, "b s"]) -> Float[Tensor, "b l"]:
        mask = tokens != PADDING
        encoded = self.encoder(self.embedding(tokens), mask)
        context = self.pooling(encoded.annotations, mask=mask).context.squeeze(1)
        return self.label(torch.cat([encoded.forward, encoded.backward, context], dim=-1))


def make_symbols(count: int, random: torch.Generator) -> list[list[int]]:
    lengths = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=random).tolist()
    return [torch.randint(FIRST, WORDS, (length,), generator=random).tolist() for length in lengths]


def pad(rows: list[list[int]]) -> Int[Tensor, "b s"]:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PADDING] * (longest - len(row))] for row in rows])


def count_marked(symbols: list[int]) -> int:
    return sum(symbol < FIRST + SYMBOLS // 2 for symbol in symbols)


def reversal_step(model: RecurrentModel, random: torch.Generator) -> tuple[Tensor, float]:
    rows = make_symbols(BATCH, random)
    source, target = pad([[*row, END] for row in rows]), pad([[START, *row[::-1], END] for row in rows])
    logits, wanted = model.logits(source, target[:, :-1]), target[:, 1:]
    real = wanted != PADDING
    right = (logits.argmax(dim=-1) == wanted)[real].float().mean()
    return F.cross_entropy(logits[real], wanted[real]), float(right)


def counting_step(model: Counter, random: torch.Generator) -> tuple[Tensor, float]:
    rows = make_symbols(BATCH, random)
    scores, wanted = model(pad(rows)), torch.tensor([count_marked(row) for row in rows])
    return F.cross_entropy(scores, wanted), float((scores.argmax(dim=-1) == wanted).float().mean())


def train(model: nn.Module, step: Callable[..., tuple[Tensor, float]], seed: int) -> tuple[int, float]:
    """Fresh data every step, until the last 20 batches are right often enough, or no more steps are left."""
    random = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    recent: list[float] = []
    steps = 0
    while steps < MOST_STEPS and not (len(recent) == 20 and np.mean(recent) >= GOOD_ENOUGH):
        loss, right = step(model, random)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        recent = [*recent[-19:], right]
        steps += 1
    model.eval()
    return steps, float(np.mean(recent))


def reversal_subjects(model: RecurrentModel, random: torch.Generator) -> list[Subject]:
    """What the model writes itself, word by word."""
    rules = Rules(START, END, max_length=2 * LONGEST, forbidden=(PADDING, START))
    sources = [[*row, END] for row in make_symbols(SENTENCES, random)]
    with torch.no_grad():
        written = greedy(model.step, model.begin(pad(sources)), len(sources), rules)
    return [TextSubject(model, row, [*one.tokens, END]) for row, one in zip(sources, written, strict=True)]


def counting_subjects(model: Counter, random: torch.Generator) -> list[Subject]:
    documents = make_symbols(DOCUMENTS, random)
    with torch.no_grad():
        labels = model(pad(documents)).argmax(dim=-1).tolist()
    return [
        PoolSubject(model, row, label, embedding=model.embedding, attention="pooling")
        for row, label in zip(documents, labels, strict=True)
    ]


def weights_of(subject: Subject) -> np.ndarray:
    with capture(subject.model) as trace:
        subject.log_probs(torch.ones(1, subject.columns, dtype=torch.bool))
    looks = [trace[name].weights[0].mean(dim=0) for name in trace.names if subject.attends_to_columns(name)]
    return torch.stack(looks).mean(dim=0).double().numpy()


def permute_columns(weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """No column stays where it was."""
    order = random.permutation(weights.shape[1])
    permuted = np.empty_like(weights)
    permuted[:, np.roll(order, 1)] = weights[:, order]
    return permuted


def measure(subjects: list[Subject], seed: int) -> dict[str, float]:
    """The panel's own numbers, over all rows of all inputs."""
    random = np.random.default_rng(seed)
    sums = dict.fromkeys(("rows", "looked_at", "others", "all", "uniform", "agreement", "p_looked_at", "p_others"), 0.0)
    for subject in subjects:
        weights = weights_of(subject)
        found = {one.key: one for one in believe(subject, weights, heads=False, seed=seed).findings}
        wrong = {
            one.key: one for one in believe(subject, permute_columns(weights, random), heads=False, seed=seed).findings
        }
        top, others = found["removal"].value, found["removal"].reference
        assert top is not None
        assert others is not None
        hideable = int(subject.hideable.sum())  # here k is 1, so a random one of all is the top one once in so many
        parts = {
            "rows": 1.0,
            "looked_at": top,
            "others": others,
            "all": top / hideable + others * (hideable - 1) / hideable,
            "uniform": found["uniform"].value or 0.0,
            "agreement": found["leave_one_out"].value or 0.0,
            "p_looked_at": wrong["removal"].value or 0.0,
            "p_others": wrong["removal"].reference or 0.0,
        }
        for key, value in parts.items():
            sums[key] += value * subject.rows
    mean = {key: value / sums["rows"] for key, value in sums.items()}
    return {
        **{key: mean[key] for key in ("looked_at", "others", "uniform", "agreement")},
        "ratio": mean["looked_at"] / mean["others"],
        "among_all": mean["looked_at"] / mean["all"],
        "permuted": mean["p_looked_at"] / mean["p_others"],
    }


def run(kind: str, seed: int) -> Measured:
    started = time.perf_counter()
    torch.manual_seed(seed)
    fresh = torch.Generator().manual_seed(10_000 + seed)
    if kind == "reversal":
        config = LuongConfig(SIZE, SIZE, SIZE // 2, cell="gru", input_feeding=False, dropout=0.0)
        reverser = config.build(WORDS, WORDS)
        steps, accuracy = train(reverser, reversal_step, seed)
        subjects = reversal_subjects(reverser, fresh)
    else:
        counter = Counter()
        steps, accuracy = train(counter, counting_step, seed)
        subjects = counting_subjects(counter, fresh)
    found = measure(subjects, seed)
    return Measured(kind, seed, steps, accuracy, **found, seconds=time.perf_counter() - started)


def met(one: Measured) -> bool:
    if one.model == "reversal":
        return one.ratio >= CAUSE_AT_LEAST > one.permuted
    return one.ratio <= NO_CAUSE_AT_MOST


def describe(rows: list[Measured]) -> str:
    lines = "\n".join(
        f"| {one.model} | {one.seed} | {one.steps:,} | {one.accuracy:.1%} | {one.looked_at:.2f} | {one.others:.2f} | "
        f"**{one.ratio:.2f}x** | {one.among_all:.2f}x | {one.permuted:.2f}x | {one.uniform:.2f} | "
        f"{one.agreement:.2f} | {'yes' if met(one) else 'no'} |"
        for one in rows
    )
    return f"""## Evidence: does the panel distinguish cause from no cause?

Two models on synthetic data ({SYMBOLS} symbols, {SHORTEST} to {LONGEST} per row), trained from five seeds each.
*Reversal*: an attention decoder (Luong) writes the source backwards and needs attention to find each symbol.
*Counting*: a classifier with pooling attention counts the tokens of one half of the alphabet; its encoder's final
states bypass the attention, and every token is equally important. The thresholds, written before any training: hiding
the symbol with the largest weight costs at least {CAUSE_AT_LEAST:g} times what hiding another one costs in reversal,
and at most {NO_CAUSE_AT_MOST:g} times in counting; with the columns of its map permuted, reversal must stay below
{CAUSE_AT_LEAST:g}.

Costs are nats per output token (label), mean over {SENTENCES} new sentences ({DOCUMENTS} documents). *Of all*: the
same ratio, with the random symbol drawn from all symbols, including that with the largest weight. *Uniform*: the loss
when attention is made uniform. *τ*: agreement of the map with hiding one symbol at a time.

| model | seed | steps | accuracy | top hidden | another hidden | ratio | of all | permuted | uniform | τ | passed |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|
{lines}

Reproduce: `python benchmarks/evidence.py --write`"""


def main(figures: Path | None = None, models: tuple[str, ...] = KINDS, write: bool = False) -> None:
    """Train and measure every seed of the MODELS.

    FIGURES is a file of JSON lines that grows as runs end; what it holds already is not measured again.
    """
    torch.set_num_threads(1)
    known = figures.read_text(encoding="utf-8").splitlines() if figures is not None and figures.exists() else []
    measured = {(one.model, one.seed): one for one in (Measured(**json.loads(line)) for line in known)}
    for kind, seed in [(kind, seed) for kind in models for seed in SEEDS if (kind, seed) not in measured]:
        measured[kind, seed] = run(kind, seed)
        print(line := json.dumps(measured[kind, seed]._asdict()), flush=True)
        if figures is not None:
            with figures.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    print(body := describe([measured[kind, seed] for kind in models for seed in SEEDS]))
    if write:
        write_section("evidence", body)


if __name__ == "__main__":
    tyro.cli(main)
