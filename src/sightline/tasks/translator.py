"""A trained model from text to text: predict, score, save and load."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.config import Config
from sightline.data.tokenise import Tokeniser
from sightline.errors import UserError
from sightline.models.text_to_text import TextToText, TextToTextConfig
from sightline.records import Record, Tokens
from sightline.search import Rules, beam_search, greedy
from sightline.trace import capture
from sightline.training.folder import MODEL, RunFolder, load_tensors, save_tensors
from sightline.vocabulary import END, PADDING, SPELLINGS, START

SOURCE, TARGET = "source.json", "target.json"


class Prediction(NamedTuple):
    """A text, its log-probability and the score that it was ranked by."""

    text: str
    log_prob: float
    score: float


class Translator:
    """A model with its tokenisers."""

    def __init__(self, model: TextToText, source: Tokeniser, target: Tokeniser) -> None:
        self.model, self.source, self.target = model, source, target

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @torch.no_grad()
    def predict(
        self,
        texts: Sequence[str],
        *,
        beam: int = 5,
        length_penalty: float = 1.0,
        max_length: int | None = None,
        batch_tokens: int = 4096,
    ) -> list[Prediction]:
        """The best output of each text, in the order of the texts. An empty text gives an empty output."""
        encoded = self.source.encode(list(texts))
        # Texts of one length together: a batch is as long as its longest.
        order = sorted((i for i, tokens in enumerate(encoded) if tokens), key=lambda i: len(encoded[i]))
        found: list[Prediction] = [Prediction("", 0.0, 0.0)] * len(encoded)
        was_training = self.model.training
        self.model.eval()
        start = 0
        while start < len(order):
            rows = max(1, batch_tokens // (beam * (len(encoded[order[start]]) + 8)))
            chosen = order[start : start + rows]
            for i, prediction in zip(
                chosen, self._predict_batch([encoded[i] for i in chosen], beam, length_penalty, max_length), strict=True
            ):
                found[i] = prediction
            start += rows
        self.model.train(was_training)
        return found

    def _predict_batch(
        self, sources: list[list[int]], beam: int, length_penalty: float, max_length: int | None
    ) -> list[Prediction]:
        batch = _pad([[*tokens, END] for tokens in sources]).to(self.device)
        # An output three times as long as its source, and more for short ones, is babble.
        limits = [max_length or 3 * len(tokens) + 20 for tokens in sources]
        rules = Rules(START, END, max_length=max(limits), forbidden=(PADDING,))
        state = self.model.begin(batch)
        if beam == 1:
            best = greedy(self.model.step, state, len(batch), rules, limits=limits, device=self.device)
        else:
            lists = beam_search(
                self.model.step,
                state,
                len(batch),
                rules,
                beam=beam,
                length_penalty=length_penalty,
                limits=limits,
                device=self.device,
            )
            best = [hypotheses[0] for hypotheses in lists]
        texts = self.target.decode([one.tokens for one in best])
        return [Prediction(text, one.log_prob, one.score) for text, one in zip(texts, best, strict=True)]

    @torch.no_grad()
    def attention(self, text: str, output: str | None = None) -> list[Record]:
        """Where the model looked at the source while it wrote: one record for each attention and head.

        The output is the model's own unless given. It is decoded fast, and then read once more under `capture`. Rows
        are what was written, with the end; columns what was looked at.
        """
        if output is None:
            output = self.predict([text])[0].text
        sides = [self.source.encode([text])[0], self.target.encode([output])[0]]
        source, target = _pad([[*sides[0], END]]).to(self.device), _pad([[START, *sides[1], END]]).to(self.device)
        end = SPELLINGS[END]
        columns = Tokens((*(piece for piece, _ in self.source.pieces(text)), end))
        rows = Tokens((*(piece for piece, _ in self.target.pieces(output)), end))
        self.model.eval()
        with capture(self.model) as trace:
            self.model.decode(target[:, :-1], self.model.begin(source))
        looks = [found for found in trace.maps if self.model.looks_at_source(found.name)]
        return [record for found in looks for record in found.records(rows=rows, columns=columns)]

    @torch.no_grad()
    def perplexity(self, pairs: Sequence[tuple[str, str]], rows: int = 64) -> float:
        """exp of the mean loss of a target token, without smoothing."""
        total, tokens = 0.0, 0
        ordered = sorted(pairs, key=lambda pair: len(pair[0]))
        for start in range(0, len(ordered), rows):
            part = ordered[start : start + rows]
            source = _pad([[*ids, END] for ids in self.source.encode([a for a, _ in part])]).to(self.device)
            target = _pad([[START, *ids, END] for ids in self.target.encode([b for _, b in part])]).to(self.device)
            loss = self.model.loss(source, target)
            total, tokens = total + float(loss.total), tokens + loss.tokens
        return math.exp(min(total / max(tokens, 1), 700))


def _pad(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PADDING] * (longest - len(row))] for row in rows])


def save_translator(folder: RunFolder, translator: Translator, config: Config, weights: str) -> None:
    """Everything that `load_translator` needs."""
    save_tensors(folder.path / MODEL, dict(translator.model.state_dict()))
    translator.source.save(folder.path / SOURCE)
    translator.target.save(folder.path / TARGET)
    sizes = {"source_words": translator.source.words, "target_words": translator.target.words}
    folder.write_config({"task": "translate", "weights": weights, **sizes, "config": config.to_json()})


def load_translator(path: Path) -> tuple[Translator, dict[str, Any]]:
    """A trained model from its run folder, checked file by file."""
    folder = RunFolder.open(path)
    data = folder.read_config()
    if data.get("task") != "translate":
        raise UserError(f"{path} is a run of the task {data.get('task')!r}; expected 'translate'")
    try:
        model_config = TextToTextConfig.from_json(data["config"]["model"])
        model = model_config.build(data["source_words"], data["target_words"])
        model.load_state_dict(load_tensors(path / MODEL))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
    source, target = Tokeniser.load(path / SOURCE), Tokeniser.load(path / TARGET)
    return Translator(model.eval(), source, target), data
