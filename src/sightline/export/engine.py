"""Exported models as others run them: by CTranslate2, by onnxruntime, by transformers. Tokens in, tokens out."""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor

from sightline.decoding.search import Hypothesis, Rules, greedy
from sightline.errors import UserError
from sightline.vocabulary import END, PADDING, SPELLINGS, START

Format = Literal["ctranslate2", "onnx", "huggingface"]
SOURCE, TARGET = "source.json", "target.json"
ENCODER, STEP = "encoder.onnx", "step.onnx"
ROWS = 32  # sentences at once


@runtime_checkable
class Engine(Protocol):
    """What an export is compared by."""

    def greedy(self, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
        """The likeliest token, again and again; neither sources nor outputs have an end."""

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Of the tokens of given outputs and their ends: `t` numbers, or `t v` for all words there are."""


def engine_for(name: Format, folder: Path, threads: int) -> Engine:
    """The engine that runs what was exported."""
    if name == "ctranslate2":
        return CTranslate2Engine(folder, threads)
    return OnnxEngine(folder, threads) if name == "onnx" else HuggingFaceEngine(folder)


def ctranslate2_library() -> Any:
    return _library("ctranslate2", "CTranslate2", "ctranslate2")


def onnx_library() -> Any:
    """The runtime; writing graphs needs the package onnx as well, which comes with it."""
    _library("onnx", "ONNX", "onnx")
    return _library("onnxruntime", "onnxruntime", "onnx")


def transformers_library() -> Any:
    return _library("transformers", "transformers", "hf")


def _library(module: str, name: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{name} is not installed: pip install 'sightline[{extra}]'") from None


def spelled(path: Path) -> list[str]:
    """The pieces of a vocabulary as its file spells them, in the order of their ids."""
    try:
        ids = Tokenizer.from_file(str(path)).get_vocab()
    except Exception as error:  # the library has no kind of its own
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}; export the run anew") from None
    return sorted(ids, key=ids.__getitem__)


class CTranslate2Engine:
    """A translator of CTranslate2, on a processor."""

    def __init__(self, folder: Path, threads: int) -> None:
        library = ctranslate2_library()
        try:
            self.translator = library.Translator(str(folder), device="cpu", inter_threads=1, intra_threads=threads)
        except (RuntimeError, ValueError, LookupError) as error:
            raise UserError(f"{folder} cannot be loaded by CTranslate2: {' '.join(str(error).split())}") from None
        self._source, self._target = spelled(folder / SOURCE), spelled(folder / TARGET)
        self._ids = {name: token for token, name in enumerate(self._target)}

    def greedy(self, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
        return [some[0].tokens for some in self.translate(sources, longest)]

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        longest: int,
        *,
        rows: int = ROWS,
        prefixes: Sequence[Sequence[int]] | None = None,
        least: int = 0,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each source. ``rows`` are in work at once; options are those of ``translate_batch``."""
        given = {"beam_size": 1, "length_penalty": 1.0, **options}
        try:
            found = self.translator.translate_batch(
                self._names(self._source, sources),
                None if prefixes is None else self._names(self._target, prefixes),
                max_batch_size=rows,
                max_input_length=0,
                min_decoding_length=least,
                max_decoding_length=longest,
                suppress_sequences=[[SPELLINGS[PADDING]], [SPELLINGS[START]]],
                return_scores=True,
                **given,
            )
        except (RuntimeError, ValueError) as error:  # a text of more tokens than the export has positions for
            said = " ".join(str(error).split())
            raise UserError(f"CTranslate2 cannot translate these texts: {said}; --split cuts long ones") from None
        return [
            [self._hypothesis(names, score, given) for names, score in zip(one.hypotheses, one.scores, strict=True)]
            for one in found
        ]

    def _hypothesis(self, names: list[str], score: float, given: dict[str, Any]) -> Hypothesis:
        """Over there every score is divided by a power of the length; ours of greedy outputs are not."""
        log_prob = score * (len(names) + 1) ** given["length_penalty"]
        try:
            tokens = [self._ids[name] for name in names]
        except KeyError as error:
            raise UserError(f"the export writes {error}, which {TARGET} does not have; export the run anew") from None
        return Hypothesis(tokens, log_prob, log_prob if given["beam_size"] == 1 else score)

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        found = self.translator.score_batch(
            self._names(self._source, sources),
            self._names(self._target, targets),
            max_batch_size=ROWS,
            max_input_length=0,
        )
        return [np.array(one.log_probs) for one in found]

    @staticmethod
    def _names(names: list[str], rows: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[names[token] for token in row] for row in rows]


class OnnxEngine:
    """Two graphs and onnxruntime. `begin` and `step` are what `sightline.decoding.search` wants."""

    def __init__(self, folder: Path, threads: int) -> None:
        library = onnx_library()
        options = library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3  # errors only
        try:
            self._encoder, self._step = (
                library.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
                for name in (ENCODER, STEP)
            )
        except Exception as error:  # the runtime has a dozen kinds, with no base of their own
            raise UserError(f"{folder} cannot be loaded by onnxruntime: {' '.join(str(error).split())}") from None
        self.names = [one.name for one in self._encoder.get_outputs()]
        self._results = [one.name for one in self._step.get_outputs()]

    def begin(self, source: Int[Tensor, "b s"]) -> tuple[Tensor, ...]:
        """What the step begins with, from sources with their ends, padded."""
        return tuple(map(torch.from_numpy, self._run(self._encoder, self.names, {"source": source.numpy()})))

    def _run(self, graph: Any, names: list[str], given: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            return graph.run(names, given)
        except Exception as error:  # as above
            raise UserError(f"onnxruntime cannot run the export: {' '.join(str(error).split())[:300]}") from None

    def step(self, tokens: Int[Tensor, " b"], state: tuple[Tensor, ...]) -> tuple[Float[Tensor, "b v"], Any]:
        """Log-probabilities of the next tokens; what the step gives anew takes the place of what it was given."""
        given = {name: part.numpy() for name, part in zip(self.names, state, strict=True)}
        results = self._run(self._step, self._results, {"tokens": tokens.numpy(), **given})
        found = dict(zip(self._results, results, strict=True))
        after = tuple(
            torch.from_numpy(found[f"next_{name}"]) if f"next_{name}" in found else part
            for name, part in zip(self.names, state, strict=True)
        )
        return torch.log_softmax(torch.from_numpy(found["logits"]), dim=-1), after

    def greedy(self, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
        rules = Rules(START, END, 0, longest, forbidden=(PADDING,))
        outputs: list[list[int]] = [[] for _ in sources]
        for rows in _batches(sources):
            state = self.begin(padded([[*sources[row], END] for row in rows]))
            for row, found in zip(rows, greedy(self.step, state, len(rows), rules), strict=True):
                outputs[row] = found.tokens
        return outputs

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        outputs: list[np.ndarray] = [np.empty(0)] * len(sources)
        for rows in _batches(sources):
            state: Any = self.begin(padded([[*sources[row], END] for row in rows]))
            steps = []
            for tokens in padded([[START, *targets[row]] for row in rows]).unbind(1):
                found, state = self.step(tokens, state)
                steps.append(found)
            for row, found in zip(rows, torch.stack(steps, dim=1), strict=True):
                outputs[row] = found[: len(targets[row]) + 1].numpy()
        return outputs


class HuggingFaceEngine:
    """A model from text to text that transformers has loaded."""

    def __init__(self, folder: Path) -> None:
        from sightline.interop.huggingface import load  # which says in one sentence what is wrong with a folder

        transformers_library()
        self.model: Any = load(folder).model

    @torch.no_grad()
    def greedy(self, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
        outputs: list[list[int]] = [[] for _ in sources]
        for rows in _batches(sources):
            found = self.model.generate(
                **self._inputs([sources[row] for row in rows]),
                num_beams=1,
                do_sample=False,
                max_new_tokens=longest + 1,
                max_length=None,
            )
            for row, tokens in zip(rows, found.tolist(), strict=True):
                written = tokens[1:]
                outputs[row] = (written[: written.index(END)] if END in written else written)[:longest]
        return outputs

    @torch.no_grad()
    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        outputs: list[np.ndarray] = [np.empty(0)] * len(sources)
        for rows in _batches(sources):
            words = padded([[START, *targets[row]] for row in rows])
            logits = self.model(**self._inputs([sources[row] for row in rows]), decoder_input_ids=words).logits
            for row, found in zip(rows, torch.log_softmax(logits, dim=-1), strict=True):
                outputs[row] = found[: len(targets[row]) + 1].numpy()
        return outputs

    @staticmethod
    def _inputs(sources: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        source = padded([[*row, END] for row in sources])
        return {"input_ids": source, "attention_mask": (source != PADDING).long()}


def padded(rows: Sequence[Sequence[int]]) -> Int[Tensor, "b t"]:
    """Rows of tokens as one tensor, filled up with padding."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PADDING] * (longest - len(row))] for row in rows])


def _batches(sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Sources of one length together."""
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    for start in range(0, len(order), ROWS):
        yield order[start : start + ROWS]
