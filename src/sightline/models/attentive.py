"""A text read with one look: annotations, and a learned query that attends to them.

``u_t = tanh(W h_t + b)``, ``α = softmax(u_t · u_w)``, ``v = Σ α_t h_t``: the word attention of Yang et al. 2016 over a
whole text, with annotations from a recurrent network, a convolution, a layer for each word, or embeddings alone. What
people get wrong: the weights must not see padding, or the same text gets another label in another batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.attention.pooling import PoolingConfig
from sightline.models.text_to_labels import TextModel, TextModelConfig, Texts, pooled_size
from sightline.nn.annotating import QUIET, AnnotationKind, AnnotationShape, Annotator
from sightline.nn.dropout import Dropout
from sightline.vocabulary import OURS, Specials


class Attentive(TextModel):
    """Annotate, pool, and where asked also the largest of each element."""

    def __init__(self, shape: AnnotationShape, config: "AttentiveConfig", words: int, specials: Specials) -> None:
        super().__init__(shape.annotation_size, specials)
        self.annotator = Annotator(shape, words, specials)
        self.pooling = config.pooling.build(self.size)
        self.dropout = Dropout(config.dropout)
        self.dropout_rate = config.dropout
        self.largest, self.pairs = config.largest, config.pairs

    @property
    def feature_size(self) -> int:
        one = pooled_size(self.pooling) + (self.size if self.largest else 0)
        return 4 * one if self.pairs else one

    def annotate(self, texts: Texts) -> Float[Tensor, "b s d"]:
        return self.dropout(self.annotator(texts.words, texts.parts))

    def features(self, texts: Texts) -> Float[Tensor, "b d"]:
        annotations, mask = self.annotate(texts), self.real(texts)
        if not self.pairs:
            return self._read(annotations, mask)
        if texts.parts is None:
            raise ValueError("a model for pairs was given texts without parts")
        first, second = (self._read(annotations, mask & (texts.parts == part)) for part in (0, 1))
        # What both say, and how they differ (Mou et al. 2016): a sum of the two could not be compared any more.
        return torch.cat([first, second, (first - second).abs(), first * second], dim=-1)

    def _read(self, annotations: Float[Tensor, "b s d"], mask: Bool[Tensor, "b s"]) -> Float[Tensor, "b f"]:
        read = self.pooling(annotations, mask=mask).context.flatten(1)
        if not self.largest:
            return read
        if not annotations.shape[1]:
            return torch.cat([read, annotations.new_zeros(len(read), self.size)], dim=-1)
        nothing = torch.finfo(annotations.dtype).min
        most = annotations.masked_fill(~mask.unsqueeze(-1), nothing).amax(dim=1)
        return torch.cat([read, most.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)], dim=-1)


@dataclass(frozen=True)
class AttentiveConfig(TextModelConfig):
    """``size`` is that of an annotation (both directions together); see `AnnotationShape` for how it is made.

    ``dropout`` falls on embeddings, annotations and features, ``word_dropout`` makes whole words unknown.
    ``largest`` adds to what attention reads the largest of each element over the text; ``pairs`` reads the two texts of
    a pair apart and compares them; ``self_attention`` is the number of heads of a layer on top, whose time grows
    with the square of the length (0: none). ``init_std`` is the standard deviation of word vectors before training:
    small ones suit long texts, where what rare words say by chance adds up.
    """

    annotations: AnnotationKind = "gru"
    embedding_size: int = 128
    size: int = 128
    layers: int = 1
    widths: tuple[int, ...] = (3, 4, 5)
    self_attention: int = 0
    pooling: PoolingConfig = field(default_factory=PoolingConfig)
    largest: bool = False
    dropout: float = 0.3
    word_dropout: float = 0.1
    pairs: bool = False
    init_std: float = QUIET
    kind: ClassVar[str] = "attentive"
    renamed: ClassVar[Mapping[str, str]] = {"deviation": "init_std"}

    def __post_init__(self) -> None:
        self.shape()

    def shape(self) -> AnnotationShape:
        return AnnotationShape(
            self.annotations,
            self.embedding_size,
            self.size,
            self.layers,
            self.widths,
            self.self_attention,
            self.dropout,
            self.word_dropout,
            parts=2 if self.pairs else 0,
            init_std=self.init_std,
        )

    def build(self, words: int, specials: Specials = OURS) -> Attentive:
        return Attentive(self.shape(), self, words, specials)
