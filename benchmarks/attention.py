"""Time and memory of the mechanisms, beside PyTorch's own and beside the plain formulas.

``python benchmarks/attention.py --write`` measures everything (about ten minutes; leave the machine alone meanwhile),
prints the tables, draws benchmarks/growth.png and writes the section of RESULTS.md.
"""

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
import tyro
from matplotlib.figure import Figure
from rich.progress import track
from torch import Tensor, nn

from report import extra_memory, interleaved, machine, median_ratio, write_section
from sightline.attention import AdditiveConfig, ComposedConfig, MultiHeadConfig, fused
from sightline.explain.capture import capture

B, H, D = 8, 8, 64
HIDDEN = 256
HERE = Path(__file__).parent
Run = Callable[[], Any]


def backward(tensor: Tensor) -> None:
    tensor.backward(torch.ones_like(tensor))


def forget(*tensors: Tensor) -> None:
    for tensor in tensors:
        tensor.grad = None


def bare_sdpa(length: int, train: bool) -> Run:
    q, k, v = (torch.randn(B, H, length, D, requires_grad=train) for _ in range(3))

    def run() -> None:
        forget(q, k, v)
        context = F.scaled_dot_product_attention(q, k, v)
        if train:
            backward(context)

    return run


def our_scaled_dot(length: int, train: bool) -> Run:
    attention = ComposedConfig().build(D, heads=(H,))
    q, k, v = (torch.randn(B, H, length, D, requires_grad=train) for _ in range(3))

    def run() -> None:
        forget(q, k, v)
        context = attention(q, attention.remember(k, v)).context
        if train:
            backward(context)

    return run


def torch_multi_head(length: int, train: bool) -> Run:
    attention = nn.MultiheadAttention(H * D, H, batch_first=True).train(train)
    x = torch.randn(B, length, H * D, requires_grad=train)

    def run() -> None:
        forget(x, *attention.parameters())
        with torch.set_grad_enabled(train):
            context, _ = attention(x, x, x, need_weights=False)
        if train:
            backward(context)

    return run


def our_multi_head(length: int, train: bool) -> Run:
    attention = MultiHeadConfig(heads=H).build(H * D).train(train)
    x = torch.randn(B, length, H * D, requires_grad=train)

    def run() -> None:
        forget(x, *attention.parameters())
        with torch.set_grad_enabled(train):
            context = attention(x, attention.remember(x)).context
        if train:
            backward(context)

    return run


def our_additive(length: int, train: bool = True) -> Run:
    attention = ComposedConfig(AdditiveConfig(HIDDEN)).build(HIDDEN)
    x = torch.randn(1, length, HIDDEN, requires_grad=train)

    def run() -> None:
        forget(x, *attention.parameters())
        with torch.set_grad_enabled(train):
            context = attention(x, attention.remember(x)).context
        if train:
            backward(context)

    return run


def plain_additive(length: int, train: bool = True) -> Run:
    """softmax(v · tanh(W q + U k)) with every pair's hidden layer at once: B × T × S × H."""
    query, key = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN, bias=False)
    vector = nn.Linear(HIDDEN, 1, bias=False)
    x = torch.randn(1, length, HIDDEN, requires_grad=train)

    def run() -> None:
        forget(x, *query.parameters(), *key.parameters(), *vector.parameters())
        with torch.set_grad_enabled(train):
            scores = vector(torch.tanh(query(x).unsqueeze(2) + key(x).unsqueeze(1))).squeeze(-1)
            context = torch.softmax(scores, dim=-1) @ x
        if train:
            backward(context)

    return run


def multi_head_forward(length: int) -> Run:
    attention = MultiHeadConfig(heads=H).build(H * D)
    x = torch.randn(1, length, H * D)

    def run() -> None:
        with torch.no_grad():
            attention(x, attention.remember(x))

    return run


def top_k_capture(length: int) -> Run:
    attention = MultiHeadConfig(heads=H).build(H * D)
    x = torch.randn(1, length, H * D)

    def run() -> None:
        with torch.no_grad(), capture(attention, top=32):
            attention(x, attention.remember(x))

    return run


def whole_capture(length: int) -> Run:
    attention = MultiHeadConfig(heads=H).build(H * D)
    x = torch.randn(1, length, H * D)

    def run() -> None:
        with torch.no_grad(), capture(attention):
            attention(x, attention.remember(x))

    return run


def beside(pairs: list[tuple[str, int, int, bool, Callable[..., Run], Callable[..., Run]]]) -> list[str]:
    """One line a comparison: ours, theirs, and the ratio."""
    lines = []
    for what, length, repeats, train, ours, theirs in track(pairs, "timing"):
        times = interleaved({"ours": ours(length, train), "theirs": theirs(length, train)}, repeats)
        middle = {name: 1000 * statistics.median(seconds) for name, seconds in times.items()}
        ratio = median_ratio(times["ours"], times["theirs"])
        step = "forward and backward" if train else "forward"
        lines.append(f"| {what} | {length:,} | {step} | {middle['ours']:.1f} | {middle['theirs']:.1f} | {ratio:.2f} |")
    return lines


def speed() -> str:
    lengths = ((128, 101), (512, 31), (2048, 7))
    pairs = [
        (what, length, repeats, train, ours, theirs)
        for what, ours, theirs in (
            ("scaled dot / bare SDPA", our_scaled_dot, bare_sdpa),
            ("multi-head / nn.MultiheadAttention", our_multi_head, torch_multi_head),
        )
        for length, repeats in lengths
        for train in (False, True)
    ]
    pairs += [("additive / the plain formula", 512, 15, train, our_additive, plain_additive) for train in (False, True)]
    rows = "\n".join(beside(pairs))
    return f"""| ours / reference | length | step | ours, ms | reference, ms | ratio |
|---|--:|---|--:|--:|--:|
{rows}

Scaled dot and multi-head: batch {B}, {H} heads of {D}. Additive: batch 1, hidden size {HIDDEN}. Runs alternate in
one process; medians of time, and the median over rounds of the ratio. Below 1 we are faster than the reference."""


def short_attention(length: int, border: int) -> Run:
    attention = ComposedConfig().build(32, heads=(4,))
    batch = max(1, 4096 // length)
    q, k, v = (torch.randn(batch, 4, length, 32, requires_grad=True) for _ in range(3))
    mask = torch.ones(batch, 1, length, dtype=torch.bool)
    mask[:, :, -2:] = False

    def run() -> None:
        forget(q, k, v)
        fused.SHORT, kept = border, fused.SHORT
        backward(attention(q, attention.remember(k, v, mask=mask)).context)
        fused.SHORT = kept

    return run


def short() -> str:
    """Where plain products stop being faster than the kernel: the length at which `fused.SHORT` stands."""
    rows = ["| keys | plain products, ms | kernel, ms | ratio |", "|--:|--:|--:|--:|"]
    for length in track((8, 16, 32, 64, 96, 128, 192, 256), description="short"):
        runs = {"plain": short_attention(length, 10**9), "kernel": short_attention(length, 0)}
        times = interleaved(runs, repeats=15)
        plain, kernel = (1e3 * statistics.median(times[name]) for name in runs)
        rows.append(f"| {length} | {plain:.1f} | {kernel:.1f} | {median_ratio(times['plain'], times['kernel']):.2f} |")
    what = "Forward and backward, 4,096 queries in all, 4 heads of 32, padding masked."
    return "\n".join(rows) + f"\n\n{what} Up to {fused.SHORT} keys the plain products are used."


def memory() -> str:
    cases = [
        (f"additive, T = S = 2,048, hidden {HIDDEN}, forward and backward", our_additive, 2048),
        ("… the plain formula", plain_additive, 2048),
        ("multi-head, T = 16,384, 8 heads: capture of the 32 largest weights", top_k_capture, 16_384),
    ]
    rows = [f"| {what} | {extra_memory(case, length):,.0f} |" for what, case, length in track(cases, "memory")]
    full = 16_384**2 * H * 4 / 1e6
    rows.append(f"| … all of its weights, calculated (without the scores) | {full:,.0f} |")
    return "| what | extra memory at the peak, MB |\n|---|--:|\n" + "\n".join(rows)


GROWTH: dict[str, tuple[Callable[..., Run], list[int]]] = {
    "additive, ours": (our_additive, [128, 256, 512, 1024, 2048, 4096]),
    "additive, plain formula": (plain_additive, [128, 256, 512, 1024, 2048]),
    "multi-head, fused": (multi_head_forward, [128, 512, 1024, 2048, 4096, 8192, 16_384]),
    "capture, all weights": (whole_capture, [128, 512, 1024, 2048, 4096, 8192]),
    "capture, top 32": (top_k_capture, [128, 512, 1024, 2048, 4096, 8192, 16_384]),
}


def seconds(case: Callable[[int], Run], length: int) -> float:
    """The fastest of four, or the first where one takes seconds: there is nothing to warm up then."""
    run = case(length)
    started = time.perf_counter()
    run()
    first = time.perf_counter() - started
    return first if first > 2 else min(interleaved({"run": run}, 3)["run"])


def growth(picture: Path) -> str:
    """Time and memory against length: drawn, and the exponents of the last doubling in a table."""
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = []
    looks = {"additive": "#0072B2", "multi-head": "#009E73", "capture": "#D55E00"}
    for name, (case, lengths) in track(list(GROWTH.items()), "growth"):
        times = [seconds(case, length) for length in lengths]
        megabytes = [max(extra_memory(case, length), 0.1) for length in lengths]
        colour = looks[name.split(",")[0]]
        style = "--" if name.endswith(("plain formula", "all weights")) else "-"
        left.plot(lengths, times, style, color=colour, marker="o", markersize=3, label=name)
        right.plot(lengths, megabytes, style, color=colour, marker="o", markersize=3)
        steps = math.log2(lengths[-1] / lengths[-2])
        time_power = math.log2(times[-1] / times[-2]) / steps
        memory_power = math.log2(megabytes[-1] / megabytes[-2]) / steps
        last = f"{lengths[-1]:,} | {times[-1]:.2f} | {megabytes[-1]:,.0f}"
        rows.append(f"| {name} | {last} | {time_power:.1f} | {memory_power:.1f} |")
    for axes, label in ((left, "seconds"), (right, "extra memory at the peak, MB")):
        axes.set(xscale="log", yscale="log", xlabel="length of the input", ylabel=label)
        axes.set_xticks([128, 512, 2048, 8192], ["128", "512", "2,048", "8,192"])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(picture, dpi=160)
    table = "\n".join(rows)
    return f"""![Time and memory against length](growth.png)

| | longest | seconds | MB | time grows as length to the | memory grows as length to the |
|---|--:|--:|--:|--:|--:|
{table}

Batch 1. Additive: forward and backward, hidden size {HIDDEN}. The others: forward, {H} heads of {D}. The powers are
those of the last step of length."""


PARTS: dict[str, Callable[[Path], str]] = {
    "speed": lambda picture: speed(),
    "short": lambda picture: short(),
    "memory": lambda picture: memory(),
    "growth": growth,
}


def main(part: Literal["all", "speed", "short", "memory", "growth"] = "all", write: bool = False) -> None:
    """Measure one part or all of them; with --write, also into RESULTS.md."""
    torch.manual_seed(0)
    for name, measure in PARTS.items():
        if part not in ("all", name):
            continue
        again = f"Reproduce: `python benchmarks/attention.py --part {name} --write`; all parts: `make bench`."
        picture = HERE / "growth.png" if write else Path("runs/growth.png")  # a trial leaves the published one alone
        picture.parent.mkdir(parents=True, exist_ok=True)
        body = f"## Mechanisms: {name}\n\nMeasured on {machine()}.\n\n{measure(picture)}\n\n{again}"
        print(body)
        if write:
            write_section(f"attention-{name}", body)


if __name__ == "__main__":
    tyro.cli(main)
