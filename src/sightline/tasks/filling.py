"""A pre-trained encoder with its vocabulary: how well it guesses hidden words, and what it would write for them."""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from sightline.data.checking import Limits
from sightline.data.masking import Handle, MaskedBlocks
from sightline.data.plain import CheckedTexts, PlainFile, PlainReport, read_plain
from sightline.data.store import write_corpus
from sightline.data.texts import TextReader
from sightline.errors import UserError
from sightline.models.encoder import Encoder
from sightline.models.masked import MaskedWords
from sightline.models.text_to_labels import Texts
from sightline.tasks.classifier import load_reader
from sightline.tasks.loading import Saved
from sightline.tasks.starting import PRETRAIN
from sightline.vocabulary import MASK_SPELLING

if TYPE_CHECKING:
    from sightline.tasks.pretrain import PretrainConfig

AT_ONCE = 1000  # texts tokenised together


def to_batch(blocks: MaskedBlocks, handle: Handle) -> tuple[Any, ...]:
    """Texts with words hidden, the places asked for, what stood there, and whether the texts follow each other."""
    words, places, gold, parts, follows = (
        None if array is None else torch.from_numpy(np.asarray(array)) for array in blocks.batch(handle)
    )
    assert words is not None
    return Texts(words, parts), places, gold, follows


@torch.no_grad()
def score(model: MaskedWords, batches: Iterable[tuple[Any, ...]]) -> dict[str, float]:
    """Accuracy (in per cent) and perplexity of hidden words; with pairs, how often it knew whether they follow."""
    device = next(model.parameters()).device
    loss, right, words, knew, pairs = 0.0, 0, 0, 0, 0
    for texts, places, gold, follows in batches:
        moved = Texts(texts.words.to(device), None if texts.parts is None else texts.parts.to(device))
        found = model.guess(moved, places.to(device), gold.to(device))
        loss, right, words = loss + found.loss, right + found.right, words + found.words
        if follows is not None and model.follow is not None:
            said = model.follow(model.encoder.pooled(model.encoder.annotate(moved), moved)).argmax(dim=-1)
            knew, pairs = knew + int((said.cpu().bool() == follows).sum()), pairs + len(follows)
    values = {"masked_accuracy": 100 * right / max(words, 1), "perplexity": math.exp(min(loss / max(words, 1), 700))}
    if pairs:
        values["next_accuracy"] = 100 * knew / pairs
    return {name: round(value, 4) for name, value in values.items()}


class Filling(NamedTuple):
    """A text with its masks filled, and for each mask the likeliest words with their probabilities."""

    text: str
    masks: tuple[tuple[tuple[str, float], ...], ...]


class Reader:
    """A pre-trained encoder with its vocabulary; says what stands behind `<mask>`."""

    def __init__(
        self,
        model: MaskedWords,
        reader: TextReader,
        config: "PretrainConfig",
        name: str = "the model",
        run: Path | None = None,
    ) -> None:
        self.model, self.reader, self.config, self.name, self.run = model, reader, config, name, run

    @torch.inference_mode()
    def predict(self, texts: Sequence[str], best: int = 5) -> list[Filling]:
        """What the model would write in place of each `<mask>`."""
        if isinstance(texts, str):
            raise UserError("texts is one text; expected a list of texts")
        self.model.eval()
        return [self._fill(text, best) for text in texts]

    def _fill(self, text: str, best: int) -> Filling:
        tokeniser, specials = self.reader.tokeniser, self.reader.specials
        pieces = [part.strip() for part in text.split(MASK_SPELLING)]
        tokens = tokeniser.encode(pieces)
        row, places = [specials.start], list[int]()
        for number, part in enumerate(tokens):
            if number:
                places.append(len(row))
                row.append(specials.mask)  # type: ignore[arg-type]
            row += part
        if not places:
            return Filling(text, ())
        longest = self.config.longest
        if len(row) >= longest:
            raise UserError(f"a text has {len(row) + 1:,} tokens; this run reads at most {longest:,} at once")
        words = torch.tensor([[*row, specials.end]], device=next(self.model.parameters()).device)
        chances = torch.softmax(self.model.logits(Texts(words), torch.tensor(places, device=words.device)), dim=-1)
        top = chances.topk(min(best, chances.shape[-1]), dim=-1)
        found = []
        for values, ids in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            spelled = tokeniser.decode([[one] for one in ids])  # type: ignore[attr-defined]
            found.append(tuple(zip((one.strip() for one in spelled), values, strict=True)))
        filled = row[1:]
        for place, ids in zip(places, top.indices.tolist(), strict=True):
            filled[place - 1] = ids[0]
        (whole,) = tokeniser.decode([filled])  # type: ignore[attr-defined]
        return Filling(whole, tuple(found))

    def evaluate(self, files: PlainFile, limits: Limits | None = None) -> tuple[dict[str, float], PlainReport]:
        """Accuracy and perplexity of hidden words on other text; the words are chosen by the run's seed."""
        reading = CheckedTexts(read_plain(files), limits)
        config, reader = self.config, self.reader
        some = max(1, min(config.batch_rows, config.batch_tokens // config.masking.length))
        self.model.eval()
        with tempfile.TemporaryDirectory(prefix="sightline-evaluate-") as name:
            corpus = write_corpus(Path(name) / "texts", encoded(reader, lambda: reading))
            blocks = MaskedBlocks(corpus, reader.words, reader.specials, config.hiding, some, config.seed + 1)
            values = score(self.model, (to_batch(blocks, one) for one in blocks.epoch(0)))
        return values, reading.report


def encoded(reader: TextReader, texts: Callable[[], Iterator[str]]) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids, some texts at a time: the tokeniser is fast on many, and memory stays flat."""
    waiting: list[str] = []
    for text in texts():
        waiting.append(text)
        if len(waiting) == AT_ONCE:
            yield from ((row, []) for row in reader.tokeniser.encode(waiting))
            waiting = []
    yield from ((row, []) for row in reader.tokeniser.encode(waiting)) if waiting else ()


def build_masked(config: "PretrainConfig", reader: TextReader) -> MaskedWords:
    encoder = config.model.build(reader.words, reader.specials)
    assert isinstance(encoder, Encoder)
    return MaskedWords(encoder, pairs=config.next_sentence)


def load_pretrain(path: Path) -> tuple[Reader, dict[str, Any]]:
    """A pre-trained encoder from its run folder, or as it was at one of the run's checkpoints."""
    from sightline.tasks.pretrain import PretrainConfig

    saved = Saved.open(path, PRETRAIN)
    data = saved.about
    reader = load_reader(saved.path, data)
    with saved.reading():
        config = PretrainConfig.from_json(data["config"])
    model = saved.model(lambda: build_masked(config, reader))
    return Reader(model, reader, config, saved.name, saved.path), data
