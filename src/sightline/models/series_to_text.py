"""What every model from series of frames (sound, features, images in time) to text has in common.

An encoder makes annotations of the frames, fewer than there are frames. A decoder with attention writes from them, and
CTC (Graves et al. 2006) may read the same annotations: jointly trained (Kim, Hori and Watanabe 2017), the loss is
``λ L_ctc + (1 − λ) L_attention``, and the search adds λ times CTC's prefix scores to (1 − λ) times the decoder's. What
people get wrong: with λ = 0 a small model with little data often never aligns; a prefix score is not the score of the
best frame; CTC needs as many annotations as tokens, and one more between two equal ones. The blank is `PADDING`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention.checks import check_share
from sightline.decoding.combine import combined
from sightline.decoding.ctc import ctc_begin, ctc_step
from sightline.decoding.search import Step
from sightline.models.series import Annotations, JointLoss, SeriesConfig, SeriesModel
from sightline.models.writer import Writer
from sightline.nn.series import SeriesBatch, SeriesShape
from sightline.vocabulary import END, PADDING, START


class SeriesToText(SeriesModel, Writer):
    """Frames in, tokens out. A subclass encodes (`annotate`) and starts its decoder (`begin_from`)."""

    def __init__(
        self, config: "SeriesToTextConfig", shape: SeriesShape, target_words: int, embedding_size: int
    ) -> None:
        super().__init__(target_words, embedding_size)
        self.config, self.shape = config, shape
        self.front = config.front.build(shape)
        self.ctc: nn.Linear | None = None

    def add_ctc(self, size: int) -> None:
        """The output layer of CTC over annotations of this size, where it has a share in the loss."""
        self.ctc = nn.Linear(size, self.target_embedding.num_embeddings) if self.config.ctc else None

    @abstractmethod
    def annotate(self, source: SeriesBatch) -> Annotations:
        """Encode the frames."""

    @abstractmethod
    def begin_from(self, annotations: Annotations) -> Any:
        """The state that the decoder starts from."""

    def begin(self, source: SeriesBatch) -> Any:
        return self.begin_from(self.annotate(source))

    def loss(  # type: ignore[override]
        self, source: SeriesBatch, target: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> JointLoss:
        annotations, share = self.annotate(source), self.config.ctc
        following = target[:, 1:]
        real = following != PADDING
        written, aligned = annotations.states.new_zeros(()), annotations.states.new_zeros(())
        if share < 1:
            words = self._sampled(target[:, :-1], annotations)
            features, _ = self.decode(words, self.begin_from(annotations))
            written = self.cross_entropy(features, following, real, smoothing)
        if self.ctc is not None:
            aligned = self.ctc_loss(annotations, target)
        total = (1 - share) * written + share * aligned
        parts = {"attention": float(written.detach()), "ctc": float(aligned.detach())} if 0 < share < 1 else {}
        return JointLoss(total, int(real.sum()), parts)

    def ctc_log_probs(self, annotations: Annotations) -> Float[Tensor, "b s v"]:
        assert self.ctc is not None
        logits = self.ctc(annotations.states)
        logits[..., [START, END]] = -1e4  # CTC knows neither
        return torch.log_softmax(logits.float(), dim=-1)

    def ctc_loss(self, annotations: Annotations, target: Int[Tensor, "b t"]) -> Float[Tensor, ""]:
        """−log p of each target, summed; 0 for targets that have too few annotations."""
        labels = target[:, 1:]
        inside = (labels != PADDING) & (labels != END)
        return F.ctc_loss(
            self.ctc_log_probs(annotations).transpose(0, 1),
            labels[inside],
            annotations.lengths,
            inside.sum(dim=-1),
            blank=PADDING,
            reduction="sum",
            zero_infinity=True,
        )

    @torch.no_grad()
    def _guess(self, words: Int[Tensor, "b t"], annotations: Annotations) -> Int[Tensor, "b t"]:
        """A sample of what the model would write after each of the words."""
        features, _ = self.decode(words, self.begin_from(annotations))
        probs = torch.softmax(self.output(features).float(), dim=-1)
        return torch.multinomial(probs.flatten(0, 1), 1).view(words.shape)

    def _sampled(self, words: Int[Tensor, "b t"], annotations: Annotations) -> Int[Tensor, "b t"]:
        """In training, a share of the words as the model itself would write them (Bengio et al. 2015).

        All samples are drawn behind the true words in one pass (Duckworth et al. 2019), not one behind the other.
        """
        if not self.training or not self.config.sampling:
            return words
        own = self._guess(words, annotations)[:, :-1]
        replaced = torch.rand(own.shape, device=own.device) < self.config.sampling
        later = words[:, 1:]
        replaced &= (later != PADDING) & (later != END)
        return torch.cat([words[:, :1], torch.where(replaced, own, later)], dim=1)

    def searching(self, source: SeriesBatch) -> tuple[Step, Any]:
        annotations = self.annotate(source)
        share = self.config.ctc
        if self.ctc is None:
            return self.writing(annotations)
        prefixes = ctc_begin(self.ctc_log_probs(annotations), annotations.lengths)
        if share >= 1:
            return ctc_step, prefixes
        step, state = self.writing(annotations)
        return combined([(step, 1 - share), (ctc_step, share)]), (state, prefixes)

    def writing(self, annotations: Annotations) -> tuple[Step, Any]:
        """The decoder's own step and state."""
        return self.step, self.begin_from(annotations)


@dataclass(frozen=True)
class SeriesToTextConfig(SeriesConfig):
    """The base of the models' configurations. ``ctc`` is λ, ``sampling`` the share of words that are its own."""

    ctc: float = 0.3
    sampling: float = 0.0
    family: ClassVar[str] = "series_to_text"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self, "sampling")
        if not 0 <= self.ctc <= 1:
            raise ValueError(f"ctc is {self.ctc}; it must be from 0 to 1")

    @abstractmethod
    def build(self, shape: SeriesShape, target_words: int) -> SeriesToText:
        """Build the model."""
