"""Answer questions about tables: a small Neural Programmer, trained on made tables and their answers alone.

No program is ever shown to it: it is told only the answer, and finds the operations and columns that give it. What a
question needs stands in its words, so that we can count how much of the attention of a pass lies on the words that name
the column it chose: no more than by chance (the model is told which columns a question names). It prints how
many questions about unseen tables are answered right, and draws the program of one of them, pass by pass.

    python examples/table_programs.py --out runs/examples/tables.png
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

import sightline
from sightline.asked import AskedTable
from sightline.models.neural_programmer import NeuralProgrammerConfig
from sightline.synthetic.tables import MadeQuestion, made_questions
from sightline.tasks.configs.ask import AskConfig
from sightline.tasks.run import Run
from sightline.training.loop import TrainingConfig

KINDS = ("match_print", "max_print", "min_print", "match_count", "match_max_print")
DRAWN = "match_max_print"


class Measured(NamedTuple):
    """Shares from 0 to 1: right answers, attention to the words that name the column, and what chance would give."""

    right: float
    named: float
    chance: float


def configured(steps: int) -> AskConfig:
    """Small: these questions have few words."""
    training = TrainingConfig(learning_rate=3e-3, steps=steps, validate_every=max(1, steps // 4), patience=100)
    return AskConfig(model=NeuralProgrammerConfig(size=64), training=training)


def on_names(table: AskedTable) -> list[tuple[float, float]]:
    """For each pass that chose a column of the question: the weights of the words that name it, and their share."""
    found = []
    for one in table.passes:
        name = table.header[one.column].lower().split() if one.column >= 0 else []
        named = np.array([word.lower() in name for word in table.words])
        if named.any():
            found.append((float(one.word_weights[named].sum()), float(named.mean())))
    return found


def given(one: MadeQuestion) -> dict[str, object]:
    return {"question": one.question, "table": {"header": list(one.header), "rows": [list(row) for row in one.rows]}}


def measure(run: Run, questions: list[MadeQuestion]) -> Measured:
    """Over questions about tables that were not trained on."""
    answers = [one.answers for one in run.predict(list(map(given, questions)))]  # type: ignore[attr-defined]
    right = [sorted(one.answer) == sorted(answer) for one, answer in zip(questions, answers, strict=True)]
    looked = [share for one in questions for share in on_names(explained(run, one))]
    named, chance = np.mean(looked, axis=0) if looked else (0.0, 0.0)
    return Measured(float(np.mean(right)), float(named), float(chance))


def explained(run: Run, one: MadeQuestion) -> AskedTable:
    table = run.explain(given(one), measure=False).table
    assert table is not None
    return table


def main(out: Path = Path("runs/examples/tables.png"), quick: bool = False) -> Measured:
    """Train, ask, draw.

    Args:
        out: The picture.
        quick: Only show that everything runs; nothing is learnt.
    """
    count, tested, steps = (60, 5, 2) if quick else (8000, 200, 1500)
    kinds = "+".join(KINDS)
    with tempfile.TemporaryDirectory() as name:
        data = f"made:tables:kinds={kinds}:count={count}:rows=5-9:columns=4-6"
        run = sightline.train(data, Path(name) / "run", task="ask", config=configured(steps))
        questions = list(made_questions(7, tested, KINDS, (5, 9), (4, 6)))
        measured = measure(run, questions)
        shown = [one for one in questions if one.kind == DRAWN]
        right = [one for one in shown if run.predict([given(one)])[0].answers == one.answer]  # type: ignore[attr-defined]
        out.parent.mkdir(parents=True, exist_ok=True)
        run.explain(given((right or shown or questions)[0]), measure=False).save(out)
    print(f"right answers to {tested} questions about unseen tables: {measured.right:.1%}")
    print(f"attention to the words that name the chosen column: {measured.named:.0%}, by chance {measured.chance:.0%}")
    print(f"wrote {out}")
    return measured


if __name__ == "__main__":
    tyro.cli(main)
