"""Our models from text to text as ONNX: an encoder and one step of the decoder, for onnxruntime anywhere.

Every model has the same shape from outside. The encoder reads ``source`` and gives the state; the step reads ``tokens``
and the state, and gives ``logits`` and, as ``next_NAME``, what takes the place of ``NAME`` in the state. All of it has
the rows of the batch first, so beams reorder it by indexing.
"""

import tempfile
from pathlib import Path

from sightline.errors import UserError
from sightline.export.engine import ENCODER, STEP, onnx_library
from sightline.models.recurrent import RecurrentModel
from sightline.models.text_to_text import TextToText
from sightline.models.transformer import Transformer
from sightline.vocabulary import END, PADDING, START

# Run by a test as it stands: what it says is true.
DRIVER = f'''import numpy as np
import onnxruntime
from tokenizers import Tokenizer

PADDING, START, END = {PADDING}, {START}, {END}
encoder, step = (onnxruntime.InferenceSession(f"{{name}}.onnx") for name in ("encoder", "step"))
source, target = (Tokenizer.from_file(f"{{name}}.json") for name in ("source", "target"))


def translate(texts, longest=100):
    """Greedy: the likeliest token, again and again."""
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


def write_onnx(model: TextToText, folder: Path, int8: bool = False) -> None:
    """Write the two graphs; with ``int8`` the products with weights are computed in 8 bits."""
    onnx_library()
    if isinstance(model, Transformer):
        from sightline.export.onnx_transformer import transformer_graphs

        graphs = transformer_graphs(model, int8)
    elif isinstance(model, RecurrentModel):
        from sightline.export.onnx_recurrent import recurrent_graphs

        graphs = recurrent_graphs(model, int8)
    else:
        raise UserError(f"a {type(model).__name__} has no ONNX graphs; a Transformer and the recurrent models have")
    for graph, name in zip(graphs, (ENCODER, STEP), strict=True):
        if not int8:
            graph.save(folder / name)
            continue
        with tempfile.TemporaryDirectory() as between:
            graph.save(Path(between) / name)
            _quantise(Path(between) / name, folder / name)


def _quantise(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Unsigned weights: on a processor without VNNI signed ones changed 77 of 200 outputs of a Multi30k run, unsigned
    # ones 19; sums of products of bytes that do not fit would explain it.
    quantize_dynamic(source, target, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QUInt8)
