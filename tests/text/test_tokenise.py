"""Text comes back exactly, special tokens cannot be typed, and a stranger's file cannot do anything."""

import json
import pickle
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from sightline.errors import UserError
from sightline.text import tokeniser as pipeline
from sightline.text.tokeniser import FEW, Tokeniser, TokeniserConfig, train_tokeniser, train_tokenisers
from sightline.vocabulary import END, PADDING, SPELLINGS, START, UNKNOWN

TEXTS = [
    "The cat sat on the mat, and the dog sat on the cat.",
    "Die Katze saß auf der Matte; der Hund saß auf der Katze!",
    "我们在学习注意力机制。注意力很重要，我们喜欢注意力。",
    "私たちは注意を学んでいます。注意は大切です。",
    "हिन्दी में लिखा हुआ पाठ, हिन्दी में पढ़ा हुआ पाठ।",
    "In 2021 there were 365 days; in 2024 there were 366 days.",
    "<s>struck out</s> <s>struck out</s> <s>struck out</s> <pad> <unk>",
] * 3
EXACT = ["bpe", "unigram"]
METHODS = [*EXACT, "characters", "words"]
CHINESE_AND_OTHERS = st.text(st.sampled_from("注意力机制重要 的我们<>/s▁ \t\n0aé́👩‍👧❤️हि"), max_size=30)


@pytest.fixture(scope="module")
def tokenisers():
    return {
        method: train_tokeniser(TEXTS, TokeniserConfig(method, vocab_size=600, min_frequency=1)) for method in METHODS
    }


def once(tokeniser, text):
    return tokeniser.decode(tokeniser.encode([text]))[0]


@pytest.mark.parametrize("method", EXACT)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.one_of(st.text(), CHINESE_AND_OTHERS))
def test_any_text_comes_back(tokenisers, method, text):
    assert once(tokenisers[method], text) == text


@settings(max_examples=100, deadline=None)
@given(text=CHINESE_AND_OTHERS)
def test_any_text_comes_back_with_dropout(text):
    tokeniser = dropping()
    assert tokeniser.decode(tokeniser.encode([text], dropout=True)) == [text]


def dropping(made=[]):  # noqa: B006 - made once
    if not made:
        made.append(train_tokeniser(TEXTS, TokeniserConfig("bpe", vocab_size=600, dropout=0.5)))
    return made[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "  two  before",
        "behind  ",
        "\ttab\tand\r\nline\n",
        "注意力",
        " 注意力",
        "　全角",
        "▁",
        "<0x41>",
        "👩‍👩‍👧‍👦",
        "é",
        "\0",
    ],
)
@pytest.mark.parametrize("method", EXACT)
def test_hard_cases_come_back(tokenisers, method, text):
    assert once(tokenisers[method], text) == text


@pytest.mark.parametrize("method", METHODS)
def test_training_texts_come_back(tokenisers, method):
    tokeniser = tokenisers[method]
    assert tokeniser.decode(tokeniser.encode(TEXTS)) == TEXTS
    assert all(UNKNOWN not in tokens for tokens in tokeniser.encode(TEXTS))


def test_known_characters_and_words_come_back_in_any_order(tokenisers):
    assert once(tokenisers["characters"], "  这 tac ehT 注\u094d") == "  <unk> tac ehT 注\u094d"
    assert once(tokenisers["words"], "cat, dog the Bird; on mat.") == "cat, dog the <unk>; on mat."
    spaced = train_tokeniser(["a  b\t c ", "  a", "b"], TokeniserConfig("words", min_frequency=1))
    for text in ("  b", "a b", "a  a\t b ", "a", "  a  b"):
        assert once(spaced, text) == text


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", SPELLINGS)
def test_special_tokens_cannot_be_typed(tokenisers, method, text):
    for typed in (text, f"a{text}b", f"{text} {text}", f" {text}"):
        (tokens,) = tokenisers[method].encode([typed])
        assert not {PADDING, START, END} & set(tokens)
        if method in EXACT:
            assert UNKNOWN not in tokens
            assert once(tokenisers[method], typed) == typed


@pytest.mark.parametrize("method", EXACT)
def test_no_text_is_taken_for_a_byte(tokenisers, method):
    (tokens,) = tokenisers[method].encode(["<0x41>" * 3 + " <0xE4>"])
    assert not set(range(len(SPELLINGS) + 0x41, len(SPELLINGS) + 0x42)) & set(tokens)


def test_decoding_leaves_out_what_only_the_model_sees(tokenisers):
    for tokeniser in tokenisers.values():
        (tokens,) = tokeniser.encode(["the cat"])
        assert tokeniser.decode([[START, *tokens, END, PADDING, PADDING], []]) == ["the cat", ""]


def test_broken_bytes_decode_to_something(tokenisers):
    lead_byte = len(SPELLINGS) + 0xE6
    assert tokenisers["bpe"].decode([[lead_byte, *tokenisers["bpe"].encode(["a"])[0]]]) == ["� a"]


def test_frequent_chinese_is_whole_pieces(tokenisers):
    for method in EXACT:
        pieces = tokenisers[method].pieces("我们喜欢注意力")
        assert not any(piece.startswith("<0x") for piece, _ in pieces)
        assert len(pieces) < 7
        assert "".join(piece for piece, _ in pieces) == "我们喜欢注意力"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", ["The cat, on  the mat", "我们 on 注意力", "鬱勃x鬱", "é👩‍👧"])
def test_pieces_cover_the_text(tokenisers, method, text):
    pieces = tokenisers[method].pieces(text)
    assert len(pieces) == len(tokenisers[method].encode([text])[0])
    covered = [place for _, (start, end) in pieces for place in range(start, end)]
    assert sorted(set(covered)) == list(range(len(text)))
    for piece, (start, end) in pieces:
        if piece.startswith("<0x"):
            assert end - start == 1
        elif piece != "<unk>":
            assert piece.lstrip("▁") == text[start:end].lstrip(" ")


def test_the_first_word_is_the_piece_it_is_elsewhere(tokenisers):
    for method in ("bpe", "unigram", "words"):
        first, _, again = (tokenisers[method].encode([text])[0] for text in ("cat", "", "cat cat"))
        assert again == first * 2


@pytest.mark.parametrize("method", METHODS)
def test_the_same_texts_give_the_same_vocabulary(tmp_path, method):
    # In processes of their own: the library's order of things changes from process to process.
    code = (
        "import sys; from pathlib import Path\n"
        "from sightline.text.tokeniser import TokeniserConfig, train_tokeniser\n"
        "texts = Path('CONTRIBUTING.md').read_text().splitlines() + Path('README.zh-CN.md').read_text().splitlines()\n"
        "train_tokeniser(texts, TokeniserConfig(sys.argv[1], vocab_size=600)).save(Path(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules\n"
    )
    paths = [tmp_path / "first.json", tmp_path / "second.json"]
    for path in paths:
        subprocess.run([sys.executable, "-c", code, method, str(path)], check=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert Tokeniser.load(paths[0]).words <= 600


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lower", [False, True])
def test_what_is_saved_is_loaded(tmp_path, method, lower):
    tokeniser = train_tokeniser(TEXTS, TokeniserConfig(method, vocab_size=600, lower=lower))
    loaded = Tokeniser.load(tokeniser.save(tmp_path / "tokeniser.json"))
    texts = [*TEXTS, "unseen Text, 鬱 <s>"]
    assert loaded.words == tokeniser.words
    assert loaded.encode(texts) == tokeniser.encode(texts)
    assert loaded.decode(loaded.encode(texts)) == tokeniser.decode(tokeniser.encode(texts))
    plain = Tokenizer.from_file(str(tmp_path / "tokeniser.json"))
    assert [plain.encode(text).ids for text in texts] == loaded.encode(texts)
    assert once(loaded, "The cat sat") == ("the cat sat" if lower else "The cat sat") or method == "words"


def test_dropout_only_when_asked_for():
    tokeniser = dropping()
    plain = tokeniser.encode(TEXTS)
    assert tokeniser.encode(TEXTS) == plain
    assert sum(map(len, tokeniser.encode(TEXTS, dropout=True))) > sum(map(len, plain))
    assert tokeniser.encode(TEXTS) == plain


def test_two_sides():
    sources, targets = (lambda: iter(TEXTS[:2] * 4)), (lambda: iter(TEXTS[2:4] * 4))
    one, same = train_tokenisers(sources, targets, TokeniserConfig(vocab_size=500))
    assert one is same
    left, right = train_tokenisers(sources, targets, TokeniserConfig("characters", joint=False))
    known, unknown = (
        [token for tokens in right.encode(list(side())) for token in tokens] for side in (targets, sources)
    )
    assert UNKNOWN not in known
    assert unknown.count(UNKNOWN) > len(unknown) / 2
    assert all(UNKNOWN not in tokens for tokens in left.encode(list(sources())))


def test_an_iterator_is_enough():
    config = TokeniserConfig(vocab_size=500)
    assert train_tokeniser(iter(TEXTS), config).encode(TEXTS) == train_tokeniser(TEXTS, config).encode(TEXTS)


def test_rare_characters_leave_room_for_words():
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    for method in EXACT:
        tokeniser = train_tokeniser([*TEXTS, many], TokeniserConfig(method, vocab_size=600))
        assert tokeniser.words <= 600
        assert len(tokeniser.encode(["the cat"])[0]) <= 4
        assert once(tokeniser, many) == many


@pytest.mark.parametrize("texts", [[], [""], ["a\ud800"]])
def test_no_text_is_said(texts):
    with pytest.raises(UserError):
        train_tokeniser(texts, TokeniserConfig())


def test_few_texts_are_cut_as_many_are(tokenisers):
    many = [*TEXTS, "", "a b"] * (FEW // 2)
    assert tokenisers["bpe"].encode(many) == [tokenisers["bpe"].encode([text])[0] for text in many]


def test_half_a_character_is_said(tokenisers):
    with pytest.raises(UserError, match="half a character"):
        tokenisers["bpe"].encode(["fine", "not \udc00 fine"])


@pytest.mark.parametrize(
    "wrong",
    [{"vocab_size": 100}, {"min_frequency": 0}, {"dropout": 1.0}, {"method": "words", "dropout": 0.1}],
)
def test_wrong_configurations(wrong):
    with pytest.raises(ValueError):
        TokeniserConfig(**wrong)


def test_configuration_survives_json():
    with pytest.raises(ValueError, match="bytes"):
        TokeniserConfig.from_json({"method": "bytes"})
    config = TokeniserConfig("unigram", vocab_size=500, joint=False, lower=True, min_frequency=3)
    assert TokeniserConfig.loads(config.dumps()) == config


def change(data, *path, to):
    for name in path[:-1]:
        data = data[name]
    data[path[-1]] = to


HOSTILE = {
    "another pattern": lambda data: change(data, "pre_tokenizer", "pattern", to={"Regex": "(a+)+$"}),
    "an added token": lambda data: data["added_tokens"].append({"id": 9, "content": "a", "special": True}),
    "another step": lambda data: change(data, "post_processor", to={"type": "ByteLevel"}),
    "a step of its own": lambda data: change(data, "surprise", to=1),
    "no model": lambda data: data.pop("model"),
    "no vocabulary": lambda data: data["model"].pop("vocab"),
    "specials elsewhere": lambda data: data["model"]["vocab"].update({"<pad>": 2, "<s>": 0}),
    "a gap": lambda data: data["model"]["vocab"].update({"the end": 10**6}),
    "a number twice": lambda data: data["model"]["vocab"].update({"the end": 0}),
    "a fraction": lambda data: data["model"]["vocab"].update({"the end": 0.5}),
    "half a character": lambda data: data["model"]["vocab"].update({"\ud800": len(data["model"]["vocab"])}),
    "an empty piece": lambda data: data["model"]["vocab"].update({"": len(data["model"]["vocab"])}),
    "an unknown merge": lambda data: data["model"]["merges"].append(["q", "zz"]),
    "a merge of one": lambda data: data["model"]["merges"].append(["q"]),
    "merges that are none": lambda data: change(data, "model", "merges", to="a b"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file(tmp_path, tokenisers, name):
    path = tokenisers["bpe"].save(tmp_path / "stranger.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    HOSTILE[name](data)
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"stranger\.json"):
        Tokeniser.load(path)


@pytest.mark.parametrize("score", ["NaN", "Infinity", "1" + "0" * 400, '"high"', "null"])
def test_a_hostile_score(tmp_path, tokenisers, score):
    path = tokenisers["unigram"].save(tmp_path / "stranger.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    data["model"]["vocab"][-1][1] = "SCORE"
    path.write_text(json.dumps(data).replace('"SCORE"', score))
    with pytest.raises(UserError, match=r"stranger\.json"):
        Tokeniser.load(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\xfd", b"[" * 100_000, b"null", b'{"model": []}', pickle.dumps(print)]
)
def test_a_file_that_is_none(tmp_path, content):
    path = tmp_path / "stranger.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"stranger\.json"):
        Tokeniser.load(path)


def test_a_file_too_large_or_missing(tmp_path, monkeypatch, tokenisers):
    path = tokenisers["bpe"].save(tmp_path / "stranger.json")
    monkeypatch.setattr(pipeline, "LARGEST_FILE", 1000)
    with pytest.raises(UserError, match="at most 1,000 are read"):
        Tokeniser.load(path)
    with pytest.raises(UserError, match="none"):
        Tokeniser.load(tmp_path / "none.json")
