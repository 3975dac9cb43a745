"""Every classic attention mechanism under one contract. Read `contract.py` first."""

from sightline.attention.additive import Additive, AdditiveConfig
from sightline.attention.addressing import Addressing, AddressingConfig
from sightline.attention.allow import Allow, Block, Causal, Free, Window
from sightline.attention.compose import Composed, ComposedConfig, Weighed
from sightline.attention.contract import Attention, AttentionConfig, Carry, Heads, Memory, Read
from sightline.attention.dot import CosineConfig, DotConfig, GeneralConfig, ScaledDotConfig
from sightline.attention.estimators import (
    Baseline,
    expected_log_likelihood,
    marginal_log_likelihood,
    reinforce_loss,
)
from sightline.attention.fixed import FixedConfig
from sightline.attention.hard import HardConfig
from sightline.attention.local import Local, LocalConfig
from sightline.attention.location import LocationAware, LocationAwareConfig
from sightline.attention.multi_head import MultiHead, MultiHeadConfig
from sightline.attention.normalisers import (
    Entmax15Config,
    Normaliser,
    NormaliserConfig,
    SoftmaxConfig,
    SparsemaxConfig,
    Weights,
)
from sightline.attention.pooling import Pooling, PoolingConfig
from sightline.attention.position import AlibiConfig, RotaryConfig, T5BucketsConfig
from sightline.attention.scores import DotProductScore, Score, ScoreConfig
from sightline.attention.sequential import Sequential
from sightline.attention.tap import Look, Tap, open_tap, show
from sightline.state import select

ConcatConfig = AdditiveConfig

__all__ = [
    "Additive",
    "AdditiveConfig",
    "Addressing",
    "AddressingConfig",
    "AlibiConfig",
    "Allow",
    "Attention",
    "AttentionConfig",
    "Baseline",
    "Block",
    "Carry",
    "Causal",
    "Composed",
    "ComposedConfig",
    "ConcatConfig",
    "CosineConfig",
    "DotConfig",
    "DotProductScore",
    "Entmax15Config",
    "FixedConfig",
    "Free",
    "GeneralConfig",
    "HardConfig",
    "Heads",
    "Local",
    "LocalConfig",
    "LocationAware",
    "LocationAwareConfig",
    "Look",
    "Memory",
    "MultiHead",
    "MultiHeadConfig",
    "Normaliser",
    "NormaliserConfig",
    "Pooling",
    "PoolingConfig",
    "Read",
    "RotaryConfig",
    "ScaledDotConfig",
    "Score",
    "ScoreConfig",
    "Sequential",
    "SoftmaxConfig",
    "SparsemaxConfig",
    "T5BucketsConfig",
    "Tap",
    "Weighed",
    "Weights",
    "Window",
    "expected_log_likelihood",
    "marginal_log_likelihood",
    "open_tap",
    "reinforce_loss",
    "select",
    "show",
]
