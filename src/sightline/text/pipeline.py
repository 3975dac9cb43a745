"""How the tokenizers library is set up so that text comes back exactly, and how a stranger's file of it is read.

The pieces of `bpe` and `unigram` are made of characters, with bytes only for characters that training did not see often
enough (byte fallback). The alternative, an alphabet of bytes (GPT-2), is as exact, but it spells a Chinese character as
three pieces until a merge joins them, and lets merges end in the middle of a character: no picture can label such a
piece, and Chinese pays the most. What people get wrong with byte fallback is the space: the usual "▁" (SentencePiece)
turns a "▁" of the text into a space. Here a space stays a space inside the pieces, so that nothing needs to be escaped.

Two more rules:

- A space is put before the first word, so that a word is the same piece at the beginning and inside a sentence, and
  taken away by decoding. Not so before scripts that write without spaces (Chinese, Japanese, Thai ...), where it would
  do the opposite.
- Letters, digits and signs never share a piece, and "<" stands alone. No piece of the text can then be spelled like one
  of the special tokens (or like a byte, "<0x41>"), and "</s>" in a text is plain characters like any others.

No text is normalised, unless ``lower`` asks for it.
"""

import json
from pathlib import Path
from typing import Any, Literal, get_args

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from sightline.errors import UserError
from sightline.vocabulary import MASK, MASK_SPELLING, SPELLINGS, UNKNOWN

Method = Literal["bpe", "unigram", "characters", "words"]

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
LARGEST_FILE = 64 * 2**20

# Scripts that write words without spaces between them, and the punctuation of Chinese and Japanese.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SPACED_START = rf"\A(?=[^{_UNSPACED}{chr(0x3000)}-{chr(0x303F)}{chr(0xFF00)}-{chr(0xFFEF)}])"
_BLANKS = r"\s+(?!\S)|\s"  # of several spaces, the last one belongs to the word behind it
# What pieces may not cross. Marks go with the letters they stand on (or Hindi falls apart); each digit is alone.
_CHUNKS = (
    rf" ?<| ?[{_UNSPACED}]+| ?[[\p{{L}}\p{{M}}]&&[^{_UNSPACED}]]+| ?\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}<][^\s\p{{L}}\p{{N}}<]*|{_BLANKS}"
)
# Without spaces there is no telling where words end: there, each character is a word.
_WORDS = (
    rf" ?[{_UNSPACED}]| ?[[\p{{L}}\p{{M}}\p{{N}}]&&[^{_UNSPACED}]]+| ?[^\s\p{{L}}\p{{M}}\p{{N}}{_UNSPACED}]|{_BLANKS}"
)


def model_of(
    method: Method, pieces: list[str], merges: list[tuple[str, str]] | None = None, scores: list[float] | None = None
) -> models.Model:
    """The library's model; the pieces in the order of their ids."""
    if method == "unigram":
        assert scores is not None
        return models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=UNKNOWN, byte_fallback=True)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    if method == "words":
        return models.WordLevel(vocabulary, unk_token=SPELLINGS[UNKNOWN])
    # Characters are merges of which there are none.
    return models.BPE(vocabulary, merges or [], unk_token=SPELLINGS[UNKNOWN], byte_fallback=method == "bpe")


def pipeline_of(model: models.Model, method: Method, lower: bool) -> Tokenizer:
    """The model with the rules of this module around it. There are no "added tokens": those are found in any text."""
    library = Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower else []
    joining: list[decoders.Decoder] = [decoders.Fuse()]
    if method != "characters":
        steps.append(normalizers.Replace(Regex(_SPACED_START), " "))
        joining.append(decoders.Strip(" ", 1, 0))
        pattern = _WORDS if method == "words" else _CHUNKS
        library.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    if method == "words":  # the space before an unknown word went with the word
        joining.insert(0, decoders.Replace(SPELLINGS[UNKNOWN], f" {SPELLINGS[UNKNOWN]}"))
    if method in ("bpe", "unigram"):
        joining.insert(0, decoders.ByteFallback())
    if steps:
        library.normalizer = normalizers.Sequence(steps)
    library.decoder = decoders.Sequence(joining)
    return library


def read_json(path: Path) -> Any:
    """The content of a JSON file of a size that a tokeniser can have."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UserError(f"the tokeniser {path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE // 2**20} MB")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None


def rebuild(data: Any) -> Tokenizer:
    """A tokeniser from a stranger's file: our own pipeline, with the file's vocabulary after it was checked."""
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise ValueError("no model in it")
    model = dict(data["model"])
    pieces, merges = model.pop("vocab", None), model.pop("merges", None)
    shape = {**data, "model": model}
    for method in get_args(Method):
        for lower in (False, True):
            if shape == _shape(method, lower):
                return pipeline_of(_checked_model(method, pieces, merges), method, lower)
    raise ValueError("its steps are not those of any of our methods")


def first_pieces(method: Method, mask: bool = False) -> list[str]:
    """What a vocabulary begins with; ``mask``: one for pre-training, which has a token for hidden words."""
    specials = [*SPELLINGS, MASK_SPELLING] if mask else list(SPELLINGS)
    return [*specials, *BYTES] if method in ("bpe", "unigram") else specials


def _shape(method: Method, lower: bool) -> dict[str, Any]:
    """What a file of this method says besides its vocabulary."""
    first = first_pieces(method)
    shape = json.loads(pipeline_of(model_of(method, first, scores=[0.0] * len(first)), method, lower).to_str())
    shape["model"].pop("vocab")
    shape["model"].pop("merges", None)
    return shape


def _checked_model(method: Method, vocabulary: Any, merges: Any) -> models.Model:
    scores = None
    if method == "unigram":
        if not isinstance(vocabulary, list) or not all(isinstance(it, list) and len(it) == 2 for it in vocabulary):
            raise ValueError("the vocabulary is not a list of pieces and scores")
        pieces, scores = [it[0] for it in vocabulary], [it[1] for it in vocabulary]
        if not all(isinstance(score, float | int) and abs(score) < 1e9 for score in scores):  # NaN is not below either
            raise ValueError("a score is not a number")
    else:
        if not isinstance(vocabulary, dict) or not all(type(index) is int for index in vocabulary.values()):
            raise ValueError("the vocabulary does not number its pieces")
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
            raise ValueError("the numbers of the pieces have gaps")
    first = first_pieces(method, mask=pieces[MASK : MASK + 1] == [MASK_SPELLING])
    if pieces[: len(first)] != first:
        raise ValueError(f"the vocabulary does not begin with {' '.join(SPELLINGS)} and what follows them")
    if not all(isinstance(piece, str) and piece for piece in pieces) or len(set(pieces)) != len(pieces):
        raise ValueError("a piece is empty, there twice, or no text")
    "".join(pieces).encode()  # half a character is a ValueError here, and worse inside the library
    return model_of(method, pieces, _checked_merges(method, set(pieces), merges), scores)


def _checked_merges(method: Method, pieces: set[str], merges: Any) -> list[tuple[str, str]]:
    if method in ("unigram", "words") or (method == "characters" and merges == []):
        return []
    if method == "characters" or not isinstance(merges, list):
        raise ValueError("the merges are not those of its method")
    for merge in merges:
        if not (isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)):
            raise ValueError("a merge is not a pair of pieces")
        if not {*merge, "".join(merge)} <= pieces:
            raise ValueError("a merge is of pieces that are not in the vocabulary")
    return [(left, right) for left, right in merges]
