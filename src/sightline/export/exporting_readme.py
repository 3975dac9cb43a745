"""The README of an exported folder: what it is, how close it is, and how to use it."""

from typing import TYPE_CHECKING

from sightline.export.onnx import DRIVER

if TYPE_CHECKING:
    from sightline.export.exporting import Exported

_CTRANSLATE2 = """With Sightline: `sightline predict FOLDER --engine ctranslate2`. With CTranslate2 alone:

```python
import ctranslate2
from tokenizers import Tokenizer

source, target = (Tokenizer.from_file(f"{name}.json") for name in ("source", "target"))
translator = ctranslate2.Translator(".")


def translate(texts):
    tokens = [one.tokens for one in source.encode_batch(texts, add_special_tokens=False)]
    never = [["<pad>"], ["<s>"]]
    found = translator.translate_batch(tokens, beam_size=5, suppress_sequences=never)
    written = [[target.token_to_id(token) for token in one.hypotheses[0]] for one in found]
    return target.decode_batch(written, skip_special_tokens=False)
```
"""
_ONNX = f"""`encoder.onnx` reads `source` (token ids with their end, padded) and gives the state of the decoder.
`step.onnx` reads the last `tokens` and the state, and gives `logits` and, as `next_NAME`, what takes the place of
`NAME` in the state. The batch is the first axis everywhere, so beams are indexing.

With Sightline: `sightline predict FOLDER --engine onnx`. With onnxruntime alone, greedily:

```python
{DRIVER}```
"""
_TRANSLATING = """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")


def translate(texts):
    found = model.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
    return tokenizer.batch_decode(found, skip_special_tokens=True)
```

`sightline view hf:FOLDER --text TEXT --out map.png` shows where it looks.
"""
_ENCODING = """```python
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".")
annotations = model(**tokenizer(["a text"], return_tensors="pt")).last_hidden_state
```

The head of the run (its labels, tags or answers) did not go along.
"""


def readme(exported: "Exported") -> str:
    """Markdown."""
    use = {"ctranslate2": _CTRANSLATE2, "onnx": _ONNX, "huggingface": _TRANSLATING}[exported.format]
    if exported.described.endswith("encoder"):
        use = _ENCODING
    weights = " with 8-bit weights" if exported.int8 else ""
    lines = [f"# A model of Sightline's as {exported.described}{weights}", "", *closeness_lines(exported), ""]
    return "\n".join(lines) + f"\n## Use\n\n{use}"


def closeness_lines(exported: "Exported") -> list[str]:
    """How close it is, a sentence a line."""
    found = exported.closeness
    if exported.described.endswith("encoder"):
        return [
            f"On {found.sentences:,} texts ({exported.tried}) its annotations differ from the run's by at most "
            f"{found.largest:.1e}; all of them are cut into the same tokens."
        ]
    lines = [
        f"Greedy outputs are the run's own for {found.same:,} of {found.sentences:,} sentences ({exported.tried}).",
        f"Log-probabilities differ by at most {found.largest:.1e}, on average {found.mean:.1e}.",
    ]
    if found.bleu is not None and found.own_bleu is not None:
        lines.append(f"BLEU there is {found.bleu:.2f}, the run's own {found.own_bleu:.2f}.")
    return lines
