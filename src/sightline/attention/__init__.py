"""Every classic attention mechanism under one contract. Read `contract.py` first."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.attention.additive import Additive, AdditiveConfig, ConcatConfig
    from sightline.attention.addressing import Addressing, AddressingConfig
    from sightline.attention.allow import Allow, Block, Causal, Free, Window
    from sightline.attention.compose import Composed, ComposedConfig, Weighed
    from sightline.attention.contract import Attention, AttentionConfig, Carry, Heads, Memory, Read
    from sightline.attention.coverage import Coverage, CoverageConfig
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
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "attention.additive": "Additive AdditiveConfig ConcatConfig",
            "attention.addressing": "Addressing AddressingConfig",
            "attention.allow": "Allow Block Causal Free Window",
            "attention.compose": "Composed ComposedConfig Weighed",
            "attention.contract": "Attention AttentionConfig Carry Heads Memory Read",
            "attention.coverage": "Coverage CoverageConfig",
            "attention.dot": "CosineConfig DotConfig GeneralConfig ScaledDotConfig",
            "attention.estimators": "Baseline expected_log_likelihood marginal_log_likelihood reinforce_loss",
            "attention.fixed": "FixedConfig",
            "attention.hard": "HardConfig",
            "attention.local": "Local LocalConfig",
            "attention.location": "LocationAware LocationAwareConfig",
            "attention.multi_head": "MultiHead MultiHeadConfig",
            "attention.normalisers": "Entmax15Config Normaliser NormaliserConfig SoftmaxConfig SparsemaxConfig Weights",
            "attention.pooling": "Pooling PoolingConfig",
            "attention.position": "AlibiConfig RotaryConfig T5BucketsConfig",
            "attention.scores": "DotProductScore Score ScoreConfig",
            "attention.sequential": "Sequential",
            "attention.tap": "Look Tap open_tap show",
            "state": "select",
        },
    )

__all__ = ["Additive", "AdditiveConfig", "Addressing", "AddressingConfig", "AlibiConfig", "Allow", "Attention"]
__all__ += ["AttentionConfig", "Baseline", "Block", "Carry", "Causal", "Composed", "ComposedConfig", "ConcatConfig"]
__all__ += ["Coverage", "CoverageConfig"]
__all__ += ["CosineConfig", "DotConfig", "DotProductScore", "Entmax15Config", "FixedConfig", "Free", "GeneralConfig"]
__all__ += ["HardConfig", "Heads", "Local", "LocalConfig", "LocationAware", "LocationAwareConfig", "Look", "Memory"]
__all__ += ["MultiHead", "MultiHeadConfig", "Normaliser", "NormaliserConfig", "Pooling", "PoolingConfig", "Read"]
__all__ += ["RotaryConfig", "ScaledDotConfig", "Score", "ScoreConfig", "Sequential", "SoftmaxConfig"]
__all__ += ["SparsemaxConfig", "T5BucketsConfig", "Tap", "Weighed", "Weights", "Window", "expected_log_likelihood"]
__all__ += ["marginal_log_likelihood", "open_tap", "reinforce_loss", "select", "show"]
