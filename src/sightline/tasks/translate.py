"""From a file of pairs to a trained model: translate, normalise, transliterate. The same task, another metric."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.attention import Attention
from sightline.data.batches import BatchPlan, BatchRows, TokenPair, collate
from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.errors import UserError
from sightline.files import write_text
from sightline.models.text_to_text import Loss, TextToText
from sightline.tasks.card import ABOUT, CARD, CURVES, card, describe
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.explaining import measured_shift
from sightline.tasks.preparing import Preparation, Prepared, prepare, prepared_before
from sightline.tasks.starting import PRETRAIN, EncoderStart
from sightline.tasks.table import task_of
from sightline.tasks.translator import SOURCE, TARGET, Translator, load_translator, save_translator
from sightline.training import scores
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import Outcome, train
from sightline.view.curves import draw_curves
from sightline.vocabulary import PADDING

SHIFT_TEXTS = 8


class TranslateLesson:
    """Batches, loss and score for the training loop."""

    def __init__(self, prepared: Prepared, config: TranslateConfig) -> None:
        self.prepared, self.config = prepared, config
        lengths = prepared.corpus.lengths()
        self.plan = BatchPlan(*lengths, tokens=config.batch_tokens, seed=config.seed, shuffle=True)
        rows = np.random.default_rng(config.seed).permutation(len(prepared.valid))[: config.validated]
        self.valid = [prepared.valid[row] for row in sorted(rows.tolist())]

    def epoch(self, number: int) -> Sequence[BatchRows]:
        return self.plan.epoch(number)

    def batch(self, handle: BatchRows) -> tuple[Tensor, Tensor]:
        corpus = self.prepared.corpus
        pairs = [corpus[row] for row in handle.tolist()]
        if self.config.tokeniser.dropout:
            pairs = self._cut_anew(pairs)
        source, target = collate(pairs)
        return torch.from_numpy(source), torch.from_numpy(target)

    def _cut_anew(self, pairs: list[TokenPair]) -> list[TokenPair]:
        """The same text in other pieces (BPE dropout). Tokenising is exact, so the text comes back from its tokens."""
        sides = []
        for tokeniser, rows in zip((self.prepared.source, self.prepared.target), zip(*pairs, strict=True), strict=True):
            texts = tokeniser.decode([row.tolist() for row in rows])
            sides.append([np.array(row) for row in tokeniser.encode(texts, dropout=True)])
        return list(zip(*sides, strict=True))

    def tokens(self, batch: tuple[Tensor, Tensor]) -> int:
        return int((batch[1][:, 1:] != PADDING).sum())

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        return model.loss(*batch, smoothing=self.config.smoothing)  # type: ignore[operator]

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric of greedy translations, and the perplexity of the references."""
        assert isinstance(model, TextToText)
        translator = Translator(model, self.prepared.source, self.prepared.target)
        sources, references = [a for a, _ in self.valid], [b for _, b in self.valid]
        found = [one.text for one in translator.predict(sources, beam=1)]
        value = scores.METRICS[self.config.metric](found, references).value
        return {self.config.metric: round(value, 3), "perplexity": round(translator.perplexity(self.valid), 3)}


def train_translate(
    files: PairFiles | None,
    out: Path,
    config: TranslateConfig,
    *,
    valid: PairFiles | None = None,
    limits: Limits | None = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Callable[[Prepared, TextToText], None] = lambda prepared, model: None,
    **listeners: Any,
) -> tuple[Translator, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None.

    ``start`` is an earlier run whose vocabulary and weights the new run begins with; its model is the new one's too. Of
    a pre-training, the encoder begins with the weights, and the vocabulary is that of both sides.
    """
    earlier = read_translate_start(start)
    if files is None:
        folder = RunFolder.open(out)
        prepared = prepared_before(folder.path, config.tokeniser.dropout)
    else:
        prepared, folder = _prepare_new(files, valid, out, config, limits or Limits(), earlier)
    lesson = TranslateLesson(prepared, config)
    model = build_model(config, prepared, earlier)
    on_report(prepared, model)
    if files is not None:
        folder.write_json(ABOUT, describe(prepared, files, valid, start, command))
        save_translator(folder, Translator(model, prepared.source, prepared.target), config, "untrained")
    # The limit for want of another is not written down: with other data it would be another.
    training = config.training.limited(len(lesson.epoch(0)))
    outcome = train(model, lesson, training, folder, device=device, **listeners)
    model.load_state_dict(outcome.weights)
    model.eval()
    translator = Translator(model, prepared.source, prepared.target, str(out))
    translator.shift = _shift(translator, lesson.valid)
    save_translator(folder, translator, config, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    draw_curves(folder.metrics(), folder.path / CURVES)
    write_text(folder.path / CARD, card(folder, config, model, outcome))
    folder.seal([CONFIG, MODEL, SOURCE, TARGET, METRICS])
    return translator, outcome


def read_translate_start(start: Path | None) -> Translator | EncoderStart | None:
    """What a run begins with: an earlier one, or a pre-trained encoder."""
    if start is None:
        return None
    return EncoderStart.read(start) if task_of(start) == PRETRAIN else load_translator(start)[0]


def _shift(translator: Translator, pairs: Sequence[tuple[str, str]]) -> int:
    """Measured on a few validation sentences that are neither too short to tell nor long to measure."""
    texts = [text for text, _ in pairs if 10 <= len(text) <= 200][:SHIFT_TEXTS]
    has_attention = any(isinstance(module, Attention) for module in translator.model.modules())
    return measured_shift(translator.as_run(), texts) if has_attention else 0


def preparation(config: TranslateConfig, limits: Limits, earlier: Translator | EncoderStart | None) -> Preparation:
    """How the data of a run is prepared: with the vocabulary of the earlier run, where it begins with one."""
    tokenisers = None
    if isinstance(earlier, EncoderStart):
        earlier.start.check_vocabulary(config.tokeniser)
    if earlier is not None:
        tokenisers = earlier.source, earlier.target
        for tokeniser in tokenisers:
            tokeniser.dropout = config.tokeniser.dropout
    return Preparation(config.tokeniser, config.valid_share, config.seed, limits, tokenisers)


def build_model(config: TranslateConfig, prepared: Prepared, earlier: Translator | EncoderStart | None) -> TextToText:
    """A new model by the seed, or one that begins with the weights of an earlier run."""
    torch.manual_seed(config.seed)
    try:
        model = config.model.build(prepared.source.words, prepared.target.words)
        if isinstance(earlier, EncoderStart):
            earlier.put_into(model)
        elif earlier is not None:
            model.load_state_dict(earlier.model.state_dict())
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        if earlier is not None:
            raise UserError(f"the model is not that of the run to go on from: {reason}") from None
        raise UserError(f"there is no model with this configuration: {reason}") from None
    return model


def _prepare_new(
    files: PairFiles,
    valid: PairFiles | None,
    out: Path,
    config: TranslateConfig,
    limits: Limits,
    earlier: Translator | EncoderStart | None,
) -> tuple[Prepared, RunFolder]:
    how = preparation(config, limits, earlier)
    with RunFolder.creating(out) as folder:
        prepared = prepare(files, valid, how, folder.path)
        build_model(config, prepared, earlier)  # what cannot be built is said now, while nothing stands yet
        return prepared, folder
