"""The demo: a small model that answers questions about a text by attending to it, trained and drawn in seconds.

The text is a phone book, ``k3 a7 z1 …``; a question is a name, the answer its digit. An encoder makes annotations of
the characters, the question is the query, and only attention can tell which digit stands beside which name.
"""

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from sightline.attention import AttentionConfig
from sightline.config import ConfigError
from sightline.errors import UserError
from sightline.files import check_writable, write_text
from sightline.machine import check_seed, set_threads
from sightline.records import Tokens
from sightline.trace import capture
from sightline.view.pictures import heat_map

NAMES, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"
LETTERS = NAMES + DIGITS + " "
FEWEST, MOST, QUESTIONS = 4, 10, 4  # entries in a book; questions about each
PADDING = len(LETTERS)


@dataclass(frozen=True)
class Batch:
    """Books as characters, questions as names, answers as digits."""

    text: Int[Tensor, "b s"]
    questions: Int[Tensor, "b t"]
    answers: Int[Tensor, "b t"]


def make_books(count: int, seed: str) -> Batch:
    """Books of random names and digits; every name once, every question answerable.

    The seed is a text: of numbers, Python takes 1 and −1 for the same.
    """
    draw = random.Random(seed)
    longest = MOST * 3 - 1
    texts, questions, answers = [], [], []
    for _ in range(count):
        names = draw.sample(NAMES, draw.randint(FEWEST, MOST))
        book = {name: draw.choice(DIGITS) for name in names}
        text = [LETTERS.index(letter) for letter in " ".join(name + digit for name, digit in book.items())]
        texts.append(text + [PADDING] * (longest - len(text)))
        asked = draw.sample(names, k=QUESTIONS)
        questions.append([LETTERS.index(name) for name in asked])
        answers.append([int(book[name]) for name in asked])
    return Batch(torch.tensor(texts), torch.tensor(questions), torch.tensor(answers))


class PhoneBook(nn.Module):
    """A bidirectional encoder makes annotations, the questions attend to them, what they read gives the answers."""

    def __init__(self, attention: AttentionConfig, size: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, size, padding_idx=PADDING)
        self.encoder = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.attention = attention.build(size, 2 * size)
        self.output = nn.Linear(self.attention.context_size, len(DIGITS))

    def forward(self, text: Int[Tensor, "b s"], questions: Int[Tensor, "b t"]) -> Float[Tensor, "b t 10"]:
        annotations, _ = self.encoder(self.letters(text))
        memory = self.attention.remember(annotations, mask=text != PADDING)
        return self.output(self.attention(self.letters(questions), memory).context)


def train(model: PhoneBook, steps: int, seed: int, label: str) -> None:
    """AdamW on fresh books, with a progress bar."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=4e-3, total_steps=steps)
    columns = (TextColumn("{task.description:<30}"), BarColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task(f"training with {label}", total=steps, loss=float("nan"))
        for step in range(steps):
            batch = make_books(64, f"train {seed} {step}")
            logits = model(batch.text, batch.questions)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.answers.flatten())
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            progress.update(task, advance=1, loss=loss.item())


@torch.no_grad()
def accuracy(model: PhoneBook, batch: Batch) -> float:
    """The share of questions answered rightly."""
    model.eval()
    right = (model(batch.text, batch.questions).argmax(dim=-1) == batch.answers).float().mean()
    model.train()
    return right.item()


def run_demo(out: Path, steps: int, attention: str, seed: int, threads: int) -> float:
    """Train with attention and with weights that only know positions, score both, draw the first."""
    started = time.perf_counter()
    if steps < 1:
        raise UserError(f"--steps is {steps}; it must be at least 1")
    set_threads(threads)
    try:
        mechanisms = {name: AttentionConfig.from_json(name) for name in dict.fromkeys((attention, "fixed"))}
        torch.manual_seed(check_seed(seed))
        models = {name: PhoneBook(config) for name, config in mechanisms.items()}
    except (ConfigError, ValueError) as error:
        raise UserError(str(error)) from None
    check_writable(out)  # before the training, not after it
    unseen = make_books(2_000, f"test {seed}")
    scores = {}
    for name, model in models.items():
        train(model, steps, seed, name)
        scores[name] = accuracy(model, unseen)
    console = Console()
    for name, score in scores.items():
        note = "" if name == attention else " (baseline: knows positions only)"
        console.print(f"{name:<16} accuracy {100 * score:.1f} % on unseen books{note}", highlight=False, markup=False)
    picture, records = draw(models[attention], unseen, out)
    # A path is no markup: folders may have brackets in their names.
    places = f"picture          {picture}\nrecords          {records}"
    console.print(places, highlight=False, soft_wrap=True, markup=False)
    console.print(f"total time       {time.perf_counter() - started:.0f} s", highlight=False)
    return scores[attention]


@torch.no_grad()
def draw(model: PhoneBook, batch: Batch, out: Path) -> tuple[Path, Path]:
    """The attention of one unseen book: a picture and the plain records behind it."""
    model.eval()
    text, questions = next(
        (text[None], questions[None])
        for text, questions in zip(batch.text, batch.questions, strict=True)
        if (text != PADDING).sum() > 20  # the first long book
    )
    with capture(model) as trace:
        predicted = model(text, questions).argmax(dim=-1)[0].tolist()
    letters = [LETTERS[i] for i in text[0].tolist() if i != PADDING]
    asked = [f"{LETTERS[name]}? {digit}" for name, digit in zip(questions[0].tolist(), predicted, strict=True)]
    found = trace.records(rows=Tokens(tuple(asked)), columns=Tokens(tuple("␣" if x == " " else x for x in letters)))
    picture = heat_map(found[0], out / "attention.png", title="question and the model's answer, and where it looked")
    text = json.dumps([record.to_json() for record in found])
    return picture, write_text(out / "records.json", text)
