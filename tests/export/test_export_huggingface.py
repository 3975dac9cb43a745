"""Exports to Hugging Face: a Pegasus, a Marian or an encoder that transformers loads whole, and that says the same."""

import json
from dataclasses import replace

import pytest
import torch

import sightline
from exported import TEXTS, TRANSFORMER, readme_code, run_of
from labelling import TEXT, made, words_of
from runs import saved
from sightline import kernels
from sightline.errors import UserError
from sightline.export.run import export_run
from sightline.models.encoder import EncoderConfig
from sightline.models.luong import LuongConfig

transformers = pytest.importorskip("transformers")
KINDS = {
    "Pegasus": TRANSFORMER,
    "Pegasus, untied": replace(TRANSFORMER, tied="none", activation="gelu"),
    "Marian": replace(TRANSFORMER, norm="post", activation="gelu_tanh"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_transformer_is_loaded_whole_and_says_the_same(name, tmp_path, monkeypatch):
    run, out = run_of(tmp_path / "run", KINDS[name]), tmp_path / "out"
    exported = export_run(run, "huggingface", out)
    assert exported.described == f"a {name.split(',')[0]}"
    assert exported.closeness.same == len(TEXTS)
    assert exported.closeness.largest < 1e-4
    _, about = transformers.AutoModelForSeq2SeqLM.from_pretrained(out, output_loading_info=True)
    assert not any(about[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    monkeypatch.chdir(out)
    names = {}
    exec(readme_code(out), names)
    names["model"].generation_config.update(num_beams=1, max_length=31)
    expected = [one.text for one in sightline.load(run).predict(TEXTS, beam=1, max_length=30)]
    assert names["translate"](TEXTS) == [text.replace("<unk>", "") for text in expected]


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (LuongConfig(8, 12, 6, dropout=0.0), {}, "no recurrent model"),
        (replace(TRANSFORMER, positions="rotary"), {}, "positions are rotary"),
        (replace(TRANSFORMER, tied="none"), {"joint": False}, "vocabularies of their own"),
    ],
)
def test_what_transformers_does_not_have_is_refused(config, options, said, tmp_path):
    run = run_of(tmp_path / "run", config, steps=0, **options)
    with pytest.raises(UserError, match=said):
        export_run(run, "huggingface", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def classifier_run(path, config):
    return saved(made(config, tokeniser=words_of([TEXT, "a fine film"], "bpe", 400)), path, weights="as they began")


def test_an_encoder_is_loaded_and_gives_the_same_annotations(tmp_path):
    config = EncoderConfig(16, 2, 24, 2, dropout=0.0, norm="post", embedding_norm=True)
    classifier_run(tmp_path / "run", config)
    (tmp_path / "texts.txt").write_text("The finest scene of the year\na fine film\n")
    out = tmp_path / "out"
    exported = export_run(tmp_path / "run", "huggingface", out, data=str(tmp_path / "texts.txt"))
    assert (exported.described, exported.closeness.same) == ("a bert encoder", 2)
    assert exported.closeness.largest < (1e-5 if kernels.enabled() else 1e-4)  # the references add in another order
    assert exported.tried == str(tmp_path / "texts.txt")
    assert "was not exported" in (out / "README.md").read_text()
    assert json.loads((out / "config.json").read_text())["model_type"] == "bert"
    # Without data, texts are made of the vocabulary.
    assert export_run(tmp_path / "run", "huggingface", tmp_path / "two").tried == "texts made of its vocabulary"


def test_an_encoder_that_is_wrong_is_not_kept(tmp_path, monkeypatch):
    config = EncoderConfig(16, 2, 24, 1, dropout=0.0, norm="post", embedding_norm=True)
    classifier_run(tmp_path / "run", config)
    wrong = "sightline.export.encoders.sinusoids"
    monkeypatch.setattr(wrong, lambda start, count, size, like: torch.zeros(count, size))
    with pytest.raises(UserError, match="encoder states differ"):
        export_run(tmp_path / "run", "huggingface", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_other_models_that_classify_are_refused(tmp_path):
    from labelling import ATTENTIVE

    classifier_run(tmp_path / "run", ATTENTIVE)
    with pytest.raises(UserError, match="of the kind attentive, which transformers does not have"):
        export_run(tmp_path / "run", "huggingface", tmp_path / "out")


def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch):
    run = run_of(tmp_path / "run")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'sightline\[hf\]'"):
        export_run(run, "huggingface", tmp_path / "out")
