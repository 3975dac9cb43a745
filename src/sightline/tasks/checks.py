"""Checks that the configurations of several tasks share: each says what was found and what it must be."""

from sightline.config import Config


def check_counts(config: Config, *names: str) -> None:
    """Numbers of things, of which there must be one."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be at least 1")


def check_shares(config: Config, *names: str) -> None:
    """Shares of a whole that is never taken whole."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be at least 0 and below 1")


def check_seed(seed: int) -> None:
    """A seed that PyTorch takes."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed}; it must be at least 0 and below 2^63")
