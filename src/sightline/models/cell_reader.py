"""A plain attention reader over the cells of a table: what every program is held against.

The question's vector is the query, the cells are the annotations: the vectors of their column, with flags for what
matches the question and for the greatest and the least number of a column. The weights are the answer: the cell with
the most weight, or, where the model counts, the expected number of rows that match a second query. There is one pass,
so it cannot select, move and select again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.checks import check_least, check_share
from sightline.models.asking import OPERATIONS, AnswerLoss, AnswerTargets, Asker, AskerConfig, Pass, Program, TableBatch
from sightline.models.neural_programmer import TINY, QuestionReader, answer_loss
from sightline.models.table_operations import COUNT, PRINT, masked_probs

ALSO = 0.5  # cells with at least this share of the greatest weight are part of the answer
FLAGS = 6


class CellReader(Asker):
    """A question and a table to cells or a count, in one pass."""

    def __init__(self, config: "CellReaderConfig", vocabulary: int) -> None:
        super().__init__()
        self.config, size = config, config.size
        self.reader = QuestionReader(vocabulary, size, config.dropout, bidirectional=True)
        self.cell = nn.Linear(size + FLAGS, size)
        self.query, self.row_query = nn.Linear(size, size), nn.Linear(size, size)
        self.way = nn.Linear(size, 2)  # count or print
        self.dropout = nn.Dropout(config.dropout)

    def run(self, batch: TableBatch) -> tuple[Tensor, Float[Tensor, "b 2"], Float[Tensor, "b r c"], Tensor, Tensor]:
        """The words' weights, the probabilities to count and to print, those of the cells, of the rows, of columns."""
        states, question, columns = self.reader(batch)
        rows, matches = batch.ranks.shape[1], batch.matches.to(states.dtype)
        ranked = batch.ranks > 0
        top = (batch.ranks == batch.ranks.amax(dim=1, keepdim=True)) & ranked
        least = batch.ranks.masked_fill(~ranked, int(batch.ranks.max()) + 1).amin(dim=1, keepdim=True)
        edges = torch.zeros_like(matches), torch.zeros_like(matches)
        edges[0][:, 0], edges[1][torch.arange(len(batch)), batch.rows_there.sum(dim=1).clamp(min=1) - 1] = 1.0, 1.0
        in_row = matches.amax(dim=2, keepdim=True).expand_as(matches)
        flags = torch.stack(
            (matches, in_row, top.to(matches), ((batch.ranks == least) & ranked).to(matches), *edges), dim=-1
        )
        vectors = torch.tanh(self.cell(torch.cat((columns.unsqueeze(1).expand(-1, rows, -1, -1), flags), dim=-1)))
        vectors, question = self.dropout(vectors), self.dropout(question)
        there = batch.rows_there.unsqueeze(2) & batch.columns_there.unsqueeze(1)
        scores = torch.einsum("bd,brcd->brc", self.query(question), vectors)
        cells = masked_probs(scores.flatten(1), there.flatten(1)).view_as(scores)
        row_scores = torch.einsum("bd,brcd->brc", self.row_query(question), vectors)
        picked = torch.sigmoid(row_scores.masked_fill(~there, -30.0).amax(dim=2)) * batch.rows_there
        return states, torch.softmax(self.way(question), dim=-1), cells, picked, cells.sum(dim=1)

    def loss(self, batch: TableBatch, targets: AnswerTargets) -> AnswerLoss:
        _, way, cells, rows, _ = self.run(batch)
        counts = way[:, 0] * rows.sum(dim=1)
        return AnswerLoss(answer_loss(cells * way[:, 1, None, None], counts, batch, targets).sum(), len(batch))

    @torch.no_grad()
    def programs(
        self, batch: TableBatch, skipped: int | None = None, replaced: Mapping[int, int] | None = None
    ) -> list[Program]:
        _, ways, cells, rows, columns = self.run(batch)
        return [
            self._program(batch, row, ways[row], cells[row], rows[row], columns[row], (replaced or {}).get(0))
            for row in range(len(batch))
        ]

    def _program(
        self, batch: TableBatch, row: int, way: Tensor, cells: Tensor, rows: Tensor, columns: Tensor, forced: int | None
    ) -> Program:
        height, width = int(batch.rows_there[row].sum()), int(batch.columns_there[row].sum())
        words = int((batch.words[row] != 0).sum())
        probs = np.zeros(len(OPERATIONS), np.float32)
        probs[[COUNT, PRINT]] = way.float().cpu().numpy()
        operation = int(probs.argmax()) if forced not in (COUNT, PRINT) else forced
        weights = cells[:height, :width]
        likely = float(np.log(max(float(probs[operation]), TINY)))
        printed: tuple[tuple[int, int], ...] = ()
        if operation == COUNT:
            selected, column = (rows[:height] > 0.5).float(), int(columns[:width].argmax())
        else:
            place = divmod(int(weights.argmax()), width) if weights.numel() else (0, 0)
            column, best = place[1], weights.max() if weights.numel() else weights.new_zeros(())
            inside = weights[:, column] >= ALSO * best
            printed = tuple((one, column) for one in torch.nonzero(inside).squeeze(1).tolist())
            selected = inside.float()
            likely += float(weights[inside, column].sum().clamp(min=TINY).log())
        one = Pass(
            operation,
            column,
            probs,
            columns[:width].float().cpu().numpy(),
            np.full(words, 1 / max(words, 1), np.float32),
            -1,
            selected.cpu().numpy(),
        )
        return Program((one,), int(selected.sum()) if operation == COUNT else None, printed, likely)


@dataclass(frozen=True)
class CellReaderConfig(AskerConfig):
    """A reader of the cells, ``size`` numbers a vector."""

    size: int = 128
    dropout: float = 0.2
    kind: ClassVar[str] = "cell_reader"

    def __post_init__(self) -> None:
        check_least(self, 2, "size")
        check_share(self, "dropout")
        if self.size % 2:
            raise ValueError(f"size is {self.size}; it must be even")

    def build(self, vocabulary: int) -> CellReader:
        return CellReader(self, vocabulary)
