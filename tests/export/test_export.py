"""Exports to CTranslate2 and ONNX say what the run says; those that do not are not kept."""

import io
import json
import os
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

import labelling
import runs
import sightline
from exported import TEXTS, TRANSFORMER, readme_code, run_of, translator_of
from sightline.attention import ComposedConfig, ScaledDotConfig, SparsemaxConfig
from sightline.cli.parsers import EXPORT
from sightline.errors import MachineError, UserError
from sightline.export.engine import OnnxEngine, engine_for
from sightline.export.predicting import load_engine
from sightline.export.run import export_run
from sightline.export.writing import Closeness, ExportExample, compare, examples_for, whole_folder, write_export
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.transformer import TransformerConfig

pytestmark = pytest.mark.unchecked_shapes

FROZEN = Path(__file__).parents[1] / "fixtures" / "run-format-1"
SMALL = {"dropout": 0.0}
TRANSFORMERS = {
    "pre": TRANSFORMER,
    "post, gelu, untied": TransformerConfig(16, 4, 24, 1, 1, norm="post", activation="gelu", tied="none", **SMALL),
    "rotary, silu": TransformerConfig(16, 2, 24, 1, 1, positions="rotary", activation="silu", **SMALL),
    "gelu_tanh": TransformerConfig(12, 2, 24, 1, 1, activation="gelu_tanh", tied="output", **SMALL),
}
RECURRENT = {
    "rnnsearch": RNNSearchConfig(8, 10, 1, **SMALL),
    "luong, two layers": LuongConfig(8, 10, 6, layers=2, **SMALL),
    "luong, gru, scaled, no feeding": LuongConfig(
        8, 12, 6, 1, "gru", ComposedConfig(ScaledDotConfig()), input_feeding=False, **SMALL
    ),
    "luong, gru, joined, forwards": LuongConfig(8, 12, 6, 1, "gru", writes_from="joined", reads="forwards", **SMALL),
    "luong, backwards, no feeding": LuongConfig(8, 10, 6, input_feeding=False, reads="backwards", **SMALL),
    "grammar": GrammarConfig(8, 10, 6, 2, **SMALL),
    "seq2seq": Seq2SeqConfig(8, 10, 2, **SMALL),
}


def compared(config, to, folder, **options):
    translator = translator_of(config, **options)
    write_export(translator, to, folder)
    found = compare(translator, engine_for(to, folder, 1), [ExportExample(text) for text in TEXTS])
    outputs = {one.tokens for one in translator.predict(TEXTS, beam=1)}
    assert len(outputs) > 3, "outputs that are all alike show nothing"
    return found


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_says_the_same_elsewhere(name, to, tmp_path):
    config = TRANSFORMERS[name]
    found = compared(config, to, tmp_path, joint=config.tied == "all")
    assert found.same == found.sentences == len(TEXTS)
    assert found.largest < 1e-4


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_model_says_the_same_in_onnx(name, tmp_path):
    found = compared(RECURRENT[name], "onnx", tmp_path, joint=False)
    assert found.same == len(TEXTS)
    assert found.largest < 1e-4


def test_the_frozen_run_gives_what_it_gave_by_onnxruntime(tmp_path):
    """Moved without its data, it is compared on texts of its vocabulary."""
    exported = export_run(FROZEN, "onnx", tmp_path / "out")
    assert exported.tried == "texts made of its vocabulary"
    assert exported.closeness.bleu is None
    expected = json.loads((FROZEN / "expected.json").read_text())
    found = load_engine(tmp_path / "out", "onnx").predict([line["source"] for line in expected])
    assert [one.text for one in found] == [line["text"] for line in expected]
    assert [one.log_prob for one in found] == pytest.approx([line["log_prob"] for line in expected], abs=1e-4)


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_the_readme_says_how_it_is_used(to, tmp_path, monkeypatch):
    run = run_of(tmp_path / "run")
    exported = export_run(run, to, tmp_path / "out")
    assert exported.closeness.bleu == exported.closeness.own_bleu
    monkeypatch.chdir(tmp_path / "out")
    names = {}
    exec(readme_code(tmp_path / "out"), names)
    expected = [one.text for one in sightline.load(run).predict(TEXTS, beam=1 if to == "onnx" else 5)]
    assert names["translate"](TEXTS) == expected


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_int8_is_smaller_and_says_what_it_costs(to, tmp_path):
    config = TransformerConfig(64, 4, 128, 1, 1, **SMALL)
    run = run_of(tmp_path / "run", config)
    plain, small = (export_run(run, to, tmp_path / str(int8), int8=int8) for int8 in (False, True))
    models = [sum(file.stat().st_size for file in one.folder.glob("*.[bo]*n*")) for one in (plain, small)]
    assert models[0] - models[1] > 0.5 * plain.own_size
    assert plain.closeness.mean < 1e-5 < small.closeness.mean < 0.5
    assert "8-bit" in (small.folder / "README.md").read_text()
    # Writing it changes nothing in the model that was written.
    assert export_run(run, to, tmp_path / "again").closeness == plain.closeness


def test_weights_in_another_file_are_refused(tmp_path):
    """No checksum covers such a file, and its name may be any path."""
    onnx = pytest.importorskip("onnx")
    export_run(FROZEN, "onnx", tmp_path / "out")
    OnnxEngine(tmp_path / "out", 1)
    for graph in (tmp_path / "out").glob("*.onnx"):
        own = graph.read_bytes()
        outside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
        onnx.save_model(onnx.load(str(graph)), str(graph), **outside)
        with pytest.raises(UserError, match=rf"{graph.name} has weights in another file, which is not read"):
            OnnxEngine(tmp_path / "out", 1)
        graph.write_bytes(own)
        (tmp_path / "out" / "weights.bin").unlink()


def test_engines_predict_as_we_do(tmp_path):
    """From a run, converted on the spot; options reach the engine."""
    run = run_of(tmp_path / "run")
    ours = sightline.load(run)
    onnx, ctranslate2 = (load_engine(run, name) for name in ("onnx", "ctranslate2"))
    for options in (
        {},
        {"beam": 1},
        {"beam": 1, "max_length": 4},
        {"beam": 1, "min_length": 12},
        {"beam": 1, "no_repeat": 1},
    ):
        expected = ours.predict(["", *TEXTS], **options)
        for engine in (onnx, ctranslate2):
            found = engine.predict(["", *TEXTS], **options)
            assert [one.tokens for one in found] == [one.tokens for one in expected]
            if engine is onnx or len(options) < 2:  # over there what is forbidden or forced has no probability
                assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected], abs=0.01)
                assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=0.01)
    begun = {"prefixes": ["ta"] * len(TEXTS), "beam": 1}
    for engine in (onnx, ctranslate2):
        assert [one.text for one in engine.predict(TEXTS, **begun)] == [
            one.text for one in ours.predict(TEXTS, **begun)
        ]
    drawn = {"sample": True, "seed": 5}
    assert [one.text for one in onnx.predict(TEXTS, **drawn)] == [one.text for one in ours.predict(TEXTS, **drawn)]
    with pytest.raises(UserError, match="--sample"):
        ctranslate2.predict(TEXTS, **drawn)
    best = ctranslate2.predict(TEXTS[:1], best=2, beam=4)[0].all
    assert best[0].score >= best[1].score


def test_what_engines_cannot_do_is_said(tmp_path):
    run = run_of(tmp_path / "run", method="words", steps=0)
    with pytest.raises(UserError, match="--keep-unknown"):
        load_engine(run, "onnx").predict(["a"])
    engine = load_engine(run, "ctranslate2")
    with pytest.raises(UserError, match=r"2048.*--split"):
        engine.predict(["cat " * 2100], beam=1, keep_unknown=True)
    exported = export_run(run, "onnx", tmp_path / "out").folder
    with pytest.raises(UserError, match=r"exported to onnx, and --engine is ctranslate2"):
        load_engine(exported, "ctranslate2")
    (exported / "step.onnx").write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be loaded by onnxruntime"):
        engine_for("onnx", exported, 1)
    (exported / "sightline.json").write_text("[]")
    with pytest.raises(UserError, match="damaged"):
        load_engine(exported, "onnx")


def damaged(folder, name):
    """One bit in the middle of a file is another one."""
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_an_export_with_a_damaged_file_is_not_given_to_the_engine(tmp_path, to):
    whole = export_run(run_of(tmp_path / "run"), to, tmp_path / "out").folder
    files = [file.name for file in whole.iterdir() if file.name not in ("sightline.json", "README.md")]
    assert len(files) >= 4
    for name in files:
        copy = damaged(shutil.copytree(whole, tmp_path / name), name)
        with pytest.raises(UserError, match=rf"{name} is damaged: its checksum is not the one in sightline.json"):
            load_engine(copy, to)
        (copy / name).unlink()
        with pytest.raises(UserError, match=f"{name} is missing"):
            load_engine(copy, to)
    about = json.loads((copy / "sightline.json").read_text())
    (copy / "sightline.json").write_text(json.dumps(about | {"files": {}}))
    with pytest.raises(UserError, match="is damaged: it has no checksum of "):
        load_engine(copy, to)
    for odd in ("x" * 5000, "a\0b"):
        about = json.loads((copy / "sightline.json").read_text()) | {"files": {odd: "0"}}
        (copy / "sightline.json").write_text(json.dumps(about))
        with pytest.raises(UserError, match="is missing") as said:
            load_engine(copy, to)
        assert len(str(said.value)) < 1000
    outside = json.loads((whole / "sightline.json").read_text()) | {"files": {"../run/config.json": "0"}}
    (whole / "sightline.json").write_text(json.dumps(outside))
    with pytest.raises(UserError, match="outside the folder"):
        load_engine(whole, to)


def test_an_export_that_is_wrong_is_not_kept(tmp_path, monkeypatch):
    run = run_of(tmp_path / "run")
    right = "sightline.export.ctranslate2.sinusoids"
    monkeypatch.setattr(right, lambda start, count, size, like: torch.zeros(count, size))
    with pytest.raises(UserError, match="differs from the run and is not kept"):
        export_run(run, "ctranslate2", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize(
    ("closeness", "int8", "said"),
    [
        (Closeness(100, 100, 1e-4, 1e-5), False, None),
        (Closeness(100, 97, 1e-4, 1e-5), False, None),
        (Closeness(100, 100, 2e-3, 1e-5), False, "up to 0.002"),
        (Closeness(100, 100, float("nan"), 1e-5), False, "up to nan"),
        (Closeness(100, 89, 1e-4, 1e-5), False, "89 of 100"),
        (Closeness(100, 50, 3.0, 0.05), True, None),
        (Closeness(100, 50, 3.0, 0.6), True, "0.6 on average"),
        (Closeness(100, 50, float("inf"), float("inf")), True, "inf on average"),
    ],
)
def test_what_is_too_far(closeness, int8, said):
    found = closeness.problem(int8)
    assert found is None if said is None else said in found


def test_nothing_is_overwritten_unless_asked(tmp_path):
    run, out = run_of(tmp_path / "run"), tmp_path / "out"
    export_run(run, "ctranslate2", out)
    with pytest.raises(UserError, match="--overwrite"):
        export_run(run, "onnx", out)
    export_run(run, "onnx", out, overwrite=True)
    assert not (out / "model.bin").exists()
    for place in (run, tmp_path):
        with pytest.raises(UserError, match="is not an export"):
            export_run(run, "onnx", place, overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        export_run(run, "onnx", tmp_path / "file", overwrite=True)
    sightline.load(run)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out", "run"]


def _fail_halfway(folder, error):
    with whole_folder(folder, overwrite=True) as part:
        (part / "new").write_text("half")
        raise error


def test_a_folder_is_whole_or_not_there(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sightline.json").write_text("before")
    for error, expected in ((KeyError("x"), KeyError), (OSError(28, "No space left on device"), MachineError)):
        with pytest.raises(expected):
            _fail_halfway(tmp_path / "old", error)
    assert [path.name for path in tmp_path.rglob("*")] == ["old", "sightline.json"]
    with whole_folder(tmp_path / "old", overwrite=True) as part:
        (part / "secret").touch(0o600)
    assert [path.name for path in tmp_path.rglob("*")] == ["old", "secret"]
    assert (tmp_path / "old" / "secret").stat().st_mode & 0o777 != 0o600 or os.umask(os.umask(0o22)) == 0o77


@pytest.mark.parametrize(
    ("module", "to", "extra"),
    [("ctranslate2", "ctranslate2", "ctranslate2"), ("onnx", "onnx", "onnx"), ("onnxruntime", "onnx", "onnx")],
)
def test_a_missing_package_is_one_sentence(module, to, extra, tmp_path, monkeypatch):
    run = run_of(tmp_path / "run", steps=0)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"is not installed: pip install 'sightline\[{extra}\]'"):
        export_run(run, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_that_an_engine_does_not_have_are_refused(tmp_path):
    sparse = ComposedConfig(ScaledDotConfig(), SparsemaxConfig())
    recurrent = run_of(tmp_path / "run", LuongConfig(8, 12, 6, attention=sparse, **SMALL), steps=0)
    with pytest.raises(UserError, match="no ONNX graph yet"):
        export_run(recurrent, "onnx", tmp_path / "out")
    with pytest.raises(UserError, match="Transformers only"):
        export_run(recurrent, "ctranslate2", tmp_path / "out")
    with pytest.raises(UserError, match="int8 is for ctranslate2 and onnx"):
        export_run(recurrent, "huggingface", tmp_path / "out", int8=True)
    classifying = runs.saved(labelling.made(), tmp_path / "classifying")
    with pytest.raises(UserError, match="is a run of classify"):
        export_run(classifying, "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sentences_are_those_given_or_the_runs_own(tmp_path):
    run = run_of(tmp_path / "run")
    tokeniser = sightline.load(run).input.tokeniser
    examples, tried = examples_for(run, None, None, tokeniser)
    assert (examples[1], tried) == (ExportExample("ab cd", "dc ba"), "its validation data")
    assert examples_for(run / "checkpoints" / "step-1", None, None, tokeniser)[0] == examples
    table = tmp_path / "data.tsv"
    table.write_text("source\ttarget\nthe cat\tTHE CAT\n" + "a" * 200 + "\tlong\n")
    assert examples_for(run, str(table), None, tokeniser) == ([ExportExample("the cat", "THE CAT")], str(table))
    table.write_text("source\ttarget\n" + "a" * 200 + "\tlong\n")
    with pytest.raises(UserError, match="no source of 1 to 100 tokens"):
        examples_for(run, str(table), None, tokeniser)
    for damage in ('["one"]\n', "[\n"):
        (run / "data" / "valid.jsonl").write_text(damage)
        with pytest.raises(UserError, match=r"valid\.jsonl is damaged"):
            examples_for(run, None, None, tokeniser)
    shutil.rmtree(run / "data")
    examples, tried = examples_for(run, None, None, tokeniser)
    assert len(examples) > 30
    assert all(example.target is None and example.source for example in examples)


def test_the_command_says_how_close_it_is(tmp_path):
    run = run_of(tmp_path / "run")
    output = io.StringIO()
    with redirect_stdout(output):
        EXPORT([str(run), "--to", "ctranslate2", "--out", str(tmp_path / "out")])
    assert "Greedy outputs equal the run's for 7 of 7 sentences (its validation data)." in output.getvalue()
    assert f"sightline predict {tmp_path / 'out'} --engine ctranslate2" in output.getvalue()
    output = io.StringIO()
    with redirect_stdout(output):
        EXPORT([str(run), "--to", "onnx", "--out", str(tmp_path / "two"), "--json", "--threads", "1"])
    assert json.loads(output.getvalue())["closeness"]["same"] == 7
    assert json.loads((tmp_path / "two" / "sightline.json").read_text())["export"] == "onnx"
