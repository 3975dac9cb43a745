"""A stranger's tokenizer.json as a tokeniser that tasks use like our own: WordPiece (BERT), byte-level BPE (RoBERTa).

Only steps of known types are run. What could hold a pattern of the stranger's own is refused: some patterns take hours
on a short text. A special token spelled out in a text, "[SEP]", is plain characters, as it is in our own vocabularies.
"""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from sightline.errors import UserError
from sightline.files import write_text
from sightline.interop.tokens import CUT, from_bytes, read_json
from sightline.vocabulary import Specials

LARGEST_TOKENISER = 64 << 20  # bytes; RoBERTa's has 3 million
MOST_WORDS = 1_000_000
LONGEST_WORD = 1_000  # characters of a word that WordPiece looks at: the time grows with their square
PLAIN_NORMALIZERS = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Strip", "Nmt"}
PLAIN_CUTS = {"BertPreTokenizer", "ByteLevel", "Whitespace", "Punctuation", "Digits"}
KNOWN = {
    "normalizer": PLAIN_NORMALIZERS,
    "pre_tokenizer": PLAIN_CUTS,
    "post_processor": {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"},
    "decoder": {"WordPiece", "ByteLevel", "BPEDecoder", "Fuse"},
}
LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
# Of Specials' fields: how BERT spells the token, and how RoBERTa does.
SPELLED = {
    "padding": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": ("[CLS]", "<s>"),
    "end": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_VISIBLE = str.maketrans({" ": "▁", "\t": "⇥", "\n": "↵", "\r": "␍"})


class PretrainedTokeniser:
    """The same methods as `sightline.text.tokenise.Tokeniser`, and ``specials``, the ids that its vocabulary has."""

    dropout = 0.0
    of_words = False

    def __init__(self, data: dict[str, Any], where: str) -> None:
        check(data, where)
        self._data = {**data, "truncation": None, "padding": None}
        self._whole = _build(self._data, where)
        words = [token for token in data.get("added_tokens") or [] if not token["special"]]
        # The library would find special tokens in any text, and put their ids.
        self._library = _build({**self._data, "added_tokens": words, "post_processor": None}, where)
        for token in words:
            if self._library.token_to_id(token["content"]) != token["id"]:
                raise UserError(f"{where}: the added token {token['content'][:CUT]!r} has no place in the vocabulary")
        self.specials = _specials(self._whole, where)
        self._silent = {self.specials.padding, self.specials.start, self.specials.end}
        self._bytes = '"ByteLevel"' in json.dumps([data.get("pre_tokenizer"), data.get("decoder")])

    @property
    def of_bytes(self) -> bool:
        """Whether pieces are made of bytes, so that a word behind a space is another piece than at the beginning."""
        return self._bytes

    @property
    def words(self) -> int:
        """The size of the vocabulary: the largest id and one."""
        return max(self._whole.get_vocab().values()) + 1

    def encode(self, texts: list[str], dropout: bool = False) -> list[list[int]]:
        """No start or end is added. ``dropout`` changes nothing: the vocabulary was learnt without."""
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            raise _not_text(texts) from None

    def decode(self, tokens: list[list[int]]) -> list[str]:
        """Padding, start and end are left out."""
        spoken = [[token for token in row if token not in self._silent] for row in tokens]
        return [text.strip() for text in self._whole.decode_batch(spoken, skip_special_tokens=False)]

    def pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """Each piece as a picture would label it, and the characters of the text it covers."""
        try:
            encoding = self._library.encode(text, add_special_tokens=False)
        except TypeError:
            raise _not_text([text]) from None
        return list(zip(self.spell(encoding.ids), encoding.offsets, strict=True))

    def spell(self, tokens: Iterable[int]) -> list[str]:
        """Each token as a picture would label it; also those that stand in no text."""
        return [self._label(self._whole.id_to_token(token)) for token in tokens]

    def unknown_share(self, texts: Iterable[str]) -> float:
        """The share of the tokens of these texts that are unknown."""
        unknown = total = 0
        reading = iter(texts)
        while some := list(itertools.islice(reading, 1000)):
            for tokens in self.encode(some):
                unknown += tokens.count(self.specials.unknown)
                total += len(tokens)
        return unknown / total if total else 0.0

    def same_as(self, other: Any) -> bool:
        """Whether both cut every text alike."""
        return isinstance(other, PretrainedTokeniser) and self._whole.to_str() == other._whole.to_str()

    def save(self, path: Path) -> Path:
        """Write the file again, as the libraries of others read it too."""
        return write_text(path, self._whole.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> "PretrainedTokeniser":
        """Read a tokenizer.json from a stranger, or what `save` wrote."""
        return cls(read_json(path, LARGEST_TOKENISER), str(path))

    def _label(self, piece: str | None) -> str:
        if piece is None:
            return "?"
        return (from_bytes(piece) if self._bytes else piece).translate(_VISIBLE)


def check(data: dict[str, Any], where: str) -> None:
    """Refuse a file with a step of a type that is not known to be harmless, or with numbers out of all reason."""
    for step, known in KNOWN.items():
        _check_step(data.get(step), step, known, where)
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type") not in ("WordPiece", "BPE"):
        found = f"{model.get('type')!r}"[:CUT] if isinstance(model, dict) else "missing"
        raise UserError(f"{where}: the model is {found}; WordPiece (BERT) and byte-level BPE (RoBERTa) can be read")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not 0 < len(vocabulary) <= MOST_WORDS:
        raise UserError(f"{where}: the vocabulary is not an object of 1 to {MOST_WORDS:,} pieces")
    if not all(type(number) is int and 0 <= number < 4 * MOST_WORDS for number in vocabulary.values()):
        raise UserError(f"{where}: the vocabulary does not number its pieces")
    if model.get("dropout"):
        raise UserError(f"{where}: the model leaves out merges at random (dropout); save it without")
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or not 0 < longest <= LONGEST_WORD:
        raise UserError(f"{where}: max_input_chars_per_word is {longest!r:.60}; 1 to {LONGEST_WORD:,} is expected")
    merges = model.get("merges") or []
    if not isinstance(merges, list) or len(merges) > MOST_WORDS:
        raise UserError(f"{where}: the merges are not a list of at most {MOST_WORDS:,}")
    added = data.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > MOST_WORDS:
        raise UserError(f"{where}: the added tokens are not a list of at most {MOST_WORDS:,}")
    for token in added:
        fields = {"content": str, "id": int, "special": bool}
        if not isinstance(token, dict) or not all(type(token.get(name)) is kind for name, kind in fields.items()):
            raise UserError(f"{where}: an added token has no content, id or special")


def _check_step(step: Any, name: str, known: set[str], where: str, depth: int = 0) -> None:
    if step is None:
        return
    kind = step.get("type") if isinstance(step, dict) else None
    if kind == "Sequence" and depth < 4 and isinstance(step.get(LISTS[name]), list):
        for one in step[LISTS[name]]:
            _check_step(one, name, known, where, depth + 1)
    elif not isinstance(kind, str) or kind not in known:
        raise UserError(
            f"{where}: its {name} is {f'{kind!r}'[:CUT]}, which is not read from others' files; there is "
            f"{', '.join(sorted(known))}"
        )


def _build(data: dict[str, Any], where: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(data))
    except BaseException as error:  # the library is written in Rust: what it panics with is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UserError(f"{where} is not a tokeniser that can be read: {str(error)[:CUT]}") from None


def _specials(library: Tokenizer, where: str) -> Specials:
    found: dict[str, int | None] = {}
    for name, spellings in SPELLED.items():
        ids = (library.token_to_id(spelling) for spelling in spellings)
        found[name] = next((one for one in ids if one is not None), None)
        if found[name] is None and name != "mask":
            raise UserError(f"{where} has no token for {name}; {' or '.join(spellings)} is expected")
    return Specials(**found)  # type: ignore[arg-type]


def _not_text(texts: list[str]) -> UserError:
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        return UserError(f"text expected, found {wrong!r:.60}")
    return UserError("a text holds half a character (a lone surrogate), which no tokeniser can read")
