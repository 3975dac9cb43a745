"""The Neural Programmer (Neelakantan, Le, Abadi, McCallum and Amodei 2017): a question about a table to a program.

In each of a few passes the model attends to the words of the question with its history as the query, and chooses an
operation and a column: softly while it learns, the likeliest alone when it answers. Only answers are given to learn
from. `sightline.models.table_operations` has the operations. The output of the last pass is the answer: the number of
selected rows (`count`), or the selected cells of a column (`print`).

Against the published code: comparisons and `match` keep of the rows that are selected, where that code selects anew and
cannot combine two conditions (``narrows``); the last pass counts or prints and the others select, so no pass is lost to
an operation without an effect (``staged``); a question is read in both directions. Each can be turned off.

What people get wrong: an answer may stand in several cells, and only its easiest occurrence is to be learnt (the least
loss); an answer that is both a possible count and a cell needs a soft minimum of both losses; a program that is exact
when hard need not have a small loss when soft.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention import AttentionConfig, ComposedConfig, DotConfig, Memory
from sightline.attention.checks import check_least
from sightline.models.asking import (
    NUMBERS,
    OPERATIONS,
    AnswerLoss,
    AnswerTargets,
    Asker,
    AskerConfig,
    Pass,
    Program,
    TableBatch,
)
from sightline.models.table_operations import (
    COMPARISONS,
    COUNT,
    PRINT,
    SELECTING,
    masked_probs,
    one_hot,
    prepare_table,
    rows_behind,
)

PLACES = 8  # columns with a vector of their own for where they stand; later ones have the last
COUNT_LIMIT = 3.0  # the loss of a count is never more
PRINT_SCALE = 50.0  # of the loss of cells, whose mean over all cells is taken
SHARP = 5.0  # of the soft minimum of both
TINY = 1e-30


class State(NamedTuple):
    """What a pass gives: probabilities, the selection before and behind it, the question's words, the history."""

    operations: Float[Tensor, "b o"]
    columns: Float[Tensor, "b c"]
    words: Float[Tensor, "b q"]
    numbers: Float[Tensor, "b k n"]
    before: Float[Tensor, "b r"]
    behind: Float[Tensor, "b r"]
    chosen_operations: Float[Tensor, "b o"]
    chosen_columns: Float[Tensor, "b c"]


def answer_loss(
    cells: Float[Tensor, "b r c"], counts: Float[Tensor, " b"], batch: TableBatch, targets: AnswerTargets
) -> Float[Tensor, " b"]:
    """The loss of each question: of the cells' probabilities to be printed, of the expected count, or the soft minimum
    of both where the answer can be either."""
    there = batch.rows_there.unsqueeze(2) & batch.columns_there.unsqueeze(1)
    rows = batch.rows_there.sum(dim=1).clamp(min=1)
    entries = there.sum(dim=(1, 2)).clamp(min=1)
    count_loss = (0.5 * (counts - targets.counts.to(counts.dtype)).square() / rows).clamp(max=COUNT_LIMIT)
    right = -torch.log(cells.clamp(min=TINY))
    wrong = -torch.log1p(-cells.clamp(max=1 - 1e-6))
    print_loss = (wrong * (there & (targets.cells == 0))).sum(dim=(1, 2))
    for item in range(1, int(targets.cells.max()) + 1):
        held = (targets.cells == item) & there
        easiest = right.masked_fill(~held, torch.inf).amin(dim=(1, 2))
        print_loss = print_loss + torch.where(held.any(dim=2).any(dim=1), easiest, 0.0)
    print_loss = print_loss * PRINT_SCALE / entries
    can_count, can_print = targets.counts >= 0, (targets.cells > 0).any(dim=2).any(dim=1)
    both = -torch.logsumexp(torch.stack((-SHARP * count_loss, -SHARP * print_loss)), dim=0) / SHARP
    one = torch.where(can_count, count_loss, torch.where(can_print, print_loss, 0.0))
    return torch.where(can_count & can_print, both.clamp(min=0.0), one)


class QuestionReader(nn.Module):
    """Words of the question as states, its vector, and vectors of the columns: what all models of `ask` read."""

    def __init__(self, vocabulary: int, size: int, dropout: float, bidirectional: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size, padding_idx=0)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        with torch.no_grad():
            self.embed.weight[0].zero_()
        own = size // 2 if bidirectional else size
        self.rnn = nn.LSTM(size, own, batch_first=True, bidirectional=bidirectional)
        self.features = nn.Parameter(
            0.1 * torch.randn(3, size)
        )  # matches an entry, has numbers, stands in the question
        self.place = nn.Embedding(PLACES, size)
        nn.init.normal_(self.place.weight, std=0.02)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: TableBatch) -> tuple[Float[Tensor, "b q d"], Float[Tensor, "b d"], Float[Tensor, "b c d"]]:
        words = self.dropout(self.embed(batch.words))
        lengths = (batch.words != 0).sum(dim=1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, (last, _) = self.rnn(packed)
        states = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=batch.words.shape[1])[0]
        question = last.transpose(0, 1).reshape(len(batch), -1)
        return states, question, self.columns(batch)

    def columns(self, batch: TableBatch) -> Float[Tensor, "b c d"]:
        names = self.embed(batch.names).sum(dim=2)
        flags = torch.stack((batch.matches.any(dim=1), (batch.ranks > 0).any(dim=1), batch.named), dim=-1)
        places = torch.arange(names.shape[1], device=names.device).clamp(max=PLACES - 1)
        return self.dropout(names + flags.to(names.dtype) @ self.features + self.place(places))


class NeuralProgrammer(Asker):
    """A question and a table to a program and its answer."""

    def __init__(self, config: "NeuralProgrammerConfig", vocabulary: int) -> None:
        super().__init__()
        self.config, size = config, config.size
        self.reader = QuestionReader(vocabulary, size, config.dropout, config.bidirectional)
        self.attention = config.attention.build(size, size)
        self.operations = nn.Parameter(torch.empty(len(OPERATIONS), size))
        nn.init.uniform_(self.operations, -0.1, 0.1)
        self.choose_operation = nn.Linear(3 * size, size)
        self.choose_column = nn.Linear(3 * size, size)
        self.combine = nn.Linear(2 * size, size)
        self.history = nn.Linear(3 * size, size)
        self.named = nn.Parameter(torch.ones(()))
        self.dropout = nn.Dropout(config.dropout)

    def run(
        self,
        batch: TableBatch,
        hard: bool,
        skipped: int | None = None,
        replaced: Mapping[int, int] | None = None,
    ) -> list[State]:
        """All passes; ``hard``: the likeliest choices alone select rows. The history is that of the probabilities."""
        states, question, columns = self.reader(batch)
        table = prepare_table(batch, states.dtype)
        memory = self.attention.remember(states, mask=batch.words != 0)
        operations = self.dropout(self.operations)
        numbers = self.numbers(batch, states, operations)
        select, history = table.there, torch.zeros_like(question)
        passes: list[State] = []
        for number in range(self.config.passes):
            state = self.one_pass(batch, number, (question, history, columns, operations), memory)
            op_probs, column_probs, words = state
            chosen, column = (one_hot(op_probs), one_hot(column_probs)) if hard else (op_probs, column_probs)
            if replaced and number in replaced:
                chosen = F.one_hot(chosen.new_full((len(batch),), replaced[number]).long(), len(OPERATIONS)).to(chosen)
            behind = select
            if number != skipped:
                chosen_numbers = one_hot(numbers) * (numbers > 0) if hard else numbers
                behind = rows_behind(table, select, chosen, column, chosen_numbers, self.config.narrows)
            passes.append(State(op_probs, column_probs, words, numbers, select, behind, chosen, column))
            read = torch.cat((op_probs @ operations, torch.einsum("bc,bcd->bd", column_probs, columns)), dim=-1)
            history = torch.tanh(self.history(torch.cat((history, self.dropout(read)), dim=-1)))
            select = behind
        return passes

    def one_pass(
        self, batch: TableBatch, number: int, given: tuple[Tensor, Tensor, Tensor, Tensor], memory: Memory
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The probabilities of operations and columns, and the weights of the words."""
        question, history, columns, operations = given
        read = self.attention(history.unsqueeze(1), memory, need_weights=True)
        about = torch.cat((question, read.context.squeeze(1), history), dim=-1)
        logits = self.dropout(torch.relu(self.choose_operation(about))) @ operations.t()
        op_probs = masked_probs(logits, self.allowed(number, logits).expand_as(logits))
        column_query = torch.cat((torch.relu(self.choose_column(about)), op_probs @ operations), dim=-1)
        column_query = self.dropout(torch.relu(self.combine(column_query)))
        scores = torch.einsum("bd,bcd->bc", column_query, columns) + self.named * batch.named.to(column_query.dtype)
        return op_probs, masked_probs(scores, batch.columns_there), read.weights.squeeze(1)

    def allowed(self, number: int, like: Tensor) -> Tensor:
        """The operations that a pass may choose."""
        able = torch.zeros(len(OPERATIONS), dtype=torch.bool, device=like.device)
        last = number == self.config.passes - 1
        able[[COUNT, PRINT] if last and self.config.staged else list(SELECTING)] = True
        return able if self.config.staged else torch.ones_like(able)

    def numbers(self, batch: TableBatch, states: Tensor, operations: Tensor) -> Float[Tensor, "b k n"]:
        """For each comparison, the weights of the question's numbers, by the states at these numbers."""
        at = batch.number_at.clamp(min=0).unsqueeze(-1).expand(-1, -1, states.shape[-1])
        vectors = torch.gather(states, 1, at)
        compared = operations[[OPERATIONS.index(name) for name in COMPARISONS]]
        logits = torch.einsum("kd,bnd->bkn", compared, vectors)
        return masked_probs(logits, (batch.number_at >= 0).unsqueeze(1).expand(-1, len(COMPARISONS), NUMBERS))

    def loss(self, batch: TableBatch, targets: AnswerTargets) -> AnswerLoss:
        last = self.run(batch, hard=False)[-1]
        counts = last.chosen_operations[:, COUNT] * last.before.sum(dim=1)
        cells = torch.einsum("br,bc->brc", last.before, last.chosen_columns)
        cells = cells * last.chosen_operations[:, PRINT, None, None]
        return AnswerLoss(answer_loss(cells, counts, batch, targets).sum(), len(batch))

    @torch.no_grad()
    def programs(
        self, batch: TableBatch, skipped: int | None = None, replaced: Mapping[int, int] | None = None
    ) -> list[Program]:
        passes = self.run(batch, True, skipped, replaced)
        return [self._program(batch, passes, row) for row in range(len(batch))]

    def _program(self, batch: TableBatch, passes: list[State], row: int) -> Program:
        rows, columns = int(batch.rows_there[row].sum()), int(batch.columns_there[row].sum())
        words = int((batch.words[row] != 0).sum())
        steps, log_prob = [], 0.0
        for state in passes:
            operation, column = (int(one[row].argmax()) for one in (state.chosen_operations, state.chosen_columns))
            number = -1
            if OPERATIONS[operation] in COMPARISONS and bool((batch.number_at[row] >= 0).any()):
                number = int(state.numbers[row, COMPARISONS.index(OPERATIONS[operation])].argmax())
            log_prob += float(state.operations[row, operation].clamp(min=TINY).log())
            log_prob += float(state.columns[row, column].clamp(min=TINY).log()) if uses_column(operation) else 0.0
            steps.append(
                Pass(
                    operation,
                    column,
                    _array(state.operations[row]),
                    _array(state.columns[row, :columns]),
                    _array(state.words[row, :words]),
                    number,
                    _array(state.behind[row, :rows]),
                )
            )
        last, final = passes[-1], steps[-1]
        selected = torch.nonzero(last.before[row, :rows] > 0.5).squeeze(1).tolist()
        count = len(selected) if final.operation == COUNT else None
        cells = tuple((one, final.column) for one in selected) if final.operation == PRINT else ()
        return Program(tuple(steps), count, cells, log_prob)


def uses_column(operation: int) -> bool:
    """Whether the result of an operation depends on the column."""
    return OPERATIONS[operation] not in ("count", "previous", "next", "first", "last", "reset")


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


@dataclass(frozen=True)
class NeuralProgrammerConfig(AskerConfig):
    """``passes`` is how many operations a program has. ``narrows``: comparisons and matches keep of the selected rows.
    ``staged``: the last pass counts or prints, the others select. ``attention`` is that over the question's words."""

    size: int = 128
    passes: int = 4
    dropout: float = 0.2
    bidirectional: bool = True
    narrows: bool = True
    staged: bool = True
    attention: AttentionConfig = field(default_factory=lambda: ComposedConfig(DotConfig()))
    kind: ClassVar[str] = "neural_programmer"

    def __post_init__(self) -> None:
        check_least(self, 1, "passes", "size")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        if self.bidirectional and self.size % 2:
            raise ValueError(f"size is {self.size}; it must be even where questions are read in both directions")

    def build(self, vocabulary: int) -> NeuralProgrammer:
        return NeuralProgrammer(self, vocabulary)
