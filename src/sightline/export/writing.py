"""Exported folders: their files, the comparison with the run, and a README with the numbers and how to use them."""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from sightline import __version__
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.decoding.options import pad
from sightline.errors import MachineError, UserError
from sightline.export.engine import SOURCE, TARGET, Engine, Format, library
from sightline.files import RECORDS, make_folder, open_regular, write_text
from sightline.metrics import bleu
from sightline.models.text_to_text import TextToText
from sightline.outputs.searched import Prediction
from sightline.tasks.prepare import DATA, VALID
from sightline.tasks.run import Run
from sightline.text.tokeniser import Tokeniser
from sightline.training.folder import EXPORT, MODEL, checksum
from sightline.vocabulary import END, MASK_SPELLING, PADDING, SPELLINGS, START

_CTRANSLATE2 = """With Sightline: `sightline predict FOLDER --engine ctranslate2`. With CTranslate2 alone:

```python
import ctranslate2
from tokenizers import Tokenizer

source, target = (Tokenizer.from_file(f"{name}.json") for name in ("source", "target"))
translator = ctranslate2.Translator(".")


def translate(texts):
    tokens = [one.tokens for one in source.encode_batch(texts, add_special_tokens=False)]
    never = [["<pad>"], ["<s>"]]
    translations = translator.translate_batch(tokens, beam_size=5, suppress_sequences=never)
    written = [[target.token_to_id(token) for token in one.hypotheses[0]] for one in translations]
    return target.decode_batch(written, skip_special_tokens=False)
```
"""
# A test runs it.
_DRIVER = f'''import numpy as np
import onnxruntime
from tokenizers import Tokenizer

PADDING, START, END = {PADDING}, {START}, {END}
encoder, step = (onnxruntime.InferenceSession(f"{{name}}.onnx") for name in ("encoder", "step"))
source, target = (Tokenizer.from_file(f"{{name}}.json") for name in ("source", "target"))


def translate(texts, longest=100):
    """Greedy search."""
    rows = [[*one.ids, END] for one in source.encode_batch(texts, add_special_tokens=False)]
    width = max(map(len, rows))
    batch = np.array([row + [PADDING] * (width - len(row)) for row in rows])
    names = [one.name for one in encoder.get_outputs()]
    state = dict(zip(names, encoder.run(names, {{"source": batch}})))
    tokens, written = np.full(len(rows), START), []
    for _ in range(longest):
        results = dict(zip([one.name for one in step.get_outputs()], step.run(None, {{"tokens": tokens, **state}})))
        state |= {{name: results[f"next_{{name}}"] for name in names if f"next_{{name}}" in results}}
        logits = results["logits"]
        logits[:, [PADDING, START]] = -np.inf
        tokens = logits.argmax(-1)
        written.append(tokens)
        if all(END in row for row in np.stack(written, 1)):
            break
    outputs = [row.tolist() for row in np.stack(written, 1)]
    outputs = [row[: row.index(END)] if END in row else row for row in outputs]
    return target.decode_batch(outputs, skip_special_tokens=False)
'''
_ONNX = f"""`encoder.onnx` reads `source` (token ids with their end, padded) and gives the state of the decoder.
`step.onnx` reads the last `tokens` and the state, and gives `logits` and, as `next_NAME`, the new value of `NAME` in
the state. The batch is the first axis everywhere, so beams are selected by indexing.

With Sightline: `sightline predict FOLDER --engine onnx`. With onnxruntime alone, greedily:

```python
{_DRIVER}```
"""
_TRANSLATING = """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")


def translate(texts):
    outputs = model.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
    return tokenizer.batch_decode(outputs, skip_special_tokens=True)
```

`sightline view hf:FOLDER --text TEXT --out map.png` shows its attention.
"""
_ENCODING = """```python
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".")
states = model(**tokenizer(["a text"], return_tensors="pt")).last_hidden_state
```

The head of the run (its labels, tags or answers) was not exported.
"""


def readme(exported: "Exported") -> str:
    """Markdown."""
    use = {"ctranslate2": _CTRANSLATE2, "onnx": _ONNX, "huggingface": _TRANSLATING}[exported.format]
    if exported.described.endswith("encoder"):
        use = _ENCODING
    weights = " with 8-bit weights" if exported.int8 else ""
    lines = [f"# A Sightline model as {exported.described}{weights}", "", *closeness_lines(exported), ""]
    return "\n".join(lines) + f"\n## Use\n\n{use}"


def closeness_lines(exported: "Exported") -> list[str]:
    """How close it is, a sentence a line."""
    close = exported.closeness
    if exported.described.endswith("encoder"):
        return [
            f"On {close.sentences:,} texts ({exported.tried}) its encoder states differ from the run's by at most "
            f"{close.largest:.1e}; all texts have the same tokens."
        ]
    lines = [
        f"Greedy outputs equal the run's for {close.same:,} of {close.sentences:,} sentences ({exported.tried}).",
        f"Log-probabilities differ by at most {close.largest:.1e}, on average {close.mean:.1e}.",
    ]
    if close.bleu is not None and close.own_bleu is not None:
        lines.append(f"Its BLEU on them is {close.bleu:.2f}, the run's {close.own_bleu:.2f}.")
    return lines


# --- Writing an export, comparing it with the run on real sentences, and keeping it only if both agree.

ABOUT = EXPORT
SENTENCES, FORCED = 200, 32  # compared by greedy outputs, and by every log-probability
LONGEST = 100  # tokens of an output that is compared
CLOSE, QUANTISED = 1e-3, 0.5  # the largest difference of log-probabilities in float32, the mean one in int8
SAME = 0.9  # of the outputs in float32; ties depend on the last digit


class ExportExample(NamedTuple):
    """A text to compare on, and its reference where there is one."""

    source: str
    target: str | None = None


@dataclass(frozen=True)
class Closeness:
    """How close an export is to its run: outputs, log-probabilities, and BLEU where references are known."""

    sentences: int
    same: int
    largest: float
    mean: float
    bleu: float | None = None
    own_bleu: float | None = None

    def problem(self, int8: bool) -> str | None:
        """Why the export must not be used."""
        if int8 and not self.mean <= QUANTISED:  # not: NaN is a problem too
            return f"its log-probabilities differ by {self.mean:.2g} on average, more than int8 may"
        if not int8 and not self.largest <= CLOSE:
            return f"its log-probabilities differ by up to {self.largest:.2g}"
        if not int8 and self.same < SAME * self.sentences:
            return f"its outputs are the same for {self.same:,} of {self.sentences:,} sentences only"
        return None


@dataclass(frozen=True)
class Exported:
    """An export. ``described`` names the kind of model, ``tried`` the sentences that it was compared on."""

    folder: Path
    format: Format
    int8: bool
    described: str
    tried: str
    closeness: Closeness
    size: int = 0  # bytes
    own_size: int = 0

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "folder": str(self.folder)}


class Translating(NamedTuple):
    """The exported parts of a run from text to text."""

    model: TextToText
    source: Tokeniser
    target: Tokeniser


def translating(run: Run) -> Translating:
    """The model and the vocabularies of a run, if other engines support it."""
    source, target = (getattr(side, "tokeniser", None) for side in (run.input, run.output))
    if not (isinstance(run.model, TextToText) and source is not None and target is not None):
        raise UserError(
            f"{run.name} is a run of {run.task.name}; export models from text to text to ctranslate2, onnx or "
            "huggingface, and encoders of texts to huggingface"
        )
    if run.model.copying is not None:
        raise UserError(
            f"{run.name} copies words of its source, which no other engine can; export a run without copying"
        )
    return Translating(run.model, source, target)


def write_export(run: Run, to: Format, folder: Path, int8: bool = False) -> str:
    """Write the files of one format. Returns the kind of model in words."""
    model, source, target = translating(run)
    if to != "huggingface":
        source.save(folder / SOURCE)
        target.save(folder / TARGET)
    if to == "ctranslate2":
        from sightline.export.ctranslate2 import write_ctranslate2

        write_ctranslate2(model, folder, int8)
        return "a CTranslate2 model"
    if to == "onnx":
        library("onnx")
        from sightline.export.onnx import write_onnx

        write_onnx(model, folder, int8)
        return "two ONNX graphs"
    from sightline.export.huggingface import write_huggingface

    return f"a {write_huggingface(model, source, target, folder).capitalize()}"


def other_tokens(run: Run, folder: Path, examples: Sequence[ExportExample]) -> str | None:
    """Why the exported tokeniser must not be used."""
    import transformers

    texts = [example.source for example in examples]
    theirs = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)(texts)["input_ids"]
    ours = [[*tokens, END] for tokens in translating(run).source.encode(texts)]
    others = sum(a != b for a, b in zip(ours, theirs, strict=True))
    return f"its tokeniser gives other tokens for {others:,} of {len(texts):,} texts" if others else None


@torch.inference_mode()
def compare(run: Run, engine: Engine, examples: Sequence[ExportExample]) -> Closeness:
    """Greedy outputs of both, and the log-probabilities that both give to the run's outputs."""
    texts = [example.source for example in examples]
    model, source, target = translating(run)
    sources = source.encode(texts)
    predictions = run.predict(texts, beam=1, max_length=LONGEST, keep_unknown=True)
    ours = [list(one.tokens) for one in cast("list[Prediction]", predictions)]
    theirs = engine.greedy(sources, LONGEST)
    largest, total, count = 0.0, 0.0, 0
    for start in range(0, min(FORCED, len(sources)), 8):
        part = slice(start, min(start + 8, FORCED))
        given = engine.log_probs(sources[part], ours[part])
        batch = pad([[*row, END] for row in sources[part]]).to(run.device)
        words = pad([[START, *row] for row in ours[part]]).to(run.device)
        expected = torch.log_softmax(model.logits(batch, words), dim=-1).cpu().numpy()
        for row, values, whole in zip(ours[part], given, expected, strict=True):
            everywhere, of_tokens = _differences(values, whole[: len(row) + 1], [*row, END])
            largest = max(largest, float(everywhere.max()))
            total, count = total + float(of_tokens.sum()), count + len(row) + 1
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    references = [example.target for example in examples if example.target is not None]
    scores: list[float | None] = [None, None]
    if len(references) == len(examples):
        scores = [bleu(target.decode(rows), references).value for rows in (theirs, ours)]
    return Closeness(len(texts), same, largest, total / max(count, 1), *scores)


def _differences(given: np.ndarray, expected: np.ndarray, tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Of all log-probabilities of the engine, and of those of the output's tokens. NaN is infinitely far."""
    own = np.arange(len(tokens)), tokens
    everywhere = np.abs(given[: len(tokens)] - expected[own] if given.ndim == 1 else given - expected)
    everywhere = np.nan_to_num(everywhere, nan=np.inf)
    return everywhere, everywhere if given.ndim == 1 else everywhere[own]


def examples_for(
    run: Path, data: str | None, columns: tuple[str, ...] | None, tokeniser: Tokeniser
) -> tuple[list[ExportExample], str]:
    """Sentences to compare on, and their origin: the data given, the run's validation data, or its vocabulary."""
    if data is not None:
        rows = pair_cells(Source(data, columns), ())
        good = (ExportExample(*row.values) for row in rows if row.problem is None)
        examples, tried = list(islice(good, SENTENCES)), data
    else:
        examples = [ExportExample(source, target) for source, target in valid_rows(run, _is_pair)]
        tried = "its validation data"
    encoded = tokeniser.encode([example.source for example in examples])
    examples = [example for example, tokens in zip(examples, encoded, strict=True) if 0 < len(tokens) <= LONGEST]
    if examples:
        return examples, tried
    if data is not None:
        raise UserError(f"{data} has no source of 1 to {LONGEST} tokens to compare on")
    return [ExportExample(text) for text in made_up(tokeniser)], "texts made of its vocabulary"


def valid_rows(run: Path, fits: Callable[[Any], bool]) -> list[Any]:
    """The first validation examples of a run; none where it was moved without its data."""
    folder = run.parent.parent if run.parent.name == "checkpoints" else run
    path = folder / DATA / VALID
    if not path.is_file():
        return []
    rows = []
    with open_regular(path, RECORDS) as lines:
        for line in islice(lines, SENTENCES):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path} is damaged: {error}") from None
            if not fits(row):
                raise UserError(f"{path} is damaged: found {line[:60].decode(errors='replace')!r}")
            rows.append(row)
    return rows


def _is_pair(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(isinstance(text, str) for text in row)


def made_up(tokeniser: Tokeniser, count: int = 50) -> list[str]:
    """Texts of words of the vocabulary, the same every time."""
    draw = random.Random(0)
    rows = [[draw.randrange(len(SPELLINGS), tokeniser.words) for _ in range(draw.randint(3, 20))] for _ in range(count)]
    texts = tokeniser.decode(rows)
    both = zip(texts, tokeniser.encode(texts), strict=True)
    # The mask token is never spelled in a text: its spelling is plain text to us, but a token to other libraries.
    return [text for text, tokens in both if tokens and MASK_SPELLING not in text]


def keep(folder: Path, run: Path, exported: Exported, problem: str | None) -> Exported:
    """Refuse an export with a problem; describe another one, with the checksums of its files, and how to use it."""
    if problem is not None:
        raise UserError(f"the export of {run} to {exported.format} differs from the run and is not kept: {problem}")
    size = sum(file.stat().st_size for file in folder.iterdir())
    exported = replace(exported, size=size, own_size=(run / MODEL).stat().st_size)
    about = {"format": 1, "sightline": __version__, "export": exported.format, "int8": exported.int8}
    told = {"described": exported.described, "tried": exported.tried, "closeness": asdict(exported.closeness)}
    files = {"files": {file.name: checksum(file) for file in sorted(folder.iterdir())}}
    write_text(folder / ABOUT, json.dumps({**about, **told, **files}, indent=2, ensure_ascii=False) + "\n")
    write_text(folder / "README.md", readme(exported))
    return exported


@contextlib.contextmanager
def whole_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to write to. It becomes ``path`` if the block raises no error, and is removed otherwise.

    An existing folder is refused; with ``overwrite`` an earlier export is replaced, and nothing else is.
    """
    path = Path(os.path.abspath(path))
    check_free(path, overwrite)
    part, old = (path.with_name(f".{path.name}.{os.getpid()}.{ending}") for ending in ("part", "old"))
    make_folder(part)
    try:
        probe = part / ".mode"
        probe.touch()
        mode = probe.stat().st_mode  # some writers make files that only their owner can read; exports are to be shared
        probe.unlink()
        yield part
        for file in part.iterdir():
            file.chmod(mode)
            with file.open("rb") as written:
                os.fsync(written.fileno())  # the name must not reach the disk before the content does
        if path.exists():
            path.rename(old)
        part.rename(path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for folder in (part, old):
            shutil.rmtree(folder, ignore_errors=True)


def check_free(path: Path, overwrite: bool) -> None:
    """Whether a folder may be written there."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; name a folder to write to")
    if path.is_dir() and any(path.iterdir()):
        if not overwrite:
            raise UserError(f"{path} exists already; choose another folder, or replace it with --overwrite")
        if not (path / ABOUT).is_file():
            raise UserError(f"{path} is not an export (it has no {ABOUT}) and is not replaced; choose another folder")
