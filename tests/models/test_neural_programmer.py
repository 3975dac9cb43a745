"""The Neural Programmer: operations against a plain transcription, soft against hard, gradients, answers."""

from itertools import product

import numpy as np
import pytest
import torch

from sightline.models.asking import (
    NOT_COMPARABLE,
    OPERATIONS,
    AnswerArrays,
    TableArrays,
    collate_answers,
    collate_tables,
    unflattened,
    unflattened_answer,
)
from sightline.models.cell_reader import CellReaderConfig
from sightline.models.neural_programmer import NeuralProgrammerConfig, answer_loss
from sightline.models.table_operations import COMPARISONS, PRINT, SELECTING, prepare_table, rows_behind

pytestmark = pytest.mark.fast
KEPT = {"greater": {1}, "less": {-1}, "at_least": {0, 1}, "at_most": {-1, 0}}


def table(seed: int, rows: int = 6, columns: int = 3, words: int = 7) -> TableArrays:
    draws = np.random.default_rng(seed)
    cells = (rows, columns)
    ranks = draws.integers(0, 5, cells)
    signs = np.where(ranks > 0, np.sign(ranks - draws.integers(1, 5, (2, 1, 1))), NOT_COMPARABLE)
    return TableArrays(
        draws.integers(1, 30, words),
        np.array([1, words - 1]),
        draws.integers(1, 30, (columns, 2)),
        ranks,
        signs,
        draws.integers(-1, 3, cells),
        draws.integers(0, 2, cells),
        draws.integers(0, 2, columns),
    )


def first(select: np.ndarray, order: list[int]) -> np.ndarray:
    """Rows of an order with the probability that none before them was taken."""
    taken, free = np.zeros(len(select)), 1.0
    for row in order:
        taken[row] = select[row] * free
        free *= 1 - select[row]
    return taken


def transcribed(x: TableArrays, s: np.ndarray, operation: str, column: int, number: int, narrows: bool) -> np.ndarray:
    """One operation on one column, row by row."""
    rows = len(s)
    kept = s if narrows else np.ones(rows)
    rank = x.ranks[:, column]
    ranked = [row for row in range(rows) if rank[row] > 0]
    if operation in ("count", "print"):
        return s
    if operation == "reset":
        return np.ones(rows)
    if operation == "previous":
        return np.array([s[row + 1] if row + 1 < rows else 0.0 for row in range(rows)])
    if operation == "next":
        return np.array([s[row - 1] if row else 0.0 for row in range(rows)])
    if operation == "first":
        return first(s, list(range(rows)))
    if operation == "last":
        return first(s, list(range(rows))[::-1])
    if operation == "max":
        return first(s, sorted(ranked, key=lambda row: (-rank[row], row)))
    if operation == "min":
        return first(s, sorted(ranked, key=lambda row: (rank[row], row)))
    if operation == "match":
        return kept * x.matches[:, column]
    if operation in KEPT:
        return kept * np.array([int(x.signs[number, row, column]) in KEPT[operation] for row in range(rows)])
    entry = x.entries[:, column]
    counts = {one: kept[entry == one].sum() for one in set(entry) - {-1}}
    most = max(counts.values(), default=0.0)
    return np.array(
        [k if e >= 0 and most > 0 and np.isclose(counts[e], most) else 0.0 for k, e in zip(kept, entry, strict=True)]
    )


def behind(x: TableArrays, s: np.ndarray, ops: np.ndarray, columns: np.ndarray, numbers: np.ndarray, narrows: bool):
    batch = collate_tables([x])
    args = (torch.from_numpy(one).double().unsqueeze(0) for one in (s, ops, columns, numbers))
    return rows_behind(prepare_table(batch, torch.float64), *args, narrows).numpy()[0]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("soft", [False, True])
def test_each_operation_is_what_a_transcription_gives(operation: str, soft: bool) -> None:
    for seed, narrows in product(range(20), (True, False)):
        x, draws = table(seed), np.random.default_rng(seed + 100)
        s = draws.random(6) if soft else draws.integers(0, 2, 6).astype(float)
        column, number = int(draws.integers(3)), int(draws.integers(2))
        ops = np.eye(len(OPERATIONS))[OPERATIONS.index(operation)]
        got = behind(x, s, ops, np.eye(3)[column], np.eye(2)[[number] * len(COMPARISONS)], narrows)
        np.testing.assert_allclose(got, transcribed(x, s, operation, column, number, narrows), atol=1e-12)


def test_a_pass_is_the_mean_of_operations_and_columns() -> None:
    for seed in range(10):
        x, draws = table(seed), np.random.default_rng(seed)
        s, ops, columns = draws.random(6), draws.dirichlet(np.ones(15)), draws.dirichlet(np.ones(3))
        numbers = draws.dirichlet(np.ones(2), size=len(COMPARISONS))
        wanted = np.zeros(6)
        for (o, name), c in product(enumerate(OPERATIONS), range(3)):
            weights = numbers[COMPARISONS.index(name)] if name in COMPARISONS else [1.0, 0.0]
            for number, weight in enumerate(weights):
                wanted += ops[o] * columns[c] * weight * transcribed(x, s, name, c, number, True)
        np.testing.assert_allclose(behind(x, s, ops, columns, numbers, True), wanted, atol=1e-12)


def test_gradients_of_a_pass_are_right() -> None:
    batch = prepare_table(collate_tables([table(1), table(2, rows=4)]), torch.float64)
    torch.manual_seed(0)
    s = (torch.rand(2, 6, dtype=torch.float64) * 0.8 + 0.1) * batch.there
    shares = [torch.softmax(torch.randn(*shape, dtype=torch.float64), -1) for shape in ((2, 15), (2, 3), (2, 4, 2))]
    inputs = [one.requires_grad_() for one in (s, *shares)]
    assert torch.autograd.gradcheck(lambda *args: rows_behind(batch, *args, True), inputs)


def test_soft_equals_hard_where_choices_are_one_hot() -> None:
    torch.manual_seed(1)
    model = NeuralProgrammerConfig(size=16, passes=4, dropout=0.0).build(31).double().eval()
    with torch.no_grad():
        for weight in (model.operations, model.combine.weight, model.choose_operation.weight):
            weight.mul_(400)
    batch = collate_tables([table(seed) for seed in range(8)])
    soft, hard = (model.run(batch, hard=one) for one in (False, True))
    sure = torch.stack([(one.operations.amax(1) > 1 - 1e-9) & (one.columns.amax(1) > 1 - 1e-9) for one in soft]).all(0)
    assert sure.any()
    torch.testing.assert_close(soft[-1].behind[sure], hard[-1].behind[sure], atol=1e-6, rtol=0)


def answer(x: TableArrays, count: int, cells: dict[tuple[int, int], int]) -> AnswerArrays:
    held = np.zeros(x.ranks.shape, int)
    for place, item in cells.items():
        held[place] = item
    return AnswerArrays(count, max([1, *cells.values()]), held)


def test_loss_takes_the_easiest_occurrence_and_the_soft_minimum() -> None:
    x = table(3, rows=2, columns=2)
    batch = collate_tables([x, x, x])
    answers = [answer(x, -1, {(0, 0): 1, (1, 1): 1}), answer(x, 2, {}), answer(x, 2, {(0, 0): 1})]
    cells = torch.tensor([[0.1, 0.2], [0.3, 0.6]], dtype=torch.float64).expand(3, 2, 2)
    counts = torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64)
    loss = answer_loss(cells, counts, batch, collate_answers(answers, batch))
    printed = (-np.log(0.8) - np.log(0.7) - np.log(0.6)) * 50 / 4
    one = (-np.log(0.8) - np.log(0.7) - np.log(0.4) - np.log(0.1)) * 50 / 4
    counted = 0.5 * 1.5**2 / 2
    both = -np.log(np.exp(-5 * counted) + np.exp(-5 * one)) / 5
    np.testing.assert_allclose(loss.numpy(), [printed, counted, max(both, 0)], rtol=1e-6)


@pytest.mark.parametrize("config", [NeuralProgrammerConfig(size=16), CellReaderConfig(size=16)])
def test_a_batch_is_each_question_by_itself(config) -> None:
    torch.manual_seed(0)
    model = config.build(31).double().eval()
    items = [table(0), table(1, rows=3, columns=2, words=4), table(2, rows=1, columns=1, words=3)]
    together = model.programs(collate_tables(items))
    for one, item in zip(together, items, strict=True):
        alone = model.programs(collate_tables([item]))[0]
        assert (one.count, one.cells) == (alone.count, alone.cells)
        assert one.log_prob == pytest.approx(alone.log_prob, abs=1e-6)
        for a, b in zip(one.passes, alone.passes, strict=True):
            assert (a.operation, a.column, a.number) == (b.operation, b.column, b.number)
            np.testing.assert_allclose(a.question_weights, b.question_weights, atol=1e-6)


@pytest.mark.parametrize(
    "config", [NeuralProgrammerConfig(size=32, passes=2, dropout=0.0), CellReaderConfig(size=32, dropout=0.0)]
)
def test_it_learns_what_stands_in_the_matching_row(config) -> None:
    torch.manual_seed(0)
    items, answers = [], []
    for seed in range(60):
        x = table(seed)
        row = int(np.random.default_rng(seed).integers(6))
        x = x._replace(matches=np.zeros_like(x.matches), names=np.array([[3, 0], [4, 0], [5, 0]]))
        x.matches[row, 0] = 1
        items.append(x)
        answers.append(answer(x, -1, {(row, 2): 1}))
    batch = collate_tables(items)
    targets = collate_answers(answers, batch)
    model = config.build(31)
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(150):
        optimiser.zero_grad()
        model.loss(batch, targets).total.div(60).backward()
        optimiser.step()
    gold = [tuple(map(tuple, np.argwhere(one.cells))) for one in answers]
    right = sum(one.cells == cells for one, cells in zip(model.eval().programs(batch), gold, strict=True))
    assert right >= 54


def test_passes_can_be_skipped_and_replaced() -> None:
    torch.manual_seed(0)
    model = NeuralProgrammerConfig(size=16).build(31).eval()
    batch = collate_tables([table(5)])
    last = OPERATIONS.index("last")
    replaced = model.programs(batch, replaced={0: last})[0]
    assert replaced.passes[0].operation == last
    assert replaced.passes[0].rows.tolist() == [0, 0, 0, 0, 0, 1]
    skipped = model.programs(batch, skipped=0)[0]
    assert skipped.passes[0].rows.tolist() == [1] * 6


def test_programs_end_with_an_answer() -> None:
    torch.manual_seed(0)
    batch = collate_tables([table(seed) for seed in range(5)])
    for program in NeuralProgrammerConfig(size=16).build(31).eval().programs(batch):
        assert OPERATIONS[program.passes[-1].operation] in ("count", "print")
        assert all(one.operation in SELECTING for one in program.passes[:-1])
        assert (program.count is None) == (program.passes[-1].operation == PRINT)


def test_arrays_survive_as_numbers() -> None:
    x = table(4, rows=3)
    for one, other in zip(x, unflattened(x.flat()), strict=True):
        np.testing.assert_array_equal(one, other)
    y = answer(x, 2, {(0, 1): 1})
    back = unflattened_answer(y.flat())
    assert (back.count, back.items, back.cells.tolist()) == (y.count, y.items, y.cells.tolist())
    assert y.reachable
    assert not AnswerArrays(-1, 2, y.cells).reachable
