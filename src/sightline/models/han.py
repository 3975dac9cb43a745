"""The hierarchical attention network (Yang et al. 2016): words make sentences, sentences make the document.

At both levels a BiGRU annotates and attention reads: ``u_it = tanh(W_w h_it + b_w)``, ``α_it = softmax_t(u_it · u_w)``,
``s_i = Σ_t α_it h_it`` for the words of a sentence, then the same with W_s, b_s and u_s for a document's sentences.
What people get wrong: both levels need parameters of their own, and a padded cube of documents × sentences × words is
mostly padding. Here the sentences of all documents stand in one list without gaps, so cost and memory grow with
the number of words.

A document is one sequence of tokens, cut at END. The END itself is not read, sentences without words do not exist, and
a sentence of more than ``max_length`` words is cut into parts of that many, each of them a sentence to the model.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.attention.checks import check_least
from sightline.attention.pooling import PoolingConfig
from sightline.models.text_to_labels import TextModel, TextModelConfig, Texts, pooled_size
from sightline.nn.annotating import QUIET, TokenEmbedding, WordDropout, check_init_std
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import BidirectionalEncoder, CellKind
from sightline.vocabulary import OURS, Specials

SMALL, LARGE = 1 << 11, 1 << 16  # words of a group, padding counted: below the one it is not cut, above the other it is


class SentenceCut(NamedTuple):
    """The sentences of a batch, in the order of the documents, and the same from the longest to the shortest.

    ``numbers`` is the sentence that each token of the batch belongs to, counted within its document (−1: none). Words
    stand sentence behind sentence, the longest first: ``places`` is where each of them stands in the flattened batch,
    ``lengths`` are those sentences' lengths, ``order`` says which sentences they are, and ``counts`` how many each
    document has.
    """

    numbers: Int[Tensor, "b s"]
    places: Int[Tensor, " n"]
    lengths: Int[Tensor, " r"]
    order: Int[Tensor, " r"]
    counts: Int[Tensor, " b"]

    def groups(self) -> Iterator[tuple[slice, Int[Tensor, "g l"], Bool[Tensor, "g l"]]]:
        """Sentences of about one length: which they are, which words each has, and where it has some at all.

        The shortest of a group has more than half the words of the longest, unless the group is small anyway.
        """
        lengths = self.lengths.tolist()
        falling = [-length for length in lengths]
        offsets = self.lengths.cumsum(0) - self.lengths
        start = 0
        while start < len(lengths):
            longest = lengths[start]
            end = max(bisect_left(falling, -(longest // 2)), start + SMALL // longest)
            end = min(end, len(lengths), start + max(1, LARGE // longest))
            steps = torch.arange(longest, device=self.places.device)
            here = steps < self.lengths[start:end, None]
            yield slice(start, end), torch.where(here, offsets[start:end, None] + steps, 0), here
            start = end


class HAN(TextModel):
    """``capture`` shows the word attention as `words`, one map for each group, and that of `sentences`."""

    def __init__(self, config: "HANConfig", words: int, specials: Specials) -> None:
        super().__init__(config.size, specials)
        self.longest = config.max_length
        self.embedding = TokenEmbedding(words, config.embedding_size, specials.padding, config.init_std)
        self.word_encoder = BidirectionalEncoder(config.cell, config.embedding_size, config.size // 2)
        self.words = config.word_pooling.build(config.size)
        self.sentence_encoder = BidirectionalEncoder(config.cell, pooled_size(self.words), config.size // 2)
        self.sentences = config.sentence_pooling.build(config.size)
        self.word_dropout, self.dropout = WordDropout(config.word_dropout, specials), Dropout(config.dropout)
        self.dropout_rate = config.dropout

    @property
    def feature_size(self) -> int:
        return pooled_size(self.sentences)

    def annotate(self, texts: Texts) -> Float[Tensor, "b s d"]:
        raise ValueError("han has no annotations of single words in their text; choose 'attentive' or 'encoder'")

    def features(self, texts: Texts) -> Float[Tensor, "b d"]:
        return self._read(texts, self.cut(texts), None)

    @torch.no_grad()
    def weights(self, texts: Texts) -> tuple[Float[Tensor, "b s"], Float[Tensor, "b n"], Int[Tensor, "b s"]]:
        """Each token's weight in its sentence, each sentence's in its document, and each token's sentence (−1: none).

        Where there are several queries or heads, their mean.
        """
        cut = self.cut(texts)
        seen = _Seen(self.embedding.weight.new_zeros(texts.words.numel()))
        self._read(texts, cut, seen)
        assert seen.sentences is not None
        return seen.words.view(texts.words.shape), seen.sentences, cut.numbers

    def cut(self, texts: Texts) -> SentenceCut:
        """Where the sentences of a batch stand."""
        words = texts.words
        ends = words == self.specials.end
        places = ((words != self.specials.padding) & ~ends).flatten().nonzero().squeeze(-1)
        document = places // max(words.shape[1], 1)
        # A document's first word and the first word behind an END begin a sentence, and so does every longest-th word.
        run = ends.flatten().cumsum(0)[places] + document
        number = torch.arange(len(places), device=places.device)
        begins = torch.ones_like(places, dtype=torch.bool)
        begins[1:] = run[1:] != run[:-1]
        within = number - torch.where(begins, number, 0).cummax(0).values if len(places) else number
        begins |= within % self.longest == 0
        sentence = begins.cumsum(0) - 1
        counts = torch.bincount(document[begins], minlength=len(words))
        lengths, order = torch.bincount(sentence).sort(descending=True, stable=True)
        numbers = self._numbers(words, places, sentence - (counts.cumsum(0) - counts)[document], ends)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        return SentenceCut(numbers, places[rank[sentence].sort(stable=True).indices], lengths, order, counts)

    @staticmethod
    def _numbers(words: Tensor, places: Tensor, sentence: Tensor, ends: Tensor) -> Int[Tensor, "b s"]:
        """By token; an END belongs to the sentence that it ends, if the word before it is there."""
        numbers = torch.full_like(words, -1)
        numbers.view(-1)[places] = sentence
        numbers[:, 1:] = torch.where(ends[:, 1:], numbers[:, :-1], numbers[:, 1:])
        return numbers

    def _read(self, texts: Texts, cut: SentenceCut, seen: "_Seen | None") -> Float[Tensor, "b d"]:
        sentences = self._sentences(texts, cut, seen)
        # The sentences of a document stand one behind the other; the document with most of them comes first.
        counts, order = cut.counts.sort(descending=True, stable=True)
        mask = torch.arange(max(int(counts.max()) if len(counts) else 0, 1), device=counts.device) < cut.counts[:, None]
        numbers = torch.where(mask, mask.flatten().cumsum(0).view(mask.shape) - 1, 0)
        chosen = numbers[order][mask[order]]
        annotations = self.sentence_encoder.annotate(sentences[chosen], counts[counts > 0])
        size = self.sentence_encoder.annotation_size
        places = torch.arange(mask.numel(), device=mask.device).view(mask.shape)[order][mask[order]]
        documents = annotations.new_zeros(mask.numel(), size).index_copy(0, places, annotations)
        documents = self.dropout(documents.view(*mask.shape, size))
        read = self.sentences(documents, mask=mask, need_weights=seen is not None)
        if seen is not None:
            assert read.weights is not None
            seen.sentences = read.weights.flatten(1, -2).mean(dim=1)
        return read.context.flatten(1)

    def _sentences(self, texts: Texts, cut: SentenceCut, seen: "_Seen | None") -> Float[Tensor, "r d"]:
        """A vector for each sentence, in the order of the documents."""
        words = self.word_dropout(texts.words.flatten()[cut.places])
        annotations = self.word_encoder.annotate(self.dropout(self.embedding(words)), cut.lengths)
        annotations = self.dropout(annotations)
        contexts = [annotations.new_zeros(0, pooled_size(self.words))]
        for _, places, here in cut.groups():
            keys = annotations.index_select(0, places.flatten()).view(*places.shape, -1)
            read = self.words(keys, mask=here, need_weights=seen is not None)
            contexts.append(read.context.flatten(1))
            if seen is not None:
                assert read.weights is not None
                seen.words[cut.places[places[here]]] = read.weights.flatten(1, -2).mean(dim=1)[here]
        sentences = torch.cat(contexts)
        return torch.zeros_like(sentences).index_copy(0, cut.order, sentences)


@dataclass
class _Seen:
    """The weights of a pass."""

    words: Float[Tensor, " n"]
    sentences: Float[Tensor, "b n"] | None = None


@dataclass(frozen=True)
class HANConfig(TextModelConfig):
    """``size`` is that of an annotation at both levels, both directions together; the paper has 100, embeddings 200.

    ``dropout`` falls on embeddings, annotations and features, ``word_dropout`` makes whole words unknown, ``init_std``
    is the standard deviation of word vectors before training. ``max_length``: sentences of more words are cut.
    """

    embedding_size: int = 128
    size: int = 128
    cell: CellKind = "gru"
    word_pooling: PoolingConfig = field(default_factory=PoolingConfig)
    sentence_pooling: PoolingConfig = field(default_factory=PoolingConfig)
    max_length: int = 100
    dropout: float = 0.3
    word_dropout: float = 0.1
    init_std: float = QUIET
    kind: ClassVar[str] = "han"
    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length", "deviation": "init_std"}

    def __post_init__(self) -> None:
        check_least(self, 1, "embedding_size", "size", "max_length")
        check_init_std(self.init_std)
        if self.size % 2:
            raise ValueError(f"size is {self.size}; two directions need an even one")

    def build(self, words: int, specials: Specials = OURS) -> HAN:
        return HAN(self, words, specials)
