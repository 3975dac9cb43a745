"""`sightline view hf:DIR`: tiny Hugging Face folders with made-up words, from the folder to picture, page and JSON."""

import json
import shutil
import socket
import sys

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer

from foreign_models import TEXTS, save_folder, word_pieces
from frozen_run import FROZEN
from invoke import run
from sightline import capture, uniform
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.interop.huggingface import load
from sightline.interop.pieces import Pieces
from sightline.records import TopK

KINDS = ("vector", "masked", "label", "next", "written", "marian")
TEXT = TEXTS[0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("foreign")
    for kind in KINDS:
        save_folder(home / kind, kind)
    return home


@pytest.fixture
def damaged(folders, tmp_path):
    """A folder of its own, to break."""
    shutil.copytree(folders / "vector", tmp_path / "bert")
    return tmp_path / "bert"


@pytest.mark.parametrize("kind", KINDS)
def test_the_maps_are_those_of_the_eager_model(folders, kind):
    owner = load(folders / kind)
    found = owner.explain(TEXT, measure=False)
    auto = {"next": "CausalLM", "written": "Seq2SeqLM", "marian": "Seq2SeqLM"}.get(kind)
    eager = getattr(transformers, f"AutoModelFor{auto}" if auto else "AutoModel").from_pretrained(
        folders / kind, attn_implementation="eager"
    )
    tokens = torch.tensor([owner.pieces.encode(TEXT)])
    more = {}
    if auto == "Seq2SeqLM":
        library = Tokenizer.from_file(str(folders / kind / "tokenizer.json"))
        made = [library.token_to_id(text) for text in found.of(found.stacks[0].names[0])[0].rows.texts]
        more = {"decoder_input_ids": torch.tensor([[0, *made[:-1]]])}
    with torch.no_grad():
        expected = eager(input_ids=tokens, output_attentions=True, **more)
    maps = (
        {"cross": expected.cross_attentions, "self": expected.encoder_attentions, "causal": expected.decoder_attentions}
        if more
        else {found.stacks[0].kind: expected.attentions}
    )
    assert [stack.kind for stack in found.stacks] == {"next": ["causal"]}.get(kind, [*maps, "self"])
    for stack in found.stacks[: len(maps)]:
        assert len(stack.names) == 2
        for name, weights in zip(stack.names, maps[stack.kind], strict=True):
            heads = np.stack([record.matrix() for record in found.of(name)])
            np.testing.assert_allclose(heads, weights[0].numpy(), atol=1e-5)
    assert found.belief is None
    if kind in ("next", "written", "marian"):
        probabilities = torch.softmax(expected.logits[0], dim=-1)
        assert [step.likeliest[0].probability for step in found.steps] == pytest.approx(
            probabilities.amax(dim=-1).tolist(), abs=1e-4
        )


def test_greedy_output_is_the_models_own(folders):
    for kind in ("written", "marian"):
        found = load(folders / kind).explain(TEXT, measure=False)
        assert [step.written for step in found.steps][:-1] == [step.likeliest[0].text for step in found.steps][:-1]
        assert found.output
        assert len(found.steps) == len(found.of(found.stacks[0].names[0])[0].rows)


def test_the_likeliest_next_token_is_the_last_row(folders):
    found = load(folders / "next").explain(TEXT, measure=False)
    record = found.records[0]
    assert "".join(record.columns.texts).replace("▁", " ") == TEXT
    assert record.rows.texts[:-1] == record.columns.texts[1:]
    assert found.steps[-1].written == found.steps[-1].likeliest[0].text == record.rows.texts[-1]
    given = load(folders / "next").explain("the cat", " sat on", measure=False)
    assert "".join(given.records[0].rows.texts).endswith("▁sat▁on")
    assert given.output == " sat on"


WHAT = {
    "vector": "how far the vector of the text (the mean over its tokens) turns",
    "masked": "the right word under a mask, for 6 words",
    "label": "the probability of the label",
    "next": "the probability of the last row's token",
    "written": "the probability of each token of the output",
}


@pytest.mark.parametrize("kind", WHAT)
def test_the_panel_says_what_was_measured(folders, kind):
    found = load(folders / kind).explain(TEXT)
    assert any(WHAT[kind] in note for note in found.notes)
    assert found.belief is not None
    values = {finding.key: finding.value for finding in found.belief.findings}
    assert list(values) == ["entropy", "special", "first", "leave_one_out", "gradient", "removal", "uniform"]
    assert all(value is not None and np.isfinite(value) for value in values.values())
    layers = 6 if kind == "written" else 2
    assert len(found.belief.heads) == 4 * layers
    assert abs(values["uniform"]) > 1e-4, "the last layer counts"
    assert max(head.cost for head in found.belief.heads) > 1e-3
    again = Explanation.from_json(json.loads(json.dumps(found.to_json())))
    assert again.belief == found.belief


def test_hiding_a_word_turns_the_vector_by_what_it_does(folders):
    """By hand: the mean embedding in the place of one word."""
    from sightline.explain.evidence import leave_one_out
    from sightline.interop.subjects import VectorSubject

    owner = load(folders / "vector")
    tokens, special = owner.pieces.encode(TEXT), sorted(owner.pieces.special)
    name = "encoder.layer.1.attention.self"
    subject = VectorSubject(owner.model, tokens, name, special, first=False)
    found = leave_one_out(subject, [0])[0]
    assert np.isnan(found[[0, -1]]).all(), "special tokens are never hidden"
    table = owner.model.get_input_embeddings().weight
    plain = [token for token in range(len(table)) if token not in special]
    vectors = []
    for hidden in (None, 3):
        embedded = table[tokens].clone()
        if hidden is not None:
            embedded[hidden] = table[plain].mean(0)
        with torch.no_grad():
            vectors.append(owner.model(inputs_embeds=embedded[None]).last_hidden_state[0].mean(0))
    assert found[3] == pytest.approx(1 - torch.cosine_similarity(*vectors, dim=0).item(), abs=1e-5)
    assert np.nanmin(found) > 0


def test_masked_words_are_read_with_a_mask_over_them(folders):
    from sightline.interop.subjects import MaskedSubject

    owner = load(folders / "masked")
    tokens, mask = owner.pieces.encode(TEXT), owner.pieces.mask
    subject = MaskedSubject(owner.model, tokens, [2, 4], [tokens[2], tokens[4]], mask, (), sorted(owner.pieces.special))
    keep = torch.ones(3, len(tokens), dtype=torch.bool)
    keep[1, 3] = keep[2, 4] = False
    found = subject.log_probs(keep)
    for row, place in enumerate((2, 4)):
        masked = torch.tensor([tokens])
        masked[0, place] = mask
        with torch.no_grad():
            logs = torch.log_softmax(owner.model(input_ids=masked).logits[0, place], dim=-1)
        assert found[0, row].item() == pytest.approx(logs[tokens[place]].item(), abs=1e-4)
    assert (found[0] != found[1]).all(), "hiding another word counts"
    assert found[2, 1] == pytest.approx(found[0, 1].item(), abs=1e-4), "a mask is not hidden"
    assert subject.gradient_times_input([1]).shape == (1, len(tokens))
    filled = owner.explain("the [MASK] sat", measure=False)
    assert "[MASK]" not in filled.output
    assert len(filled.output.split()) >= 3


@pytest.mark.parametrize("ending", ["png", "html", "json"])
def test_the_command_writes_picture_page_and_data(folders, ending):
    done = run("view", "hf:vector", "--text", TEXT, "--out", f"map.{ending}", cwd=folders)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert (lines[0], len(lines), lines[-1]) == (TEXT, 10, f"map.{ending}")
    assert lines[1].startswith("  measured on ")
    path = folders / f"map.{ending}"
    if ending == "png":
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 5
    elif ending == "html":
        assert b"<!doctype html>" in path.read_bytes().lower()[:200]
    else:
        found = Explanation.from_json(json.loads(path.read_text()))
        axis = found.records[0].columns
        assert axis.texts == ("[CLS]", "the", "un", "##happy", "cat", "sat", "on", "the", "mat", "[SEP]")
        assert axis.special == (0, 9)
        assert axis.words == (0, 1, 2, 2, 3, 4, 5, 6, 7, 8)


def test_several_models_stand_beside_a_run_of_ours(folders):
    shutil.copytree(FROZEN[-1], folders / "run", dirs_exist_ok=True)
    done = run("view", "run", "hf:written", "hf:next", "--text", "ab", "--quick", "--out", "all.json", cwd=folders)
    assert done.returncode == 0, done.stderr
    titles = [one["title"] for one in json.loads((folders / "all.json").read_text())]
    assert titles == ["run", "written", "next"]
    done = run("view", "hf:next", "--text", "the", "--output", " cat", "--quick", "--out", "film.gif", cwd=folders)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the  →   cat")


def test_long_texts_keep_the_largest_weights(folders, monkeypatch):
    monkeypatch.setattr("sightline.interop.explaining.WHOLE", 100)
    monkeypatch.setattr("sightline.interop.explaining.LARGEST", 3)
    monkeypatch.setattr("sightline.interop.explaining.MEASURED", 5)
    for kind in ("vector", "next", "written"):
        found = load(folders / kind).explain(TEXT)
        assert all(isinstance(record.weights, TopK) for record in found.records)
        assert any("only the 3 largest weights" in note for note in found.notes)
        assert any("too many to measure" in note for note in found.notes)
        assert found.belief is None


def test_pieces_are_labelled_and_put_together(folders):
    byte = Pieces(folders / "next" / "tokenizer.json")
    axis = byte.axis(byte.encode("the cat, é日本"))
    assert "".join(axis.texts[:4]).startswith("the▁cat,")
    comma = axis.texts.index(",")
    assert axis.words[comma] != axis.words[comma - 1], "a sign is no part of a word"
    assert {"<0xC3>", "<0xA9>"} <= set(axis.texts) or "▁é" in axis.texts
    sentence = Pieces(folders / "written" / "tokenizer.json")
    axis = sentence.axis(sentence.encode("the unhappy cat"))
    assert axis.texts == ("▁the", "▁un", "happy", "▁cat", "</s>")
    assert (axis.words, axis.special) == ((0, 1, 1, 2, 3), (4,))


def test_nothing_is_fetched_and_nothing_is_run(damaged, monkeypatch):
    """Not from a network, and not from the folder: a module that the configuration names stays unread."""

    def refuse(*arguments, **options):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    config = json.loads((damaged / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "evil.Evil", "AutoConfig": "evil.EvilConfig"}
    config["_attn_implementation"] = "somebody/kernels"
    (damaged / "config.json").write_text(json.dumps(config))
    (damaged / "evil.py").write_text(f"open({str(damaged / 'was-here')!r}, 'w')\n")
    assert load(damaged).explain(TEXT, measure=False).records
    config["model_type"] = "no-such-model"
    (damaged / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="cannot be loaded"):
        load(damaged)
    assert not (damaged / "was-here").exists()


def _without(name):
    return lambda folder: (folder / name).unlink()


def _only_a_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _write(name, content):
    return lambda folder: (folder / name).write_text(content)


def _change(**values):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return change


BROKEN = {
    "no folder": (shutil.rmtree, "there is no folder bert; hf:DIR names a Hugging Face model on this disk"),
    "no configuration": (_without("config.json"), "bert has no config.json"),
    "no weights": (_without("model.safetensors"), "bert has no model.safetensors"),
    "a pickle": (_only_a_pickle, "bert has its weights only in pytorch_model.bin, a pickle"),
    "no tokeniser": (_without("tokenizer.json"), "bert has no tokenizer.json"),
    "no JSON": (_write("config.json", "{"), "bert/config.json is not JSON"),
    "a list": (_write("config.json", "[1]"), "bert/config.json holds a list; expected a JSON object"),
    "deep JSON": (_write("tokenizer.json", "[" * 100_000), "bert/tokenizer.json is not JSON"),
    "another tokeniser": (_write("tokenizer.json", '{"model": 1}'), "it is not a tokeniser"),
    "other weights": (_write("model.safetensors", "nothing"), "bert/model.safetensors is damaged"),
    "another size": (_change(hidden_size=32), "bert"),
    "more layers": (_change(num_hidden_layers=3), "bert has no weights that fit encoder.layer.2"),
    "images": (_change(model_type="vit", architectures=["ViTModel"]), "bert"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_folder_that_cannot_be_shown_is_one_sentence(damaged, case):
    breaking, message = BROKEN[case]
    breaking(damaged)
    done = run("view", "hf:bert", "--text", TEXT, "--out", "map.png", cwd=damaged.parent)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert not (damaged.parent / "map.png").exists()


def test_what_cannot_be_read_is_one_sentence(folders, monkeypatch):
    owner = load(folders / "vector")
    with pytest.raises(UserError, match=r"a text of 102 tokens is longer than vector can read .* is 64"):
        owner.explain("cat " * 100)
    with pytest.raises(UserError, match="vector writes no output, so none can be given"):
        owner.explain(TEXT, "the cat")
    with pytest.raises(UserError, match="top is 0"):
        owner.explain(TEXT, top=0)
    with pytest.raises(UserError, match="half a character"):
        owner.explain("a \ud800")
    with pytest.raises(UserError, match="the text has no tokens"):
        load(folders / "next").explain("")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'sightline\[hf\]'"):
        load(folders / "vector")


def test_the_map_starts_as_generating_does(folders, tmp_path):
    """generation_config.json may name another start than config.json, and `generate` listens to it."""
    folder = shutil.copytree(folders / "written", tmp_path / "t5")
    (folder / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": 5, "eos_token_id": 1}))
    found = load(folder).explain(TEXT, measure=False)
    best = max(one.probability for one in found.steps[0].likeliest)
    assert found.steps[0].probability == pytest.approx(best)


def test_a_tokeniser_of_another_model_is_named(damaged):
    made = word_pieces()
    made.add_tokens([f"zz{i}" for i in range(50)])
    made.save(str(damaged / "tokenizer.json"))
    with pytest.raises(UserError, match="has token"):
        load(damaged).explain("zz49")


def test_an_attention_sink_is_a_column_of_its_own(tmp_path):
    owner = load(save_folder(tmp_path / "sink", "sink"))
    explanation = owner.explain(TEXT)
    for record in explanation.records:
        assert record.columns.texts[-1] == "(sink)"
        assert record.columns.special[-1] == len(record.columns) - 1 == len(record.rows)
        np.testing.assert_allclose(record.matrix().sum(axis=1), 1.0, atol=1e-5)
    assert max(record.matrix()[:, -1].max() for record in explanation.records) > 0.1
    assert explanation.belief is not None
    tokens = torch.tensor([owner.pieces.encode(TEXT)])
    with torch.no_grad(), capture(owner.model, change=uniform) as trace:
        owner.model(input_ids=tokens)
    assert (trace.maps[0].weights[..., -1] == 0).all()  # uniform over the tokens alone
