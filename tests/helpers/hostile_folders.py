"""Folders that were made to do harm: each entry changes a copy of a good run folder or Hugging Face folder."""

import json
import os
import shutil
from base64 import b64encode
from pathlib import Path

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


def _linked(name, to):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(to)

    return change


def _pipe(name):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def _folder(name):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return change


def _sparse(name, size):
    def change(folder):
        with (folder / name).open("ab") as file:
            file.truncate(size)

    return change


def _written(name, content):
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def _cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-7])


def _with(name, *keys, value):
    """Another value somewhere in a JSON file."""

    def change(folder):
        data = json.loads((folder / name).read_text(encoding="utf-8"))
        inner = data
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value
        (folder / name).write_text(json.dumps(data), encoding="utf-8")

    return change


def _all(*changes):
    def change(folder):
        for one in changes:
            one(folder)

    return change


def tensors(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
TENSORS = {
    "a million empty tensors": lambda: tensors({f"t{n}": EMPTY for n in range(1_000_000)}),
    "20,001 empty tensors": lambda: tensors({f"t{n}": EMPTY for n in range(20_001)}),
    "a header of 2^60 bytes": lambda: tensors(b"{}", size=1 << 60),
    "a header of 90 MB": lambda: tensors(b" " * 90_000_000),
    "a tensor of 2^62 numbers": lambda: tensors(
        {"a": {"dtype": "F32", "shape": [1 << 31, 1 << 31], "data_offsets": [0, 4]}}
    ),
    "a tensor beyond the end": lambda: tensors({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}),
    "tensors that overlap": lambda: tensors(
        {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in "ab"}, bytes(8)
    ),
    "a negative shape": lambda: tensors({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
    "a deep header": lambda: tensors(b"[" * 200_000),
    "a header that is a list": lambda: tensors(b"[]"),
    "a pickle": lambda: b"\x80\x04cposix\nsystem\n(S'touch was-here'\ntR.",
    "a ZIP": lambda: b"PK\x03\x04" + bytes(100),
}
JSONS = {
    "nothing": "",
    "null": "null",
    "a list": "[1, 2]",
    "deep": "[" * 500_000,
    "5 million lists": "[" + "[]," * 5_000_000 + "[]]",
    "not UTF-8": b"\xff\xfe{\0}\0",
    "a long number": '{"format": ' + "9" * 100_000 + "}",
    "NaN": '{"format": NaN}',
    "half a character": '{"format": "\\ud800"}',
    "zeros": bytes(1000),
}


def _links(name):
    return {
        f"{name} is a link to /dev/zero": _linked(name, "/dev/zero"),
        f"{name} is a link to /dev/random": _linked(name, "/dev/random"),
        f"{name} is a pipe": _pipe(name),
        f"{name} is a link to itself": _linked(name, name),
        f"{name} is a link to a file of the system": _linked(name, "/etc/passwd"),
        f"{name} is a folder": _folder(name),
        f"{name} has 100 GB": _sparse(name, 100 << 30),
    }


def without_checksums(change):
    """The change reaches the readers themselves."""
    return _all(change, lambda folder: (folder / "checksums.json").unlink(missing_ok=True))


def hostile_runs():
    """By name: the run to copy, and the change."""
    cases = {}

    def add(run, some):
        cases.update({f"{run}: {name}": (RUNS / run / "run", change) for name, change in some.items()})

    for name in ("config.json", "checksums.json"):
        add("translate", _links(name))
        add("classify-text", {f"{name} holds {what}": _written(name, content) for what, content in JSONS.items()})
    for run, names in {
        "translate": ("model.safetensors", "source.json"),
        "classify-text": ("labels.json", "tokenizer.json"),
        "grid": ("grid.json",),
    }.items():
        for name in names:
            if (RUNS / run / "run" / name).exists():
                add(run, {what: without_checksums(change) for what, change in _links(name).items()})
    for run in ("translate", "tag", "caption"):
        add(
            run,
            {
                f"model.safetensors holds {what}": without_checksums(
                    lambda folder, make=make: (folder / "model.safetensors").write_bytes(make())
                )
                for what, make in TENSORS.items()
            },
        )
    sparse = _sparse("model.safetensors", 100 << 30)
    add("translate", {"model.safetensors has 100 GB, with checksums": sparse})
    add(
        "span",
        {f"the tokeniser holds {what}": without_checksums(_tokenisers(content)) for what, content in JSONS.items()},
    )
    huge = {"10^9": 10**9, "-1": -1, "10^30": 10**30, "text": "x", "list": [1]}
    for run in ("translate", "classify-text", "classify-image", "grid", "pretrain", "summarise"):
        for what, value in huge.items():
            add(run, {f"every number of its model is {what}": without_checksums(_every_number(value))})
    add(
        "classify-pair",
        {
            "a newer format": _with("config.json", "format", value=99),
            "no task": _with("config.json", "task", value=None),
            "a task with a path": _with("config.json", "task", value="../../etc"),
            "a task of 16 MB": _with("config.json", "task", value="x" * 15_000_000),
            "checksums of a file outside": _with("checksums.json", "../../etc/passwd", value="x"),
            "checksums of a long name": _with("checksums.json", "x" * 5_000, value="x"),
            "checksums of a NUL": _with("checksums.json", "a\0b", value="x"),
            "200,000 checksums": _written(
                "checksums.json", json.dumps({f"./{n}/../config.json": "x" for n in range(200_000)})
            ),
            "a checksum that is a list": _with("checksums.json", "config.json", value=[]),
            "a cut file": _cut("model.safetensors"),
            "nothing at all": lambda folder: [shutil.rmtree(folder), folder.mkdir()],
        },
    )
    return cases


def _tokenisers(content):
    def change(folder):
        for name in ("tokeniser.json", "source.json", "target.json", "tokenizer.json"):
            if (folder / name).exists():
                _written(name, content)(folder)

    return change


def _every_number(value):
    def changed(data):
        if isinstance(data, dict):
            return {key: changed(one) for key, one in data.items()}
        return value if isinstance(data, int) and not isinstance(data, bool) else data

    def change(folder):
        path = folder / "config.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        data["config"]["model"] = changed(data["config"]["model"])
        path.write_text(json.dumps(data), encoding="utf-8")

    return change


def _template(single, ids=1, tokens=None):
    special = tokens or {"[CLS]": {"id": "[CLS]", "ids": [1] * ids, "tokens": ["[CLS]"] * ids}}
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}


SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
START = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}


def _replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def _normalised(*steps):
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def _split(pattern):
    return {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}}


def hostile_tokenisers():
    """By name: the fields of tokenizer.json that are replaced."""
    every = {"Regex": "."}
    beyond = {"[CLS]": {"id": "[CLS]", "ids": [10**9], "tokens": ["x"]}}
    added = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": True, "special": True}
    padding = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    words = {f"w{n}": n for n in range(1_000_001)}
    return {
        "a replacement of a million for each character": _normalised(_replace(every, "a" * 1_000_000)),
        "replacements of replacements": _normalised(*[_replace(every, "a" * 100)] * 8),
        "a million put before": _normalised({"type": "Prepend", "prepend": "a" * 50_000_000}),
        "a pattern that takes hours": _split("(a+)+$|(t.*)*h.*e.*(x+x+)+y|(.*)*(.*)*(.*)*!"),
        "a replacement that takes hours": _normalised(_replace({"Regex": "(.*)*(.*)*(.*)*(.*)*!"}, "")),
        "a pattern that is none": _split("(((("),
        "a pattern of 50,000 groups": _split("(" * 50_000 + ")" * 50_000),
        "two million template tokens": {"post_processor": _template([START] * 2_000_000 + [SEQUENCE])},
        "a template that repeats the text": {"post_processor": _template([SEQUENCE] * 1_000)},
        "a special token of a million ids": {"post_processor": _template([START, SEQUENCE], 1_000_000)},
        "an unknown special token": {"post_processor": _template([START], tokens={})},
        "an id beyond the vocabulary": {"post_processor": _template([START, SEQUENCE], tokens=beyond)},
        "a precompiled map of nothing": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
        "a precompiled map of noise": {
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": b64encode(bytes(range(256)) * 40).decode()}
        },
        "a precompiled map that is too short": {
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": b64encode(b"\xff\xff\xff\x7f").decode()}
        },
        "an unknown step": {"normalizer": {"type": "Evil"}},
        "a deep step": {"normalizer": _deep(200)},
        "padding to 10^9": {"padding": {"strategy": {"Fixed": 10**9}, **padding}},
        "a vocabulary of one": {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}},
        "no vocabulary": {"model": {"type": "WordPiece", "vocab": {}, "unk_token": "[UNK]"}},
        "a vocabulary of two million": {"model": {"type": "WordLevel", "vocab": words}},
        "ids of 2^63": {"model": {"type": "WordLevel", "vocab": {"a": 2**63}, "unk_token": "a"}},
        "a unigram of no piece": {"model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", 0.0]]}},
        "a unigram of NaN": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", "NaN"]]}},
        "merges of nothing": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}},
        "200,000 added tokens": {"added_tokens": [{"id": n, "content": f"t{n}", **added} for n in range(200_000)]},
        "an added token of nothing": {"added_tokens": [{"id": 0, "content": "", **added}]},
        "a decoder of hours": {"decoder": _replace({"Regex": "(.*)*(.*)*(.*)*!"}, "")},
        "no model": {"model": None},
    }


def _deep(levels):
    step = {"type": "Lowercase"}
    for _ in range(levels):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


def _tokeniser(fields):
    def change(folder):
        data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        (folder / "tokenizer.json").write_text(json.dumps({**data, **fields}), encoding="utf-8")

    return change


def hostile_huggingface():
    """By name: the change of a copy of a folder with a BERT."""
    cases = {f"tokenizer.json: {name}": _tokeniser(fields) for name, fields in hostile_tokenisers().items()}
    for name in ("config.json", "tokenizer.json", "model.safetensors", "generation_config.json"):
        cases |= _links(name)
    cases |= {
        f"model.safetensors holds {what}": lambda folder, make=make: (folder / "model.safetensors").write_bytes(make())
        for what, make in TENSORS.items()
    }
    for name in ("config.json", "tokenizer.json"):
        cases |= {f"{name} holds {what}": _written(name, content) for what, content in JSONS.items()}
    for field in ("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "max_position_embeddings"):
        cases |= {f"{field} is {value!r}": _with("config.json", field, value=value) for value in (0, -1, 10**9, "x")}
    cases["generation_config.json of 5 million lists"] = _written("generation_config.json", JSONS["5 million lists"])
    cases["an index of parts outside"] = _all(
        _written(
            "model.safetensors.index.json", json.dumps({"weight_map": {"a": "../../../etc/passwd"}, "metadata": {}})
        ),
        lambda folder: (folder / "model.safetensors").unlink(),
    )
    cases["an adapter of a pipe"] = _pipe("adapter_config.json")
    cases["a pickle beside"] = _written("pytorch_model.bin", TENSORS["a pickle"]())
    return cases
