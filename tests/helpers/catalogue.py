"""Every mechanism × normaliser that the tests run over, plain, multi-head and with shared key heads."""

from sightline.attention import (
    AdditiveConfig,
    AddressingConfig,
    AlibiConfig,
    AttentionConfig,
    ComposedConfig,
    CosineConfig,
    CoverageConfig,
    DotConfig,
    Entmax15Config,
    FixedConfig,
    GeneralConfig,
    HardConfig,
    LocalConfig,
    LocationAwareConfig,
    MultiHeadConfig,
    RotaryConfig,
    ScaledDotConfig,
    SoftmaxConfig,
    SparsemaxConfig,
    T5BucketsConfig,
)

NORMALISERS = {
    "softmax": SoftmaxConfig(),
    "sparsemax": SparsemaxConfig(),
    "entmax15": Entmax15Config(),
    "hard": HardConfig(),
    "hard_straight_through": HardConfig(estimator="straight_through"),
}

SCORES = {
    "dot": DotConfig(),
    "scaled_dot": ScaledDotConfig(),
    "scaled_dot+rotary": ScaledDotConfig(RotaryConfig()),
    "scaled_dot+alibi": ScaledDotConfig(AlibiConfig()),
    "scaled_dot+t5": ScaledDotConfig(T5BucketsConfig(buckets=8, furthest=16)),
    "general": GeneralConfig(),
    "additive": AdditiveConfig(hidden_size=5),
    "cosine": CosineConfig(strength=3.0),
    "fixed": FixedConfig(queries=3, keys=5),
}


def mechanisms() -> dict[str, AttentionConfig]:
    """By name: every plain mechanism with every normaliser."""
    found: dict[str, AttentionConfig] = {}
    for name, normaliser in NORMALISERS.items():
        for score, config in SCORES.items():
            found[f"{score}/{name}"] = ComposedConfig(config, normaliser)
        found[f"local_m/{name}"] = LocalConfig("monotonic", half_width=2, normaliser=normaliser)
        found[f"local_p/{name}"] = LocalConfig("predicted", half_width=2, normaliser=normaliser)
        found[f"coverage/{name}"] = CoverageConfig(5, normaliser=normaliser)
        found[f"location_aware/{name}"] = LocationAwareConfig(5, filters=3, width=3, normaliser=normaliser)
        found[f"addressing/{name}"] = AddressingConfig(normaliser=normaliser)
    return found


def everything() -> dict[str, AttentionConfig]:
    """By name: each of those plain, with two heads, and with four heads that share two sets of keys."""
    found = dict(mechanisms())
    for name, config in mechanisms().items():
        found[f"multi_head({name})"] = MultiHeadConfig(heads=2, inner=config)
        found[f"grouped({name})"] = MultiHeadConfig(heads=4, key_heads=2, inner=config)
    return found
