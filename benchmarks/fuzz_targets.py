"""What `fuzz.py` damages: good files and folders of every kind that this program reads, and what reads them."""

import contextlib
import gzip
import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class Target:
    """Good files, and what reads them. ``content`` is by path; the case damages one of ``names``."""

    task = "translate"  # that a table is of

    def __init__(self, content: dict[str, bytes], read: Callable[[Path], Any], names: list[str] | None = None) -> None:
        self.content, self.read, self.names = content, read, names or list(content)

    def write(self, folder: Path, changed: dict[str, bytes]) -> None:
        for name, content in {**self.content, **changed}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def files_of(folder: Path, names: list[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def tables() -> dict[str, Target]:
    """Every reader of rows, from every form."""
    from sightline.data.source import Source
    from sightline.tasks.prepare import table_of
    from sightline.tasks.registry import task_named

    pairs = [(f"a b {i}", f"ü {i}") for i in range(20)]
    tsv = "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in pairs)
    csv = "source,target\n" + "".join(f'"{a}","{b}, ""x"""\n' for a, b in pairs)
    lines = "".join(json.dumps({"source": a, "target": b}, ensure_ascii=False) + "\n" for a, b in pairs)
    labels = "".join(json.dumps({"text": a, "label": i % 3}) + "\n" for i, (a, _) in enumerate(pairs))
    asked = "".join(json.dumps({"question": "q?", "text": a, "answer": a[:1], "start": 0}) + "\n" for a, _ in pairs)
    tagged = "".join("Ann\tB-PER\nsleeps\tO\n\n" for _ in range(9))

    def table(name: str, content: str | bytes, task: str = "translate") -> Target:
        chosen = task_named(task)
        target = Target(
            {name: content if isinstance(content, bytes) else content.encode()},
            lambda folder: [None for _ in table_of(Source(str(folder / name)), chosen, chosen.columns)],
        )
        target.task = task
        return target

    objects = [{"id": i, "translation": {"en": a, "de": b}} for i, (a, b) in enumerate(pairs)]
    coco = {"images": [{"id": i, "file_name": f"{i}.jpg"} for i in range(9)]}
    coco["annotations"] = [{"image_id": i % 9, "caption": a} for i, (a, _) in enumerate(pairs)]
    found = {
        "pairs.tsv": table("a.tsv", tsv),
        "pairs.csv": table("a.csv", csv),
        "pairs.jsonl": table("a.jsonl", lines),
        "pairs.json": table("a.json", json.dumps(objects)),
        "pairs.tsv.gz": table("a.tsv.gz", gzip.compress(tsv.encode())),
        "bars": table("a.txt", "".join(f"{a} ||| {b}\n" for a, b in pairs)),
        "semicolons": table("a.csv", csv.replace(",", ";")),
        "labels": table("a.jsonl", labels, "classify"),
        "fastText": table("a.txt", "".join(f"__label__{i % 3} {a}\n" for i, (a, _) in enumerate(pairs)), "classify"),
        "captions.json": table("a.json", json.dumps(coco), "caption"),
        "answers": table("a.jsonl", asked, "span"),
        "tags": table("a.conll", tagged, "tag"),
        "plain": table("a.txt", tsv, "pretrain"),
    }
    try:
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        return found
    columns = pyarrow.table({"source": [a for a, _ in pairs], "target": [b for _, b in pairs]})
    held, stream = io.BytesIO(), io.BytesIO()
    parquet.write_table(columns, held)
    with pyarrow.ipc.new_stream(stream, columns.schema) as writer:
        writer.write_table(columns)
    found["pairs.parquet"] = table("a.parquet", held.getvalue())
    found["pairs.arrow"] = table("a.arrow", stream.getvalue())
    return found


def made_data(folder: Path) -> dict[str, Path]:
    """A small file for each task."""
    from PIL import Image

    def written(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    draw, names = np.random.default_rng(0), [f"{number}.png" for number in range(24)]
    for number, name in enumerate(names):
        pixels = draw.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
        Image.fromarray(((pixels[:, :, 0] > 250) * 255).astype(np.uint8)).save(folder / f"mask-{number}.png")
    asked = ({"question": "who?", "text": f"Ann{i} sleeps.", "answer": f"Ann{i}"} for i in range(60))
    return {
        "translate": written("pairs.tsv", "source\ttarget\n" + "".join(f"ab{i}\tba{i}\n" for i in range(60))),
        "classify": written("texts.tsv", "text\tlabel\n" + "".join(f"{'ab'[i % 2]} {i}\t{i % 2}\n" for i in range(60))),
        "tag": written("names.conll", "".join(f"Ann{i}\tB-PER\nsleeps\tO\n\n" for i in range(60))),
        "span": written("asked.jsonl", "".join(json.dumps(one) + "\n" for one in asked)),
        "pretrain": written("plain.txt", "".join(f"Ann {i} sleeps. So do {i} others.\n" for i in range(200))),
        "caption": written("captions.tsv", "image\tcaption\n" + "".join(f"{name}\ta dog\n" for name in names)),
        "grid": written(
            "masks.tsv", "image\tmask\n" + "".join(f"{name}\tmask-{i}.png\n" for i, name in enumerate(names))
        ),
        "classify_images": written(
            "labels.tsv", "image\tlabel\n" + "".join(f"{name}\t{'ab'[i % 2]}\n" for i, name in enumerate(names))
        ),
    }


# Small models: what is asked is how files are read, not what was learnt.
SMALL = {
    "translate": ["model.embedding_size=8", "model.size=8"],
    "classify": ["model.embedding_size=8", "model.size=8"],
    "tag": ["model.embedding_size=8", "model.size=8"],
    "span": ["model.embedding_size=8", "model.size=8"],
    "pretrain": ["model.size=8", "model.heads=2", "model.feed_forward=8", "masking.length=16"],
    "caption": ["model.embedding_size=8", "model.size=8", "max_length=6"],
    "grid": ["crop=2"],
    "classify_images": [],
}
MODELS = {"translate": "rnnsearch", "classify": "attentive", "tag": "attentive", "span": "attentive"}
# Not what loading reads: the training data and checkpoints (targets of their own), and what is only shown. Without the
# checksums, damage comes to the readers themselves; with them, it is refused before (a target of its own, too).
PASSED_OVER = ("data", "checkpoints", "checksums.json", "metrics.jsonl", "about.json", ".lock")
SHOWN = (".md", ".png", ".html")


def runs(folder: Path) -> dict[str, Target]:
    """Run folders of small trained models of every task, and what they hold."""
    from sightline.api import load, train
    from sightline.explain.explanation import Explanation

    data, trained = made_data(folder), {}
    for task in data:
        trained[task] = train(
            data[task],
            folder / task,
            task=task.removesuffix("_images"),
            config=_config(task),
            steps=2,
            on_remark=lambda text: None,
        )
    photo = folder / "0.png"
    ask: dict[str, Callable[[Any], Any]] = {
        "translate": lambda model: model.predict(["ab1"], beam=1, max_length=4),
        "classify": lambda model: model.predict(["a 1"]),
        "tag": lambda model: model.predict(["Ann1 sleeps"]),
        "span": lambda model: model.predict([("who?", "Ann1 sleeps.")]),
        "pretrain": lambda model: model,
        "caption": lambda model: model.predict([photo], beam=1),
        "grid": lambda model: model.predict([photo]),
        "classify_images": lambda model: model.predict([photo]),
    }

    def asking(task: str) -> Callable[[Path], Any]:
        return lambda path: ask[task](load(path))

    found = {f"run of {task}": Target(_files(folder / task), asking(task)) for task in data}

    def explained(path: Path) -> Any:
        return Explanation.from_json(json.loads((path / "a.json").read_text(encoding="utf-8")))

    text = json.dumps(trained["translate"].explain("ab1", measure=False).to_json()).encode()
    found["explanation"] = Target(
        {"a.json": text}, _allowing(explained, (KeyError, TypeError, ValueError, AttributeError, RecursionError))
    )
    return {**found, **stores(folder)}


def _config(task: str, model: str | None = None) -> Any:
    from sightline.cli.train import preset
    from sightline.config import override
    from sightline.tasks.registry import task_named

    name, _, images = task.partition("_")
    variant = task_named(name).variants[0 if images else -1]
    encoder = ['encoder={"kind": "cnn", "size": 16, "channels": [4, 4]}']
    if model == "transformer":
        small = ["model.size=8", "model.heads=2", "model.feed_forward=8", "model.encoder_layers=1"]
        return override(preset(variant, model), [*small, "model.decoder_layers=1"])
    return override(
        preset(variant, MODELS.get(task)), SMALL[task] + (encoder if task in ("caption", "classify_images") else [])
    )


def _files(folder: Path) -> dict[str, bytes]:
    """All files of a run that loading it may read."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = (path.relative_to(folder) for path in paths)
    kept = (name for name in names if name.parts[0] not in PASSED_OVER and name.suffix not in SHOWN)
    return files_of(folder, [str(name) for name in kept])


def stores(folder: Path) -> dict[str, Target]:
    """What is read again when training goes on, and the weights of others."""
    from sightline.api import train
    from sightline.cli.train import read_config
    from sightline.data.features import Features, Fitted, write_features
    from sightline.data.grids import GridStore, read_values
    from sightline.data.store import Corpus
    from sightline.export.predicting import load_engine
    from sightline.export.run import export_run
    from sightline.interop.pretrained import load_pretrained
    from sightline.outputs.cells import CellsOutput
    from sightline.tasks.configs.translate import TranslateConfig
    from sightline.tasks.run import Run
    from sightline.training.checkpoint import STATE, checkpoints, resume_from
    from sightline.training.folder import RunFolder
    from sightline.training.loop import make_optimiser

    translator = Run.load(folder / "translate")
    last, training = checkpoints(folder / "translate")[-1], _config("translate").training

    def going_on(path: Path) -> Any:
        model = translator.model.requires_grad_(True)
        return resume_from(RunFolder(path), model, make_optimiser(model, training), lambda text: None)

    def all_rows(path: Path) -> Any:
        corpus = Corpus.open(path)
        return [corpus[row] for row in range(len(corpus))]

    cells = Run.load(folder / "grid").output
    assert isinstance(cells, CellsOutput)

    def all_grids(path: Path) -> Any:
        store = GridStore.open(path, cells.facts.classes)
        return [store[row] for row in range(len(store))]

    def all_features(path: Path) -> Any:
        features = Features.open(path)
        return features.rows(np.arange(len(features)))

    def exported(to: str) -> Callable[[Path], Any]:
        return lambda path: load_engine(path, to, 1).predict(["ab1"], beam=1, max_length=4)  # type: ignore[arg-type]

    small = _config("translate", "transformer")
    train(folder / "pairs.tsv", folder / "transformer", config=small, steps=2, on_remark=lambda text: None)
    for to in ("ctranslate2", "onnx"):
        export_run(folder / "transformer", to, folder / to)
    config = (folder / "translate" / "config.json").read_bytes()
    write_features(folder / "features", [folder / "0.png", folder / "1.png"], Fitted(8, 8))
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))  # which make models of others
    importlib.import_module("foreign_models").save_folder(folder / "huggingface", "vector")
    held = io.BytesIO()
    np.save(held, np.zeros((4, 5, 3), np.float32))
    checkpoint = {f"checkpoints/{last.name}/{name}": some for name, some in _files(last).items()}
    # As earlier versions wrote it, without checksums: damage comes to the reader itself.
    state = f"checkpoints/{last.name}/{STATE}"
    written = {key: value for key, value in json.loads(checkpoint[state]).items() if key not in ("files", "digest")}
    plain = {**checkpoint, state: json.dumps(written).encode()}
    whole = _files(folder / "translate") | files_of(folder / "translate", ["checksums.json", "metrics.jsonl"])
    return {
        "checkpoint": Target(checkpoint, going_on),
        "checkpoint without checksums": Target(plain, going_on),
        "sealed run": Target(whole, lambda path: RunFolder.open(path).metrics()),
        "CTranslate2 folder": Target(_files(folder / "ctranslate2"), exported("ctranslate2")),
        "ONNX folder": Target(_files(folder / "onnx"), exported("onnx")),
        "--config": Target(
            {"a.json": json.dumps(json.loads(config)["config"]).encode()},
            lambda path: read_config(path / "a.json", TranslateConfig),
        ),
        "corpus": Target(_files(folder / "translate" / "data" / "train"), all_rows),
        "grid store": Target(_files(folder / "grid" / "data" / "train"), all_grids),
        "features": Target(_files(folder / "features"), all_features),
        "Hugging Face folder": Target(_files(folder / "huggingface"), load_pretrained),
        "array": Target({"a.npy": held.getvalue()}, lambda path: read_values(path / "a.npy")),
    }


def _allowing(read: Callable[[Path], Any], errors: tuple[type[Exception], ...]) -> Callable[[Path], Any]:
    """Plain data given to Python, not to a command: Python's own errors are the answer."""

    def reading(path: Path) -> None:
        with contextlib.suppress(*errors):
            read(path)

    return reading


def images() -> dict[str, Target]:
    from PIL import Image

    from sightline.data.images import read_image

    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    found = {}
    for name in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"):
        held = io.BytesIO()
        Image.fromarray(pixels).save(held, name)

        found[f"image {name}"] = Target({"a.img": held.getvalue()}, lambda folder: read_image(folder / "a.img"))
    return found
