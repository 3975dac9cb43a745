"""The configuration of `sequence`."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

from sightline.data.made import made_of
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.metrics import TextMetric
from sightline.models.pointer import PointerConfig, PositionWriter, PositionWriterConfig
from sightline.models.series_to_series import SeriesToSeriesConfig
from sightline.models.stepping import SteppingConfig
from sightline.models.vector_writer import VectorWriter, VectorWriterConfig
from sightline.nn.mel import LogMelConfig
from sightline.synthetic.made import is_made
from sightline.tasks.configs.series import SeriesTaskConfig, small_mel
from sightline.tasks.configs.translate import TranslateConfig
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig

if TYPE_CHECKING:
    from sightline.outputs.vectors import TargetFacts

VectorMetric = Literal["auto", "r2", "mse", "bit_error", "exact", "length_error"]
PositionMetric = Literal["exact", "position_accuracy"]
METRICS = {True: ("bit_error", "exact", "length_error"), False: ("r2", "mse", "length_error")}


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=3e-3, warmup=300, patience=15, averaged=5, weight_decay=0.01)


@dataclass(frozen=True)
class MadeSeriesConfig(SeriesTaskConfig):
    """What the configurations of all outputs of `sequence` have in common. ``made`` is what the training batches are
    made of, where the data is made (`sightline.synthetic.made`)."""

    made: str = ""
    speeds: tuple[float, ...] = (1.0,)
    verb: ClassVar[str] = "convert"
    work: ClassVar[int] = 48

    def for_source(self: "SomeSeriesConfig", source: Source) -> "SomeSeriesConfig":
        """With the made data that is trained on."""
        return replace(self, made=str(made_of(source)) if is_made(source.data) else "")


SomeSeriesConfig = TypeVar("SomeSeriesConfig", bound=MadeSeriesConfig)


@dataclass(frozen=True)
class SequenceConfig(MadeSeriesConfig):
    """The configuration of a run. ``metric`` chooses the best checkpoint: R² of numbers and wrong bits of bits, unless
    another one is given. Longer targets than ``max_vectors`` are not trained on."""

    model: VectorWriterConfig = field(default_factory=SeriesToSeriesConfig)
    training: TrainingConfig = field(default_factory=_training)
    metric: VectorMetric = "auto"
    max_vectors: int = 3000
    counts: ClassVar[tuple[str, ...]] = (*SeriesTaskConfig.counts, "max_vectors")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in get_args(VectorMetric):
            raise ValueError(f"metric is {self.metric!r}; it is one of {', '.join(get_args(VectorMetric))}")

    def for_targets(self, facts: "TargetFacts") -> "SequenceConfig":
        """The configuration as these targets need it: metric, and when a machine answers."""
        config = self if self.metric != "auto" else replace(self, metric="bit_error" if facts.bits else "r2")
        known = tuple(one for one in METRICS[facts.bits] if one != "length_error" or not facts.aligned)
        if config.metric not in known:
            what = "bits" if facts.bits else "numbers"
            raise UserError(f"metric is {config.metric}; of these {what} it is one of {', '.join(known)}")
        model = config.model
        if isinstance(model, SteppingConfig):
            if model.answers == "each" and not facts.aligned:
                raise UserError("answers is each, and not all targets are as long as their inputs; set answers=after")
            if model.answers == "auto":
                config = replace(config, model=replace(model, answers="each" if facts.aligned else "after"))
        return config

    def fitted(self, input: Any, output: Any, new: bool) -> "SequenceConfig":
        return self.for_targets(output.facts)

    def build(self, input: Any, output: Any) -> VectorWriter:
        model = self.model.build(input.shape, output.facts.shape)
        input.initialise(model)
        return model


def _symbols() -> TokeniserConfig:
    return TokeniserConfig(method="words", min_frequency=1)


@dataclass(frozen=True)
class SymbolSequenceConfig(TranslateConfig):
    """Symbols for symbols: each word of a text is one, and a sequence is right where all of it is."""

    tokeniser: TokeniserConfig = field(default_factory=_symbols)
    smoothing: float = 0.0
    metric: TextMetric = "exact"


@dataclass(frozen=True)
class SoundSequenceConfig(SequenceConfig):
    """``sound``: the features of recordings; its rate is the highest that they are read at."""

    sound: LogMelConfig = field(default_factory=small_mel)


def _pointing() -> TrainingConfig:
    return TrainingConfig(learning_rate=3e-3, warmup=300, patience=30, averaged=3)


@dataclass(frozen=True)
class PositionsConfig(MadeSeriesConfig):
    """The configuration of a run whose outputs are positions of the input. ``metric`` chooses the best checkpoint. More
    positions than ``max_positions`` are not trained on. ``speeds`` is 1 alone: at another speed a frame has another
    position."""

    model: PositionWriterConfig = field(default_factory=PointerConfig)
    training: TrainingConfig = field(default_factory=_pointing)
    metric: PositionMetric = "exact"
    max_positions: int = 3000
    counts: ClassVar[tuple[str, ...]] = (*SeriesTaskConfig.counts, "max_positions")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in get_args(PositionMetric):
            raise ValueError(f"metric is {self.metric!r}; it is one of {', '.join(get_args(PositionMetric))}")
        if self.speeds != (1.0,):
            raise ValueError(f"speeds is {list(self.speeds)}; where positions come out, it must be [1.0]")

    def build(self, input: Any, output: Any) -> PositionWriter:
        model = self.model.build(input.shape)
        input.initialise(model)
        return model
