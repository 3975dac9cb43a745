"""Exported models in their engines: CTranslate2, onnxruntime, transformers. Tokens in, tokens out."""

import importlib
import mmap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor

from sightline.decoding.options import pad
from sightline.decoding.search import Hypothesis, Rules, greedy
from sightline.errors import UserError
from sightline.files import open_regular
from sightline.vocabulary import END, PADDING, SPELLINGS, START

Format = Literal["ctranslate2", "onnx", "huggingface"]
SOURCE, TARGET = "source.json", "target.json"
ENCODER, STEP = "encoder.onnx", "step.onnx"
ROWS = 32  # sentences at once
EXTRAS = {"ctranslate2": "ctranslate2", "onnx": "onnx", "onnxruntime": "onnx", "transformers": "hf"}
T = TypeVar("T")


@runtime_checkable
class Engine(Protocol):
    """What an export is compared with its run by."""

    def greedy(self, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
        """Greedy outputs; neither sources nor outputs have an end token."""

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Of the tokens of given outputs and their ends: `t` numbers, or `t v` for the whole vocabulary."""


def engine_for(name: Format, folder: Path, threads: int) -> Engine:
    """The engine that runs an export."""
    if name == "ctranslate2":
        return CTranslate2Engine(folder, threads)
    return OnnxEngine(folder, threads) if name == "onnx" else HuggingFaceEngine(folder)


def library(module: str) -> Any:
    """The library of an engine, or one sentence that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(f"{module} is not installed: pip install 'sightline[{EXTRAS[module]}]'") from None


def one_line(error: Exception) -> str:
    """The message of a library, in one line."""
    return " ".join(str(error).split())[:300]


def spelled(path: Path) -> list[str]:
    """The pieces of a vocabulary as its file spells them, in the order of their ids."""
    try:
        ids = Tokenizer.from_file(str(path)).get_vocab()
    except Exception as error:  # the library has no class of its own
        raise UserError(f"{path} cannot be read: {one_line(error)}; export the run again") from None
    return sorted(ids, key=ids.__getitem__)


class CTranslate2Engine:
    """A translator of CTranslate2, on the CPU."""

    def __init__(self, folder: Path, threads: int) -> None:
        translator = library("ctranslate2").Translator
        try:
            self.translator = translator(str(folder), device="cpu", inter_threads=1, intra_threads=threads)
        except (RuntimeError, ValueError, LookupError) as error:
            raise UserError(f"{folder} cannot be loaded by CTranslate2: {one_line(error)}") from None
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
        """The best outputs of each source, ``rows`` at once; options are those of ``translate_batch``."""
        given = {"beam_size": 1, "length_penalty": 1.0, **options}
        try:
            translations = self.translator.translate_batch(
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
            raise UserError(
                f"CTranslate2 cannot translate these texts: {one_line(error)}; --split cuts long ones"
            ) from None
        return [
            [self._hypothesis(names, score, given) for names, score in zip(one.hypotheses, one.scores, strict=True)]
            for one in translations
        ]

    def _hypothesis(self, names: list[str], score: float, given: dict[str, Any]) -> Hypothesis:
        """CTranslate2 divides every score by a power of the length; our scores of greedy outputs are not divided."""
        log_prob = score * (len(names) + 1) ** given["length_penalty"]
        try:
            tokens = [self._ids[name] for name in names]
        except KeyError as error:
            raise UserError(f"the export writes {error}, which {TARGET} does not have; export the run again") from None
        return Hypothesis(tokens, log_prob, log_prob if given["beam_size"] == 1 else score)

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        names = self._names(self._source, sources), self._names(self._target, targets)
        scores = self.translator.score_batch(*names, max_batch_size=ROWS, max_input_length=0)
        return [np.array(one.log_probs) for one in scores]

    @staticmethod
    def _names(names: list[str], rows: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[names[token] for token in row] for row in rows]


def _check_alone(path: Path) -> None:
    """Refuse a graph with weights in another file: no checksum covers it, and its name may be any path.

    The format names such a file under the key "location". Our exports have none.
    """
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            outside = content.find(b"location") >= 0
    except (OSError, ValueError):
        raise UserError(f"{path} is missing or empty; export the run again") from None
    if outside:
        raise UserError(f"{path} has weights in another file, which is not read; export the run again")


class OnnxEngine:
    """Two graphs in onnxruntime. `begin` and `step` serve `sightline.decoding.search`."""

    def __init__(self, folder: Path, threads: int) -> None:
        runtime = library("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3  # errors only
        for name in (ENCODER, STEP):
            _check_alone(folder / name)
        own: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}  # it would print its errors
        try:
            self._encoder, self._step = (
                runtime.InferenceSession(str(folder / name), options, **own) for name in (ENCODER, STEP)
            )
        except Exception as error:  # the runtime has a dozen classes without a common base
            raise UserError(f"{folder} cannot be loaded by onnxruntime: {one_line(error)}") from None
        self.names = [one.name for one in self._encoder.get_outputs()]
        self._outputs = [one.name for one in self._step.get_outputs()]

    def begin(self, source: Int[Tensor, "b s"]) -> tuple[Tensor, ...]:
        """The first state of the decoder, from sources with their ends, padded."""
        return tuple(map(torch.from_numpy, self._run(self._encoder, self.names, {"source": source.numpy()})))

    def _run(self, graph: Any, names: list[str], given: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            return graph.run(names, given)
        except Exception as error:  # as above
            raise UserError(f"onnxruntime cannot run the export: {one_line(error)}") from None

    def step(self, tokens: Int[Tensor, " b"], state: tuple[Tensor, ...]) -> tuple[Float[Tensor, "b v"], Any]:
        """Log-probabilities of the next tokens, and the state with the parts that the step updates."""
        given = {name: part.numpy() for name, part in zip(self.names, state, strict=True)}
        arrays = self._run(self._step, self._outputs, {"tokens": tokens.numpy(), **given})
        outputs = dict(zip(self._outputs, map(torch.from_numpy, arrays), strict=True))
        after = tuple(outputs.get(f"next_{name}", part) for name, part in zip(self.names, state, strict=True))
        return torch.log_softmax(outputs["logits"], dim=-1), after

    def greedy(self, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
        rules = Rules(START, END, 0, longest, forbidden=(PADDING,))

        def decode(rows: list[int]) -> Iterable[list[int]]:
            state = self.begin(pad([[*sources[row], END] for row in rows]))
            return (hypothesis.tokens for hypothesis in greedy(self.step, state, len(rows), rules))

        return _in_batches(sources, decode)

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        def score(rows: list[int]) -> Iterable[np.ndarray]:
            state: Any = self.begin(pad([[*sources[row], END] for row in rows]))
            steps = []
            for tokens in pad([[START, *targets[row]] for row in rows]).unbind(1):
                log_probs, state = self.step(tokens, state)
                steps.append(log_probs)
            return _unpadded(torch.stack(steps, dim=1), targets, rows)

        return _in_batches(sources, score)


class HuggingFaceEngine:
    """A model from text to text, loaded by transformers."""

    def __init__(self, folder: Path) -> None:
        from sightline.interop.huggingface import load  # its errors about a folder are one sentence

        library("transformers")
        self.model: Any = load(folder).model

    @torch.no_grad()
    def greedy(self, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
        def decode(rows: list[int]) -> Iterable[list[int]]:
            inputs = self._inputs([sources[row] for row in rows])
            length = {"max_new_tokens": longest + 1, "max_length": None}
            for tokens in self.model.generate(**inputs, num_beams=1, do_sample=False, **length).tolist():
                written = tokens[1:]
                yield (written[: written.index(END)] if END in written else written)[:longest]

        return _in_batches(sources, decode)

    @torch.no_grad()
    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        def score(rows: list[int]) -> Iterable[np.ndarray]:
            words = pad([[START, *targets[row]] for row in rows])
            logits = self.model(**self._inputs([sources[row] for row in rows]), decoder_input_ids=words).logits
            return _unpadded(torch.log_softmax(logits, dim=-1), targets, rows)

        return _in_batches(sources, score)

    @staticmethod
    def _inputs(sources: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        source = pad([[*row, END] for row in sources])
        return {"input_ids": source, "attention_mask": (source != PADDING).long()}


def _in_batches(sources: Sequence[Sequence[int]], work: Callable[[list[int]], Iterable[T]]) -> list[T]:
    """What ``work`` gives for each source. It gets the numbers of some sources at once, of similar lengths."""
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    outputs = [one for start in range(0, len(order), ROWS) for one in work(order[start : start + ROWS])]
    by_row = dict(zip(order, outputs, strict=True))
    return [by_row[row] for row in range(len(sources))]


def _unpadded(log_probs: Float[Tensor, "b t v"], targets: Sequence[Sequence[int]], rows: list[int]) -> list[np.ndarray]:
    return [one[: len(targets[row]) + 1].numpy() for row, one in zip(rows, log_probs, strict=True)]
