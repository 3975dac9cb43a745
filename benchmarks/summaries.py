"""Headlines of news articles: what copying and coverage give, against simple baselines and a small BART.

    python benchmarks/summaries.py floors --data FOLDER [--test]           # baselines, no model
    python benchmarks/summaries.py train rnn-copy --data FOLDER --minutes 40
    python benchmarks/summaries.py score rnn-copy --data FOLDER [--test]   # validation data, or once the test data
    python benchmarks/summaries.py bart --data FOLDER --minutes 40 [--test]
    python benchmarks/summaries.py report --write                          # the table of all scores in --folder

FOLDER has train.tsv (or train.tsv.gz), valid.tsv and test.tsv with the columns source and target. Every training is
`sightline train summarise` with one thread and a vocabulary of 8,000 words. Settings are chosen on validation data;
`--test` scores the test data, which is to be done once for a model.

`bart` needs transformers (the extra `hf`). It is BART's architecture (Lewis et al. 2020) from random weights, about as
large as the Transformer beside it, trained for as many minutes with one thread on the same texts, with a joint BPE
vocabulary of the same size made by Sightline: BART has no copying, and pieces of words are how it writes rare ones. Its
training is a plain loop with the learning rate of that Transformer, its search that of transformers, and its scores are
computed by the same code.
"""

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from report import machine, write_section

COPY = ("model.copying=true",)
NO_COPY = ("model.copying=false",)
COVER_RNN = (*COPY, "model.attention=coverage")
COVER_TRANSFORMER = COPY
COVERAGE_AFTER = "training.coverage_after={}"  # steps; given by --coverage-after
WORDS = ("tokeniser.method=words", "tokeniser.vocab_size=8000")
LONG = ("training.patience=100000",)
TRAININGS = {
    "rnn": ("rnnsearch", NO_COPY),
    "rnn-copy": ("rnnsearch", COPY),
    "rnn-cover": ("rnnsearch", COVER_RNN),
    "transformer": ("transformer", NO_COPY),
    "transformer-copy": ("transformer", COPY),
    "transformer-cover": ("transformer", COVER_TRANSFORMER),
}
ROUGE = ("rouge1", "rouge2", "rougeL")
MADE = ("novel_2", "repeated_3", "unsupported")
PIECES, BATCH_TOKENS, RATE, WARMUP, SMOOTHING = 8000, 4096, 1e-3, 500, 0.1
BEAM, MOST_TOKENS = 5, 40


def sightline(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "sightline", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def file_of(data: Path, name: str) -> Path:
    """The file of one part of the data, compressed or not."""
    plain = data / f"{name}.tsv"
    return plain if plain.exists() else data / f"{name}.tsv.gz"


def pairs_of(path: Path) -> tuple[list[str], list[str]]:
    """Sources and targets."""
    from sightline.data.reading import pair_cells
    from sightline.data.source import Source
    from sightline.tasks.summarise import SUMMARISE

    rows = [row.values for row in pair_cells(Source.of(str(path)), SUMMARISE.columns) if row.problem is None]
    return [str(row[0]) for row in rows], [str(row[1]) for row in rows]


def scores_of(texts: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """ROUGE without and with a stemmer, and what the texts are made of."""
    from sightline.metrics import rouge
    from sightline.metrics.summaries import made_statistics, marks_names

    kinds: Any = ROUGE
    found = {
        f"{kind}{'_stem' * stem}": rouge(kind, stem)(texts, references).value
        for stem in (False, True)
        for kind in kinds
    }
    made = made_statistics(texts, sources, marks_names(references))
    return {**found, **{name: one.score() for name, one in made.items()}}


def keep(folder: Path, name: str, part: str, scores: dict[str, Any]) -> None:
    """Write and print the scores of a system."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.{part}.json").write_text(json.dumps(scores, indent=1))
    print(name, part, {key: round(scores[key], 2) for key in (*ROUGE, *MADE) if key in scores}, flush=True)


def floors(data: Path, folder: Path, part: str) -> None:
    """The baselines of `sightline.outputs.summaries`, with 8 and 12 words besides, and the references themselves."""
    from sightline.baselines.nearest import NearestSources
    from sightline.metrics import rouge
    from sightline.outputs.simple_baselines import best_count, first_sentence, first_words

    (sources, references), (valid, targets) = pairs_of(file_of(data, part)), pairs_of(file_of(data, "valid"))
    chosen = best_count(valid, targets, lambda texts: rouge("rougeL").statistics(texts, targets).score())
    nearest = NearestSources.fit(zip(*pairs_of(file_of(data, "train")), strict=True))
    systems = {f"the first {count} words": [first_words(one, count) for one in sources] for count in {8, 12, chosen}}
    systems["the first sentence"] = [first_sentence(one) for one in sources]
    systems["the target of the nearest source"] = nearest.targets(sources)
    systems["the references"] = references
    print(f"ROUGE-L of validation data chooses {chosen} words")
    for name, texts in systems.items():
        keep(folder, f"floor {name}", part, scores_of(texts, sources, references))


def train(name: str, data: Path, folder: Path, minutes: float, sets: Sequence[str]) -> None:
    """Train one of the models, unless it is there."""
    model, own = TRAININGS[name]
    out = folder / name
    if not (out / "card.md").exists():
        files = ["--data", str(file_of(data, "train")), "--valid", str(file_of(data, "valid"))]
        options = ["--model", model, "--minutes", str(minutes), "--threads", "1", "--out", str(out)]
        fields = [*WORDS, *LONG, *own, *sets]
        print(sightline("train", "summarise", *files, *options, "--set", *fields).splitlines()[-1], flush=True)


def score(name: str, data: Path, folder: Path, part: str) -> None:
    """Score a run by `sightline evaluate`."""
    path, out = file_of(data, part), folder / name
    evaluation = json.loads(sightline("evaluate", str(out), "--data", str(path), "--json", "--threads", "1"))
    stemmed = [f"{kind}_stem" for kind in ROUGE]
    values = {kind: evaluation[kind]["value"] for kind in (*ROUGE, *stemmed)}
    values["minutes"] = json.loads((out / "config.json").read_text())["config"]["training"]["minutes"]
    keep(folder, name, part, {**values, **evaluation["made_of"]["summaries"]})


def batches(lengths: Sequence[tuple[int, int]], seed: int) -> list[list[int]]:
    """Rows of similar length, at most so many tokens of both sides together, in a drawn order."""
    import numpy as np

    made: list[list[int]] = [[]]
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        longest = max(longest, sum(lengths[row]))
        if made[-1] and longest * (len(made[-1]) + 1) > BATCH_TOKENS:
            made.append([])
            longest = sum(lengths[row])
        made[-1].append(row)
    return [made[place] for place in np.random.default_rng(seed).permutation(len(made))]


def bart(data: Path, folder: Path, minutes: float, part: str) -> None:
    """Train BART from scratch and keep the weights of the best ROUGE-L on 200 validation texts; score it."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    from sightline.metrics import rouge
    from sightline.text import TokeniserConfig, train_tokeniser
    from sightline.vocabulary import END, PADDING, START

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sources, targets = pairs_of(file_of(data, "train"))
    valid, references = (side[:200] for side in pairs_of(file_of(data, "valid")))
    tokeniser = train_tokeniser([*sources, *targets], TokeniserConfig(method="bpe", vocab_size=PIECES))
    read = [[*one, END] for one in tokeniser.encode(sources)]
    written = [[START, *one, END] for one in tokeniser.encode(targets)]
    config = BartConfig(
        vocab_size=tokeniser.words, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, dropout=0.1, max_position_embeddings=1024,
        pad_token_id=PADDING, bos_token_id=START, eos_token_id=END, decoder_start_token_id=START,
        forced_eos_token_id=END,
    )  # fmt: skip
    model: Any = BartForConditionalGeneration(config)
    print(f"BART: {sum(one.numel() for one in model.parameters()):,} parameters", flush=True)

    def padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[PADDING] * (longest - len(row))] for row in rows])

    def generated(texts: Sequence[str], beam: int) -> list[str]:
        model.eval()
        made: list[str] = []
        for start in range(0, len(texts), 32):
            tokens = padded([[*one[:1023], END] for one in tokeniser.encode(list(texts[start : start + 32]))])
            with torch.no_grad():
                outputs = model.generate(
                    input_ids=tokens, attention_mask=(tokens != PADDING).long(), num_beams=beam,
                    max_new_tokens=MOST_TOKENS, no_repeat_ngram_size=3,
                )  # fmt: skip
            made += tokeniser.decode([[one for one in row if one > END] for row in outputs.tolist()])
        return made

    lengths = [(len(a), len(b)) for a, b in zip(read, written, strict=True)]
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    best, kept, spent, steps, validated = -1.0, model.state_dict(), 0.0, 0, 0.0
    coming: Iterator[list[int]] = itertools.chain.from_iterable(batches(lengths, epoch) for epoch in itertools.count())
    while spent < 60 * minutes:
        begun = time.perf_counter()
        rows = next(coming)
        tokens, words = padded([read[row] for row in rows]), padded([written[row] for row in rows])
        model.train()
        for group in optimiser.param_groups:
            left = max(0.0, 1 - spent / (60 * minutes))
            group["lr"] = RATE * min(1.0, (steps + 1) / WARMUP) * left
        logits = model(
            input_ids=tokens, attention_mask=(tokens != PADDING).long(), decoder_input_ids=words[:, :-1]
        ).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), words[:, 1:].flatten(), ignore_index=PADDING, label_smoothing=SMOOTHING
        )
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        steps += 1
        spent += time.perf_counter() - begun
        if spent - validated > 6 * minutes or spent >= 60 * minutes:  # ten times; not counted as training
            validated = spent
            value = rouge("rougeL")(generated(valid, 1), references).value
            print(
                f"BART step {steps}, {spent / 60:.1f} minutes: loss {float(loss.detach()):.3f}, ROUGE-L {value:.2f}",
                flush=True,
            )
            if value > best and math.isfinite(value):
                best, kept = value, {name: one.clone() for name, one in model.state_dict().items()}
    model.load_state_dict(kept)
    sources, references = pairs_of(file_of(data, part))
    keep(
        folder,
        "bart",
        part,
        {**scores_of(generated(sources, BEAM), sources, references), "steps": steps, "minutes": minutes},
    )


def report(folder: Path, write: bool) -> None:
    """The scores of test data, where there are some, else of validation data."""
    lines = [
        "| | minutes | ROUGE-1 | ROUGE-2 | ROUGE-L | stemmed 1 | 2 | L | new 2-grams | repeated 3-grams | unsupported |"
    ]
    lines += ["|---|" + "--:|" * 10]
    stemmed = [f"{kind}_stem" for kind in ROUGE]
    parts = ("test", "valid")
    names = sorted(
        {path.name.rsplit(".", 2)[0] for path in folder.glob("*.json")}, key=lambda one: ("floor" not in one, one)
    )
    for name in names:
        part = next(one for one in parts if (folder / f"{name}.{one}.json").exists())
        scores = json.loads((folder / f"{name}.{part}.json").read_text())
        mark = "" if part == "test" else " (validation data)"
        cells = " | ".join(f"{scores[key]:.2f}" for key in (*ROUGE, *stemmed, *MADE))
        lines.append(f"| {name.removeprefix('floor ')}{mark} | {scores.get('minutes', '')} | {cells} |")
    about = "Unsupported: the share of the numbers that the source does not have; shares are in percent."
    again = "Reproduce: `python benchmarks/summaries.py floors --data FOLDER --test`, then `train NAME`, "
    again += "`score NAME --test`, `bart --test` and `report --write`."
    body = "\n\n".join(["## Headlines", f"Measured on {machine()}. One thread. {about}", "\n".join(lines), again])
    print(body)
    if write:
        write_section("summaries", body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("floors", "train", "score", "bart", "report"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRAININGS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/summaries"))
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--coverage-after", type=int, help="steps without the loss of coverage, for -cover")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of all trainings")
    parser.add_argument("--test", action="store_true", help="score the test data: once")
    parser.add_argument("--write", action="store_true", help="write the table into RESULTS.md")
    chosen = parser.parse_args()
    part = "test" if chosen.test else "valid"
    if chosen.what == "report":
        report(chosen.folder, chosen.write)
    elif chosen.data is None:
        parser.error(f"{chosen.what} needs --data FOLDER")
    elif chosen.what == "floors":
        floors(chosen.data, chosen.folder, part)
    elif chosen.what == "bart":
        bart(chosen.data, chosen.folder, chosen.minutes, part)
    elif not chosen.names or not set(chosen.names) <= set(TRAININGS):
        parser.error(f"{chosen.what} needs NAME: one or more of {', '.join(TRAININGS)}")
    for name in chosen.names if chosen.what == "score" else ():
        score(name, chosen.data, chosen.folder, part)
    for name in chosen.names if chosen.what == "train" else ():
        covers = name.endswith("-cover")
        if covers and chosen.coverage_after is None:
            parser.error(f"{name} needs --coverage-after STEPS")
        sets = [*chosen.set, *([COVERAGE_AFTER.format(chosen.coverage_after)] if covers else [])]
        train(name, chosen.data, chosen.folder, chosen.minutes, sets)


if __name__ == "__main__":
    main()
