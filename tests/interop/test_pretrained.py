"""Encoders from Hugging Face folders: the same numbers as `transformers`, there and back; and hostile folders."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from sightline.errors import UserError
from sightline.export.encoders import export_encoder
from sightline.interop.pretrained import load_pretrained
from sightline.interop.tokens import PretrainedTokeniser
from sightline.models.encoder import EncoderConfig
from sightline.models.text_to_labels import Texts
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser

transformers = pytest.importorskip("transformers")

PIECES = ["a", "cat", "sat", "##s", "the", "mat", "on", "##c", "##a", "##t", "b", "[", "]", "sep", "."]
SENTENCES = ["a cat sat on the mat.", "cats", "the cats on a mat. a cat. a cat"]


def wordpiece():
    specials = ["[PAD]", "[unused]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {piece: number for number, piece in enumerate([*specials, *PIECES])}
    library = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    library.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", marks)
    library.add_special_tokens([one for one in specials if one != "[unused]"])
    library.enable_truncation(5)
    return library


def byte_level():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("c", "a"), ("ca", "t"), ("Ġ", "cat")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *("".join(merge) for merge in merges), "<mask>"]
    library = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    library.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return library


SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}


def theirs(kind):
    """A model with random weights, large enough that every part of it counts."""
    torch.manual_seed(0)
    if kind == "distilbert":
        config = transformers.DistilBertConfig(
            vocab_size=21, dim=16, n_heads=2, n_layers=2, hidden_dim=24, max_position_embeddings=20
        )
        model = transformers.DistilBertModel(config)
    elif kind == "roberta":
        words = byte_level().get_vocab_size()
        config = transformers.RobertaConfig(
            vocab_size=words,
            max_position_embeddings=30,
            type_vocab_size=1,
            pad_token_id=1,
            layer_norm_eps=1e-5,
            **SIZES,
        )
        model = transformers.RobertaModel(config)
    else:
        options = {"hidden_act": "gelu_new"} if kind == "bert_tanh" else {}
        config = transformers.BertConfig(vocab_size=21, max_position_embeddings=20, **SIZES, **options)
        model = transformers.BertModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for kind in ("bert", "bert_tanh", "roberta", "distilbert"):
        folder = tmp_path_factory.mktemp(kind)
        theirs(kind).save_pretrained(folder)
        (byte_level() if kind == "roberta" else wordpiece()).save(str(folder / "tokenizer.json"))
        made[kind] = folder
    return made


def copied(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def batch(pretrained, sentences):
    specials = pretrained.tokeniser.specials
    rows = [[specials.start, *tokens, specials.end] for tokens in pretrained.tokeniser.encode(sentences)]
    width = max(map(len, rows))
    return torch.tensor([row + [specials.padding] * (width - len(row)) for row in rows])


def compare(encoder, other, words, padding):
    mask = words != padding
    with torch.no_grad():
        expected = other(input_ids=words, attention_mask=mask.long())
        found = encoder.annotate(Texts(words))
    torch.testing.assert_close(found[mask], expected.last_hidden_state[mask], atol=1e-5, rtol=0)
    return expected


@pytest.mark.parametrize("kind", ["bert", "bert_tanh", "roberta", "distilbert"])
def test_there_and_back_the_numbers_are_the_same(kind, folders, tmp_path):
    pretrained = load_pretrained(folders[kind])
    encoder, other = pretrained.build().eval(), theirs(kind)
    padding = pretrained.tokeniser.specials.padding
    assert padding == (1 if kind == "roberta" else 0)
    for sentences in (SENTENCES, SENTENCES[:1]):
        expected = compare(encoder, other, batch(pretrained, sentences), padding)
        if kind != "distilbert":
            features = encoder.features(Texts(batch(pretrained, sentences)))
            torch.testing.assert_close(features, expected.pooler_output, atol=1e-5, rtol=0)
    exported = export_encoder(encoder, pretrained.tokeniser, tmp_path)
    assert exported == kind.removesuffix("_tanh")
    back, about = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not about["missing_keys"]
    assert not about["unexpected_keys"]
    compare(encoder, back.eval(), batch(pretrained, SENTENCES), padding)
    tokeniser = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokeniser(SENTENCES, padding=True)["input_ids"] == batch(pretrained, SENTENCES).tolist()
    again = load_pretrained(tmp_path)
    assert again.tokeniser.same_as(pretrained.tokeniser)
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(again.tensors[name], tensor), name


def test_pairs_have_the_parts_of_bert(folders):
    pretrained = load_pretrained(folders["bert"])
    words, parts = torch.tensor([[3, 6, 4, 7, 8, 4]]), torch.tensor([[0, 0, 0, 1, 1, 1]])
    with torch.no_grad():
        expected = theirs("bert")(input_ids=words, token_type_ids=parts).last_hidden_state
        found = pretrained.build().eval().annotate(Texts(words, parts))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_pooling_is_as_asked_or_as_the_folder_says(folders, tmp_path):
    folder = copied(folders["bert"], tmp_path)
    assert load_pretrained(folder).config.pooler
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    mean = load_pretrained(folder).config
    assert (mean.pooling, mean.pooler) == ("mean", False)
    attention = load_pretrained(folder, "attention")
    assert attention.config.pooling == "attention"
    assert attention.build().features(Texts(torch.tensor([[3, 6, 4]]))).shape == (1, 16)
    assert load_pretrained(folder, "first").config.pooler


def test_a_head_s_prefix_and_old_names_are_understood(folders, tmp_path):
    folder = copied(folders["bert"], tmp_path)
    state = load_file(folder / "model.safetensors")
    old = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): one
        for name, one in state.items()
    }
    save_file({**old, "cls.predictions.bias": torch.zeros(21)}, folder / "model.safetensors")
    found, expected = load_pretrained(folder).tensors, load_pretrained(folders["bert"]).tensors
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    save_file({name: one.to(torch.bfloat16) for name, one in state.items()}, folder / "model.safetensors")
    assert all(one.dtype == torch.float32 for one in load_pretrained(folder).tensors.values())


def test_our_own_encoder_goes_out_as_bert(tmp_path):
    """Sinusoids become a table, scaled vectors are written scaled, and the tokeniser says where texts begin and end."""
    tokeniser = train_tokeniser(["the cat sat on the mat"] * 3, TokeniserConfig(method="words", vocab_size=50))
    config = EncoderConfig(16, 2, 24, 2, norm="post", embedding_norm=True, max_length=30)
    encoder = config.build(tokeniser.words).eval()
    assert export_encoder(encoder, tokeniser, tmp_path) == "bert"
    back = transformers.BertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = reader(["the cat", "the mat sat on the cat"], padding=True)["input_ids"]
    assert ids[0] == [2, *tokeniser.encode(["the cat"])[0], 3, 0, 0, 0, 0]
    compare(encoder, back, torch.tensor(ids), 0)
    for change, message in (
        ({}, "norm is pre"),
        ({"norm": "post"}, "embedding_norm is False"),
        ({"norm": "post", "embedding_norm": True, "positions": "rotary"}, "positions is rotary"),
    ):
        with pytest.raises(UserError, match=message):
            export_encoder(EncoderConfig(16, 2, 24, 1, **change).build(50), tokeniser, tmp_path)


@pytest.mark.parametrize("make", [wordpiece, byte_level])
def test_the_tokeniser_cuts_as_the_library_does(make, tmp_path):
    make().save(str(tmp_path / "tokenizer.json"))
    ours, library = PretrainedTokeniser.load(tmp_path / "tokenizer.json"), make()
    library.no_truncation()
    texts = ["a cat sat on the mat. cats", "Cat ÄÖ 日本\ncat", "", "  cat  "]
    expected = library.encode_batch(texts, add_special_tokens=False)
    assert ours.encode(texts) == [one.ids for one in expected]
    for text, one in zip(texts, expected, strict=True):
        assert ours.spell(one.ids) == [label for label, _ in ours.pieces(text)]
        assert all(0 <= start <= end <= len(text) for _, (start, end) in ours.pieces(text))
    assert ours.words == library.get_vocab_size()
    ours.save(tmp_path / "again.json")
    assert PretrainedTokeniser.load(tmp_path / "again.json").same_as(ours)
    with pytest.raises(UserError, match="lone surrogate"):
        ours.encode(["\ud800"])


def test_pieces_and_spelling(tmp_path):
    wordpiece().save(str(tmp_path / "one.json"))
    ours = PretrainedTokeniser.load(tmp_path / "one.json")
    assert ours.pieces("The cats") == [("the", (0, 3)), ("cat", (4, 7)), ("##s", (7, 8))]
    assert ours.spell([0, 3, 4, 5, 999]) == ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "?"]
    assert ours.unknown_share(["a xyz", "cat"]) == pytest.approx(1 / 3)
    byte_level().save(str(tmp_path / "two.json"))
    bytes_ = PretrainedTokeniser.load(tmp_path / "two.json")
    assert bytes_.pieces("cat cat\n") == [("cat", (0, 3)), ("▁cat", (3, 7)), ("↵", (7, 8))]
    assert [span for _, span in bytes_.pieces("日")] == [(0, 1)] * 3
    assert bytes_.decode([[0, *bytes_.encode(["cat 日"])[0], 2]]) == ["cat 日"]
    assert not bytes_.same_as(ours)


@pytest.mark.parametrize("make", [wordpiece, byte_level])
def test_a_special_token_in_a_text_is_plain_characters(make, tmp_path):
    make().save(str(tmp_path / "tokenizer.json"))
    ours = PretrainedTokeniser.load(tmp_path / "tokenizer.json")
    specials = {ours.specials.start, ours.specials.end, ours.specials.mask, ours.specials.padding}
    (tokens,) = ours.encode(["a [SEP] <s> </s> [MASK] <mask> [PAD]"])
    assert not specials & set(tokens)


def change_json(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(model_type="gpt2"), "model_type is 'gpt2'; encoders of type bert"),
        (lambda data: data.pop("model_type"), "model_type is none"),
        (lambda data: data.update(hidden_size=10**9), "hidden_size is 1000000000; a whole number"),
        (lambda data: data.update(num_hidden_layers=True), "num_hidden_layers is True"),
        (lambda data: data.update(num_hidden_layers=3), "no tensor encoder.layer.2"),
        (lambda data: data.update(intermediate_size=25), "config.json describes"),
        (lambda data: data.update(vocab_size=22), "config.json describes"),
        (lambda data: data.update(vocab_size=20), "vocab_size is 20, but tokenizer.json has ids up to 20"),
        (lambda data: data.update(hidden_dropout_prob="x"), "hidden_dropout_prob is 'x'"),
        (lambda data: data.update(num_attention_heads=3), "does not divide into 3 heads"),
        (lambda data: data.update(hidden_act="mish"), "hidden_act is 'mish'"),
        (lambda data: data.update(position_embedding_type="relative_key"), "only absolute positions"),
        (lambda data: data.update(is_decoder=True), "is a decoder"),
        (lambda data: data.update(pad_token_id=1), "tokenizer.json has padding at 0"),
        (lambda data: data.update(layer_norm_eps=0), "epsilon is 0"),
    ],
)
def test_a_configuration_that_lies_is_refused(change, message, folders, tmp_path):
    folder = copied(folders["bert"], tmp_path)
    change_json(folder / "config.json", change)
    with pytest.raises(UserError, match=message):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(model={"type": "Unigram", "vocab": []}), "the model is 'Unigram'"),
        (
            lambda data: data.update(
                pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
            ),
            "pre_tokenizer is 'Split'",
        ),
        (
            lambda data: data.update(
                normalizer={
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}],
                }
            ),
            "normalizer is 'Replace'",
        ),
        (lambda data: data["model"].update(max_input_chars_per_word=10**9), "max_input_chars_per_word"),
        (lambda data: data["model"].update(vocab={"a": -1}), "does not number its pieces"),
        (lambda data: data["model"].update(vocab=[]), "1 to 1,000,000 pieces"),
        (lambda data: data.update(added_tokens=[{"id": 1}]), "an added token has no content"),
        (lambda data: data["model"]["vocab"].pop("[SEP]") and data.update(added_tokens=[]), "no token for end"),
        (lambda data: data.update(post_processor={"type": "Evil"}), "post_processor is 'Evil'"),
        (lambda data: data["model"].update(unk_token=5), "not a tokeniser that can be read"),
    ],
)
def test_a_tokeniser_that_could_do_harm_is_refused(change, message, folders, tmp_path):
    folder = copied(folders["bert"], tmp_path)
    change_json(folder / "tokenizer.json", change)
    with pytest.raises(UserError, match=message):
        load_pretrained(folder)


def test_weights_that_are_not_whole_are_refused(folders, tmp_path):
    folder = copied(folders["bert"], tmp_path)
    weights = folder / "model.safetensors"
    state = load_file(weights)
    name = "encoder.layer.0.output.dense.weight"
    save_file({**state, name: torch.full_like(state[name], torch.nan)}, weights)
    with pytest.raises(UserError, match=f"{name} holds a value that is not a number"):
        load_pretrained(folder)
    save_file({**state, name: torch.zeros(16, 24, dtype=torch.int64)}, weights)
    with pytest.raises(UserError, match="numbers with a fraction"):
        load_pretrained(folder)
    weights.write_bytes(b"\xff" * 64)
    with pytest.raises(UserError, match=r"model.safetensors is damaged: its header has"):
        load_pretrained(folder)
    weights.unlink()
    with pytest.raises(UserError, match=r"has no model.safetensors"):
        load_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError, match=r"only in pytorch_model.bin, a pickle.*save_pretrained"):
        load_pretrained(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UserError, match="in several files"):
        load_pretrained(folder)
    (folder / "tokenizer.json").unlink()
    weights.write_bytes(b"")
    with pytest.raises(UserError, match=r"has no tokenizer.json"):
        load_pretrained(folder)
    with pytest.raises(UserError, match="there is no folder"):
        load_pretrained(folder / "nowhere")
