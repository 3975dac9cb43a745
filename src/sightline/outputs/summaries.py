"""A short text for a long one: a translation whose scores and baselines are held against the source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
from torch import Tensor

from sightline.baselines.nearest import MOST_SOURCES, NEAREST, NearestSources
from sightline.data.store import TokenBlock
from sightline.inputs.base import Input
from sightline.metrics import Metric, Statistics, rouge
from sightline.metrics.base import by_name
from sightline.metrics.rouge_scores import RougeKind
from sightline.metrics.summaries import MADE_METRICS, made_statistics, marks_names, not_in_source
from sightline.outputs.base import BASELINES
from sightline.outputs.searched import Prediction, Searched, SequenceOptions
from sightline.outputs.simple_baselines import best_count, first_sentence, first_words
from sightline.outputs.translation import PAPER_NAMES, TextPairEvaluation, TextPairs, TranslationOutput
from sightline.tasks.card import Wording
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Table
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import Example
from sightline.training.folder import RunFolder
from sightline.vocabulary import UNKNOWN

NO_REPEAT = 3  # tokens, where these are words or pieces of words
ROUGE: tuple[RougeKind, ...] = ("rouge1", "rouge2", "rougeL")
MADE_NAMES = {
    **{f"novel_{order}": f"{order}-grams that the source does not have" for order in (1, 2, 3)},
    **{f"repeated_{order}": f"{order}-grams that stand in the summary before" for order in (2, 3)},
    "copied": "words that the source has",
}
SUPPORTED = {True: "numbers and names that the source does not have", False: "numbers that the source does not have"}


class SummaryOutput(TranslationOutput):
    """Summaries. ``longest`` is how many tokens the longest one of the training data has: no output is longer, unless
    `SequenceOptions.max_length` says so."""

    noun = "summaries"
    compared: ClassVar[tuple[str, ...]] = ("rougeL", "rouge1", "rouge2")
    each: ClassVar[tuple[str, ...]] = ("rougeL", "rouge1", "rouge2", "chrf", "exact")
    longest: int | None = None
    cut = 0  # sources that are longer than what is trained on

    # -- storing

    def stored(self, blocks: Iterable[TokenBlock]) -> Iterator[TokenBlock]:
        """With sources cut behind ``max_source`` tokens; a target has no number for a word that was cut off."""
        most = self.config.max_source
        for block in blocks:
            self.longest = max(self.longest or 0, int(block.target_lengths.max(initial=0)))
            if most is None:
                yield block
                continue
            lengths = block.source_lengths
            self.cut += int((lengths > most).sum())
            places = np.arange(len(block.source)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            target = np.where(block.target < self.tokeniser.words + most, block.target, UNKNOWN)
            yield block._replace(
                source=block.source[places < most],
                source_lengths=np.minimum(lengths, most),
                target=target.astype(block.target.dtype),
            )

    def tokens_of(self, xs: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
        tokens, most = super().tokens_of(xs, texts), self.config.max_source
        if most is None:
            return tokens
        return [[token if token < self.tokeniser.words + most else UNKNOWN for token in some] for some in tokens]

    def notes(self, prepared: Prepared[str, str]) -> list[str]:
        notes, most = super().notes(prepared), self.config.max_source
        if self.cut:
            notes.append(
                f"{self.cut:,} sources have more than {most:,} tokens, and only their beginnings are read "
                "(raise max_source to read more)"
            )
        return notes

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        fields, names = super().save(folder)
        return {**fields, "longest": self.longest}, names

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: Input[str, Sequence[int], Tensor]) -> "SummaryOutput":
        output = cast("SummaryOutput", super().load(saved, config, input))
        with saved.reading():
            longest = saved.about.get("longest")
            if longest is not None and (type(longest) is not int or longest < 1):
                raise ValueError(f"longest is {longest!r}; it is a number of tokens")
        output.longest = longest
        return output

    # -- predicting

    @property
    def no_repeat(self) -> int:
        """No sequence of so many tokens is written twice; single characters may be."""
        return 0 if self.config.tokeniser.method == "characters" else NO_REPEAT

    def options(self, given: Mapping[str, object]) -> SequenceOptions:
        return super().options({"no_repeat": self.no_repeat, **given})

    def validation_options(self) -> SequenceOptions:
        return replace(super().validation_options(), no_repeat=self.no_repeat)

    def limited(self, options: SequenceOptions) -> SequenceOptions:
        if options.max_length is not None or self.longest is None:
            return super().limited(options)
        return replace(options, max_length=max(self.longest, options.min_length))

    # -- scores

    def metrics(self, references: Sequence[str]) -> Mapping[str, Metric[...]]:
        known = super().metrics(references)
        stemmed = by_name(*(rouge(kind, stem=True) for kind in ROUGE))
        first = {name: known[name] for name in ("rougeL", "rouge1", "rouge2")}
        return {**first, **stemmed, **known}

    def signature(self, metric: str, examples: TextPairs) -> str:
        if metric in MADE_METRICS:
            return MADE_METRICS[metric].signature([], [])
        return super().signature(metric, examples)

    def statistics(
        self, run: Run, examples: TextPairs, predictions: Sequence[Prediction], raws: Sequence[Searched]
    ) -> dict[str, Statistics]:
        own = super().statistics(run, examples, predictions, raws)
        names = marks_names(one.y for one in examples)
        return {**own, **made_statistics([one.text for one in predictions], [one.x for one in examples], names)}

    def finished(self, evaluation: TextPairEvaluation, scoring: object) -> TextPairEvaluation:
        evaluation = super().finished(evaluation, scoring)
        references, sources = [one.y for one in evaluation.examples], [one.x for one in evaluation.examples]
        names = marks_names(references)
        made = self.scores_of(made_statistics(references, sources, names), None)
        evaluation.extra.update(names=names, references=made)
        return evaluation

    def scores_json(self, evaluation: TextPairEvaluation) -> dict[str, object]:
        made = {
            "names": evaluation.extra["names"],
            "summaries": {name: evaluation.values[name] for name in MADE_METRICS},
            "references": evaluation.extra["references"],
        }
        return {**super().scores_json(evaluation), "made_of": made}

    def tables(self, evaluation: TextPairEvaluation) -> list[Table | str]:
        names, references = evaluation.extra["names"], cast("dict[str, float]", evaluation.extra["references"])
        shares = {**MADE_NAMES, "unsupported": SUPPORTED[bool(names)]}
        rows = ((shares[name], f"{evaluation.values[name]:.2f}", f"{references[name]:.2f}") for name in MADE_METRICS)
        parts: list[Table | str] = [Table(("%", "summaries", "references"), tuple(rows))]
        if not names:
            parts.append("names are not counted: capitals mark no names in the references")
        return [baseline_table(evaluation.values, evaluation.baselines), *parts, *super().tables(evaluation)]

    def scored_row(self, evaluation: TextPairEvaluation, number: int) -> dict[str, object]:
        example, text = evaluation.examples[number], evaluation.predictions[number].text
        new = dict.fromkeys(not_in_source(text, example.x, bool(evaluation.extra["names"])))
        return {**super().scored_row(evaluation, number), "not_in_source": list(new)}

    def shown_error(self, row: Mapping[str, object]) -> str:
        new = cast("list[str]", row["not_in_source"])
        return super().shown_error(row) + (f"\n   not in the source: {', '.join(new)}" if new else "")

    # -- baselines

    def baselines(self, input: Input[str, Sequence[int], Tensor], rows: Rows[str, str], setting: Setting) -> list[str]:
        """How many first words score best on the validation data, and the training sources with their targets."""
        valid = self.validated(self.open_valid(input, setting), setting.config)
        sources, references = [one.x for one in valid], [one.y for one in valid]
        metric = self.metrics(references)[self.config.metric]
        arguments = (references, *self.arguments(metric.name, references))
        words = best_count(sources, references, lambda texts: metric.statistics(texts, *arguments).score())
        folder = RunFolder(setting.data.parent)
        folder.write_json(BASELINES, {"words": words})
        drawn = rows.limited(MOST_SOURCES, setting.config.seed)
        return [BASELINES, *NearestSources.fit((one.x, one.y) for one in drawn).save(folder.path)]

    def baseline_files(self, folder: Path) -> list[str]:
        return [*super().baseline_files(folder), *([NEAREST] if (folder / NEAREST).exists() else [])]

    def baseline_predictions(
        self, run: Run, examples: Sequence[Example[str, str]], facts: Mapping[str, object]
    ) -> dict[str, list[Prediction]]:
        sources = [one.x for one in examples]
        texts = {"the first sentence": [first_sentence(one) for one in sources]}
        if facts:
            words = cast("int", facts["words"])
            texts["the first word" if words == 1 else f"the first {words:,} words"] = [
                first_words(one, words) for one in sources
            ]
            assert run.folder is not None
            texts["the target of the nearest source"] = NearestSources.load(run.folder).targets(sources)
        return {name: [Prediction(text, 0.0, 0.0) for text in some] for name, some in texts.items()}

    def card(self, run: Run, prepared: Prepared[str, str], raws: Sequence[Searched], folder: Path) -> Wording:
        valid = self.validated(prepared.valid, run.config)
        baselines = self.baseline_scores(run, valid)
        table = baseline_table({}, baselines)
        lines = ["## Baselines", "", *(f"| {' | '.join(one)} |" for one in (table.names, ["---"] * 4, *table.rows)), ""]
        words = super().card(run, prepared, raws, folder)
        return replace(words, what="from texts to summaries", baselines=baselines, sections=(*words.sections, *lines))

    def paper_name(self, metric: str) -> str:
        kind, stem, _ = metric.partition("_stem")
        return f"{PAPER_NAMES[kind]}, stemmed" if stem else super().paper_name(metric)


def baseline_table(own: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> Table:
    """ROUGE of the run, where it is given, and of its baselines."""
    systems = {**({"the run": own} if own else {}), **baselines}
    rows = ((name, *(f"{values[one]:.2f}" for one in ROUGE)) for name, values in systems.items())
    return Table(("", *(PAPER_NAMES[one] for one in ROUGE)), tuple(rows))
