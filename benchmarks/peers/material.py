"""Everything that the measurements share, made once: tokens, batches, and one trained model in three formats.

python material.py '{"work": ..., "data": ..., "datasets": {...}, ...}'
"""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jobs import BATCH_TOKENS, WORDS
from shared import SIZES

from sightline.data.batches import SOURCE_EXTRA, TARGET_EXTRA, BatchPlan
from sightline.data.reading import pair_cells
from sightline.data.source import Source
from sightline.data.store import write_corpus
from sightline.errors import UserError
from sightline.files import write_text
from sightline.text.tokeniser import TokeniserConfig, train_tokenisers
from sightline.vocabulary import END, PADDING, SPELLINGS, START

USUAL = 24  # tokens of a sentence where the vocabulary grows
MADE_UP = 30_000  # pairs where no data is given
TEXTS = 512


def read_pairs(data: Path | None, name: str, made_up: int) -> list[tuple[str, str]]:
    """Pairs of the first file of this name in the folder, or made-up ones."""
    if data is None:
        return list(made_up_pairs(made_up))
    names = [f"{name}.tsv", f"{name}.tsv.gz"]
    path = next((data / one for one in names if (data / one).exists()), None)
    if path is None:
        raise UserError(f"{data} has no {' or '.join(names)}")
    return [row.values for row in pair_cells(Source(str(path))) if row.problem is None]


def made_up_pairs(count: int) -> Iterator[tuple[str, str]]:
    """Made-up words, frequent ones more often, in sentences of Multi30k's lengths; the target has them backwards."""
    draw = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "or")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(10_000)]
    shares = [1 / (rank + 10) for rank in range(len(words))]
    draw.seed(count)  # the same words, other sentences
    for _ in range(count):
        length = min(40, max(4, round(draw.lognormvariate(2.5, 0.35))))
        sentence = draw.choices(words, weights=shares, k=length)
        yield " ".join(sentence), " ".join(reversed(sentence))


def unseen_texts(data: Path | None) -> list[str]:
    """What to decode: of the validation data, or where there is none, the end of the training data."""
    has_valid = data is None or any((data / name).exists() for name in ("valid.tsv", "valid.tsv.gz"))
    pairs = read_pairs(data, "valid" if has_valid else "train", 1000)
    return [source for source, _ in pairs[-TEXTS:]]


def collate(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs as two arrays, padded behind: sources with `END`, targets between `START` and `END`."""
    source = np.full((len(pairs), max(len(pair[0]) for pair in pairs) + SOURCE_EXTRA), PADDING, np.int64)
    target = np.full((len(pairs), max(len(pair[1]) for pair in pairs) + TARGET_EXTRA), PADDING, np.int64)
    target[:, 0] = START
    for row, (source_ids, target_ids) in enumerate(pairs):
        source[row, : len(source_ids)] = source_ids
        source[row, len(source_ids)] = END
        target[row, 1 : 1 + len(target_ids)] = target_ids
        target[row, 1 + len(target_ids)] = END
    return source, target


def stands(folder: Path, **wanted: Any) -> bool:
    """Whether the folder is whole, was made of the same, and has enough batches."""
    about = folder / "about.json"
    if not about.exists():
        return False
    found = json.loads(about.read_text(encoding="utf-8"))
    enough = found["batches"] >= wanted.pop("batches", 0)
    return enough and all(found[name] == value for name, value in wanted.items())


def write_dataset(
    folder: Path, pairs: list[tuple[list[int], list[int]]], words: int, batches: int, data: str = ""
) -> None:
    """A corpus as our loop reads it, the batches that it will make of it as arrays, and all of it for JoeyNMT."""
    corpus = write_corpus(folder / "corpus", pairs)
    plan = BatchPlan(*corpus.lengths(), tokens=BATCH_TOKENS, seed=0, shuffle=True)
    if len(plan) < batches:
        raise UserError(
            f"{folder.name}: the pairs make {len(plan)} batches, and {batches} are needed; take fewer --steps"
        )
    made = [collate([corpus[row] for row in rows.tolist()]) for rows in plan.epoch(0)[:batches]]
    np.save(folder / "shapes.npy", np.array([[*source.shape, target.shape[1]] for source, target in made]))
    np.save(folder / "source.npy", np.concatenate([source.ravel() for source, _ in made]).astype(np.int32))
    np.save(folder / "target.npy", np.concatenate([target.ravel() for _, target in made]).astype(np.int32))
    for side, name in enumerate(("src", "trg")):
        lines = (" ".join(map(str, pair[side])) for pair in pairs)
        write_text(folder / "joeynmt" / f"train.{name}", "\n".join(lines) + "\n")
    vocabulary = [SPELLINGS[1], SPELLINGS[0], *SPELLINGS[2:], *map(str, range(4, words))]
    write_text(folder / "joeynmt" / "vocabulary.txt", "\n".join(vocabulary) + "\n")
    about = {"words": words, "pairs": len(pairs), "batches": batches, "data": data, "padding": plan.padding_share}
    write_text(folder / "about.json", json.dumps(about))  # last: a folder with it is whole


def random_pairs(length: int, words: int, batches: int) -> list[tuple[list[int], list[int]]]:
    """Whole batches of sentences that are all as long: start, end and tokens make ``length``."""
    draw = np.random.default_rng(length * words)
    rows = max(1, BATCH_TOKENS // length) * batches
    tokens = draw.integers(4, words, size=(rows, 2, length - 2))
    return [(source.tolist(), target.tolist()) for source, target in tokens]


def make_datasets(work: Path, data: Path | None, needed: dict[str, int]) -> None:
    """The folders that are named, unless they stand already with enough batches."""
    for name, batches in needed.items():
        folder = work / name
        axis, _, at = name.partition("-")
        origin = str(data) if axis == "main" else ""
        if stands(folder, batches=batches, data=origin):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if axis == "main":
            write_dataset(folder, *encoded(read_pairs(data, "train", MADE_UP)), batches, origin)
        elif axis == "length":
            write_dataset(folder, random_pairs(int(at), WORDS, batches), WORDS, batches)
        else:
            write_dataset(folder, random_pairs(USUAL, int(at), batches), int(at), batches)
        print(f"made {name}", flush=True)


def encoded(pairs: list[tuple[str, str]]) -> tuple[list[tuple[list[int], list[int]]], int]:
    """The pairs as tokens of one vocabulary learnt from them, and its size."""
    sources, targets = [a for a, _ in pairs], [b for _, b in pairs]
    source, target = train_tokenisers(lambda: iter(sources), lambda: iter(targets), TokeniserConfig(vocab_size=WORDS))
    return list(zip(source.encode(sources), target.encode(targets), strict=True)), target.words


def make_decoding(work: Path, data: Path | None, run: Path | None, epochs: int, threads: int) -> None:
    """One trained model: as a run, as Marian, as CTranslate2; and sentences that it has not seen."""
    folder = work / "decoding"
    made_of = {"data": str(data), "given": str(run), "epochs": epochs}
    if stands(folder, **made_of):
        return
    if (folder / "about.json").exists():  # of something else; a training that was stopped is gone on with
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    here = folder / "run"
    if run is not None:
        here.unlink(missing_ok=True)
        here.symlink_to(run.resolve(), target_is_directory=True)
    elif not (here / "checksums.json").exists():
        _train(here, folder, data, epochs, threads)
    from export import export

    texts = unseen_texts(data)
    found = {**export(here, folder, texts), **made_of, "batches": 0}
    write_text(folder / "sentences.json", json.dumps({"texts": texts, "tokens": found.pop("tokens")}))
    write_text(folder / "about.json", json.dumps(found))
    print(f"one model in three formats: {json.dumps(found)}", flush=True)


def _train(run: Path, folder: Path, data: Path | None, epochs: int, threads: int) -> None:
    """By command, as anyone would. Normalised after the layers: Marian knows nothing else."""
    if data is None:
        pairs = folder / "pairs.tsv"
        write_text(pairs, "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in made_up_pairs(MADE_UP)))
    else:
        pairs = next(data / name for name in ("train.tsv.gz", "train.tsv") if (data / name).exists())
    command = [sys.executable, "-m", "sightline"]
    if (run / "config.json").exists():
        command += ["resume", str(run)]
    else:
        size, heads, feed_forward, layers = SIZES.values()
        sizes = [f"size={size}", f"heads={heads}", f"feed_forward={feed_forward}", f"encoder_layers={layers}"]
        settings = [f"model.{one}" for one in (*sizes, f"decoder_layers={layers}", "norm=post")]
        settings += [f"tokeniser.vocab_size={WORDS}", f"batch_tokens={BATCH_TOKENS}", "training.learning_rate=0.002"]
        command += ["train", "translate", "--data", str(pairs), "--out", str(run), "--epochs", str(epochs)]
        command += ["--threads", str(threads), "--set", *settings]
    subprocess.run(command, check=True)


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    work = Path(wanted["work"])
    data, run = (None if wanted[name] is None else Path(wanted[name]) for name in ("data", "run"))
    try:
        make_datasets(work, data, wanted["datasets"])
        if wanted["decoding"]:
            make_decoding(work, data, run, wanted["epochs"], wanted["threads"])
    except UserError as error:
        raise SystemExit(f"peers: {error}") from None


if __name__ == "__main__":
    main()
