"""Words that were hidden in plain text: pre-training without labels, and predictions for `<mask>`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.baselines.linear import begin_with, text_rows, word_vectors
from sightline.data.checking import Report
from sightline.data.plain import PlainReport
from sightline.data.splitting import LEAST_TEXTS
from sightline.data.store import Corpus
from sightline.errors import UserError
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Choice, Explanation, OutputStep
from sightline.inputs.base import Input
from sightline.inputs.text import Masked, Plain, PlainInput, PlainPart
from sightline.metrics import Statistics
from sightline.models.masked import MaskedWords
from sightline.models.text_to_labels import Texts
from sightline.outputs.base import Output
from sightline.outputs.encoder_maps import Axes, TextWindow, axis_of, read_maps, word_axis
from sightline.outputs.reports import NUMBER, TEXT, listed, structure
from sightline.records import Tokens
from sightline.tasks.card import Wording
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation
from sightline.tasks.explain import LIKELIEST, ExplainOptions
from sightline.tasks.prepare import VALID, Prepared, Rows, Setting
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import Example, PredictOptions
from sightline.text.encoding import TextEncoder
from sightline.text.masking import Handle, MaskedBlocks
from sightline.text.words import Place, TextOffsets, token_places, words_of_places
from sightline.training.steps import to_device
from sightline.vocabulary import MASK_SPELLING

# -- explanations: the words that the model predicts for each mask, and its attention


def _placed(reading: PlainInput, text: str) -> TextOffsets:
    """The tokens of a text with masks, and their characters in it."""
    places: list[Place | None] = [None]
    at = 0
    for number, piece in enumerate(text.split(MASK_SPELLING)):
        start = at + len(piece) - len(piece.lstrip())
        places += [None] * bool(number)
        places += token_places(reading.reader, piece.strip(), 0, start, -1)
        at += len(piece) + len(MASK_SPELLING)
    specials = reading.reader.specials
    tokens = [specials.start, *reading.with_masks(text), specials.end]
    places.append(None)
    return TextOffsets((text,), tokens, places, words_of_places((text,), places), [], 0)


def _hidden(run: Run, placed: TextOffsets) -> TextOffsets:
    """The same with some tokens hidden, as many as in training."""
    mask: int = run.input.reader.specials.mask  # type: ignore[attr-defined]
    real = [at for at, place in enumerate(placed.places) if place is not None]
    if not real:
        raise UserError("there is nothing to explain: the text has no words")
    count = max(1, round(run.config.masking.share * len(real)))
    tokens, places = list(placed.tokens), list(placed.places)
    for at in np.random.default_rng(run.config.seed).choice(real, count, replace=False).tolist():
        tokens[at], places[at] = mask, None
    return TextOffsets(placed.texts, tokens, places, words_of_places(placed.texts, places), [], 0)


def _window(run: Run, part: Masked, placed: TextOffsets, rows: range, ids: list[int]) -> TextWindow:
    behind = part.first + len(part.tokens) - 2  # in the text, of the tokens between start and end
    columns = [0, *range(part.first + 1, behind + 1), len(placed.tokens) - 1]
    column = {one: at for at, one in enumerate(columns)}
    words = {
        number: [column[token] for token in word]
        for number, word in enumerate(placed.words)
        if all(token in column for token in word)
    }
    model: Any = run.model

    def measure(texts: Texts) -> Tensor:
        width = texts.words.shape[1]
        places = torch.tensor([row * width + at for row in range(len(texts.words)) for at in part.masks])
        gold = torch.tensor(ids).repeat(len(texts.words))
        device = texts.words.device
        return model.log_probs(texts, places.to(device), gold.to(device)).view(len(texts.words), -1)

    return TextWindow(to_device(run.input.collate([part]), run.device), columns, part.masks, rows, words, measure)


@dataclass(frozen=True)
class MaskedOptions(PredictOptions):
    """``best`` is how many words to name for each mask; ``blocks``, how many blocks of text are scored at most."""

    best: int = 5
    blocks: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.best < 1:
            raise UserError(f"best is {self.best}; it must be at least 1")


class Filling(NamedTuple):
    """A text with its masks filled, and for each mask the likeliest words with their probabilities."""

    text: str
    masks: tuple[tuple[tuple[str, float], ...], ...]


class Guesses(NamedTuple):
    """Of the words hidden in a text: how many there were, how many were guessed, and the sum of −log p.

    ``pairs`` and ``followed``: how often it was predicted whether one piece of text follows another, and how often
    rightly.
    """

    words: int
    right: int
    loss: float
    pairs: int = 0
    followed: int = 0


MaskGuess = tuple[int, list[int], list[float]]  # the number of a token, the likeliest words and their probabilities
MaskedRaw = list[MaskGuess] | Guesses  # of masks in a text; of words that were hidden to score a model
Filled = Filling | Guesses


class Blocks:
    """A batch before it is made."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def __len__(self) -> int:
        return len(self.handle.blocks)


class BlockBatches:
    """Training batches: blocks of the stream of all texts, with words hidden."""

    def __init__(self, corpus: Any, reader: TextEncoder, config: TaskConfig, seed: int) -> None:
        shape = (reader.words, reader.specials, config.hiding, config.blocks_at_once)
        self.blocks = MaskedBlocks(corpus, *shape, seed)

    def epoch(self, number: int) -> list[Blocks]:
        return [Blocks(handle) for handle in self.blocks.epoch(number)]

    def batch(self, handle: Blocks) -> tuple[Any, ...]:
        """Texts with words hidden, their places, the right words, and whether the texts follow each other."""
        words, places, gold, parts, follows = (
            None if array is None else torch.from_numpy(np.asarray(array)) for array in self.blocks.batch(handle.handle)
        )
        assert words is not None
        return Texts(words, parts), places, gold, follows


class _Tokens(NamedTuple):
    """Texts in memory, as blocks are cut from them."""

    rows: list[np.ndarray]

    def lengths(self) -> tuple[np.ndarray, None]:
        return np.array([len(row) for row in self.rows], np.int64), None

    def __getitem__(self, row: int) -> tuple[np.ndarray, None]:  # type: ignore[override]
        return self.rows[row], None


MaskedInput = Input[Plain, PlainPart, Texts]
MaskedExamples = Sequence[Example[Plain, None]]
MaskedEvaluation = Evaluation[Plain, None, MaskedRaw, Filled]


class MaskedOutput(Output[Plain, None, PlainPart, Texts, MaskedRaw, Filled, MaskedOptions | None]):
    """Hidden words. There are no targets in the data: words of the texts themselves are hidden, by the seed."""

    noun = "words"
    unit = "nats a hidden word"
    predict_options: ClassVar[type[PredictOptions]] = MaskedOptions
    compared = ("masked_accuracy", "perplexity")
    answer = structure(
        "Filled",
        "The text, the text with its masks filled, and for each mask the likeliest words with their probabilities.",
        text=TEXT,
        filled=TEXT,
        masks=listed(listed(structure("Word", "A word.", word=TEXT, probability=NUMBER))),
    )

    input: PlainInput

    def __init__(self, config: TaskConfig, input: PlainInput | None = None) -> None:
        super().__init__(config)
        self.input = cast("PlainInput", input)  # None until it is fitted
        self.vectors: np.ndarray | None = None  # the first embeddings of the words of a new model

    def read(self, cells: Mapping[str, object], x: Plain) -> None:
        return None

    def report(self) -> PlainReport:
        return PlainReport()

    def pack(self, y: None) -> list[object]:
        return []

    def unpack(self, row: Sequence[object]) -> None:
        return None

    def cannot_split(self, error: UserError, report: Report) -> UserError:
        if not 0 < report.pairs < LEAST_TEXTS:
            return error
        bad = f" besides those that cannot be used ({'; '.join(report.places[:3])})" if report.bad else ""
        return UserError(
            f"found {report.pairs} texts{bad}; expected at least {LEAST_TEXTS}, to keep some apart: write a text a "
            "line, or give text to validate on (--valid)"
        )

    def source_options(self) -> dict[str, object]:
        return self.config.source_options()

    def fit(self, input: MaskedInput, rows: Rows[Plain, None], setting: Setting) -> tuple[MaskedInput, "MaskedOutput"]:
        fitted = input.fit(rows, setting)
        return fitted, MaskedOutput(setting.config, cast("PlainInput", fitted))

    def write(self, input: MaskedInput, rows: Rows[Plain, None], setting: Setting) -> object:
        corpus = cast("Corpus", super().write(input, rows, setting))
        config = self.config
        if setting.start is None and config.latent:
            documents = text_rows(corpus, config.seed)
            self.vectors = word_vectors(documents, self.input.reader.words, config.model.size, config.seed)
        return corpus

    def initialise(self, model: nn.Module, prepared: Prepared[Plain, None]) -> None:
        """Initialise the embeddings with vectors of the texts that words occur in (latent)."""
        assert isinstance(model, MaskedWords)
        if self.vectors is not None:
            begin_with(model.encoder.embedding, self.vectors)

    def encode(self, x: Plain, y: None, parts: Sequence[PlainPart]) -> Iterator[tuple[PlainPart, Sequence[int]]]:
        return ((part, []) for part in parts)

    def open_valid(self, input: MaskedInput, setting: Setting) -> list[Example[Plain, None]]:
        """Runs of earlier versions have kept the tokens of the texts alone."""
        if (setting.data / VALID).exists():
            return super().open_valid(input, setting)
        corpus = Corpus.open(setting.data / "valid")
        return [Example(tuple(corpus[row][0].tolist()), None) for row in range(len(corpus))]

    def validated(self, examples: MaskedExamples, config: TaskConfig) -> list[Example[Plain, None]]:
        """All of them, as tokens: what is scored is counted in blocks."""
        return [Example(tuple(tokens), None) for tokens in self.input.tokens([one.x for one in examples])]

    def collate(self, targets: Sequence[np.ndarray], batch: Texts) -> NoReturn:
        raise TypeError("hidden words have batches of their own")

    def batches(self, prepared: Prepared[Plain, None], config: TaskConfig) -> BlockBatches:
        return BlockBatches(prepared.corpus, self.input.reader, config, config.seed)

    def counted(self, batch: tuple[object, ...]) -> int:
        return len(cast("Tensor", batch[2]))

    def validation_options(self) -> MaskedOptions:
        return MaskedOptions(blocks=self.config.validated)

    def outputs(
        self, run: Run, xs: Sequence[Plain], parts: Sequence[PlainPart], batch: Texts, options: MaskedOptions | None
    ) -> list[MaskedRaw]:
        """For each part its masks: the number of the token in the text, the likeliest words and their probabilities."""
        width = batch.words.shape[1]
        masked = cast("Sequence[Masked]", parts)
        places = [row * width + at for row, part in enumerate(masked) for at in part.masks]
        model: Any = run.model
        probs = torch.softmax(model.logits(batch, torch.tensor(places, device=batch.words.device)), dim=-1)
        top = probs.topk(min((options or MaskedOptions()).best, probs.shape[-1]), dim=-1)
        rows = iter(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        return [[(part.first + at - 1, *next(rows)) for at in part.masks] for part in masked]

    def merge(self, x: Plain, parts: Sequence[PlainPart], outputs: Sequence[MaskedRaw]) -> list[MaskGuess]:
        return [one for some in cast("Sequence[list[MaskGuess]]", outputs) for one in some]

    def decide(self, x: Plain, raw: MaskedRaw, options: MaskedOptions | None = None) -> Filled:
        if isinstance(raw, Guesses):
            return raw
        if not raw:
            return Filling(self.input.label(x), ())
        return self._filled(self.input.with_masks(str(x)), raw)

    def _filled(self, tokens: list[int], raw: list[MaskGuess]) -> Filling:
        tokeniser: Any = self.input.reader.tokeniser
        filled, masks = list(tokens), []
        for place, ids, probs in raw:
            filled[place] = ids[0]
            spelled = (one.strip() for one in tokeniser.decode([[token] for token in ids]))
            masks.append(tuple(zip(spelled, probs, strict=True)))
        return Filling(tokeniser.decode([filled])[0], tuple(masks))

    @torch.no_grad()
    def scored(
        self,
        run: Run,
        xs: Sequence[Plain],
        parts: Sequence[Sequence[PlainPart]] | None = None,
        options: MaskedOptions | None = None,
        on_predicted: Callable[[int], None] = lambda count: None,
        bad: dict[int, str] | None = None,
    ) -> list[MaskedRaw]:
        """Hide words of the texts, always the same ones for the run's seed, and count right guesses for each text.

        The seed is another one than in training. The texts are one stream that is cut into blocks, as in training.
        """
        rows = _Tokens([np.array(tokens, np.int64) for tokens in self.input.tokens(xs)])
        source = BlockBatches(rows, self.input.reader, self.config, self.config.seed + 1)
        handles = source.epoch(0)
        if options is not None and options.blocks is not None:
            handles = handles[: max(1, options.blocks // self.config.blocks_at_once)]
        counts = np.zeros((len(xs), 5))
        with evaluating(run.model):
            for handle in handles:
                self._count(run, source, handle, counts)
        on_predicted(len(xs))
        return [
            Guesses(int(words), int(right), loss, int(pairs), int(followed))
            for words, right, loss, pairs, followed in counts.tolist()
        ]

    def _count(self, run: Run, source: BlockBatches, handle: Blocks, counts: np.ndarray) -> None:
        texts, places, gold, follows = to_device(source.batch(handle), run.device)
        model: Any = run.model
        logits = model.logits(texts, places)
        losses = F.cross_entropy(logits, gold, reduction="none").double()
        right = logits.argmax(dim=-1) == gold
        owners = source.blocks.texts_of(handle.handle, places.cpu().numpy(), texts.words.shape[1])
        for column, values in enumerate((torch.ones_like(losses), right, losses)):
            np.add.at(counts[:, column], owners, _numpy(values))
        if follows is not None and model.follow is not None:
            predicted = model.follow(model.encoder.pooled(model.encoder.annotate(texts), texts)).argmax(dim=-1)
            first = source.blocks.texts_of(handle.handle, np.arange(len(follows)), 1)
            np.add.at(counts[:, 3], first, 1.0)
            np.add.at(counts[:, 4], first, _numpy(predicted.bool() == follows))

    def validate(self, run: Run, raws: Sequence[MaskedRaw], examples: MaskedExamples) -> dict[str, float]:
        """The share of hidden words that are guessed, and the perplexity of the hidden words."""
        guesses = cast("Sequence[Guesses]", raws)
        return self._rounded(self.scores_of(self.statistics(run, examples, guesses, raws), None))

    def statistics(
        self, run: Run, examples: MaskedExamples, predictions: Sequence[Filled], raws: Sequence[MaskedRaw]
    ) -> dict[str, Statistics]:
        rows = np.array(predictions, np.float64)
        statistics = {
            "masked_accuracy": Statistics(rows[:, [1, 0]], _share),
            "perplexity": Statistics(rows[:, [2, 0]], _perplexity),
        }
        return statistics | ({"next_accuracy": Statistics(rows[:, [4, 3]], _share)} if rows[:, 3].any() else {})

    @staticmethod
    def _rounded(values: Mapping[str, float]) -> dict[str, float]:
        return {name: round(value, 4) for name, value in values.items()}

    def scores_json(self, evaluation: MaskedEvaluation) -> dict[str, object]:
        return {**self._rounded(evaluation.values)}

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: MaskedInput) -> "MaskedOutput":
        return cls(config, cast("PlainInput", input))

    def notes(self, prepared: Prepared[Plain, None]) -> list[str]:
        if self.vectors is None:
            return []
        return ["words begin with vectors of the texts that they occur in (latent)"]

    def card(self, run: Run, prepared: Prepared[Plain, None], raws: Sequence[MaskedRaw], folder: Path) -> Wording:
        return Wording(
            "that learnt from plain text which words were hidden",
            "texts",
            "On text kept apart: the share of hidden words guessed (in per cent), and the perplexity of these words.",
            "texts it saw have at most {longest:,} characters.",
            (
                "It is a start, not a system: fine-tune it with `sightline train classify --from` (or tag, span, "
                "translate).",
                "It has learnt what is in its texts, with all that is wrong in them.",
            ),
        )

    def explain(self, run: Run, x: Plain, options: ExplainOptions) -> Explanation:
        """Everything there is to show about the hidden words of one text."""
        reading, model = self.input, run.model
        assert isinstance(model, MaskedWords)
        if options.output is not None:
            raise UserError("the word that the model would write for each <mask> is explained; leave the output out")
        text = reading.label(x)
        placed, notes = _placed(reading, text), list[str]()
        if MASK_SPELLING not in text:
            placed = _hidden(run, placed)
            notes.append("no word of the text is hidden (<mask>): these were drawn by the run's seed and hidden")
        parts = reading.parts(placed.tokens[1:-1])
        masks = cast("list[MaskGuess]", run.raw([text], parts=[parts], options=self.options({"best": LIKELIEST}))[0])
        filling = self._filled(placed.tokens[1:-1], masks)
        steps = tuple(OutputStep(*words[0], tuple(Choice(*one) for one in words)) for words in filling.masks)
        windows, done = [], 0
        for part in parts:
            own = masks[done : done + len(part.masks)]
            windows.append(_window(run, part, placed, range(done, done + len(own)), [ids[0] for _, ids, _ in own]))
            done += len(own)
        rows = Tokens(tuple(f"{MASK_SPELLING} {step.written}" for step in steps))
        axes = Axes(rows, axis_of(reading.reader, placed), word_axis(placed), "guess", "text")
        maps = read_maps(model, model.encoder, windows, axes, options)
        return maps.explanation(run, notes, input=text, output=filling.text, steps=steps)

    def bench_items(self, run: Run, xs: Sequence[Plain]) -> list[Plain]:
        """With a masked word each: without one there is nothing to predict."""
        return [f"{MASK_SPELLING} {run.input.label(x)}" for x in xs]

    def line(self, x: Plain, prediction: Filled) -> str:
        return cast("Filling", prediction).text.replace("\n", " ")

    def to_json(self, x: Plain, prediction: Filled) -> dict[str, object]:
        assert isinstance(prediction, Filling)
        masks = [[{"word": word, "probability": share} for word, share in mask] for mask in prediction.masks]
        return {"text": x, "filled": prediction.text, "masks": masks}

    def row(self, example: Example[Plain, None], prediction: Filled) -> dict[str, object]:
        assert isinstance(prediction, Guesses)
        return {"text": example.x, "hidden": prediction.words, "guessed": prediction.right}

    def badness(self, evaluation: MaskedEvaluation) -> list[float]:
        return [float(one.words - one.right) for one in cast("list[Guesses]", evaluation.predictions)]

    def shown_error(self, row: Mapping[str, object]) -> str:
        return f"{row['guessed']} of {row['hidden']} hidden words guessed\n   {row['text']}"


def _numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


def _share(sums: np.ndarray) -> np.ndarray:
    return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)


def _perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(sums[:, 0] / np.maximum(sums[:, 1], 1), 700))
