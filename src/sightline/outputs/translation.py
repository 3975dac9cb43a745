"""A text for a text: translations, summaries, normal forms. Both sides are fitted together, and split as pairs."""

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from sightline import metrics
from sightline.attention import Attention
from sightline.data.splitting import Overlap
from sightline.data.store import Corpus, TokenBlock, write_blocks
from sightline.inputs.base import Input
from sightline.inputs.text import SourceText
from sightline.metrics import Bucket, Statistics
from sightline.outputs.searched import Prediction, Searched, SequenceOptions
from sightline.outputs.sequence import WARNED, SequenceOutput, learnt_lines
from sightline.tasks.card import Wording
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.missing import count_missing
from sightline.tasks.prepare import TRAIN, VOCABULARY_ROWS, Prepared, Rows, Setting, overlap_with_training
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.text.copying import SourceWords, numbered_targets
from sightline.text.tokeniser import Tokeniser, train_tokenisers

LOG = logging.getLogger(__name__)
SHIFT_TEXTS = 8
PAPER_NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact": "exact match",
    "tokenised_bleu": "tokenised BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}


class LengthScores(NamedTuple):
    """Scores of the pairs whose sources are about equally long."""

    bucket: Bucket
    values: dict[str, float]


TextPairEvaluation = Evaluation[str, str, Searched, Prediction]
TextPairInput = Input[str, Sequence[int], Tensor]
TextPairs = Sequence[Example[str, str]]


class TranslationOutput(SequenceOutput[str, str, Sequence[int], Tensor]):
    """The targets of pairs of texts."""

    pair_split = True
    by_length = True
    bench_unit = "sentences"
    warned = False

    def fit(
        self, input: TextPairInput, rows: Rows[str, str], setting: Setting
    ) -> tuple[TextPairInput, SequenceOutput[str, str, Sequence[int], Tensor]]:
        assert isinstance(input, SourceText)
        config = setting.config.tokeniser
        if setting.start is None:
            learning = rows.limited(VOCABULARY_ROWS, setting.config.seed)
            sides = (learning.texts(lambda one: (one.x,)), learning.texts(lambda one: (one.y,)))
            source, target = train_tokenisers(lambda: sides[0], lambda: sides[1], config)
            notes = learnt_lines(learning, rows)
        else:
            source, target = setting.start.tokenisers
            notes = count_missing(target, (one.y for one in rows)).lines()
        source.dropout = target.dropout = config.dropout
        return type(input)(input.config, source), self.fitted(target, notes)

    def write(self, input: TextPairInput, rows: Rows[str, str], setting: Setting) -> Corpus:
        """Tokenised in several processes where there are many pairs."""
        assert isinstance(input, SourceText)
        with closing(rows.spool.encoded(input.tokeniser, self.tokeniser, rows.marks, input.copies)) as blocks:
            write_blocks(setting.data / TRAIN, self.stored(blocks))
        return Corpus.open(setting.data / TRAIN)

    def stored(self, blocks: Iterable[TokenBlock]) -> Iterable[TokenBlock]:
        """The tokens of the training pairs as they are stored."""
        return blocks

    def tokens_of(self, xs: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
        if not self.config.copies:
            return super().tokens_of(xs, texts)
        return numbered_targets(self.tokeniser, xs, texts)

    def vocabulary_for(self, x: str) -> Tokeniser | SourceWords:
        return SourceWords(self.tokeniser, x) if self.config.copies else self.tokeniser

    def calibrate(self, run: Run, raws: Sequence[Searched], prepared: Prepared[str, str]) -> "TranslationOutput":
        """With the shift of its maps, measured on a few sentences of middle length."""
        from sightline.outputs.sequence_explain import measured_shift

        valid = self.validated(prepared.valid, run.config)
        texts = [one.x for one in valid if 10 <= len(one.x) <= 200][:SHIFT_TEXTS]
        output = copy.copy(self)
        if any(isinstance(module, Attention) for module in run.model.modules()):
            output.shift = measured_shift(run, texts)
        return output

    def baseline_predictions(
        self, run: Run, examples: Sequence[Example[str, str]], facts: Mapping[str, object]
    ) -> dict[str, list[Prediction]]:
        return {"a copy of the source": [Prediction(one.x, 0.0, 0.0) for one in examples]}

    def card(self, run: Run, prepared: Prepared[str, str], raws: Sequence[Searched], folder: Path) -> Wording:
        return Wording()

    def warn(self, xs: Sequence[str], first: int, options: SequenceOptions) -> None:
        """Warn once: a text of any length works, but a long one not well."""
        for number, x in enumerate(xs, start=first):
            if len(x) > WARNED and not options.split and not self.warned:
                self.warned = True
                LOG.warning(
                    f"line {number:,} has {len(x):,} characters, more than training takes unless "
                    "asked to; --split predicts sentence by sentence"
                )

    # -- scores by length, and which pairs were trained on

    def lengths(self, evaluation: TextPairEvaluation) -> list[LengthScores]:
        """The run's own metric, BLEU and chrF, by the length of the source."""
        names = [one for one in dict.fromkeys((self.config.metric, "bleu", "chrf")) if one in evaluation.statistics]
        return _by_length(evaluation.examples, {name: evaluation.statistics[name] for name in names})

    def _overlap(self, evaluation: TextPairEvaluation) -> Overlap | None:
        run = evaluation.run
        if run.folder is None or not hasattr(run.input, "tokeniser"):
            return None
        pairs = [(one.x, one.y) for one in evaluation.examples]
        longest = getattr(self.config, "max_source", None)
        return overlap_with_training(run.folder, run.input.tokeniser, self.tokeniser, pairs, longest)

    def summary(self, evaluation: TextPairEvaluation) -> dict[str, object]:
        overlap = self._overlap(evaluation)
        known = {} if overlap is None else {"in_training": {"pairs": overlap.pairs, "sources": overlap.sources}}
        return {"by_length": [{**_bucket_json(one), **values} for one, values in self.lengths(evaluation)], **known}

    def tables(self, evaluation: TextPairEvaluation) -> list[Table | str]:
        parts, overlap = super().tables(evaluation), self._overlap(evaluation)
        if overlap is not None and overlap.sources:
            parts.append(
                f"{overlap.pairs:,} of these pairs are in the training data, and {overlap.sources:,} have their "
                "source there: scores on them flatter"
            )
        return [*parts, self._length_table(evaluation)] if self.scoring.by_length else parts

    def _length_table(self, evaluation: TextPairEvaluation) -> Table:
        parts = self.lengths(evaluation)
        names = (f"source, {parts[0][0].unit}", "pairs", *map(self.metric_name, parts[0][1]))
        rows = (
            (one.label, f"{len(one.rows):,}", *(f"{value:.2f}" for value in values.values())) for one, values in parts
        )
        return Table(names, tuple(rows))

    def comparison_fields(
        self, metric: str, examples: TextPairs, systems: Mapping[str, Statistics], draw: tuple[int, int]
    ) -> dict[str, object]:
        by_length = [{**_bucket_json(one), "runs": values} for one, values in _by_length(examples, systems)]
        return {**super().comparison_fields(metric, examples, systems, draw), "by_length": by_length}

    def paper_name(self, metric: str) -> str:
        return PAPER_NAMES.get(metric, metric)


def _by_length(examples: TextPairs, statistics: Mapping[str, Statistics]) -> list[LengthScores]:
    buckets = metrics.buckets_by_length([one.x for one in examples])
    return [LengthScores(one, {name: some.score(one.rows) for name, some in statistics.items()}) for one in buckets]


def _bucket_json(bucket: Bucket) -> dict[str, object]:
    return {"unit": bucket.unit, "least": bucket.least, "most": bucket.most, "pairs": len(bucket.rows)}
